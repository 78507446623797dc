//! From packets and code bytes to blocks, events and gaps. Does no I/O.

mod insn;

pub use insn::{Class, Insn, MAX_INSN_BYTES, decode};
