//! A thread that is recorded by translation.

use crate::capture::debugged::{DebuggedThread, Pending};
use crate::capture::{Error, Report, final_state};
use crate::common::{Addr, Pid, Tid};
use crate::encode::Lane;
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

/// The activity of a thread, as far as its tracer knows. "Stopped" threads are outside the cache,
/// at the program's own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Runs in the cache.
    Running,
    /// Makes a system call, and stops at its end.
    Calling(Call),
    /// Executes one instruction of the program natively; `None` if it could not be decoded.
    Stepping(Option<Insn>),
    /// Enters the handler of a signal, and stops at its first instruction.
    Diverting,
    /// Is kept at its exit stop until all threads of its process are. Its registers were read.
    AtEnd,
    /// Is stopped, about to be detached from.
    Left,
    /// Is stopped for a debugger.
    Standing,
    /// Waits in the kernel until its vfork child executes a program or ends. The thread counts as
    /// stopped, since nothing can stop it.
    Waiting,
}

/// A thread of the program, as its tracer knows it.
#[derive(Debug)]
pub(in crate::capture) struct Thread {
    pub(super) translated: TranslatedThread,
    pub(super) doing: Doing,
    /// The thread's trace buffers.
    pub(super) lane: Lane,
    pub(super) siginfo: Option<SiginfoBytes>,
    /// The signal for which the thread stopped and that was not delivered yet; 0 for none.
    pub(super) held: Signo,
    /// The signal that the debugger chose to deliver when the thread is resumed; 0 for none.
    pub(super) chosen: Signo,
    /// The address and number of the system call before which the thread stopped for the debugger.
    pub(super) caught: Option<(u64, u64)>,
    /// The event to report when the thread's system call, which waits for its child, returns.
    pub(super) returns: Option<Report>,
    /// The thread's events for the debugger.
    pub(super) pending: Pending,
    pub(super) watched: Watched,
    /// The thread or process that this thread created last.
    pub(super) last_child: Option<Tid>,
    /// True while the thread is in a system call that waits for its child, as vfork(2).
    pub(super) waits: bool,
    /// True until the thread is interrupted for the first time.
    pub(super) is_young: bool,
    /// The restartable sequence to register when the recorder leaves: the one that the thread had
    /// when the recorder attached, or has requested since.
    pub(super) rseq: Option<Rseq>,
    /// The state at the exit stop, or at the end of the call in which the thread waits for its
    /// child.
    pub(super) ending: Option<core::Thread>,
}

impl Thread {
    pub(super) fn new(translated: TranslatedThread) -> Self {
        let lane = Lane::new(translated.tid(), translated.area, Arc::clone(&translated.busy));
        Self {
            translated,
            doing: Doing::Running,
            lane,
            siginfo: None,
            held: 0,
            chosen: 0,
            caught: None,
            returns: None,
            pending: Pending::default(),
            watched: Watched::default(),
            last_child: None,
            waits: false,
            is_young: true,
            rseq: None,
            ending: None,
        }
    }

    pub(super) fn tracee(&self) -> Tracee {
        self.translated.tracee
    }

    pub(super) fn pid(&self) -> Pid {
        self.translated.pid
    }

    pub(super) fn tid(&self) -> Tid {
        self.tracee().0
    }

    pub(super) fn phase(&self) -> Phase {
        match self.doing {
            Doing::Running => Phase::Runs,
            Doing::Calling(_) => Phase::Calls,
            Doing::Stepping(_) => Phase::Steps,
            Doing::Diverting => Phase::EntersHandler,
            Doing::AtEnd | Doing::Left | Doing::Standing | Doing::Waiting => Phase::Other,
        }
    }

    /// Resumes the thread with `signal` (0: none), in the activity that it was in.
    pub(super) fn go_on(&self, signal: Signo) -> Result<(), Error> {
        match self.doing {
            // The instruction, call or entry into the handler has not ended: step until it has.
            Doing::Calling(_) | Doing::Stepping(_) | Doing::Diverting => {
                self.tracee().step(signal)?;
            }
            Doing::Waiting => self.tracee().resume_to_call(signal)?,
            Doing::Running | Doing::AtEnd | Doing::Left | Doing::Standing => {
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
        self.doing == Doing::AtEnd
    }

    fn next_ip(&self) -> Option<Addr> {
        let stands = self.doing == Doing::Standing && !self.waits;
        stands.then(|| self.tracee().instruction_pointer().ok()).flatten()
    }

    fn held_siginfo(&mut self) -> Option<&mut SiginfoBytes> {
        self.siginfo.as_mut().filter(|_| self.held != 0)
    }

    fn state(&self) -> Option<core::Thread> {
        match self.doing {
            Doing::AtEnd | Doing::Waiting => self.ending.clone(),
            _ => {
                let held = self.siginfo.filter(|_| self.held != 0);
                let state =
                    final_state::read_thread(self.tracee(), held.or(self.pending.next_siginfo));
                state.map(final_state::forget_cache_address)
            }
        }
    }
}
