//! System calls that threads of a replay do not make: the code cache takes their results and memory
//! writes from a list of *answers* in the thread's area, without a stop. It logs each call that it
//! answers, so that the caller can compare it with the recorded one. The *budget* is the number of
//! ticks that the thread may still run.

use super::logged_calls::LoggedCalls;
use super::process::TranslatedProcess;
use super::thread::TranslatedThread;
use crate::common::Addr;
use crate::insn::Registers;
use crate::translate::{Answers, CacheMemory, HEADER_BYTES, LOG_SCRATCH_BYTES, LoggedCall, slots};

/// The indices of an area's buffers in which calls are logged, and in which their answers are.
const LOG: usize = 0;
const ANSWERS: usize = 1;

impl TranslatedProcess {
    /// Returns true if the code never makes system calls: it answers them, or stops before those
    /// without an answer. Code that records does not answer.
    pub(super) fn answers_calls(&self) -> bool {
        self.translator.call_handling().is_some_and(|handling| handling.answers)
    }

    /// Returns an empty list of answers. It takes no more than fit the buffers of the thread.
    pub fn empty_answers(&self, thread: &TranslatedThread) -> Answers {
        let bytes = thread.area.buffer_bytes;
        let most = bytes.saturating_sub(LOG_SCRATCH_BYTES.into()) / u64::from(HEADER_BYTES);
        let size = |size: u64| usize::try_from(size).unwrap_or(0);
        Answers::new(size(most), size(bytes))
    }

    /// Returns the address, in the traced process, of the thread's slot for RCX. An answer that
    /// writes there sets RCX after the instruction (RDTSCP).
    pub fn rcx_slot_address(&self, thread: &TranslatedThread) -> Addr {
        Addr(thread.area.slot_address(slots::RCX))
    }

    /// Writes answers to the thread's buffer, in place of earlier ones, and empties its log. In
    /// runs by a budget, code of the kind [`super::CodeKind::Counting`] takes the results of its
    /// next system calls from there, in order; before a call after the last answer, the thread
    /// stops. The memory that the answers write must be the program's, and writable without a stop.
    pub fn offer_answers(&self, thread: &TranslatedThread, answers: &Answers) {
        let (shared, area) = (&self.window.shared, thread.area);
        shared.write(area.offset_of(area.buffer(ANSWERS)), answers.bytes());
        shared.store(area.slot(slots::ANSWER), area.buffer(ANSWERS));
        shared.store(area.slot(slots::LOG), area.buffer(LOG));
        // The slot has the number of answers after the next one; it is negative if there is none.
        shared.store(area.slot(slots::LOG_ROOM), (answers.len() as u64).wrapping_sub(1));
    }

    /// Returns the number of answers that a thread has taken since they were offered, and its
    /// budget before the last call with one; `None` if it has taken none.
    pub(super) fn answered_so_far(&self, thread: &TranslatedThread) -> (u64, Option<u64>) {
        let (shared, area) = (&self.window.shared, thread.area);
        let log = area.buffer(LOG);
        // For each answer that it takes, the code logs a record that is a header only.
        let size = shared.load(area.slot(slots::LOG)).wrapping_sub(log).min(area.buffer_bytes);
        let count = size / u64::from(HEADER_BYTES);
        let last = count.checked_sub(1).map(|last| {
            let mut header = [0; HEADER_BYTES as usize];
            shared.read(area.offset_of(log + last * u64::from(HEADER_BYTES)), &mut header);
            self.budget_of_r11(LoggedCall::budget_of(&header))
        });
        (count, last)
    }

    /// Withdraws the answers that were not used. Returns the calls that were answered, with the
    /// registers before each. `now` returns the thread's registers, from which the segment
    /// registers are taken; if it returns `None`, the calls are lost.
    pub fn take_answered_calls(
        &self,
        thread: &TranslatedThread,
        now: impl FnOnce() -> Option<Registers>,
    ) -> LoggedCalls {
        let calls = self.take_logged_calls(thread, now);
        self.clear_log(&thread.area);
        calls
    }
}
