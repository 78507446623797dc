//! A thread that is recorded by translation. It runs in the code cache, and is stopped either there
//! or outside, at the program's own code.
//!
//! An *exit stop* is the last stop of a thread, before it is gone (`PTRACE_EVENT_EXIT`).

use crate::capture::debugged::{DebuggedThread, Pending};
use crate::capture::{Error, Report, final_state};
use crate::common::{Addr, Pid, Tid};
use crate::encode::ThreadBuffers;
use crate::engine::{Phase, TranslatedThread};
use crate::image::core;
use crate::insn::Insn;
use crate::tracee::debug_registers::Watched;
use crate::tracee::{Rseq, SiginfoBytes, Signo, Tracee};
use std::sync::Arc;

/// A system call before which its thread stopped: its number and arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) number: u64,
    pub(super) args: [u64; 6],
}

/// The activity of a thread, as far as its tracer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// Runs in the cache.
    Running,
    /// Makes this system call, and stops at its end.
    InCall(Call),
    /// Executes this instruction of the program natively, outside the cache; `None` if it could not
    /// be decoded.
    Stepping(Option<Insn>),
    /// Enters the handler of a signal, and stops at its first instruction.
    EnteringHandler,
    /// Is kept at its exit stop until all threads of its process are at theirs. Its registers were
    /// read.
    AtExitStop,
    /// Is stopped outside the cache, about to be detached from.
    ReadyToDetach,
    /// Is stopped outside the cache for a debugger, or for a snapshot.
    Stopped,
    /// Waits in the kernel until its vfork child executes a program or ends, after a debugger has
    /// resumed it there. The thread counts as stopped, since nothing can stop it.
    WaitingForChild,
}

/// A thread of the program, as its tracer knows it.
#[derive(Debug)]
pub(in crate::capture) struct Thread {
    /// The thread as the engine knows it: its place (in the cache or outside), its memory.
    pub(super) translated: TranslatedThread,
    pub(super) activity: Activity,
    /// The thread's trace buffers.
    pub(super) buffers: ThreadBuffers,
    /// The information of the last signal of the program that the thread got.
    pub(super) siginfo: Option<SiginfoBytes>,
    /// The signal for which the thread stopped and that was not delivered yet; 0 for none.
    pub(super) held_signal: Signo,
    /// The signal that the debugger chose to deliver when the thread is resumed; 0 for none.
    pub(super) chosen_signal: Signo,
    /// The address and number of the system call before which the thread stopped for the debugger,
    /// so that it does not stop there again.
    pub(super) caught_call: Option<(u64, u64)>,
    /// The event to report when the thread's system call, which waits for its child, returns.
    pub(super) report_after_wait: Option<Report>,
    /// The thread's events for the debugger.
    pub(super) pending: Pending,
    /// The watchpoints in the thread's debug registers.
    pub(super) watched: Watched,
    /// The thread or process that this thread created last.
    pub(super) last_child: Option<Tid>,
    /// True while the thread is in a system call that waits for its child, as vfork(2): stopped
    /// there, or [`Activity::WaitingForChild`].
    pub(super) waits_for_child: bool,
    /// True until the recorder interrupts the thread for the first time: a thread that is created
    /// while all are being stopped has to be interrupted as well.
    pub(super) was_never_interrupted: bool,
    /// The restartable sequence to register when the recorder leaves: the one that the thread had
    /// when the recorder attached, or has requested since.
    pub(super) rseq: Option<Rseq>,
    /// The state at the exit stop, or at the end of the call in which the thread waits for its
    /// child.
    pub(super) exit_state: Option<core::Thread>,
}

impl Thread {
    /// Returns a thread that counts as running in the cache. The caller resumes it, or sets
    /// `activity`.
    pub(super) fn new(translated: TranslatedThread) -> Self {
        let buffers =
            ThreadBuffers::new(translated.tid(), translated.area, Arc::clone(&translated.busy));
        Self {
            translated,
            activity: Activity::Running,
            buffers,
            siginfo: None,
            held_signal: 0,
            chosen_signal: 0,
            caught_call: None,
            report_after_wait: None,
            pending: Pending::default(),
            watched: Watched::default(),
            last_child: None,
            waits_for_child: false,
            was_never_interrupted: true,
            rseq: None,
            exit_state: None,
        }
    }

    /// Returns the thread, for ptrace requests.
    pub(super) fn tracee(&self) -> Tracee {
        self.translated.tracee
    }

    /// Returns the thread's process.
    pub(super) fn pid(&self) -> Pid {
        self.translated.pid
    }

    /// Returns the thread's number.
    pub(super) fn tid(&self) -> Tid {
        self.tracee().0
    }

    /// Returns the activity as the engine needs it to classify a stop.
    pub(super) fn phase(&self) -> Phase {
        match self.activity {
            Activity::Running => Phase::Runs,
            Activity::InCall(_) => Phase::Calls,
            Activity::Stepping(_) => Phase::Steps,
            Activity::EnteringHandler => Phase::EntersHandler,
            Activity::AtExitStop
            | Activity::ReadyToDetach
            | Activity::Stopped
            | Activity::WaitingForChild => Phase::Other,
        }
    }

    /// Resumes the thread with `signal` (0: none), in its current activity: by a single step if it
    /// is to stop at the end of that, or up to the end of the call in which it waits for a child.
    /// Does not change the activity.
    pub(super) fn resume_activity(&self, signal: Signo) -> Result<(), Error> {
        match self.activity {
            // The instruction, call or entry into the handler has not ended: step until it has.
            Activity::InCall(_) | Activity::Stepping(_) | Activity::EnteringHandler => {
                self.tracee().step(signal)?;
            }
            Activity::WaitingForChild => self.tracee().resume_to_call(signal)?,
            Activity::Running
            | Activity::AtExitStop
            | Activity::ReadyToDetach
            | Activity::Stopped => {
                self.tracee().resume(signal)?;
            }
        }
        Ok(())
    }
}

impl DebuggedThread for Thread {
    fn process(&self) -> Pid {
        self.pid()
    }

    fn pending(&mut self) -> &mut Pending {
        &mut self.pending
    }

    fn is_at_exit_stop(&self) -> bool {
        self.activity == Activity::AtExitStop
    }

    fn next_ip(&self) -> Option<Addr> {
        let is_stopped = self.activity == Activity::Stopped && !self.waits_for_child;
        is_stopped.then(|| self.tracee().instruction_pointer().ok()).flatten()
    }

    fn held_siginfo(&mut self) -> Option<&mut SiginfoBytes> {
        self.siginfo.as_mut().filter(|_| self.held_signal != 0)
    }

    fn state(&self) -> Option<core::Thread> {
        match self.activity {
            Activity::AtExitStop | Activity::WaitingForChild => self.exit_state.clone(),
            _ => {
                let held = self.siginfo.filter(|_| self.held_signal != 0);
                let state =
                    final_state::read_thread(self.tracee(), held.or(self.pending.next_siginfo));
                state.map(final_state::forget_cache_address)
            }
        }
    }
}
