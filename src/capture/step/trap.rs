//! The program's own SIGTRAP. Where a step ends while SIGTRAP is blocked or ignored, the kernel
//! resets the program's handler and unblocks the signal (`force_sig_info_to_task` in
//! kernel/signal.c). So a thread that blocks SIGTRAP lends it for the steps between two looks of
//! the kernel at its signals: it is unblocked then, and what comes meanwhile is held until it is
//! blocked again. System calls and signal frames see the mask as the program made it.
//!
//! That SIGTRAP is ignored is not told to the kernel at all: [`Ignored`] keeps it.

use super::thread::{Call, Thread};
use crate::capture::Error;
use crate::common::{Addr, Pid, Tid};
use crate::tracee::call_numbers::RT_SIGACTION;
use crate::tracee::siginfo;
use crate::tracee::{self, Memory, SiginfoBytes, Signo, TRAP_BIT, dispositions, signals};

/// What a thread has to do with SIGTRAP.
#[derive(Debug, Default)]
pub(super) struct Trap {
    /// It is blocked, as far as the program can see.
    blocked: bool,
    /// The mask to put back, while the kernel has it without SIGTRAP.
    lent: Option<u64>,
    /// A SIGTRAP of the program that came while it was lent.
    held: Option<SiginfoBytes>,
    /// What stands for the held one in the kernel, and what that was about.
    posted: Option<SiginfoBytes>,
    /// The thread stands at the end of a step, which can be turned into any SIGTRAP.
    pub(super) at_step: bool,
}

/// What is to become of a SIGTRAP that is not the tracer's.
#[derive(Debug)]
pub(super) enum Fate {
    Deliver(SiginfoBytes),
    /// It waits until it is no longer blocked.
    Hold,
}

impl Thread {
    /// The thread may have another mask now.
    pub(super) fn look_at_mask(&mut self) -> Result<(), Error> {
        if self.trap.lent.is_some() {
            return Ok(());
        }
        self.trap.blocked = match self.tracee.signal_mask() {
            Err(error) if error.is_gone() => return Ok(()),
            result => result? & TRAP_BIT != 0,
        };
        Ok(())
    }

    /// Prepares for the step of a plain instruction.
    pub(super) fn lend_trap(&mut self) -> Result<(), tracee::Error> {
        if !self.trap.blocked || self.trap.lent.is_some() {
            return Ok(());
        }
        // A call with a mask of its own may have ended by a signal that only this mask lets
        // through: that one comes first, and setting the mask would lose it.
        let now = signals(self.pid, self.tid())?;
        if now.pending & !now.blocked != 0 {
            return Ok(());
        }
        let mask = self.tracee.signal_mask()?;
        self.tracee.set_signal_mask(mask & !TRAP_BIT)?;
        self.trap.lent = Some(mask);
        Ok(())
    }

    /// Prepares for something that sees the thread's signals. Gives what to resume it with.
    pub(super) fn give_trap_back(&mut self) -> Result<Signo, tracee::Error> {
        let Some(mask) = self.trap.lent.take() else { return Ok(0) };
        self.tracee.set_signal_mask(mask)?;
        let Some(info) = self.trap.held.take() else { return Ok(0) };
        if self.trap.at_step && self.deliver == 0 {
            // As it is blocked, the kernel queues it again.
            self.tracee.set_signal_info(&info)?;
            return Ok(libc::SIGTRAP);
        }
        self.trap.posted = Some(info);
        self.tracee.send(self.pid, libc::SIGTRAP)?;
        Ok(0)
    }

    /// A SIGTRAP of the program's is about to be delivered.
    pub(super) fn fate_of_trap(&mut self, info: SiginfoBytes) -> Result<Fate, tracee::Error> {
        let info = match self.trap.posted.take_if(|_| is_from_here(&info)) {
            None => info,
            Some(posted) => {
                self.tracee.set_signal_info(&posted)?;
                posted
            }
        };
        if self.trap.lent.is_none() {
            return Ok(Fate::Deliver(info));
        }
        // Of two, one is pending: so the kernel does.
        self.trap.held.get_or_insert(info);
        Ok(Fate::Hold)
    }
}

/// Whether the tracer sent the signal.
fn is_from_here(info: &SiginfoBytes) -> bool {
    let sender = [info[16], info[17], info[18], info[19]];
    siginfo::code_of(info) == libc::SI_TKILL && u32::from_ne_bytes(sender) == std::process::id()
}

const IGNORE: u64 = 1;

/// Whether a process ignores SIGTRAP. The first step makes the kernel forget.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ignored(bool);

impl Ignored {
    /// As the process has it that was not stepped yet.
    pub(super) fn of(pid: Pid) -> Self {
        Self(dispositions(Tid(pid.0)).is_ok_and(|known| known.ignored & TRAP_BIT != 0))
    }

    /// Whether a signal like this is dropped. What an instruction raises never is.
    pub(super) fn drops(self, info: &SiginfoBytes) -> bool {
        self.0 && siginfo::code_of(info) <= 0
    }

    /// The action that a thread is about to set for SIGTRAP, if it is.
    pub(super) fn asked(memory: &Memory, call: &Call) -> Option<Self> {
        let [signal, action, ..] = call.args;
        let mut handler = [0; 8];
        let asks = call.number == RT_SIGACTION && signal == u64::from(libc::SIGTRAP.unsigned_abs());
        let known = asks && action != 0 && memory.read(Addr(action), &mut handler) == handler.len();
        known.then(|| Self(u64::from_ne_bytes(handler) == IGNORE))
    }

    /// The call did so: what it told of the old action is made right.
    pub(super) fn set(&mut self, memory: &Memory, call: &Call) {
        let [signal, _, old, ..] = call.args;
        if call.number != RT_SIGACTION || signal != u64::from(libc::SIGTRAP.unsigned_abs()) {
            return;
        }
        if self.0 && old != 0 {
            // The kernel wrote there a moment ago; if it is gone already, nobody sees it.
            let _ = memory.write(Addr(old), &IGNORE.to_ne_bytes());
        }
        *self = call.ignores.unwrap_or(*self);
    }
}
