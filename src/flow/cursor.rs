//! A place in the trace that moves packet by packet and can look one packet ahead.

use super::item::GapReason;
use super::psb::Fault;
use super::tnt::TntBits;
use crate::common::Addr;
use crate::pt::{
    BlockContext, Errata, Erratum, IpPayload, LastIp, Located, Packet, decode, decode_flawed,
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
/// The size of eight short TNT packets.
const EIGHT_BYTES: usize = 8;
const LARGEST_TIP_BYTES: usize = 9;

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
        match decode_flawed(rest, &mut context, self.errata) {
            Ok(Located { packet, start, end }) => {
                Ok(Some(Peeked { packet, offset: offset + start, end: offset + end, context }))
            }
            Err(error) => Err((offset, GapReason::Packet(error))),
        }
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
            if bits.has_room_for_long()
                && let Some(word) = self.trace.get(self.offset..).and_then(<[u8]>::first_chunk)
                && bits.append_eight(u64::from_le_bytes(*word))
            {
                self.offset += EIGHT_BYTES;
                packets += EIGHT_BYTES;
                continue;
            }
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

    /// Whether short TNT packets are what they seem to be.
    pub(super) fn is_outside_blocks(&self) -> bool {
        self.context == BlockContext::None
    }

    /// Moves the bits of the short TNT packets that come next to `bits`, until there are `wanted`.
    /// Only outside of blocks of items.
    /// Whether that is all that can be had: there are as many, or a TIP comes next.
    #[expect(clippy::inline_always, reason = "what moves stays in registers")]
    #[inline(always)]
    pub(super) fn take_short_tnts(&mut self, bits: &mut TntBits, wanted: u8) -> bool {
        while bits.len() < wanted {
            match self.trace.get(self.offset) {
                Some(byte) if byte & 1 == 0 && *byte > 2 => {
                    bits.append_short(*byte);
                    self.offset += 1;
                }
                Some(byte) => return byte & 0x1f == 0x0d,
                None => return false,
            }
        }
        true
    }

    /// As [`Self::take_tnts`], to be called seldom.
    #[inline(never)]
    pub(super) fn with_tnts(mut self, mut bits: TntBits) -> (Self, TntBits) {
        self.take_tnts::<false>(&mut bits);
        (self, bits)
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
        is_usual || decode_tip(rest).is_some()
    }

    /// The address that the TIP which comes next gives, against `last_ip`, which it becomes; and
    /// where the packet ends. None, and nothing changed, for anything else.
    #[inline]
    pub(super) fn peek_tip(&self, last_ip: &mut LastIp) -> Option<(Addr, usize)> {
        let rest = self.trace.get(self.offset..)?;
        // The usual forms, without looking for what else the packet might be.
        if let Some([opcode, payload @ ..]) = rest.first_chunk::<LARGEST_TIP_BYTES>()
            && opcode & 0x1f == 0x0d
            && let words @ 1..=3 = opcode >> 5
        {
            let ip = last_ip.reconstruct_words(words, u64::from_le_bytes(*payload));
            return Some((ip, self.offset + 1 + 2 * usize::from(words)));
        }
        let (payload, len) = decode_tip(rest)?;
        let ip = LastIp::reconstruct(last_ip, payload)?;
        Some((ip, self.offset + len))
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

/// The TIP at the beginning of `rest`, and its size. Takes nothing by reference that moves with
/// every packet: that would be kept in memory.
#[cold]
#[inline(never)]
fn decode_tip(rest: &[u8]) -> Option<(IpPayload, usize)> {
    match decode(rest) {
        Ok((Packet::Tip(payload), len)) => Some((payload, len)),
        _ => None,
    }
}
