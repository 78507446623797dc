//! The CPU's time-stamp counter (TSC) and its rate, measured against the wall clock over the run.

use crate::common::Tsc;
use crate::recording::TscClock;
use std::time::{Duration, Instant};

/// Reads the time-stamp counter.
pub(super) fn now() -> Tsc {
    // SAFETY: RDTSC reads a counter, and every x86-64 CPU has it.
    Tsc(unsafe { core::arch::x86_64::_rdtsc() })
}

/// The TSC and the wall clock at the start of a run.
#[derive(Debug)]
pub(super) struct Clock {
    tsc: Tsc,
    instant: Instant,
}

impl Clock {
    /// Reads both clocks.
    pub(super) fn start() -> Self {
        Self { tsc: now(), instant: Instant::now() }
    }

    /// Returns the time since the start, by the wall clock.
    pub(super) fn elapsed(&self) -> Duration {
        self.instant.elapsed()
    }

    /// Reads both clocks again, and returns the TSC's start and mean rate since the start. The rate
    /// is not exact in the first milliseconds.
    #[expect(clippy::cast_precision_loss, reason = "a rate, good to far fewer digits")]
    pub(super) fn so_far(&self) -> TscClock {
        let ticks = now().0.saturating_sub(self.tsc.0) as f64;
        TscClock { start: self.tsc, ticks_per_second: ticks / self.elapsed().as_secs_f64() }
    }

    /// Does the same as `so_far`. Waits first if the run was very short, so that the rate is exact
    /// to about one in a thousand.
    pub(super) fn finish(&self) -> TscClock {
        const SHORTEST: Duration = Duration::from_millis(2);
        if let Some(rest) = SHORTEST.checked_sub(self.elapsed()) {
            std::thread::sleep(rest);
        }
        self.so_far()
    }
}
