//! Iterates over the packets of a trace. Does not stop at a fault: reports it and resumes at the
//! next PSB.

use super::{BlockContext, Errata, Located, PSB, Packet, PacketError, decode_flawed, find_psb};

/// An iterator over the packets of a trace, each with its offset in the trace. A fault is an item
/// with the error; the next item is then the next PSB, if any, or what follows that PSB if the
/// packet before the fault consumed its start.
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
    /// The offset of the next packet.
    at: usize,
    block: BlockContext,
    /// The lowest offset at which the search for a PSB may start after a fault: after the last PSB
    /// that was decoded, or attempted.
    min_resync_offset: usize,
    errata: Errata,
}

impl<'a> Packets<'a> {
    /// Starts at the first byte, which must begin a packet.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self::at(bytes, 0)
    }

    /// Starts at byte `offset`, which must begin a packet. Offsets count from the start of `bytes`;
    /// the iterator is empty if `offset` is at or beyond their end.
    #[must_use]
    pub const fn at(bytes: &'a [u8], offset: usize) -> Self {
        let (block, errata) = (BlockContext::None, Errata::NONE);
        Self { bytes, at: offset, block, min_resync_offset: offset, errata }
    }

    /// Starts at the first PSB. If there is none, the iterator is empty.
    #[must_use]
    pub fn synced(bytes: &'a [u8]) -> Self {
        Self::at(bytes, find_psb(bytes, 0).unwrap_or(bytes.len()))
    }

    /// Sets the errata of the processor that wrote the trace; [`decode_flawed`] handles them.
    #[must_use]
    pub const fn with_errata(mut self, errata: Errata) -> Self {
        self.errata = errata;
        self
    }

    /// Returns the offset after the last packet, or that at which decoding resumes after a fault:
    /// of a PSB, or right after one that an earlier packet cut, or the end of the bytes if there is
    /// none. With errata, the next packet can start after it: see [`Located::start`].
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
        match decode_flawed(rest, &mut self.block, self.errata) {
            Ok(Located { packet, start, end }) => {
                self.at += end;
                if packet == Packet::Psb {
                    self.min_resync_offset = self.at;
                }
                Some((offset + start as u64, Ok(packet)))
            }
            Err(error) => {
                self.resynchronize();
                Some((offset, Err(error)))
            }
        }
    }
}

impl Packets<'_> {
    /// Resumes at the next PSB; or right after it, without returning it, if an earlier packet
    /// consumed its start: so offsets ascend. To find such a PSB, the search starts shortly before
    /// the fault, but never at one that was already attempted. Without a PSB, resumes at the end of
    /// the bytes: the iterator is then empty. Ends a block.
    fn resynchronize(&mut self) {
        let from = self.at.saturating_sub(PSB.len()).max(self.min_resync_offset);
        let psb = find_psb(self.bytes, from).unwrap_or(self.bytes.len());
        self.min_resync_offset = psb + PSB.len();
        self.at = if psb < self.at { self.min_resync_offset } else { psb };
        self.block = BlockContext::None;
    }
}
