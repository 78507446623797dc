//! Decides when a run keeps its next checkpoint. After a checkpoint, each page that the program
//! writes is copied once, by a page fault. So another checkpoint waits until the time of these
//! copies is a small share of the time since the last one.

use crate::common::Pid;
use crate::tracee::{KernelWork, kernel_work};
use std::time::{Duration, Instant};

/// The time between two checkpoints, where the program writes to few pages.
const MIN_PERIOD: Duration = Duration::from_millis(300);
/// Copying pages may take at most one part in this many of the time.
const TIME_PER_COPYING: u32 = 5;
/// The longest time that the copy of a page takes: on first use of the memory in a virtual machine.
const COPY_TIME: Duration = Duration::from_micros(25);
/// The minimum time between two checks of how many pages were copied.
const CHECK_PERIOD: Duration = Duration::from_millis(50);

/// The time of the last checkpoint, and the work that the kernel had done for the process by then.
#[derive(Debug)]
pub(super) struct CheckpointTimer {
    last_checkpoint: Instant,
    work_before: KernelWork,
    next_check: Instant,
}

impl CheckpointTimer {
    /// Begins to measure wall-clock time and the kernel's work for a process, at a checkpoint.
    pub(super) fn start(pid: Pid) -> Self {
        let now = Instant::now();
        let work_before = kernel_work(pid).unwrap_or_default();
        Self { last_checkpoint: now, work_before, next_check: now + MIN_PERIOD }
    }

    /// Returns true if another checkpoint is worth its time: copying pages since the last one took
    /// at most a fifth of the time since then. Returns false without a check in the first 300 ms
    /// after the last checkpoint and 50 ms after the last check.
    pub(super) fn is_due(&mut self, pid: Pid) -> bool {
        let now = Instant::now();
        if now < self.next_check {
            return false;
        }
        self.next_check = now + CHECK_PERIOD;
        let work = kernel_work(pid).unwrap_or_default();
        let pages = u32::try_from(work.faults.saturating_sub(self.work_before.faults));
        let longest_copying = COPY_TIME.saturating_mul(pages.unwrap_or(u32::MAX));
        // The kernel also works for other reasons: the pages bound the time of copying.
        let copying = work.time.saturating_sub(self.work_before.time).min(longest_copying);
        now.duration_since(self.last_checkpoint) >= copying * TIME_PER_COPYING
    }
}
