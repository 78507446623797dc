//! The state of a debugger session: of the program, and of each thread.

use crate::capture::contract::{Catches, Forks};
use crate::capture::debugged::Pending;
use crate::common::{Pid, Tid};
use crate::insn::Registers;
use crate::tracee::debug_registers::{Slot, Watched};
use crate::tracee::{SiginfoBytes, Signo};
use std::collections::BTreeSet;

/// The debugger's last request to go on, and its state between requests.
#[derive(Debug, Default)]
pub(super) struct Debugger {
    /// The addresses at which threads stop before they execute the instruction.
    pub(super) stops: BTreeSet<u64>,
    /// The thread that the debugger steps: it executes one instruction.
    pub(super) stepping: Option<Tid>,
    /// The thread that runs whenever it can. Others run only while it cannot.
    pub(super) preferred_thread: Option<Tid>,
    /// True if no other thread than `preferred_thread` ever runs.
    pub(super) is_locked: bool,
    /// Signals that are delivered without a stop; signal 1 in bit 0.
    pub(super) passed: u64,
    /// Signals that are delivered to the stepping thread without a stop; signal 1 in bit 0.
    pub(super) passed_to_stepper: u64,
    /// The system calls that are reported, before and after.
    pub(super) catches: Catches,
    /// The births of children that are reported.
    pub(super) forks: Forks,
    /// The contents of the threads' debug registers.
    pub(super) watch_slots: Vec<Slot>,
    /// The number of steps in a row in which one thread alone executed an instruction: after some
    /// of them, the others run during a step, in case the thread waits for them (`go`).
    pub(super) lone_steps: u32,
    /// True once the current place of the program is in the log.
    pub(super) is_saved: bool,
}

impl Debugger {
    /// Returns true if calls are caught, or memory is watched that the kernel may write in them.
    pub(super) fn watches_calls(&self) -> bool {
        self.catches != Catches::None || !self.watch_slots.is_empty()
    }
}

/// A report on the child of a thread, when the call by which the thread made it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildReport {
    /// The birth of this child, which is stopped.
    Birth(Pid),
    /// The end of the thread's wait for this child (vfork(2)).
    WaitOver(Pid),
}

/// The state of a thread in a debugger session.
#[derive(Debug, Default)]
pub(super) struct DebugState {
    /// Its events for the debugger, and the signals of the debugger for it.
    pub(super) pending: Pending,
    /// The signal that it stopped for, which is not delivered yet.
    pub(super) held_signal: Option<SiginfoBytes>,
    /// The signal that the debugger gives it; 0 for none.
    pub(super) chosen_signal: Signo,
    /// The address of its next instruction, if a debugger's stop there does not stop it, since it
    /// goes on from there.
    pub(super) skipped_stop: Option<u64>,
    /// The caught system call before which it stopped, until it makes that call: the address of the
    /// SYSCALL, and the call's number.
    pub(super) reported_call: Option<(u64, u64)>,
    /// True if the return of its system call is to be reported.
    pub(super) reports_return: bool,
    /// The report to make on its child when the thread's call is done.
    pub(super) child_report: Option<ChildReport>,
    /// True if it is stopped in its system call by the recorder (`go`), and must be resumed there.
    pub(super) is_halted_in_call: bool,
    /// Its registers before the debugger changed them, until the change is logged; `None` if it
    /// changed none.
    pub(super) registers_before_change: Option<Registers>,
    /// Its debug registers, by which memory is watched.
    pub(super) watched: Watched,
}
