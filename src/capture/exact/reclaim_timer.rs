//! When the recorder checks whether memory is still foreign (`reclaim`): soon after memory becomes
//! foreign, and then ever more rarely. A check that takes long is followed by a longer pause.

use std::time::{Duration, Instant};

/// The time from when memory becomes foreign to the first check. Most children execute another
/// program before it.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The maximum time between two checks, unless checks take long.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The minimum time between two checks, as a multiple of the time that the last one took: if it
/// took no memory back, and (`REST_AFTER_RECLAIM`) if it did. The first holds for `foreign`, too.
pub(super) const REST_AFTER_CHECK: u32 = 20;
const REST_AFTER_RECLAIM: u32 = 100;

/// When to check if memory is still foreign.
#[derive(Debug)]
pub(super) struct ReclaimTimer {
    /// The planned time of the next check.
    next: Instant,
    /// The time between two checks, which doubles with each.
    pause: Duration,
    /// The time before which there is no check, since the last one was costly.
    not_before: Instant,
}

impl Default for ReclaimTimer {
    fn default() -> Self {
        let now = Instant::now();
        Self { next: now, pause: FIRST_PAUSE, not_before: now }
    }
}

impl ReclaimTimer {
    /// Notes that memory became foreign: the next check is soon, and pauses are short again.
    pub(super) fn note_new_foreign(&mut self) {
        self.pause = FIRST_PAUSE;
        self.next = Instant::now() + self.pause;
    }

    /// Returns true if it is time for a check.
    pub(super) fn is_due(&self) -> bool {
        let now = Instant::now();
        now >= self.next && now >= self.not_before
    }

    /// Notes a check that began at `begun` and has just ended. `has_reclaimed` is true if it took
    /// memory back.
    pub(super) fn note_check(&mut self, begun: Instant, has_reclaimed: bool) {
        let (now, took) = (Instant::now(), begun.elapsed());
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.next = now + self.pause;
        self.not_before =
            now + took * if has_reclaimed { REST_AFTER_RECLAIM } else { REST_AFTER_CHECK };
    }
}
