//! The state of a debugger's session with a program that the CPU traces.

use crate::capture::contract::Go;
use crate::common::Tid;
use crate::insn::FlagsCopy;
use crate::tracee::debug_registers::Slot;
use std::collections::BTreeMap;

/// The state of a debugger's session with the program.
#[derive(Debug, Default)]
pub(super) struct Debugger {
    /// The current request, while threads run.
    pub(super) go: Option<Go>,
    /// The thread that executes a single step, with the stepped instruction.
    pub(super) stepping: Option<(Tid, NextStep)>,
    /// The number of single steps in a row since the other threads last ran.
    pub(super) steps_in_a_row: u32,
    /// The watchpoints that each thread's debug registers contain.
    pub(super) slots: Vec<Slot>,
    /// True while all threads are being stopped.
    pub(super) is_halting: bool,
    /// The original bytes that our INT3s replace, by address.
    pub(super) int3s: BTreeMap<u64, u8>,
    /// The thread in a vfork(2) for whose child our INT3s are removed.
    pub(super) int3s_removed_for: Option<Tid>,
}

/// The properties of a stepped instruction that matter after the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NextStep {
    /// The copy that the instruction makes of all flags: the debugger's trap flag in it is hidden
    /// from the program.
    pub(super) flags: FlagsCopy,
    /// The number of the system call that the instruction makes; `None` if it makes none.
    pub(super) call: Option<u64>,
}
