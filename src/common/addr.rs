//! Virtual addresses and half-open ranges of them.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A virtual address of the traced program. Formats as plain hexadecimal (`{}` gives `0x401000`,
/// `{:016x}` gives sixteen digits).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Addr(pub u64);

impl Addr {
    /// This address plus `offset` bytes, wrapping at 2^64 as the CPU does.
    #[must_use]
    pub const fn wrapping_add(self, offset: u64) -> Self {
        Self(self.0.wrapping_add(offset))
    }

    /// This address minus `offset` bytes, wrapping at 2^64 as the CPU does.
    #[must_use]
    pub const fn wrapping_sub(self, offset: u64) -> Self {
        Self(self.0.wrapping_sub(offset))
    }

    /// The first byte of the 4 KiB page that holds this address.
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

/// The bytes from `start` up to, but not including, `end`. Empty when `end <= start`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AddrRange {
    /// First address inside.
    pub start: Addr,
    /// First address behind the range.
    pub end: Addr,
}

impl AddrRange {
    /// The range `start..end`.
    pub const fn new(start: Addr, end: Addr) -> Self {
        Self { start, end }
    }

    /// The range of `size_bytes` bytes at `start`, cut at the top of the address space.
    pub const fn sized(start: Addr, size_bytes: u64) -> Self {
        Self { start, end: Addr(start.0.saturating_add(size_bytes)) }
    }

    /// Whether `addr` lies inside.
    pub const fn contains(self, addr: Addr) -> bool {
        self.start.0 <= addr.0 && addr.0 < self.end.0
    }

    /// Whether the two share a byte.
    pub const fn overlaps(self, other: Self) -> bool {
        self.start.0 < other.end.0 && other.start.0 < self.end.0
    }

    /// Bytes inside.
    pub const fn size_bytes(self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }

    /// Whether nothing is inside.
    pub const fn is_empty(self) -> bool {
        self.size_bytes() == 0
    }
}

impl fmt::Display for AddrRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}
