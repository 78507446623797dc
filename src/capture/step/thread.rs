//! A thread that is recorded by single-stepping. Its *path* encodes the executed instructions as
//! packets. An *exit stop* is the last stop of a thread, before it is gone.

use super::trap::{Ignored, Trap};
use crate::capture::debugged::{DebuggedThread, Pending};
use crate::capture::error::gone_is_fine;
use crate::capture::{Error, final_state};
use crate::common::{Addr, Pid, Tid};
use crate::encode::Path;
use crate::image::core;
use crate::insn::Insn;
use crate::tracee::call_numbers::EXECVE;
use crate::tracee::debug_registers::Watched;
use crate::tracee::{self, SiginfoBytes, Signo, Stop, Tracee, wait_for};

/// The state of a thread, as far as its tracer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// Stopped, ready to be stepped.
    Ready,
    /// Executing a single step: it will stop soon.
    Stepping,
    /// Executing a system call: it will stop when the call is done.
    InCall,
    /// Stopped with its process by job control.
    GroupStopped,
    /// Kept at its exit stop until all threads of its process are. Its registers were read.
    AtExitStop,
}

/// A system call that a thread makes or is about to make.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// The call's number; `None` for a 32-bit call (INT 0x80), which has other numbers.
    pub(super) number: Option<u64>,
    pub(super) args: [u64; 6],
    /// True once the kernel has started the call.
    pub(super) is_entered: bool,
    /// The action for SIGTRAP that the call sets; `None` if it sets none.
    pub(super) sets_ignored: Option<Ignored>,
    /// True if the path already contains the call's instruction.
    pub(super) is_in_path: bool,
}

impl Call {
    /// Returns the call of the execve(2) that started a launched program. The path does not contain
    /// its instruction.
    pub(super) fn executing() -> Self {
        let number = Some(EXECVE);
        let args = [0; 6];
        Self { number, args, is_entered: true, sets_ignored: None, is_in_path: true }
    }
}

/// A thread that is recorded by single-stepping, as its tracer knows it.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each becomes true and false at its own time")]
pub(in crate::capture) struct Thread {
    pub(super) tracee: Tracee,
    pub(super) pid: Pid,
    pub(super) activity: Activity,
    /// The address of the next instruction.
    pub(super) ip: Addr,
    /// The instruction at `ip`; `None` if it was not decoded yet, or is invalid.
    pub(super) insn: Option<Insn>,
    /// The encoder of the thread's executed instructions.
    pub(super) path: Path,
    /// The signal to deliver when the thread is resumed; 0 for none.
    pub(super) signal_to_deliver: Signo,
    /// The information of the last signal of the program that the thread got.
    pub(super) siginfo: Option<SiginfoBytes>,
    /// The system call that the thread is in, or is about to make.
    pub(super) current_call: Option<Call>,
    /// The address of the instruction of the system call that the kernel is about to repeat, unless
    /// a handler runs.
    pub(super) restarting_call: Option<Addr>,
    pub(super) trap: Trap,
    /// The state at the exit stop, or in the call in which the thread waits for its child.
    pub(super) exit_state: Option<core::Thread>,
    /// True if the thread has executed something, or entered a handler, since the debugger resumed
    /// it.
    pub(super) has_moved: bool,
    /// True if the thread executes its next instruction even at a breakpoint.
    pub(super) passes_breakpoint: bool,
    /// True if the thread is to stop: an interrupted system call is not repeated then.
    pub(super) is_to_stop: bool,
    /// True if the thread was stopped by job control when it was halted, and returns to that stop.
    pub(super) returns_to_group_stop: bool,
    /// True while the thread is in an execve(2) that starts another program.
    pub(super) is_in_execve: bool,
    /// True if the signal to deliver awaits the debugger's decision.
    pub(super) is_signal_held: bool,
    /// The thread's events for the debugger.
    pub(super) pending: Pending,
    pub(super) watched: Watched,
    /// The number of the system call before which the thread stopped for the debugger.
    pub(super) caught_call: Option<u64>,
    /// The number of the system call from which the thread has just returned, until that is
    /// reported.
    pub(super) returned_call: Option<u64>,
    /// True if the start of the call in `returned_call` was reported.
    pub(super) entry_was_reported: bool,
    /// The child process that the thread's system call has just created.
    pub(super) new_child: Option<Pid>,
    /// True if the thread is in a system call that waits for its child.
    pub(super) waits_for_child: bool,
}

