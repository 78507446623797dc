//! From packets and code bytes to blocks, events and gaps. Does no I/O.
