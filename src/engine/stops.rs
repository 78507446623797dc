//! Stops for a signal: which are the code cache's own traps and faults, and which the program's.
//! The cache raises SIGTRAP by INT3s and single steps, and SIGSEGV by full buffers, spent budgets,
//! and pages that the tracer closed or write-protected. A *request* is a thread's stop to ask for
//! code that has no *superblock*, as a translated piece of the program is called. *In the program*
//! means at the program's own code, outside of the cache.

use super::error::Error;
use super::process::TranslatedProcess;
use super::thread::{Place, TranslatedThread};
use crate::common::{Addr, AddrRange};
use crate::insn::MAX_INSN_BYTES;
use crate::tracee::{SiginfoBytes, Signo, siginfo};
use crate::translate::Location;

/// `si_code` of the SIGTRAP after a single step: over a system call, and over another instruction
/// (sigaction(2), and arch/x86 in the kernel).
const TRAP_BRKPT: i32 = 1;
const TRAP_TRACE: i32 = 2;
/// `si_code` of a SIGTRAP: a debug register's address was accessed.
const TRAP_HWBKPT: i32 = 4;
/// `si_code` of a SIGSEGV: a protection forbids it.
const SEGV_ACCERR: i32 = 2;
/// `si_code` of a SIGTRAP that INT3 raised.
const SI_KERNEL: i32 = 0x80;
/// `si_code` of the SIGTRAP that reports that a stepped thread has entered a signal handler.
const HANDLER_ENTERED: i32 = libc::SIGTRAP;

/// The task of a thread before it stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The thread ran, in the cache or in the program.
    Runs,
    /// The thread made a system call whose end its tracer wants to see.
    Calls,
    /// The thread executed one instruction in the program's own code.
    Steps,
    /// The thread was to enter a signal's handler.
    EntersHandler,
    /// The thread did anything else.
    Other,
}

/// Why a thread stopped for a signal.
#[derive(Clone, Copy, Debug)]
pub enum SignalStop {
    /// The thread asks for code that has no superblock yet.
    Request,
    /// The thread has spent its budget: it asks for code, though that may have a superblock.
    Spent,
    /// The thread is about to make a system call that its tracer wants to see.
    BeforeCall(Location),
    /// The thread is at an instruction that is not translated, or at an address where threads are
    /// to stop.
    Native(Location),
    /// The thread made and logged a system call, but the log lacks some of its effects.
    AfterCall,
    /// The thread accessed the page after one of its trace buffers.
    Guard,
    /// The thread wrote to a page, at this address, that code was translated from.
    CodeWrite(Addr),
    /// The thread is about to access this address, which is in closed foreign memory.
    Foreign(Addr),
    /// The thread wrote to a page, and faulted, but another thread's write has just made the page
    /// writable.
    StaleFault,
    /// The thread accessed memory that a debug register watches.
    Watchpoint,
    /// The system call or instruction that the thread was to execute is done.
    Done,
    /// The thread has entered a signal's handler.
    InHandler,
    /// The code cache faulted while the program had a blocked signal of the same number pending.
    /// The kernel reported only that signal. The fault will be repeated.
    HiddenFault,
    /// The signal is the program's: neither the code cache nor the tracer caused it.
    Program(SiginfoBytes),
}

impl SignalStop {
    /// Returns true if the stop is known to be the tracer's own, so that the program's mask and
    /// handler are to be restored ([`TranslatedProcess::restore_signal_state`]).
    pub fn is_tracers(&self) -> bool {
        match self {
            Self::Request
            | Self::Spent
            | Self::BeforeCall(_)
            | Self::Native(_)
            | Self::AfterCall
            | Self::CodeWrite(_)
            | Self::Foreign(_)
            | Self::StaleFault
            | Self::Done => true,
            // For these the caller decides.
            Self::Guard
            | Self::Watchpoint
            | Self::InHandler
            | Self::HiddenFault
            | Self::Program(_) => false,
        }
    }
}

/// Returns true for a SIGTRAP that reports an access to a debug register's address.
pub(super) fn is_watchpoint_trap(info: &SiginfoBytes) -> bool {
    siginfo::signal_of(info) == libc::SIGTRAP && siginfo::code_of(info) == TRAP_HWBKPT
}

