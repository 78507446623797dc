//! The gdb remote serial protocol over a session.
