//! The time from one checkpoint to the next, while a replay goes on.

use crate::common::Pid;
use crate::tracee::{KernelWork, kernel_work};
use std::time::{Duration, Instant};

/// The time between two checkpoints, where the program writes to few pages.
const PERIOD: Duration = Duration::from_millis(300);
/// Copying pages may take one part in this many of the time.
const SHARE: u32 = 5;
/// The longest time that the copy of a page takes: on first use of the memory in a virtual machine.
const COPY_TIME: Duration = Duration::from_micros(25);
/// The minimum time between two checks of how many pages were copied.
const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// The time of the last checkpoint and the kernel's work before it, by which the next one is timed.
#[derive(Debug)]
pub(super) struct Pace {
    kept: Instant,
    before: KernelWork,
    next_look: Instant,
}

impl Pace {
    /// Begins to measure wall-clock time and the kernel's work for a process, at a checkpoint.
    pub(super) fn from(pid: Pid) -> Self {
        let kept = Instant::now();
        Self { kept, before: kernel_work(pid).unwrap_or_default(), next_look: kept + PERIOD }
    }

    /// Returns true if another checkpoint is worth its time: copying pages since the last one took
    /// only a small share of the time since then. Returns false shortly after that one or the last
    /// check.
    pub(super) fn is_due(&mut self, pid: Pid) -> bool {
        let now = Instant::now();
        if now < self.next_look {
            return false;
        }
        self.next_look = now + LOOK_PERIOD;
        let work = kernel_work(pid).unwrap_or_default();
        let pages = u32::try_from(work.faults.saturating_sub(self.before.faults));
        let most = COPY_TIME.saturating_mul(pages.unwrap_or(u32::MAX));
        let copying = work.time.saturating_sub(self.before.time).min(most);
        now.duration_since(self.kept) >= copying * SHARE
    }
}
