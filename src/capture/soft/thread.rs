//! A recorded thread.

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

/// A system call that stops before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) number: u64,
    pub(super) args: [u64; 6],
}

/// The activity of a thread, as far as its tracer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Runs in the cache.
    Running,
    /// Makes a system call at whose end it stops.
    Calling(Call),
    /// Executes one instruction in the program.
    Stepping(Option<Insn>),
    /// Enters the handler of a signal.
    Diverting,
    /// Is at its exit stop, with its registers read, until all of its process are.
    AtEnd,
    /// Is stopped in the program, about to be detached from.
    Left,
    /// Is stopped in the program, and a debugger looks at it.
    Standing,
    /// Waits in the kernel until its child executes a program or ends. It counts as stopped:
    /// nothing could stop it.
    Waiting,
}

/// A recorded thread.
#[derive(Debug)]
pub(in crate::capture) struct Thread {
    pub(super) translated: TranslatedThread,
    pub(super) doing: Doing,
    pub(super) lane: Lane,
    pub(super) siginfo: Option<SiginfoBytes>,
    /// The signal for which it stopped, not delivered yet.
    pub(super) held: Signo,
    /// The signal that the debugger gives it when it goes on.
    pub(super) chosen: Signo,
    /// The place and number of the system call before which it stopped for the debugger.
    pub(super) caught: Option<(u64, u64)>,
    /// The event for the return of the call in which it waits for its child.
    pub(super) returns: Option<Report>,
    /// Its events for the debugger.
    pub(super) pending: Pending,
    pub(super) watched: Watched,
    /// The thread or process that it created last.
    pub(super) last_child: Option<Tid>,
    /// Set while it is in a system call that waits for its child.
    pub(super) waits: bool,
    /// Set until it is interrupted for the first time.
    pub(super) is_young: bool,
    /// The registration that it had when the recorder attached.
    pub(super) rseq: Option<Rseq>,
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

    /// Delivers `signal` (0: none) without a change of the thread's activity.
    pub(super) fn go_on(&self, signal: Signo) -> Result<(), Error> {
        match self.doing {
            // Its instruction or call is still to come.
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

    fn is_at_end(&self) -> bool {
        self.doing == Doing::AtEnd
    }

    fn next_ip(&self) -> Option<Addr> {
        let stands = self.doing == Doing::Standing && !self.waits;
        stands.then(|| self.tracee().instruction_pointer().ok()).flatten()
    }

    fn held(&mut self) -> Option<&mut SiginfoBytes> {
        self.siginfo.as_mut().filter(|_| self.held != 0)
    }

    fn state(&self) -> Option<core::Thread> {
        match self.doing {
            Doing::AtEnd | Doing::Waiting => self.ending.clone(),
            _ => {
                let held = self.siginfo.filter(|_| self.held != 0);
                final_state::thread(self.tracee(), held.or(self.pending.siginfo))
            }
        }
    }
}
