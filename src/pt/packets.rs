//! The packets of a trace, one after the other. Never stops at a fault: says so and goes on at the
//! next PSB.

use super::{BlockContext, Packet, PacketError, decode_in, find_psb};

/// Iterates over the packets of a trace with their offsets in it.
///
/// ```
/// use contraflow::pt::{Packet, Packets, PacketError};
/// let found: Vec<_> = Packets::new(&[0x00, 0x02, 0x83, 0xff]).collect();
/// assert_eq!(found[0], (0, Ok(Packet::Pad)));
/// assert_eq!(found[1], (1, Ok(Packet::TraceStop)));
/// assert_eq!(found[2], (3, Err(PacketError::Truncated)));
/// ```
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    bytes: &'a [u8],
    at: usize,
    block: BlockContext,
}

impl<'a> Packets<'a> {
    /// Starts at the first byte, which must begin a packet.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self::at(bytes, 0)
    }

    /// Starts at byte `offset`, which must begin a packet. Offsets count from the start of `bytes`.
    #[must_use]
    pub const fn at(bytes: &'a [u8], offset: usize) -> Self {
        Self { bytes, at: offset, block: BlockContext::None }
    }

    /// Starts at the first PSB, or at the end if there is none.
    #[must_use]
    pub fn synced(bytes: &'a [u8]) -> Self {
        Self::at(bytes, find_psb(bytes, 0).unwrap_or(bytes.len()))
    }

    /// The offset of the packet that comes next.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.at
    }
}

impl Iterator for Packets<'_> {
    type Item = (u64, Result<Packet, PacketError>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        let offset = self.at as u64;
        match decode_in(rest, &mut self.block) {
            Ok((packet, len)) => {
                self.at += len;
                Some((offset, Ok(packet)))
            }
            Err(error) => {
                self.at = find_psb(self.bytes, self.at + 1).unwrap_or(self.bytes.len());
                self.block = BlockContext::None;
                Some((offset, Err(error)))
            }
        }
    }
}
