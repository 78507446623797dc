//! Reads values, in whole or in part, from their homes. A [`Home`] is the list of a value's pieces:
//! each is in memory or in a register, has computed bytes, or is missing.

use super::shown::Missing;
use crate::common::Addr;
use crate::symbols::{FrameRegisters, Home, Machine, Piece, XMM0};

/// The maximum size of one read, in bytes. Larger arrays are read element by element.
const MAX_BYTES: u64 = 1 << 20;

/// The [`Machine`] of a frame: its registers, and the memory of the process.
pub(super) struct InFrame<'a> {
    pub(super) registers: &'a FrameRegisters,
    pub(super) machine: &'a dyn Machine,
    /// True for the innermost frame. In its callers, the SSE registers are unknown.
    pub(super) is_innermost: bool,
}

impl Machine for InFrame<'_> {
    fn register(&self, number: u16) -> Option<u64> {
        self.registers.get(number)
    }

    fn vector(&self, number: u16) -> Option<[u8; 16]> {
        self.machine.vector(number).filter(|_| self.is_innermost)
    }

    fn read(&self, addr: Addr, buf: &mut [u8]) -> bool {
        self.machine.read(addr, buf)
    }
}

/// Returns the address of a value; `None` if it is not in one piece in memory. That piece may have
/// a size, and be shorter than the value.
pub(super) fn address(home: &Home) -> Option<Addr> {
    match home.pieces.as_slice() {
        [(_, Piece::Memory(addr))] => Some(*addr),
        _ => None,
    }
}

/// Returns the home of the `size` bytes at `offset` in a value. For a value in memory that is an
/// address, whose bytes may be unknown. Otherwise the bytes are read here, and the home has them,
/// or the reason why they are missing.
pub(super) fn part(home: &Home, offset: u64, size: u64, machine: &dyn Machine) -> Home {
    // Only without a size is the piece the whole value.
    if let [(None, Piece::Memory(addr))] = home.pieces.as_slice() {
        return Home::of(Piece::Memory(Addr(addr.0.wrapping_add(offset))));
    }
    Home::of(match read_at(home, offset, size, machine) {
        Ok(bytes) => Piece::Bytes(bytes),
        Err(Missing::OptimizedOut) => Piece::OptimizedOut,
        Err(Missing::Unavailable) => Piece::Unavailable,
    })
}

/// Reads a value of `size` bytes. Fails if a piece of it is missing, if its pieces are too
/// short or not of whole bytes, or if it is larger than [`MAX_BYTES`].
pub(super) fn read(home: &Home, size: u64, machine: &dyn Machine) -> Result<Vec<u8>, Missing> {
    read_at(home, 0, size, machine)
}

/// Reads the `size` bytes at `offset` in a value, from all pieces that they are in. Fails like
/// [`read`].
fn read_at(home: &Home, offset: u64, size: u64, machine: &dyn Machine) -> Result<Vec<u8>, Missing> {
    if size > MAX_BYTES {
        return Err(Missing::Unavailable);
    }
    let end = offset.checked_add(size).ok_or(Missing::Unavailable)?;
    let (mut bytes, mut at) = (Vec::new(), 0_u64);
    for (size_bits, piece) in &home.pieces {
        // A single piece without a size is the whole value.
        let piece_end = match size_bits {
            Some(bits) if bits % 8 != 0 => return Err(Missing::Unavailable),
            Some(bits) => at.saturating_add(bits / 8),
            None => u64::MAX,
        };
        let (from, until) = (offset.max(at), end.min(piece_end));
        if from < until {
            bytes.extend(read_piece(piece, from - at, until - from, machine)?);
        }
        at = piece_end;
    }
    if bytes.len() as u64 == size { Ok(bytes) } else { Err(Missing::Unavailable) }
}

/// Reads the `size` bytes at `offset` in a piece of a value. Fails if one of them is missing, or
/// outside of the piece's register or computed bytes.
fn read_piece(
    piece: &Piece,
    offset: u64,
    size: u64,
    machine: &dyn Machine,
) -> Result<Vec<u8>, Missing> {
    let within = |all: &[u8]| {
        let from = usize::try_from(offset).ok()?;
        let until = from.checked_add(usize::try_from(size).ok()?)?;
        all.get(from..until).map(<[u8]>::to_vec)
    };
    let found = match piece {
        Piece::Memory(addr) => {
            let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
            machine.read(Addr(addr.0.wrapping_add(offset)), &mut bytes).then_some(bytes)
        }
        Piece::Register(number @ 0..XMM0) => {
            machine.register(*number).and_then(|word| within(&word.to_le_bytes()))
        }
        Piece::Register(number) => machine.vector(*number).and_then(|bytes| within(&bytes)),
        Piece::Bytes(bytes) => within(bytes),
        Piece::OptimizedOut => return Err(Missing::OptimizedOut),
        Piece::Unavailable => None,
    };
    found.ok_or(Missing::Unavailable)
}
