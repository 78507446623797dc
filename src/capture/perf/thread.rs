//! A thread that the CPU traces.

use super::tap::Tap;
use crate::capture::debugged::{DebuggedThread, Pending};
use crate::capture::final_state;
use crate::common::{Addr, Pid, Tid};
use crate::image::core;
use crate::tracee::debug_registers::Watched;
use crate::tracee::{SiginfoBytes, Signo, Tracee};

/// The state of a thread, as far as its tracer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Created, and stopped or about to stop before its first instruction.
    Born,
    /// Running.
    Running,
    /// Stopped for a debugger, or to be detached from.
    Standing,
    /// Stopped with its process by job control.
    Stopped,
    /// Kept at its exit stop until all threads of its process are. Its registers were read.
    AtEnd,
}

/// A thread that the CPU traces.
#[derive(Debug)]
pub(in crate::capture) struct Thread {
    pub(super) tracee: Tracee,
    pub(super) pid: Pid,
    pub(super) doing: Doing,
    /// The thread's tap; `None` while the thread is not traced.
    pub(super) tap: Option<Tap>,
    /// True if the thread's ring is to be written for a snapshot as soon as the thread stops.
    pub(super) is_asked: bool,
    /// The information of the thread's last signal, which may have ended it.
    pub(super) siginfo: Option<SiginfoBytes>,
    /// The state at the exit stop, once the thread has reached it.
    pub(super) ending: Option<core::Thread>,
    /// The signal for which the thread stopped and that was not delivered yet; 0 for none.
    pub(super) held: Signo,
    /// The signal that the debugger chose to deliver when the thread is resumed; 0 for none.
    pub(super) chosen: Signo,
    /// The thread's events for the debugger.
    pub(super) pending: Pending,
    /// The number of the system call that the thread is in, if its start was seen.
    pub(super) call: Option<u64>,
    /// True if the system call in `call` is skipped, since it must be reported before it is made.
    pub(super) takes_back: bool,
    /// The address of the system call before which the thread stopped for the debugger.
    pub(super) caught: Option<Addr>,
    pub(super) watched: Watched,
    /// True if the thread was stopped by job control when it was halted, and returns to that stop.
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

    fn is_at_exit_stop(&self) -> bool {
        self.doing == Doing::AtEnd
    }

    fn next_ip(&self) -> Option<Addr> {
        let stands = self.doing == Doing::Standing;
        stands.then(|| self.tracee.instruction_pointer().ok()).flatten()
    }

    fn held_siginfo(&mut self) -> Option<&mut SiginfoBytes> {
        self.siginfo.as_mut().filter(|_| self.held != 0)
    }

    fn state(&self) -> Option<core::Thread> {
        if self.doing == Doing::AtEnd {
            return self.ending.clone();
        }
        let held = self.siginfo.filter(|_| self.held != 0);
        final_state::read_thread(self.tracee, held.or(self.pending.next_siginfo))
    }
}
