//! The turns of a translated process and its recorder end when the program could notice them.

use super::process::Process;
use crate::common::Tid;

impl Process {
    /// Ends the turns: process and recorder run on any CPU.
    pub(super) fn end_turns(&mut self) {
        if let Some(turns) = self.turns.take() {
            turns.end(Tid(self.recorder.pid().0));
            let _ = turns.own.keep_this_thread();
        }
    }
}
