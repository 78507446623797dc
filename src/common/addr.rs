//! Virtual addresses and half-open ranges of them.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A virtual address of the traced program. `{}` formats it as `0x401000`, and `{:016x}` as 16
/// hexadecimal digits without `0x`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Addr(pub u64);

impl Addr {
    /// Returns this address plus `offset` bytes, wrapping at 2^64 as the CPU does.
    #[must_use]
    pub const fn wrapping_add(self, offset: u64) -> Self {
        Self(self.0.wrapping_add(offset))
    }

    /// Returns this address minus `offset` bytes, wrapping at 2^64 as the CPU does.
    #[must_use]
    pub const fn wrapping_sub(self, offset: u64) -> Self {
        Self(self.0.wrapping_sub(offset))
    }

    /// Returns the address of the first byte of the 4 KiB page that contains this address.
    #[must_use]
    pub const fn page(self) -> Self {
        Self(self.0 & !0xfff)
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::LowerHex for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

impl From<u64> for Addr {
    fn from(value: u64) -> Self {
        Self(value)
    }
}

/// The bytes from `start` up to, but not including, `end`. Empty when `end <= start`. The byte at
/// the highest address, 2^64 - 1, is in no range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AddrRange {
    /// First address inside the range.
    pub start: Addr,
    /// First address after the range.
    pub end: Addr,
}

impl AddrRange {
    /// Creates the range `start..end`, which is empty if `end <= start`.
    pub const fn new(start: Addr, end: Addr) -> Self {
        Self { start, end }
    }

    /// Creates the range of `size_bytes` bytes at `start`, cut off at the top of the address space.
    pub const fn sized(start: Addr, size_bytes: u64) -> Self {
        Self { start, end: Addr(start.0.saturating_add(size_bytes)) }
    }

    /// Returns true if `addr` lies inside the range.
    pub const fn contains(self, addr: Addr) -> bool {
        self.start.0 <= addr.0 && addr.0 < self.end.0
    }

    /// Returns true if the two ranges share a byte.
    pub const fn overlaps(self, other: Self) -> bool {
        let start = if self.start.0 > other.start.0 { self.start.0 } else { other.start.0 };
        let end = if self.end.0 < other.end.0 { self.end.0 } else { other.end.0 };
        start < end
    }

    /// Returns the size of the range in bytes; 0 if it is empty.
    pub const fn size_bytes(self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }

    /// Returns true if the range contains no byte.
    pub const fn is_empty(self) -> bool {
        self.size_bytes() == 0
    }
}

impl fmt::Display for AddrRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_if_they_share_a_byte() {
        let range = |start, end| AddrRange::new(Addr(start), Addr(end));
        for (one, other, overlaps) in [
            (range(3, 8), range(7, 9), true),
            (range(3, 8), range(4, 5), true),
            (range(3, 8), range(8, 9), false),
            (range(3, 8), range(5, 5), false),
            (range(5, 5), range(5, 5), false),
        ] {
            assert_eq!((one.overlaps(other), other.overlaps(one)), (overlaps, overlaps));
        }
    }
}
