//! Converts the time-stamp counter to nanoseconds and back, by the same arithmetic as Linux perf.

use crate::common::Tsc;
use serde::{Deserialize, Serialize};

/// The conversion of time-stamp counter values to nanoseconds: `zero + tsc * multiplier / 2^shift`,
/// with the fields `time_zero`, `time_mult` and `time_shift` of perf's mmap page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TscToNs {
    /// Nanoseconds when the counter was 0; wraps below 0.
    pub zero_ns: u64,
    /// Nanoseconds in 2^`shift` ticks; not 0.
    pub multiplier: u32,
    /// The binary logarithm of the divisor, below 64.
    pub shift: u8,
}

impl TscToNs {
    /// Creates the conversion for a counter of `frequency_hz` that was 0 at 0 ns. Returns `None`
    /// for an implausible frequency (below 1 MHz).
    #[must_use]
    pub fn from_frequency(frequency_hz: u64) -> Option<Self> {
        if frequency_hz < 1_000_000 {
            return None;
        }
        // The largest shift that keeps the multiplier in 32 bits.
        (0..=31).rev().find_map(|shift| {
            let multiplier = (1_000_000_000_u64 << shift) / frequency_hz;
            let multiplier = u32::try_from(multiplier).ok()?;
            Some(Self { zero_ns: 0, multiplier, shift })
        })
    }

    /// Returns the nanoseconds of perf's clock at `tsc`. They wrap at 2^64.
    #[must_use]
    pub fn ns(&self, tsc: Tsc) -> u64 {
        self.zero_ns.wrapping_add(self.duration_ns(tsc.0))
    }

    /// Returns the nanoseconds in `ticks` of the counter, rounded down. They wrap at 2^64.
    #[must_use]
    pub fn duration_ns(&self, ticks: u64) -> u64 {
        low_64((u128::from(ticks) * u128::from(self.multiplier)) >> (self.shift & 63))
    }

    /// Returns the first value of the counter at `ns` nanoseconds of perf's clock or later. It
    /// wraps at 2^64, and a time before the counter was 0 counts as after a wrap.
    #[must_use]
    pub fn tsc(&self, ns: u64) -> Tsc {
        let scaled = u128::from(ns.wrapping_sub(self.zero_ns)) << (self.shift & 63);
        Tsc(low_64(scaled.div_ceil(u128::from(self.multiplier.max(1)))))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "nanoseconds wrap at 2^64, as perf's do")]
const fn low_64(value: u128) -> u64 {
    value as u64
}
