//! A thread that runs translated.

use crate::capture::debug_registers::Watched;
use crate::capture::debugged::{DebuggedThread, Pending};
use crate::capture::{Error, News, final_state};
use crate::common::{Addr, Pid, Tid};
use crate::encode::Lane;
use crate::engine::{Phase, TranslatedThread};
use crate::image::core;
use crate::insn::Insn;
use crate::tracee::{Rseq, SiginfoBytes, Signo, Tracee};
use std::sync::Arc;

/// A system call that the tracer wants to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) number: u64,
    pub(super) args: [u64; 6],
}

/// What a thread is doing, as far as its tracer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// Runs by itself.
    Running,
    /// Executes a system call that the tracer wants to see; its stop comes when the call is done.
    Calling(Call),
    /// Executes one instruction of the program where it is.
    Stepping(Option<Insn>),
    /// Goes to the handler of a signal.
    Diverting,
    /// Stands at its end, with its registers read, until all of its process do.
    AtEnd,
    /// Stands in the program, and is about to be left.
    Left,
    /// Stands in the program, and a debugger looks at it.
    Standing,
    /// Waits in the kernel until its child executes a program or ends, and comes into the program
    /// then. It counts as standing still: nobody could stop it.
    Waiting,
}

/// A thread.
#[derive(Debug)]
pub(in crate::capture) struct Thread {
    pub(super) translated: TranslatedThread,
    pub(super) doing: Doing,
    pub(super) lane: Lane,
    pub(super) siginfo: Option<SiginfoBytes>,
    /// The signal that it stands at, which was not delivered.
    pub(super) held: Signo,
    /// The signal that the debugger wants it to have when it goes on.
    pub(super) chosen: Signo,
    /// Where it stands before a system call that the debugger was told of, and its number.
    pub(super) caught: Option<(u64, u64)>,
    /// It waits for its child in a call whose return the debugger is to hear of.
    pub(super) returns: Option<News>,
    /// What the debugger is to hear of it.
    pub(super) pending: Pending,
    pub(super) watched: Watched,
    /// The thread or process that it made last.
    pub(super) last_child: Option<Tid>,
    /// It stands in a system call that waits for its child.
    pub(super) waits: bool,
    /// Nothing has asked it to stop since it was made.
    pub(super) is_young: bool,
    /// What it had registered with the kernel when the recorder came.
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

    /// Delivers `signal` (0: none), which changes nothing of what the thread is doing.
    pub(super) fn go_on(&self, signal: Signo) -> Result<(), Error> {
        match self.doing {
            // What it was about to execute is still to come.
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
