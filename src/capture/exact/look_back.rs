//! When the recorder checks whether memory is still foreign (`taken_back`).

use std::time::{Duration, Instant};

/// The time from when memory becomes foreign to the first look. Most children execute another
/// program before it.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The maximum time between two looks, unless looks take long.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The minimum time between two looks, as a multiple of the time that the last one took: if it took
/// no memory back, and (`REST_AFTER_TAKING`) if it did.
pub(super) const REST_AFTER_LOOK: u32 = 20;
const REST_AFTER_TAKING: u32 = 100;

/// When to look if memory is still foreign.
#[derive(Debug)]
pub(super) struct LookBack {
    /// The time of the next look.
    next: Instant,
    /// The time between two looks, which doubles with each.
    pause: Duration,
    /// The time before which there is no look, since the last one was costly.
    rests_until: Instant,
}

impl Default for LookBack {
    fn default() -> Self {
        let now = Instant::now();
        Self { next: now, pause: FIRST_PAUSE, rests_until: now }
    }
}

impl LookBack {
    /// Notes that memory became foreign.
    pub(super) fn note_shared(&mut self) {
        self.pause = FIRST_PAUSE;
        self.next = Instant::now() + self.pause;
    }

    /// Returns true if it is time for a look.
    pub(super) fn is_due(&self) -> bool {
        let now = Instant::now();
        now >= self.next && now >= self.rests_until
    }

    /// Notes a look that began at `begun` and has just ended. `takes` is true if it took memory
    /// back.
    pub(super) fn note_look(&mut self, begun: Instant, takes: bool) {
        let (now, took) = (Instant::now(), begun.elapsed());
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.next = now + self.pause;
        self.rests_until = now + took * if takes { REST_AFTER_TAKING } else { REST_AFTER_LOOK };
    }
}
