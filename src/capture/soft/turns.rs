//! Recorder and program take turns for every stretch of code that is new, which is several times
//! as fast on one CPU as on two. A program with one thread begins on the recorder's CPU, and is
//! given back its own as soon as that could be seen or felt: when it asks for them, makes a thread
//! or a process, or is left alone.

use super::process::Process;
use crate::common::Tid;
use crate::tracee::{self, Cpus};

/// What the program and the recorder would have if they took no turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    own: Cpus,
    /// The CPUs that are left for encoders.
    others: Cpus,
}

impl Turns {
    /// From now on this thread, and what it starts, is on the CPU where it is.
    pub(super) fn begin() -> Result<Self, tracee::Error> {
        let own = Cpus::of_this_thread()?;
        let here = Cpus::current()?;
        here.keep_this_thread()?;
        Ok(Self { own, others: own.without(here).unwrap_or(own) })
    }

    /// The thread has the program's CPUs. That fails where it is gone, and where the kernel took
    /// these CPUs away, of which it says nothing to a program either.
    pub(super) fn end(self, tid: Tid) {
        let _ = self.own.keep(tid);
    }

    /// This thread, which encodes, leaves the program's CPU to the program.
    pub(super) fn make_way(self) {
        // If that cannot be, it is slower.
        let _ = self.others.keep_this_thread();
    }
}

impl Process {
    /// The process and the recorder run where they like from now on.
    pub(super) fn end_turns(&mut self) {
        if let Some(turns) = self.turns.take() {
            turns.end(Tid(self.recorder.pid().0));
            let _ = turns.own.keep_this_thread();
        }
    }
}
