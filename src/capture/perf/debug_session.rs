//! The state of a debugger session.

use crate::capture::contract::Go;
use crate::common::Tid;
use crate::insn::FlagsCopy;
use crate::tracee::debug_registers::Slot;
use std::collections::BTreeMap;

/// The state of a debugger session.
#[derive(Debug, Default)]
pub(super) struct Debugger {
    /// The current request, while threads run.
    pub(super) go: Option<Go>,
    /// The thread that executes one instruction, and the kind of that instruction.
    pub(super) stepping: Option<(Tid, Stepped)>,
    /// The number of single steps of one thread in a row.
    pub(super) lone_steps: u32,
    /// The slots that all threads' debug registers watch.
    pub(super) slots: Vec<Slot>,
    /// True while all threads are being stopped.
    pub(super) halts: bool,
    /// The bytes that INT3s replace, by address.
    pub(super) planted: BTreeMap<u64, u8>,
    /// The thread in a vfork for which the INT3s are removed.
    pub(super) lifted_for: Option<Tid>,
}

/// An instruction that is stepped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stepped {
    /// The copy that it makes of all flags.
    pub(super) flags: FlagsCopy,
    /// The number of the system call, if it is one.
    pub(super) call: Option<u64>,
}
