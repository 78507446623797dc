//! Ends the sharing of one CPU by a translated process and its recorder, when the program could
//! notice it.

use super::process::Process;
use crate::common::Tid;

impl Process {
    /// Restores the process's own CPUs, and those of the recorder's thread. Does nothing if they do
    /// not share one CPU.
    pub(super) fn end_sharing(&mut self) {
        if let Some(shared_cpu) = self.shared_cpu.take() {
            shared_cpu.unpin(Tid(self.recorder.pid().0));
            let _ = shared_cpu.all.pin_this_thread();
        }
    }
}
