//! A state of the program, in which location descriptions are evaluated, and the home of a value,
//! which is their result.

use crate::common::Addr;

/// The DWARF number of RIP, the return address (System V ABI for AMD64, figure 3.36).
pub const RIP: u16 = 16;
/// The DWARF number of RSP.
pub const RSP: u16 = 7;
/// The DWARF number of XMM0.
pub const XMM0: u16 = 17;

/// Registers and memory of a thread, in one state of the program. Unknown ones are never zero.
pub trait Machine {
    /// Returns a general register by its DWARF number; `None` if it is unknown.
    fn register(&self, number: u16) -> Option<u64>;
    /// Returns an SSE register by its DWARF number; `None` if it is unknown.
    fn vector(&self, number: u16) -> Option<[u8; 16]>;
    /// Fills `buf` with memory. Returns false if a part of it is unknown; `buf` is then undefined.
    fn read(&self, addr: Addr, buf: &mut [u8]) -> bool;
}

/// Where a value is, in one piece or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// The pieces, from the value's first byte on, each with its size in bits. A piece without a
    /// size is the only one and the whole value.
    pub pieces: Vec<(Option<u64>, Piece)>,
}

impl Home {
    /// Returns the home of a value in one piece.
    pub fn of(piece: Piece) -> Self {
        Self { pieces: vec![(None, piece)] }
    }
}

/// Where a piece of a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// In memory.
    Memory(Addr),
    /// In a register, by its DWARF number.
    Register(u16),
    /// Nowhere: the value was computed, and these are its bytes.
    Bytes(Vec<u8>),
    /// Nowhere: the compiler dropped the value.
    OptimizedOut,
    /// Unknown: the location cannot be evaluated in this state.
    Unavailable,
}
