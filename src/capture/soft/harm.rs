//! Programs that harm their recorder: they damaged the memory that they share with it, so their
//! state is unknown, and they are killed. Their recording up to there is kept.

use super::engine::Engine;
use super::process::Process;
use crate::capture::harm::{Harm, killed_note};
use crate::common::Pid;
use nix::sys::signal::{Signal, kill};

impl Process {
    /// Notes that the process damaged the memory that it shares with the recorder. `what` describes
    /// the first damage, for a note.
    pub(super) fn note_harm(&mut self, what: &'static str) {
        if self.harm == Harm::None {
            self.harm = Harm::Found(what);
        }
    }
}

impl Engine {
    /// Kills a process that harmed its recorder, once, and adds a note. Its end is reported like
    /// others.
    pub(super) fn end_if_harmed(&mut self, pid: Pid) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let Harm::Found(what) = process.harm else { return };
        process.harm = Harm::Ended;
        self.notes.push(killed_note(pid, what));
        // The process may be gone already.
        let _ = kill(nix::unistd::Pid::from_raw(pid.0), Signal::SIGKILL);
    }
}
