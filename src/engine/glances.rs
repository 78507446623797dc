//! Glances: stops at which a thread of a replay stays in the cache, shows its registers in the
//! shared memory (it *posts* them), and waits there for its tracer's answer: to go on or to stop.
//! That takes far less time than a stop in the kernel. If the answer does not come in time, the
//! thread stops.

use super::error::Error;
use super::process::TranslatedProcess;
use super::runs::{Glance, Running};
use super::thread::TranslatedThread;
use crate::insn::Registers;
use crate::tracee::{Stop, pending_stop, wait_for};
use crate::translate::{GLANCE_POSTED, GlanceAnswer, Location, glance_registers, slots};
use std::hint::spin_loop;
use std::sync::atomic::Ordering;

/// The number of reads of a thread's slot before each poll of the kernel, and of such polls before
/// a wait in the kernel: some 50 microseconds in all, about what a stop costs.
const READS_PER_POLL: u32 = 100;
const POLLS: u32 = 20;

impl TranslatedProcess {
    /// Lets a run, which was begun with a budget and whose thread was not resumed yet, return
    /// [`super::RunOutcome::Glance`] at stops. Its code must be [`super::CodeKind::Counting`]. Each
    /// run must be allowed anew.
    pub fn allow_glances(
        &self,
        thread: &TranslatedThread,
        running: &mut Running,
    ) -> Result<(), Error> {
        let (shared, area) = (&self.window.shared, thread.area);
        shared.store(area.slot(slots::GLANCE), 0);
        let end = area.slot_address(slots::GLANCE_END);
        shared.store(area.slot(slots::GLANCE_STACK), end);
        let at_begin = thread.tracee.registers()?;
        shared.store(area.slot(slots::WANTS_GLANCES), 1);
        running.glances = Some(thread.own_registers(&at_begin));
        Ok(())
    }

    /// Answers the glance of a thread, which goes on or stops. Returns false, and changes nothing,
    /// if the answer comes too late: the thread no longer waits, and stops.
    pub fn answer_glance(&self, thread: &TranslatedThread, answer: GlanceAnswer) -> bool {
        let slot = self.window.shared.word(thread.area.slot(slots::GLANCE));
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        slot.compare_exchange(GLANCE_POSTED, answer as u64, success, failure).is_ok()
    }

    /// Waits until a thread stops, and returns the stop; `None` if it waits at a glance instead.
    /// Reads the thread's slot for a short time, and then waits in the kernel: a glance in that
    /// time becomes a stop.
    pub(super) fn wait_or_glance(&self, thread: &TranslatedThread) -> Result<Option<Stop>, Error> {
        let (shared, area) = (&self.window.shared, thread.area);
        let is_posted = || shared.load(area.slot(slots::GLANCE)) == GLANCE_POSTED;
        for _ in 0..POLLS {
            for _ in 0..READS_PER_POLL {
                if is_posted() {
                    return Ok(None);
                }
                spin_loop();
            }
            if let Some(stop) = pending_stop(thread.tid())? {
                return Ok(Some(stop));
            }
        }
        shared.store(area.slot(slots::WANTS_GLANCES), 0);
        // A thread that shows its registers later gives up, and stops.
        let stop = if is_posted() { None } else { Some(wait_for(thread.tid())?) };
        shared.store(area.slot(slots::WANTS_GLANCES), 1);
        Ok(stop)
    }

    /// Returns the state of a thread that waits at a glance. Takes the registers that it does not
    /// show from `at_begin`, those of the thread when the run began.
    pub(super) fn glance(
        &self,
        thread: &TranslatedThread,
        running: &Running,
        at_begin: &Registers,
    ) -> Glance {
        let (shared, area) = (&self.window.shared, thread.area);
        let word = |slot| shared.load(area.slot(slot));
        let has_fs_base =
            self.translator.call_handling().is_some_and(|handling| handling.has_fs_base);
        let (registers, counter) = glance_registers(word, has_fs_base, at_begin);
        let (answered, last) = self.answered_so_far(thread);
        let begun = last.unwrap_or(running.budget);
        Glance { registers, answered, ticks: begun.wrapping_sub(self.budget_of_r11(counter)) }
    }

    /// Returns true if a thread at this place in the cache, where it has met an INT3, is at an
    /// address where threads are to stop.
    pub(super) fn is_before_stop(&self, at: &Location) -> bool {
        at.point.state.stops || !self.answers_calls() && self.translator.stops_at(at.superblock)
    }
}
