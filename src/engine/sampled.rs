//! Samples of exits of superblocks, in code that counts ticks: a run ends early now and then, as
//! its budget is made smaller, and the translator learns by which exit the thread left, and the
//! target of an indirect branch.

use super::process::TranslatedProcess;
use super::thread::TranslatedThread;
use crate::translate::slots;

impl TranslatedProcess {
    /// Returns the budget for at most `ticks` ticks ([`Self::budget`]), or a smaller one if an exit
    /// is to be sampled before. `None` where [`Self::budget`] is. Each call draws the distance to
    /// the next sample anew.
    pub fn sampled_budget(&mut self, ticks: u64) -> Option<u64> {
        let budget = self.budget(ticks)?;
        Some(budget.min(self.sampling.ticks_to_next()))
    }

    /// Counts the exit where a thread spent its budget as a sample. May drop the superblock, to
    /// translate it better. Does nothing if the thread has made no request.
    pub(super) fn note_sample(&mut self, thread: &TranslatedThread) {
        let Some(request) = self.request(thread) else { return };
        let helps = if request.is_indirect() {
            let edge = self.window.shared.load(thread.area.slot(slots::EDGE));
            self.translator.note_target_sample(edge & u64::from(u32::MAX), request.target)
        } else {
            self.translator.note_exit_sample(request.number)
        };
        self.sampling.note_sample(helps);
    }
}
