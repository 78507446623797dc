//! The requests of a debugger to a process that runs in translation. A *native* step is a single
//! step outside of the code cache.

use crate::capture::contract::{Catches, Forks};
use crate::common::Tid;
use crate::tracee::debug_registers::Slot;
use std::collections::{BTreeMap, BTreeSet};

/// The requests of a process's debugger, which decide where its threads stop.
#[derive(Debug, Default)]
pub(super) struct Debugger {
    /// The breakpoints: addresses at which the debugger stops threads, before they execute the
    /// instruction. [`Self::stops()`] has those where threads leave the cache for other reasons,
    /// too.
    pub(super) stops: BTreeSet<u64>,
    /// The thread that executes a single step; `None` if none does.
    pub(super) stepping: Option<Tid>,
    /// True if the debugger requested that only the thread that it resumes runs (`Go::locked`).
    pub(super) others_stay: bool,
    /// True if only the resumed thread runs now: for `others_stay`, or in a native step at which
    /// the others do not get their turn. A thread that it creates stops at its birth then.
    pub(super) holds_new_threads: bool,
    /// The address after the SYSCALL that the stepping thread executes, at which it stops; `None`
    /// if it executes another instruction.
    pub(super) step_ends_at: Option<u64>,
    /// The number of native single steps that the debugger has requested in a row.
    pub(super) steps_in_a_row: u32,
    /// The watchpoints that each thread's debug registers contain.
    pub(super) slots: Vec<Slot>,
    /// A mask of the signals that are delivered without a stop; signal 1 in bit 0.
    pub(super) passed: u64,
    /// A mask of the signals that are delivered to the stepping thread without a stop.
    pub(super) passed_to_stepper: u64,
    /// The system calls before and after which threads stop.
    pub(super) catches: Catches,
    /// The kinds of births of processes at which the parent stops.
    pub(super) forks: Forks,
    /// The threads that are in a caught system call, after which they stop: the address after the
    /// call, and its number.
    pub(super) caught_calls: BTreeMap<Tid, (u64, u64)>,
}

impl Debugger {
    /// Returns all addresses at which threads leave the cache: the breakpoints, the end of a step,
    /// and those after caught system calls.
    pub(super) fn stops(&self) -> BTreeSet<u64> {
        let after_calls = self.caught_calls.values().map(|(ip, _)| ip);
        self.stops.iter().chain(&self.step_ends_at).chain(after_calls).copied().collect()
    }
}
