//! A buffer of TNT and TIP packets, before they join the trace, with the state that these packets
//! depend on. Each packet is written as whole words; the next packet overwrites the excess bytes.

#![expect(clippy::inline_always, reason = "a call takes as long as what is called")]

use super::{LONG_TNT, TNT_BITS};

/// The size of the buffer in bytes: a record starts below [`Batch::BYTES`] and adds fewer bytes
/// than that.
const ALL_BYTES: usize = 2 * Batch::BYTES + size_of::<Bytes>();
const WORD_BYTES: usize = 8;
/// The size of a long TNT packet.
const LONG_TNT_BYTES: usize = 8;
/// The maximum number of branches in a short TNT packet.
const SHORT_BITS: u32 = 6;
/// The header of TIP, without its `IPBytes` (SDM table "TIP Packet Definition").
const TIP: u8 = 0x0d;

/// Precomputed packets, of which only the first bytes count.
pub(super) type Bytes = [u8; 32];

/// A batch of TNT and TIP packets.
pub(super) struct Batch {
    bytes: Box<[u8; ALL_BYTES]>,
    /// The number of bytes of whole packets in `bytes`.
    len: usize,
    /// Pending TNT bits, the oldest highest.
    tnt: u64,
    /// The number of pending bits.
    tnt_count: u32,
    /// The target of the last TIP, against which the next is compressed.
    last_ip: u64,
}

impl Default for Batch {
    fn default() -> Self {
        Self { bytes: Box::new([0; ALL_BYTES]), len: 0, tnt: 0, tnt_count: 0, last_ip: 0 }
    }
}

impl Batch {
    /// The size of a batch in bytes from which on no record may be added.
    pub(super) const BYTES: usize = 4096;

    /// Empties the batch, and sets its pending bits and its last IP.
    pub(super) fn start(&mut self, tnt: u64, tnt_count: u32, last_ip: u64) {
        (self.len, self.tnt, self.tnt_count, self.last_ip) = (0, tnt, tnt_count, last_ip);
    }

    /// Returns the pending bits, their number, and the last IP, for the packets after the batch.
    pub(super) fn pending(&self) -> (u64, u32, u64) {
        (self.tnt, self.tnt_count, self.last_ip)
    }

    /// Returns the packets.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns the size of the packets in bytes, without pending bits.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds the `count` low bits of `bits`, [`TNT_BITS`] at most, as TNT bits, the oldest highest.
    /// The other bits must be 0. Writes a long TNT if it is full.
    #[inline(always)]
    pub(super) fn add_bits(&mut self, bits: u64, count: u32) {
        let all = self.tnt_count + count;
        if all < TNT_BITS {
            self.tnt = self.tnt << (count & 63) | bits;
            self.tnt_count = all;
        } else {
            let rest = (all - TNT_BITS) & 63;
            let packet = self.tnt << (count.wrapping_sub(rest) & 63) | bits >> rest;
            self.put_word((packet | 1 << TNT_BITS) << 16 | LONG_TNT, LONG_TNT_BYTES);
            self.tnt = bits & ((1 << rest) - 1);
            self.tnt_count = rest;
        }
    }

    /// Writes the pending bits, and then a TIP to `target`.
    #[inline(always)]
    pub(super) fn add_tip(&mut self, target: u64) {
        self.put_pending_bits();
        let changed = self.last_ip ^ target;
        // IPBytes 1, 2, 3 or 6 (SDM table "FUP/TIP IP Reconstruction").
        let short = 1 + u8::from(changed >> 16 != 0) + u8::from(changed >> 32 != 0);
        let is_extended = (target << 16).cast_signed() >> 16 == target.cast_signed();
        let (code, size) =
            if short < 3 || is_extended { (short, usize::from(short) * 2) } else { (6, 8) };
        self.put_word(u64::from(code << 5 | TIP) | target << 8, 1 + size.min(WORD_BYTES - 1));
        if size == WORD_BYTES {
            self.put_word(target >> 56, 1);
        }
        self.last_ip = target;
    }

