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
