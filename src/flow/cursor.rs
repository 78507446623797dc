//! A position in the trace that advances packet by packet and can peek at the next one.
//!
//! A *BBP block* is the packets from a BBP to a BEP, or to another packet that ends it: records of
//! PEBS. In it, a byte that is a short TNT elsewhere may begin a BIP ([`BlockContext`]).

use super::item::GapReason;
use super::psb::Fault;
use super::tnt::TntBits;
use crate::common::Addr;
use crate::pt::{
    BlockContext, Errata, Erratum, IpPayload, LastIp, Located, Packet, decode, decode_flawed,
};

/// A reader of a trace's packets, in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'t> {
    trace: &'t [u8],
    /// The offset of the next packet.
    offset: usize,
    /// The BBP block around the next packet, which determines how it is decoded.
    context: BlockContext,
    errata: Errata,
}

const LONG_TNT_BYTES: usize = 8;
/// The number of short TNT packets that are taken at once, which is their size in bytes as well.
const SHORT_TNTS: usize = 8;
const LARGEST_TIP_BYTES: usize = 9;

/// A packet that was decoded but not taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peeked {
    pub(super) packet: Packet,
    /// The offset of its first byte.
    pub(super) offset: usize,
    end: usize,
    /// The BBP block after the packet.
    context: BlockContext,
}

impl<'t> Cursor<'t> {
    /// Creates a cursor at a packet outside of BBP blocks.
    pub(super) const fn at(trace: &'t [u8], offset: usize, errata: Errata) -> Self {
        Self { trace, offset, context: BlockContext::None, errata }
    }

    /// Returns a cursor on the same trace at another packet, outside of BBP blocks.
    pub(super) const fn moved_to(&self, offset: usize) -> Self {
        Self::at(self.trace, offset, self.errata)
    }

    /// Returns the offset of the next packet.
    pub(super) const fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the next packet without taking it; `None` at the end of the trace. Fails at bytes
    /// that are not a packet.
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

    /// Moves the bits of the next TNT packets to `bits`, as many as fit. Returns the number of
    /// packets. Stops at any other packet, but skips PAD, MTC and CYC unless `STOP_AT_TIMING`.
    ///
    /// It does not matter when this is called: in the end, the same packets are taken as if each
    /// were taken as soon as it fits. Takes nothing in a BBP block.
    #[inline]
    pub(super) fn take_tnts<const STOP_AT_TIMING: bool>(&mut self, bits: &mut TntBits) -> usize {
        let mut packets = 0;
        while bits.has_room_for_short() && self.context == BlockContext::None {
            if bits.has_room_for_long()
                && let Some(word) = self.trace.get(self.offset..).and_then(<[u8]>::first_chunk)
                && bits.append_eight(u64::from_le_bytes(*word))
            {
                self.offset += SHORT_TNTS;
                packets += SHORT_TNTS;
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
                Some(_) if !STOP_AT_TIMING => match self.pad_mtc_cyc_size() {
                    Some(size) => self.offset += size,
                    None => break,
                },
                _ => break,
            }
        }
        packets
    }

    /// Returns true if the next packet is outside of BBP blocks, where one byte identifies a short
    /// TNT.
    pub(super) fn is_outside_bbp_block(&self) -> bool {
        self.context == BlockContext::None
    }

    /// Moves the bits of the next short TNT packets to `bits`, until there are at least `wanted`.
    /// Must be called outside BBP blocks. Returns true if there are enough bits, or a TIP comes
    /// next.
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

    /// Returns this cursor and the bits as [`Self::take_tnts`] leaves them. Out of line, for rare
    /// use.
    #[inline(never)]
    pub(super) fn take_tnts_cold(mut self, mut bits: TntBits) -> (Self, TntBits) {
        self.take_tnts::<false>(&mut bits);
        (self, bits)
    }

    /// Returns the payload of the next packet if it is a long TNT with at least one bit.
    #[inline]
    fn long_tnt(&self) -> Option<u64> {
        let word = self.trace.get(self.offset..)?.first_chunk()?;
        let word = u64::from_le_bytes(*word);
        let payload = word >> 16;
        // A payload without bits is not a packet.
        (word & 0xffff == 0xa302 && payload > 1).then_some(payload)
    }

    /// Skips PAD, MTC and short CYC packets, as [`Self::pad_mtc_cyc_size`] finds them. A longer CYC
    /// may come next.
    pub(super) fn skip_pad_mtc_cyc(&mut self) {
        while let Some(size) = self.pad_mtc_cyc_size() {
            self.offset += size;
        }
    }

    /// Returns the size in bytes of the next packet if it is PAD, MTC or CYC of at most 2 bytes.
    /// `None` for any other packet, and for a CYC that erratum SKD007 can have damaged.
    #[inline]
    fn pad_mtc_cyc_size(&self) -> Option<usize> {
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

    /// Returns true if a complete TIP packet comes next, with or without an address.
    #[inline]
    pub(super) fn is_at_tip(&self) -> bool {
        let Some(rest) = self.trace.get(self.offset..) else { return false };
        let Some(byte) = rest.first().filter(|byte| **byte & 0x1f == 0x0d) else { return false };
        let is_usual = matches!(byte >> 5, 1..=3) && rest.len() >= LARGEST_TIP_BYTES;
        is_usual || decode_tip(rest).is_some()
    }

    /// Returns the address in the TIP that comes next, and the offset after the packet.
    /// Decompresses the address against `last_ip`, and updates it; does not move. Returns `None`,
    /// and changes nothing, if the next packet is not a TIP with an address.
    #[inline]
    pub(super) fn peek_tip(&self, last_ip: &mut LastIp) -> Option<(Addr, usize)> {
        let rest = self.trace.get(self.offset..)?;
        // The common forms, without decoding the packet in full.
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

    /// Moves past a TIP, to the end that [`Self::peek_tip`] returned.
    #[inline]
    pub(super) const fn pass_tip(&mut self, end: usize) {
        self.offset = end;
        self.context = BlockContext::None;
    }

    /// Moves past a peeked packet.
    #[inline]
    pub(super) const fn pass(&mut self, peeked: &Peeked) {
        self.offset = peeked.end;
        self.context = peeked.context;
    }

    /// Takes the next packet and returns it with its offset; `None` at the end of the trace.
    pub(super) fn take_packet(&mut self) -> Result<Option<(usize, Packet)>, Fault> {
        let Some(peeked) = self.peek()? else { return Ok(None) };
        self.pass(&peeked);
        Ok(Some((peeked.offset, peeked.packet)))
    }
}

/// Decodes the TIP at the start of `rest`. Returns its payload and size in bytes; `None` for
/// another packet. Takes no reference to the state that changes with every packet, as that would
/// force it into memory.
#[cold]
#[inline(never)]
fn decode_tip(rest: &[u8]) -> Option<(IpPayload, usize)> {
    match decode(rest) {
        Ok((Packet::Tip(payload), len)) => Some((payload, len)),
        _ => None,
    }
}
