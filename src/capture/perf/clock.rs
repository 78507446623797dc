//! Converts the times of perf's records to the TSC, which is the time in the trace. Uses the
//! kernel's conversion parameters, or if it has none, repeated readings of `CLOCK_MONOTONIC_RAW`
//! and the TSC.

use crate::capture::clock::now;
use crate::common::Tsc;
use crate::pt::TscToNs;
use std::time::Duration;

/// The clock of the times in perf's records.
#[derive(Clone, Debug)]
pub(super) enum PerfTime {
    /// The kernel's perf clock, a known linear function of the TSC.
    Known(TscToNs),
    /// `CLOCK_MONOTONIC_RAW`, converted by readings of it and the TSC.
    Raw(Readings),
}

/// The first and the last reading of both clocks: the TSC, and `CLOCK_MONOTONIC_RAW` in
/// nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Readings {
    first: (Tsc, u64),
    last: (Tsc, u64),
}

/// The minimum time between two readings from which the rate is exact enough.
const SHORTEST: Duration = Duration::from_millis(5);

impl Readings {
    /// Returns two readings of both clocks. Sleeps for [`SHORTEST`] in between.
    pub(super) fn begin() -> Self {
        let first = read();
        std::thread::sleep(SHORTEST);
        Self { first, last: read() }
    }

    /// Returns the TSC at a time of `CLOCK_MONOTONIC_RAW`. Most exact for times shortly before the
    /// last reading.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a rate")]
    fn tsc(&self, time_ns: u64) -> Tsc {
        let ticks = self.last.0.0.saturating_sub(self.first.0.0) as f64;
        let rate = ticks / self.last.1.saturating_sub(self.first.1).max(1) as f64;
        let since_ns = time_ns.wrapping_sub(self.last.1).cast_signed();
        Tsc(self.last.0.0.wrapping_add_signed((since_ns as f64 * rate) as i64))
    }
}

impl PerfTime {
    /// Reads both clocks again if the conversion needs readings. Call this before reading records:
    /// their times are shortly before.
    pub(super) fn read_clocks(&mut self) {
        if let Self::Raw(readings) = self {
            readings.last = read();
        }
    }

    /// Returns the TSC at the time of a perf record.
    pub(super) fn tsc(&self, time_ns: u64) -> Tsc {
        match self {
            Self::Known(clock) => clock.tsc(time_ns),
            Self::Raw(readings) => readings.tsc(time_ns),
        }
    }
}

/// Reads both clocks at almost the same time: takes several readings, and returns the one that took
/// the least time.
fn read() -> (Tsc, u64) {
    let one = || {
        let before = now();
        let time_ns = raw_ns();
        let took = now().0.saturating_sub(before.0);
        (took, (Tsc(before.0 + took / 2), time_ns))
    };
    let best = (0..8).map(|_| one()).min_by_key(|(took, _)| *took);
    best.map_or((Tsc(0), 0), |(_, reading)| reading)
}

/// Reads `CLOCK_MONOTONIC_RAW`.
fn raw_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one structure, and knows the clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_both_kinds_become_the_tsc_of_then() {
        let mut time = PerfTime::Raw(Readings::begin());
        let before = now();
        let then = raw_ns();
        let after = now();
        time.read_clocks();
        let found = time.tsc(then);
        // Allow a thousandth of the time between two readings, and what a preemption may take.
        let slack = (after.0 - before.0) + 100_000;
        assert!(found.0 + slack > before.0 && found.0 < after.0 + slack, "{found:?} {before:?}");
        let reported = PerfTime::Known(TscToNs { zero_ns: 100, multiplier: 1 << 20, shift: 21 });
        assert_eq!(reported.tsc(1100), Tsc(2000));
    }
}
