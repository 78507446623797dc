//! Programs that harm their recorder: they damage the memory that they share with it (code cache,
//! trace buffers). Their state is unknown then, so they are killed. Their recording up to there is
//! kept.

use super::engine::Engine;
use super::process::Process;
use crate::capture::harm::{Harm, killed_note};
use crate::common::Pid;
use nix::sys::signal::{Signal, kill};

impl Process {
    /// Notes that the process damaged the memory that it shares with the recorder, unless damage
    /// was noted before. `what` describes it, as in [`Harm::Found`].
    pub(super) fn note_harm(&mut self, what: &'static str) {
        if self.harm == Harm::None {
            self.harm = Harm::Found(what);
        }
    }
}

impl Engine {
    /// Kills a process if harm was noted, and adds a note for the user. Does so once. The process's
    /// end is handled like any other.
    pub(super) fn end_if_harmed(&mut self, pid: Pid) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let Harm::Found(what) = process.harm else { return };
        process.harm = Harm::Ended;
        self.notes.push(killed_note(pid, what));
        // The process may be gone already.
        let _ = kill(nix::unistd::Pid::from_raw(pid.0), Signal::SIGKILL);
    }
}
