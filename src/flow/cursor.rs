//! A place in the trace that moves packet by packet and can look one packet ahead.

use super::item::GapReason;
use super::psb::Fault;
use super::tnt::TntBits;
use crate::pt::{
    BlockContext, Errata, Erratum, IpCompression, IpPayload, Packet, PacketError, decode, decode_in,
};

/// Reads packets in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'t> {
    trace: &'t [u8],
    offset: usize,
    context: BlockContext,
    errata: Errata,
}

const LONG_TNT_BYTES: usize = 8;
const LARGEST_TIP_BYTES: usize = 9;
/// The size of the TMA packet and the byte that erratum SKZ84 puts behind it.
const SKZ84_TMA_BYTES: usize = 8;

/// A packet that was looked at and not yet taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peeked {
    pub(super) packet: Packet,
    /// Where it starts.
    pub(super) offset: usize,
    end: usize,
    context: BlockContext,
}

impl<'t> Cursor<'t> {
    pub(super) const fn at(trace: &'t [u8], offset: usize, errata: Errata) -> Self {
        Self { trace, offset, context: BlockContext::None, errata }
    }

    /// The same trace from another place on.
    pub(super) const fn moved_to(&self, offset: usize) -> Self {
        Self::at(self.trace, offset, self.errata)
    }

    /// The offset of the next packet.
    pub(super) const fn offset(&self) -> usize {
        self.offset
    }

    /// The next packet, or None at the end.
    #[inline]
    pub(super) fn peek(&self) -> Result<Option<Peeked>, Fault> {
        let rest = self.trace.get(self.offset..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let (offset, mut context) = (self.offset, self.context);
        match decode_in(rest, &mut context) {
            Ok((Packet::Cyc(_), 2)) if self.is_skd007(rest) => {
                let (offset, end) = (offset + 1, offset + 3);
                Ok(Some(Peeked { packet: Packet::Ovf, offset, end, context: BlockContext::None }))
            }
            Ok((packet, len)) => Ok(Some(Peeked { packet, offset, end: offset + len, context })),
            Err(PacketError::BadTma)
                if self.errata.has(Erratum::Skz84) && rest.len() >= SKZ84_TMA_BYTES =>
            {
                let end = offset + SKZ84_TMA_BYTES;
                Ok(Some(Peeked { packet: Packet::Pad, offset, end, context }))
            }
            Err(error) => Err((offset, GapReason::Packet(error))),
        }
    }

    /// Erratum SKD007: an OVF stands where the second byte of a CYC belongs. Its bytes make up a
    /// second CYC right behind the first, which the CPU never writes otherwise.
    fn is_skd007(&self, rest: &[u8]) -> bool {
        self.errata.has(Erratum::Skd007) && matches!(rest, [_, 0x02, 0xf3, ..])
    }

    /// Moves the bits of the TNT packets that come next to `bits`, as many as fit, and says how
    /// many packets. Passes packets that tell nothing; those of time unless `TIMED`.
    ///
    /// When this is done makes no difference to what is decoded: as many packets are taken in the
    /// end as if all were taken as soon as they fit.
    #[inline]
    pub(super) fn take_tnts<const TIMED: bool>(&mut self, bits: &mut TntBits) -> usize {
        let mut packets = 0;
        while bits.has_room() && self.context == BlockContext::None {
            match self.trace.get(self.offset) {
                Some(&byte) if byte & 1 == 0 && byte > 2 => {
                    bits.append_short(byte);
                    self.offset += 1;
                    packets += 1;
                }
                Some(2) => match self.long_tnt().filter(|_| bits.has_room_for_long()) {
                    Some(payload) => {
                        bits.append_long(payload);
                        self.offset += LONG_TNT_BYTES;
                        packets += 1;
                    }
                    None => break,
                },
                Some(_) if !TIMED => match self.silent_bytes() {
                    Some(size) => self.offset += size,
                    None => break,
                },
                _ => break,
            }
        }
        packets
    }

    /// The payload of the long TNT packet that comes next. None for anything else.
    #[inline]
    fn long_tnt(&self) -> Option<u64> {
        let word = self.trace.get(self.offset..)?.first_chunk()?;
        let word = u64::from_le_bytes(*word);
        let payload = word >> 16;
        // One without bits is no packet.
        (word & 0xffff == 0xa302 && payload > 1).then_some(payload)
    }

    /// Moves behind the packets of time, and padding, that come next.
    pub(super) fn pass_silent(&mut self) {
        while let Some(size) = self.silent_bytes() {
            self.offset += size;
        }
    }

    /// The size of the PAD, MTC or CYC packet that comes next. None for anything else, and where
    /// an erratum may make something else of it.
    #[inline]
    fn silent_bytes(&self) -> Option<usize> {
        match self.trace.get(self.offset..)? {
            [0, ..] => Some(1),
            [0x59, _, ..] => Some(2),
            [first, ..] if first & 7 == 3 => Some(1),
            [first, second, ..] if first & 7 == 7 && second & 1 == 0 => {
                (!self.errata.has(Erratum::Skd007)).then_some(2)
            }
            _ => None,
        }
    }

    /// Whether a TIP packet comes next, all of it.
    #[inline]
    pub(super) fn is_at_tip(&self) -> bool {
        let Some(rest) = self.trace.get(self.offset..) else { return false };
        let Some(byte) = rest.first().filter(|byte| **byte & 0x1f == 0x0d) else { return false };
        let is_usual = matches!(byte >> 5, 1..=3) && rest.len() >= LARGEST_TIP_BYTES;
        is_usual || self.decode_tip(rest).is_some()
    }

    /// The payload of the TIP that comes next, and where that ends. None for anything else.
    #[inline]
    pub(super) fn peek_tip(&self) -> Option<(IpPayload, usize)> {
        let rest = self.trace.get(self.offset..).filter(|_| self.is_at_tip())?;
        let (opcode, payload) = rest.split_first()?;
        // The usual forms, without looking for what else the packet might be.
        if let Some(word) = payload.first_chunk() {
            let word = u64::from_le_bytes(*word);
            let (compression, size) = match opcode >> 5 {
                1 => (IpCompression::Update16, 2),
                2 => (IpCompression::Update32, 4),
                3 => (IpCompression::SignExtend48, 6),
                _ => return self.decode_tip(rest),
            };
            let value = word & ((1 << (8 * size)) - 1);
            return Some((IpPayload { compression, value }, self.offset + 1 + size));
        }
        self.decode_tip(rest)
    }

    #[cold]
    fn decode_tip(&self, rest: &[u8]) -> Option<(IpPayload, usize)> {
        match decode(rest) {
            Ok((Packet::Tip(payload), len)) => Some((payload, self.offset + len)),
            _ => None,
        }
    }

    /// Moves behind a TIP, to where [`Self::peek_tip`] said that it ends.
    #[inline]
    pub(super) const fn pass_tip(&mut self, end: usize) {
        self.offset = end;
        self.context = BlockContext::None;
    }

    /// Moves behind a packet that [`Self::peek`] gave.
    #[inline]
    pub(super) const fn pass(&mut self, peeked: &Peeked) {
        self.offset = peeked.end;
        self.context = peeked.context;
    }

    /// The next packet and its offset, or None at the end; moves behind it.
    pub(super) fn take(&mut self) -> Result<Option<(usize, Packet)>, Fault> {
        let Some(peeked) = self.peek()? else { return Ok(None) };
        self.pass(&peeked);
        Ok(Some((peeked.offset, peeked.packet)))
    }
}