impl TranslatedProcess {
    /// Returns why a thread, which did `phase`, stopped for a signal. Changes nothing: the caller
    /// handles the stop.
    pub fn classify_stop(
        &self,
        thread: &TranslatedThread,
        phase: Phase,
        signal: Signo,
    ) -> Result<SignalStop, Error> {
        let in_cache = phase == Phase::Runs && thread.place == Place::Cache;
        // By far the most stops. Should a SIGTRAP of the program's come between the request and its
        // INT3, that INT3 will be met without a request.
        if in_cache && signal == libc::SIGTRAP && self.request(thread).is_some() {
            return Ok(SignalStop::Request);
        }
        let info = thread.tracee.signal_info()?;
        let code = match (signal, phase) {
            _ if !thread.hides_forced_signal(&info) => siginfo::code_of(&info),
            // The kernel reported the program's signal in place of the cache's. A fault is
            // repeated; a trap is taken for the one that this phase ends with.
            (libc::SIGSEGV, _) => return Ok(SignalStop::HiddenFault),
            (_, Phase::Runs) => SI_KERNEL,
            _ => TRAP_TRACE,
        };
        let own = match (phase, signal, code) {
            (Phase::Runs, libc::SIGTRAP, SI_KERNEL) if in_cache => self.classify_trap(thread)?,
            (Phase::Runs, libc::SIGSEGV, 1..) if in_cache => {
                self.classify_fault(thread, phase, &info, code)?
            }
            (Phase::Steps, libc::SIGSEGV, 1..) => {
                self.classify_fault(thread, phase, &info, code)?
            }
            (Phase::Runs, libc::SIGTRAP, TRAP_HWBKPT) if in_cache => Some(SignalStop::Watchpoint),
            (Phase::Calls | Phase::Steps, libc::SIGTRAP, TRAP_TRACE | TRAP_BRKPT) => {
                Some(SignalStop::Done)
            }
            (Phase::EntersHandler, libc::SIGTRAP, HANDLER_ENTERED) => Some(SignalStop::InHandler),
            _ => None,
        };
        Ok(own.unwrap_or(SignalStop::Program(info)))
    }

    /// Returns the reason for an INT3 of a thread in the cache; `None` if the signal counts as the
    /// program's. So does the INT3 of a request that is answered already: a SIGTRAP of the program
    /// came in the midst of the request, and was taken for its INT3 ([`Self::classify_stop`]). The
    /// program gets its SIGTRAP now.
    fn classify_trap(&self, thread: &TranslatedThread) -> Result<Option<SignalStop>, Error> {
        let rip = thread.tracee.instruction_pointer()?.0;
        if let Some(at) = self.locate(rip).filter(|at| at.exact && at.point.state.has_early_record)
        {
            return Ok(Some(SignalStop::BeforeCall(at)));
        }
        if self.has_stopped_after_call(rip) {
            return Ok(Some(SignalStop::AfterCall));
        }
        let is_native = |at: &Location| {
            self.translator.superblock(at.superblock).is_some_and(|superblock| superblock.native)
        };
        Ok(self.locate(rip.wrapping_sub(1)).filter(is_native).map(SignalStop::Native))
    }

    /// Returns the reason for a fault; `None` if it is the program's. A thread that steps over a
    /// store also faults if another thread executed code of the page, so that the page was
    /// protected again. Its page is opened once more in any case, so this returns
    /// [`SignalStop::CodeWrite`].
    fn classify_fault(
        &self,
        thread: &TranslatedThread,
        phase: Phase,
        info: &SiginfoBytes,
        code: i32,
    ) -> Result<Option<SignalStop>, Error> {
        let Some(addr) = siginfo::fault_address(info) else { return Ok(None) };
        let steps = phase == Phase::Steps;
        if !steps && self.faults_for_budget(thread, addr)? {
            return Ok(Some(SignalStop::Spent));
        }
        if !steps && thread.area.is_guarded(addr) {
            return Ok(Some(SignalStop::Guard));
        }
        if self.space.foreign.faults_at(addr) {
            return Ok(Some(SignalStop::Foreign(addr)));
        }
        if self.space.is_masked(addr.page().0) {
            return Ok(Some(SignalStop::CodeWrite(addr)));
        }
        let is_stale = code == SEGV_ACCERR && self.would_store_succeed(thread, addr)?;
        let stale = if steps { SignalStop::CodeWrite(addr) } else { SignalStop::StaleFault };
        Ok(is_stale.then_some(stale))
    }

    /// Returns true if a fault at `addr` is that of an access which would succeed now, as the page
    /// is writable. A fault at the instruction's own bytes is one of execution: returns false.
    fn would_store_succeed(&self, thread: &TranslatedThread, addr: Addr) -> Result<bool, Error> {
        let ip = thread.tracee.instruction_pointer()?;
        let itself = AddrRange::sized(ip, MAX_INSN_BYTES as u64);
        Ok(!itself.contains(addr) && self.is_writable(addr)?)
    }
}
