//! Samples of indirect branches, where ticks are counted: a run ends early now and then, and if it
//! ends at an indirect branch, the translator learns its target.

use super::process::TranslatedProcess;
use super::thread::TranslatedThread;
use crate::translate::slots;

impl TranslatedProcess {
    /// Returns the budget for at most `ticks` ticks ([`Self::budget`]), or a smaller one if an
    /// indirect branch is to be sampled before.
    pub fn sampled_budget(&mut self, ticks: u64) -> Option<u64> {
        let budget = self.budget(ticks)?;
        Some(budget.min(self.sampling.ticks()))
    }

    /// Takes a sample at the branch where a thread spent its budget.
    pub(super) fn note_sample(&mut self, thread: &TranslatedThread) {
        let Some(request) = self.request(thread) else { return };
        let edge = self.window.shared.load(thread.area.slot(slots::EDGE)) & u64::from(u32::MAX);
        let helps = request.is_indirect() && self.translator.note_target(edge, request.target);
        self.sampling.note(helps);
    }
}
