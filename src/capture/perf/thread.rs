//! A thread that the CPU traces.

use super::tap::Tap;
use crate::capture::debug_registers::Watched;
use crate::capture::debugged::{DebuggedThread, Pending};
use crate::capture::final_state;
use crate::common::{Addr, Pid, Tid};
use crate::image::core;
use crate::tracee::{SiginfoBytes, Signo, Tracee};

/// What a thread is doing, as far as its tracer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It was born, and stands before its first instruction, or will.
    Born,
    /// It runs.
    Running,
    /// It stands still: it was told to.
    Standing,
    /// Stopped with its process by job control.
    Stopped,
    /// Stands at its end, with its registers read, until all of its process do.
    AtEnd,
}

/// A traced thread.
#[derive(Debug)]
pub(in crate::capture) struct Thread {
    pub(super) tracee: Tracee,
    pub(super) pid: Pid,
    pub(super) doing: Doing,
    pub(super) tap: Option<Tap>,
    /// What is in its ring is wanted, as soon as it stands still.
    pub(super) is_asked: bool,
    /// What the last signal was, which may be its end.
    pub(super) siginfo: Option<SiginfoBytes>,
    pub(super) ending: Option<core::Thread>,
    /// The signal that it stands at, which was not delivered.
    pub(super) held: Signo,
    /// The signal that the debugger wants it to have when it goes on.
    pub(super) chosen: Signo,
    /// What the debugger is to hear of it.
    pub(super) pending: Pending,
    /// The system call that it has entered, where that was seen.
    pub(super) call: Option<u64>,
    /// That call was taken back: it is told of before it is made.
    pub(super) takes_back: bool,
    /// Where it stands before a system call that the debugger was told of.
    pub(super) caught: Option<Addr>,
    pub(super) watched: Watched,
    /// It was taken out of a stop by job control, to which it goes back.
    pub(super) group_stopped: bool,
}

impl Thread {
    pub(super) const fn tid(&self) -> Tid {
        self.tracee.0
    }

    pub(super) fn new(tid: Tid, pid: Pid) -> Self {
        Self {
            tracee: Tracee(tid),
            pid,
            doing: Doing::Born,
            tap: None,
            is_asked: false,
            siginfo: None,
            ending: None,
            held: 0,
            chosen: 0,
            pending: Pending::default(),
            call: None,
            takes_back: false,
            caught: None,
            watched: Watched::default(),
            group_stopped: false,
        }
    }
}

impl DebuggedThread for Thread {
    fn process(&self) -> Pid {
        self.pid
    }

    fn pending(&mut self) -> &mut Pending {
        &mut self.pending
    }

    fn is_at_end(&self) -> bool {
        self.doing == Doing::AtEnd
    }

    fn next_ip(&self) -> Option<Addr> {
        let stands = self.doing == Doing::Standing;
        stands.then(|| self.tracee.instruction_pointer().ok()).flatten()
    }

    fn held(&mut self) -> Option<&mut SiginfoBytes> {
        self.siginfo.as_mut().filter(|_| self.held != 0)
    }

    fn state(&self) -> Option<core::Thread> {
        if self.doing == Doing::AtEnd {
            return self.ending.clone();
        }
        let held = self.siginfo.filter(|_| self.held != 0);
        final_state::thread(self.tracee, held.or(self.pending.siginfo))
    }
}
