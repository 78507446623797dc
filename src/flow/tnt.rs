//! The branch outcomes that a TNT packet left over.

use crate::pt::Tnt;

/// Taken/not-taken bits that wait for their branches, the next one in the highest bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TntBits {
    bits: u64,
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

    /// The first `count` bits, or as many as there are.
    #[inline]
    pub(super) const fn first(self, count: u8) -> Self {
        Self { bits: self.bits, len: if self.len < count { self.len } else { count } }
    }

    /// The first `count` bits, at most 15, as a number with a stop bit above.
    #[inline]
    pub(super) const fn key(self, count: u8) -> u16 {
        let len = self.first(count).len;
        #[expect(clippy::cast_possible_truncation, reason = "at most 16 bits are left")]
        let key = (1 << len | self.bits.unbounded_shr(64 - len as u32)) as u16;
        key
    }

    /// Uses up `count` bits.
    #[inline]
    pub(super) const fn skip(&mut self, count: u8) {
        self.bits = self.bits.unbounded_shl(count as u32);
        self.len = self.len.saturating_sub(count);
    }

    /// Whether a short TNT packet's bits still fit behind these.
    #[inline]
    pub(super) const fn has_room(self) -> bool {
        self.len <= 64 - 6
    }

    /// Appends the bits of a short TNT packet.
    pub(super) const fn append(&mut self, tnt: Tnt) {
        self.bits |= (tnt.bits << (64 - tnt.len as u32)) >> self.len;
        self.len += tnt.len;
    }

    /// Appends the bits of a short TNT packet, whose one byte is `byte`.
    #[inline]
    pub(super) const fn append_short(&mut self, byte: u8) {
        // The highest set bit is the stop bit; bit 0 tells the packet's type.
        let unused = byte.leading_zeros() + 1;
        let first = ((byte as u64) << unused & 0xff) << 56;
        self.bits |= first >> self.len;
        #[expect(clippy::cast_possible_truncation, reason = "at most 7")]
        let len = 7_u32.saturating_sub(unused) as u8;
        self.len += len;
    }

    /// Whether a long TNT packet's bits still fit behind these.
    #[inline]
    pub(super) const fn has_room_for_long(self) -> bool {
        self.len <= 64 - 47
    }

    /// Appends the bits of a long TNT packet, whose payload of 48 bits has a bit set above bit 0.
    #[inline]
    pub(super) const fn append_long(&mut self, payload: u64) {
        // The highest set bit is the stop bit.
        let unused = payload.leading_zeros() + 1;
        self.bits |= (payload << unused) >> self.len;
        #[expect(clippy::cast_possible_truncation, reason = "at most 47")]
        let len = (64 - unused) as u8;
        self.len += len;
    }

    /// The outcome of the next branch, which stays.
    #[inline]
    pub(super) const fn peek(self) -> Option<bool> {
        if self.len == 0 { None } else { Some(self.bits >> 63 != 0) }
    }

    /// Uses up the bit that [`Self::peek`] gave.
    #[inline]
    pub(super) const fn skip_one(&mut self) {
        self.bits <<= 1;
        self.len = self.len.saturating_sub(1);
    }

    /// The outcome of the next branch, or None if no bit is left.
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
            assert!(joined.has_room());
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
    fn there_is_room_until_64_bits() {
        let mut bits = TntBits::default();
        let mut count = 0;
        while bits.has_room() {
            bits.append_short(0b1111_1110);
            count += 6;
        }
        assert_eq!(count, 60);
        assert_eq!((0..count).filter_map(|_| bits.pop()).filter(|taken| *taken).count(), 60);
    }
}