    /// Adds precomputed packets, the first `size` of these bytes. The last packet added before must
    /// be the TIP that they are compressed against, with no bits after it. `last_ip` is the target
    /// of the last TIP in them, or of that one if there is none.
    #[inline(always)]
    pub(super) fn add_packets(&mut self, bytes: &Bytes, size: usize, last_ip: u64) {
        let at = self.len & (2 * Self::BYTES - 1);
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.len += size;
        self.last_ip = last_ip;
    }

    /// Writes the pending bits: one long packet, or up to two short ones.
    #[inline(always)]
    fn put_pending_bits(&mut self) {
        let (tnt, count) = (self.tnt, self.tnt_count & 63);
        if count > 2 * SHORT_BITS {
            self.put_word((tnt | 1 << count) << 16 | LONG_TNT, LONG_TNT_BYTES);
        } else if count > SHORT_BITS {
            let second = count - SHORT_BITS;
            let first = (tnt >> second | 1 << SHORT_BITS) << 1;
            self.put_word(first | (tnt & ((1 << second) - 1) | 1 << second) << 9, 2);
        } else {
            self.put_word((tnt | 1 << count) << 1, usize::from(count > 0));
        }
        (self.tnt, self.tnt_count) = (0, 0);
    }

    /// Writes the first `size` bytes of `word`, 8 at most, lowest first.
    #[inline(always)]
    fn put_word(&mut self, word: u64, size: usize) {
        // The mask changes nothing, and shows the compiler that the bytes fit.
        let at = self.len & (2 * Self::BYTES - 1);
        self.bytes[at..at + WORD_BYTES].copy_from_slice(&word.to_le_bytes());
        self.len += size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pt::{LastIp, Packet, Tnt, decode};

    /// Decodes packets: each item is a target, or `None` and the outcome of a branch.
    fn read(mut bytes: &[u8]) -> Vec<(Option<u64>, bool)> {
        let (mut said, mut last) = (Vec::new(), LastIp::new());
        while !bytes.is_empty() {
            let (packet, len) = decode(bytes).expect("a packet");
            bytes = &bytes[len..];
            match packet {
                Packet::TntShort(Tnt { bits, len }) | Packet::TntLong(Tnt { bits, len }) => {
                    said.extend((0..len).rev().map(|bit| (None, bits >> bit & 1 == 1)));
                }
                Packet::Tip(ip) => said.push((last.reconstruct(ip).map(|ip| ip.0), false)),
                other => panic!("{other:?}"),
            }
        }
        said
    }

    #[test]
    fn what_goes_in_comes_out() {
        let mut seed = 7_u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 24
        };
        for _ in 0..200 {
            let mut batch = Batch::default();
            let mut expected = Vec::new();
            // The first IP after a PSB does not depend on earlier ones.
            batch.start(0, 0, 0);
            batch.add_tip(0x7fff_ffff_f000);
            expected.push((Some(0x7fff_ffff_f000), false));
            while batch.len() < Batch::BYTES - 64 {
                let count = u32::try_from(random() % 48).unwrap();
                let bits = random() & ((1 << count) - 1);
                batch.add_bits(bits, count);
                expected.extend((0..count).rev().map(|bit| (None, bits >> bit & 1 == 1)));
                if random() % 3 == 0 {
                    let targets =
                        [0x7fff_ffff_0000, 0x7fff_0000_0000, 0x5555_0000_0000, !0, 1 << 50];
                    let target =
                        targets[usize::try_from(random() % 5).unwrap()] ^ (random() & 0xffff);
                    batch.add_tip(target);
                    expected.push((Some(target), false));
                }
            }
            batch.put_pending_bits();
            assert_eq!(read(batch.bytes()), expected);
        }
    }
}
