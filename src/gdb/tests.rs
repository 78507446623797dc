//! The server without gdb: raw packets in, raw packets out.
