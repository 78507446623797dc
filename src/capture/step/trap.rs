//! Preserves the program's own SIGTRAP. If a step ends while SIGTRAP is blocked or ignored, the
//! kernel resets the program's handler and unblocks the signal (`force_sig_info_to_task` in
//! kernel/signal.c). So a thread that blocks SIGTRAP has it unblocked for its steps, until the
//! kernel next uses its signals; SIGTRAPs that come in between are held until it is blocked again.
//! System calls and signal frames see the program's own mask.
//!
//! The kernel forgets at the first step that the program ignores SIGTRAP: [`Ignored`] keeps that.

use crate::capture::Error;
use crate::common::{Addr, Pid, Tid};
use crate::tracee::call_numbers::RT_SIGACTION;
use crate::tracee::siginfo;
use crate::tracee::{self, Memory, SiginfoBytes, Signo, TRAP_BIT, Tracee, dispositions, signals};

/// The state of SIGTRAP in a thread.
#[derive(Debug, Default)]
pub(super) struct Trap {
    /// True if the program's own mask blocks SIGTRAP.
    blocked: bool,
    /// The program's mask, to be restored, while SIGTRAP is unblocked for steps; `None` otherwise.
    saved_mask: Option<u64>,
    /// A SIGTRAP of the program that came while the signal was unblocked for a step.
    held: Option<SiginfoBytes>,
    /// The siginfo of a held SIGTRAP that was sent again and is pending in the kernel.
    posted: Option<SiginfoBytes>,
    /// True if the thread is stopped at the end of a step, which can be turned into any SIGTRAP.
    pub(super) at_step: bool,
}

/// The decision on a SIGTRAP that is not the end of a step.
#[derive(Debug)]
pub(super) enum TrapDecision {
    /// The signal, with this siginfo, is delivered to the program now.
    Deliver(SiginfoBytes),
    /// The signal is held until the program's mask is restored.
    Hold,
}

impl Trap {
    /// Reads the thread's signal mask, which may have changed, unless SIGTRAP is unblocked for
    /// steps now.
    pub(super) fn read_mask(&mut self, tracee: Tracee) -> Result<(), Error> {
        if self.saved_mask.is_some() {
            return Ok(());
        }
        self.blocked = match tracee.signal_mask() {
            Err(error) if error.is_gone() => return Ok(()),
            result => result? & TRAP_BIT != 0,
        };
        Ok(())
    }

    /// Unblocks SIGTRAP, if the program blocks it, for steps of instructions that do not use
    /// signals: until [`Self::restore_mask`]. Does nothing while another unblocked signal is
    /// pending.
    pub(super) fn unblock_for_step(
        &mut self,
        pid: Pid,
        tracee: Tracee,
    ) -> Result<(), tracee::Error> {
        if !self.blocked || self.saved_mask.is_some() {
            return Ok(());
        }
        // A call such as ppoll(2) has another mask for its duration. It may have ended by a signal
        // that this mask allows and the program's own mask blocks. Setting a mask now would block
        // that signal again. It is delivered before the thread executes an instruction, so this
        // waits for the next step.
        let now = signals(pid, tracee.0)?;
        if now.pending & !now.blocked != 0 {
            return Ok(());
        }
        let mask = tracee.signal_mask()?;
        tracee.set_signal_mask(mask & !TRAP_BIT)?;
        self.saved_mask = Some(mask);
        Ok(())
    }

    /// Restores the program's mask before the kernel uses the thread's signals, and makes a held
    /// SIGTRAP pending again, in one of two ways: it replaces the SIGTRAP of the step for which the
    /// thread is stopped, or it is sent. Returns the signal to resume the thread with in the first
    /// case, otherwise 0. `deliver` is the signal that the caller will deliver (0: none).
    pub(super) fn restore_mask(
        &mut self,
        pid: Pid,
        tracee: Tracee,
        deliver: Signo,
    ) -> Result<Signo, tracee::Error> {
        let Some(mask) = self.saved_mask.take() else { return Ok(0) };
        tracee.set_signal_mask(mask)?;
        let Some(info) = self.held.take() else { return Ok(0) };
        if self.at_step && deliver == 0 {
            // The program's mask blocks the signal again, so the kernel queues it.
            tracee.set_signal_info(&info)?;
            return Ok(libc::SIGTRAP);
        }
        // A signal that is sent has the recorder's siginfo; `decide` restores the original.
        self.posted = Some(info);
        tracee.send(pid, libc::SIGTRAP)?;
        Ok(0)
    }

    /// Decides whether a SIGTRAP of the program is delivered now, or held until the program's mask
    /// is restored. Restores the siginfo of one that `restore_mask` sent. Only one is held, as in
    /// the kernel.
    pub(super) fn decide(
        &mut self,
        tracee: Tracee,
        info: SiginfoBytes,
    ) -> Result<TrapDecision, tracee::Error> {
        let info = match self.posted.take_if(|_| is_from_here(&info)) {
            None => info,
            Some(posted) => {
                tracee.set_signal_info(&posted)?;
                posted
            }
        };
        if self.saved_mask.is_none() {
            return Ok(TrapDecision::Deliver(info));
        }
        // Like the kernel, keep only one pending SIGTRAP.
        self.held.get_or_insert(info);
        Ok(TrapDecision::Hold)
    }
}

/// Returns true if the tracer sent the signal.
fn is_from_here(info: &SiginfoBytes) -> bool {
    let sender = [info[16], info[17], info[18], info[19]];
    siginfo::code_of(info) == libc::SI_TKILL && u32::from_ne_bytes(sender) == std::process::id()
}

const IGNORE: u64 = 1;

/// True if a process ignores SIGTRAP. The kernel forgets that at the first step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ignored(bool);

impl Ignored {
    /// Reads the state of a process that was not stepped yet from the kernel.
    pub(super) fn of(pid: Pid) -> Self {
        Self(dispositions(Tid(pid.0)).is_ok_and(|known| known.ignored & TRAP_BIT != 0))
    }

    /// Returns true if a SIGTRAP with this siginfo is dropped, since it is ignored. One that an
    /// instruction raises never is.
    pub(super) fn drops(self, info: &SiginfoBytes) -> bool {
        self.0 && siginfo::code_of(info) <= 0
    }

    /// Returns the state for SIGTRAP that a system call will set if it succeeds: its number and
    /// arguments are `number` and `args`. Returns `None` if it sets none.
    pub(super) fn set_by(memory: &Memory, number: u64, args: &[u64; 6]) -> Option<Self> {
        let [signal, action, ..] = *args;
        let mut handler = [0; 8];
        let asks = number == RT_SIGACTION && signal == u64::from(libc::SIGTRAP.unsigned_abs());
        let known = asks && action != 0 && memory.read(Addr(action), &mut handler) == handler.len();
        known.then(|| Self(u64::from_ne_bytes(handler) == IGNORE))
    }

    /// Applies the state that a completed `rt_sigaction(2)` for SIGTRAP has set (`asked`, from
    /// [`Self::set_by`]), and corrects the old action that it reported. Does nothing after other
    /// calls.
    pub(super) fn apply(
        &mut self,
        memory: &Memory,
        number: u64,
        args: &[u64; 6],
        asked: Option<Self>,
    ) {
        let [signal, _, old, ..] = *args;
        if number != RT_SIGACTION || signal != u64::from(libc::SIGTRAP.unsigned_abs()) {
            return;
        }
        if self.0 && old != 0 {
            // The kernel has just written there. If the memory is already gone, nothing can see it.
            let _ = memory.write(Addr(old), &IGNORE.to_ne_bytes());
        }
        *self = asked.unwrap_or(*self);
    }
}