impl Thread {
    /// Returns a thread that is stopped at `ip`, ready to be stepped; 0 for an address that is
    /// still to be read.
    pub(super) fn new(tid: Tid, pid: Pid, ip: Addr, path: Path) -> Self {
        Self {
            tracee: Tracee(tid),
            pid,
            activity: Activity::Ready,
            ip,
            insn: None,
            path,
            signal_to_deliver: 0,
            siginfo: None,
            current_call: None,
            restarting_call: None,
            trap: Trap::default(),
            exit_state: None,
            has_moved: false,
            passes_breakpoint: false,
            is_to_stop: false,
            returns_to_group_stop: false,
            is_in_execve: false,
            is_signal_held: false,
            pending: Pending::default(),
            watched: Watched::default(),
            caught_call: None,
            returned_call: None,
            entry_was_reported: false,
            new_child: None,
            waits_for_child: false,
        }
    }

    /// Returns the thread's number.
    pub(super) fn tid(&self) -> Tid {
        self.tracee.0
    }

    /// Adds the executed instruction `insn` to the path, and notes that the thread is now at
    /// `next`, which is not decoded yet, and where breakpoints count again.
    pub(super) fn retire(&mut self, insn: &Insn, next: Addr) {
        self.path.retire(insn, next);
        self.ip = next;
        self.insn = None;
        (self.has_moved, self.passes_breakpoint, self.pending.reported_stop) = (true, false, None);
    }

    /// Notes that the thread is at `ip` for another reason than its own instruction, such as a
    /// signal handler: adds an interrupt to its path, and forgets what was decoded and reported of
    /// the place where it was. Breakpoints count again.
    pub(super) fn divert(&mut self, ip: Addr) {
        self.path.interrupt(self.ip);
        self.ip = ip;
        (self.insn, self.caught_call) = (None, None);
        (self.has_moved, self.passes_breakpoint, self.pending.reported_stop) = (true, false, None);
    }

    /// Leaves the thread in a group stop with its process, for job control. If the thread is to
    /// stop for the debugger, notes instead that it returns to the group stop later.
    pub(super) fn stop_with_process(&mut self) -> Result<(), Error> {
        if self.is_to_stop {
            self.returns_to_group_stop = true;
            return Ok(());
        }
        self.activity = Activity::GroupStopped;
        gone_is_fine(self.tracee.listen())
    }

    /// Restores the thread's signal mask after steps with SIGTRAP unblocked (`trap`). Returns the
    /// signal to resume the thread with (0: none), which is a held SIGTRAP: not
    /// `signal_to_deliver`.
    pub(super) fn restore_trap_mask(&mut self) -> Result<Signo, tracee::Error> {
        self.trap.restore_mask(self.pid, self.tracee, self.signal_to_deliver)
    }

    /// Detaches from a thread, with its signal. Interrupts one that runs first, and waits for its
    /// stop.
    pub(super) fn detach(&mut self) {
        let tracee = self.tracee;
        let running =
            matches!(self.activity, Activity::Stepping | Activity::InCall | Activity::GroupStopped);
        // Detaching fails only for a thread that is gone.
        if !running {
            let again = self.restore_trap_mask().unwrap_or(0);
            let _ = tracee.detach(if again == 0 { self.signal_to_deliver } else { again });
        } else if tracee.interrupt().is_ok() {
            let mut stop = wait_for(tracee.0);
            // The thread's step may have ended at the same time, which is reported after this stop.
            let is_left = || tracee.has_pending_trap(self.pid);
            if matches!(stop, Ok(Stop::Event(_))) && is_left() && tracee.resume(0).is_ok() {
                stop = wait_for(tracee.0);
            }
            let signal = match stop {
                // The end of a step is not a signal for the program.
                Ok(Stop::Signal(libc::SIGTRAP)) => 0,
                Ok(Stop::Signal(signal)) => signal,
                _ => 0,
            };
            self.trap.at_step = false;
            let _ = self.restore_trap_mask();
            let _ = tracee.detach(signal);
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

    fn is_in_execve(&self) -> bool {
        self.is_in_execve
    }

    fn next_ip(&self) -> Option<Addr> {
        self.is_in_program().then_some(self.ip)
    }

    fn held_siginfo(&mut self) -> Option<&mut SiginfoBytes> {
        self.siginfo.as_mut().filter(|_| self.is_signal_held)
    }

    fn state(&self) -> Option<core::Thread> {
        if self.activity == Activity::AtExitStop
            || self.waits_for_child && self.activity == Activity::InCall
        {
            return self.exit_state.clone();
        }
        let held = self.siginfo.filter(|_| self.is_signal_held);
        final_state::read_thread(self.tracee, held.or(self.pending.next_siginfo))
    }
}
