//! A thread that the CPU traces, from its first stop to its *exit stop*, the last one before it is
//! gone. Its *tap* takes its trace out of the AUX area, the buffer that the kernel fills (module
//! `tap`).

use super::tap::Tap;
use crate::capture::debugged::{DebuggedThread, Pending};
use crate::capture::final_state;
use crate::common::{Addr, Pid, Tid};
use crate::image::core;
use crate::tracee::debug_registers::Watched;
use crate::tracee::{SiginfoBytes, Signo, Tracee};

/// The state of a thread, as far as its tracer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// Created, and stopped or about to stop before its first instruction.
    New,
    /// Running.
    Running,
    /// Stopped for a debugger, or to be detached from. Its stop was handled.
    Stopped,
    /// Stopped with its process by job control.
    GroupStopped,
    /// Kept at its exit stop until all threads of its process are. Its registers were read.
    AtExitStop,
}

/// A thread that the CPU traces.
#[derive(Debug)]
pub(in crate::capture) struct Thread {
    pub(super) tracee: Tracee,
    pub(super) pid: Pid,
    pub(super) activity: Activity,
    /// The thread's tap; `None` while the thread is not traced.
    pub(super) tap: Option<Tap>,
    /// True if the thread's ring is to be written for a snapshot as soon as the thread stops.
    pub(super) awaits_snapshot: bool,
    /// The information of the thread's last signal, which may have ended it.
    pub(super) siginfo: Option<SiginfoBytes>,
    /// The state at the exit stop, once the thread has reached it.
    pub(super) exit_state: Option<core::Thread>,
    /// The signal for which the thread stopped and that was not delivered yet; 0 for none.
    pub(super) held_signal: Signo,
    /// The signal that the debugger chose to deliver when the thread is resumed; 0 for none.
    pub(super) chosen_signal: Signo,
    /// The thread's events for the debugger.
    pub(super) pending: Pending,
    /// The number of the system call that the thread is in, if its start was seen.
    pub(super) current_call: Option<u64>,
    /// True if the system call in `current_call` is skipped, since it must be reported before it is
    /// made.
    pub(super) skips_call: bool,
    /// The address of the system call before which the thread stopped for the debugger, so that it
    /// does not stop there again.
    pub(super) stopped_before_call: Option<Addr>,
    pub(super) watched: Watched,
    /// True if the thread was stopped by job control when it was halted, and returns to that stop.
    pub(super) returns_to_group_stop: bool,
}

impl Thread {
    /// Returns the thread's number.
    pub(super) const fn tid(&self) -> Tid {
        self.tracee.0
    }

    /// Returns a new thread, which is not traced yet.
    pub(super) fn new(tid: Tid, pid: Pid) -> Self {
        Self {
            tracee: Tracee(tid),
            pid,
            activity: Activity::New,
            tap: None,
            awaits_snapshot: false,
            siginfo: None,
            exit_state: None,
            held_signal: 0,
            chosen_signal: 0,
            pending: Pending::default(),
            current_call: None,
            skips_call: false,
            stopped_before_call: None,
            watched: Watched::default(),
            returns_to_group_stop: false,
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
        self.activity == Activity::AtExitStop
    }

    fn next_ip(&self) -> Option<Addr> {
        let is_stopped = self.activity == Activity::Stopped;
        is_stopped.then(|| self.tracee.instruction_pointer().ok()).flatten()
    }

    fn held_siginfo(&mut self) -> Option<&mut SiginfoBytes> {
        self.siginfo.as_mut().filter(|_| self.held_signal != 0)
    }

    fn state(&self) -> Option<core::Thread> {
        if self.activity == Activity::AtExitStop {
            return self.exit_state.clone();
        }
        let held = self.siginfo.filter(|_| self.held_signal != 0);
        final_state::read_thread(self.tracee, held.or(self.pending.next_siginfo))
    }
}
