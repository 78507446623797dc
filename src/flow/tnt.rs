//! A buffer of unused TNT bits.

use crate::pt::Tnt;

/// Taken/not-taken bits of the next branches, the next one in the highest bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TntBits {
    /// Bits beyond `len` are clear, but for a result of [`Self::first`].
    bits: u64,
    /// The number of bits.
    len: u8,
}

impl From<Tnt> for TntBits {
    fn from(tnt: Tnt) -> Self {
        match tnt.len {
            0 => Self::default(),
            len => Self { bits: tnt.bits << (64 - u32::from(len.min(64))), len },
        }
    }
}

impl TntBits {
    #[inline]
    pub(super) const fn is_empty(self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) const fn len(self) -> u8 {
        self.len
    }

    /// Returns the first `count` bits, or as many as there are. Nothing may be appended to the
    /// result, as the bits after them are still there.
    #[inline]
    pub(super) const fn first(self, count: u8) -> Self {
        Self { bits: self.bits, len: if self.len < count { self.len } else { count } }
    }

    /// Returns the next 16 bits, the first in the highest bit; missing ones are clear.
    #[inline]
    pub(super) const fn next_16(self) -> u16 {
        (self.bits >> 48) as u16
    }

    /// Removes the first `count` bits, or as many as there are.
    #[inline]
    pub(super) const fn skip(&mut self, count: u8) {
        self.bits = self.bits.unbounded_shl(count as u32);
        self.len = self.len.saturating_sub(count);
    }

    /// Returns true if the bits of a short TNT packet fit.
    #[inline]
    pub(super) const fn has_room_for_short(self) -> bool {
        self.len <= 64 - 6
    }

    /// Appends the bits of a TNT packet: at least one, and no more than there is room for.
    pub(super) const fn append(&mut self, tnt: Tnt) {
        self.bits |= (tnt.bits << (64 - tnt.len as u32)) >> self.len;
        self.len += tnt.len;
    }

    /// Appends the bits of the short TNT packet that consists of `byte`. They must fit.
    #[inline]
    pub(super) const fn append_short(&mut self, byte: u8) {
        // The highest set bit is the stop bit; bit 0 is the packet's type.
        let unused = byte.leading_zeros() + 1;
        let first = ((byte as u64) << unused & 0xff) << 56;
        self.bits |= first >> self.len;
        #[expect(clippy::cast_possible_truncation, reason = "at most 7")]
        let len = 7_u32.saturating_sub(unused) as u8;
        self.len += len;
    }

    /// Appends the 48 bits of eight short TNT packets, if the little-endian word consists of those
    /// and each has six bits; otherwise appends nothing and returns false. There must be room for a
    /// long packet's bits.
    #[inline]
    pub(super) const fn append_eight(&mut self, word: u64) -> bool {
        if word & 0x8181_8181_8181_8181 != 0x8080_8080_8080_8080 {
            return false;
        }
        // The first packet's bits go to the top; then groups of 6, 12 and 24 bits are joined.
        let sixes = word.swap_bytes() >> 1 & 0x3f3f_3f3f_3f3f_3f3f;
        let twelves = sixes & 0x003f_003f_003f_003f | (sixes & 0x3f00_3f00_3f00_3f00) >> 2;
        let halves = twelves & 0x0fff_0000_0fff | (twelves & 0x0fff_0000_0fff_0000) >> 4;
        let all = halves & 0xff_ffff | (halves & 0x00ff_ffff_0000_0000) >> 8;
        self.bits |= (all << 16) >> self.len;
        self.len += 48;
        true
    }

    /// Returns true if the bits of a long TNT packet, or of eight short ones, fit.
    #[inline]
    pub(super) const fn has_room_for_long(self) -> bool {
        self.len <= 64 - 48
    }

    /// Appends the bits of a long TNT packet with this payload of 48 bits, of which one above bit 0
    /// must be set. There must be room.
    #[inline]
    pub(super) const fn append_long(&mut self, payload: u64) {
        // The highest set bit is the stop bit.
        let unused = payload.leading_zeros() + 1;
        self.bits |= (payload << unused) >> self.len;
        #[expect(clippy::cast_possible_truncation, reason = "at most 47")]
        let len = (64 - unused) as u8;
        self.len += len;
    }

    /// Returns the outcome of the next branch without removing it; `None` if no bit is left.
    #[inline]
    pub(super) const fn peek(self) -> Option<bool> {
        if self.len == 0 { None } else { Some(self.bits >> 63 != 0) }
    }

    /// Removes the next bit, if there is one.
    #[inline]
    pub(super) const fn skip_one(&mut self) {
        self.bits <<= 1;
        self.len = self.len.saturating_sub(1);
    }

    /// Removes and returns the outcome of the next branch; `None` if no bit is left.
    #[inline]
    pub(super) const fn pop(&mut self) -> Option<bool> {
        if self.len == 0 {
            return None;
        }
        let taken = self.bits >> 63 != 0;
        self.bits <<= 1;
        self.len -= 1;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_packets_join_in_order() {
        let mut joined = TntBits::default();
        let mut outcomes = Vec::new();
        for (byte, bits, len) in
            [(0b0000_0100, 0b0, 1), (0b1011_0110, 0b01_1011, 6), (0b1110, 0b11, 2)]
        {
            assert!(joined.has_room_for_short());
            joined.append_short(byte);
            let mut alone = TntBits::from(Tnt { bits, len });
            while let Some(taken) = alone.pop() {
                outcomes.push(taken);
            }
        }
        for taken in outcomes {
            assert_eq!(joined.peek(), Some(taken));
            joined.skip_one();
        }
        assert!(joined.is_empty());
    }

    #[test]
    fn eight_packets_are_eight_times_one() {
        for word in [0xfe80_9aa4_b6c2_d4e8_u64, 0x80fe_82fc_84fa_86f8, 0xfefe_fefe_fefe_fefe] {
            for before in [0x02_u8 << 2, 0b1011_0110, 0b110] {
                let (mut joined, mut single) = (TntBits::default(), TntBits::default());
                joined.append_short(before);
                single.append_short(before);
                assert!(joined.has_room_for_long() && joined.append_eight(word));
                word.to_le_bytes().iter().for_each(|byte| single.append_short(*byte));
                assert_eq!(joined, single);
            }
        }
        let mut none = TntBits::default();
        for word in [0x7ebe_fefe_fefe_fefe, 0xfefe_fefe_fefe_fe02, 0xfefe_fefe_2dfe_fefe] {
            assert!(!none.append_eight(word));
        }
        assert!(none.is_empty());
    }

    #[test]
    fn there_is_room_until_64_bits() {
        let mut bits = TntBits::default();
        let mut count = 0;
        while bits.has_room_for_short() {
            bits.append_short(0b1111_1110);
            count += 6;
        }
        assert_eq!(count, 60);
        assert_eq!((0..count).filter_map(|_| bits.pop()).filter(|taken| *taken).count(), 60);
    }
}
