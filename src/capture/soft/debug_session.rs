//! The state of a debugger session.

use crate::capture::contract::{Catches, Forks};
use crate::common::Tid;
use crate::tracee::debug_registers::Slot;
use std::collections::{BTreeMap, BTreeSet};

/// The stops that the debugger of a process requested.
#[derive(Debug, Default)]
pub(super) struct Debugger {
    pub(super) stops: BTreeSet<u64>,
    /// The thread that executes one instruction.
    pub(super) stepping: Option<Tid>,
    /// The other threads stay stopped, since the debugger wants that.
    pub(super) steps_alone: bool,
    /// One thread runs alone, and a thread that it creates waits at its birth.
    pub(super) holds_newborns: bool,
    /// The place after its instruction where that thread stops, if it runs in the cache.
    pub(super) following: Option<u64>,
    /// The single instructions that it has executed in a row.
    pub(super) lone_steps: u32,
    /// The contents of the threads' debug registers.
    pub(super) slots: Vec<Slot>,
    /// Signals that are delivered without a stop.
    pub(super) passed: u64,
    /// Signals that are delivered to the stepping thread without a stop.
    pub(super) passed_to_stepper: u64,
    /// System calls at which threads stop.
    pub(super) catches: Catches,
    /// Births of processes at which threads stop.
    pub(super) forks: Forks,
    /// Threads that stop after the system call that they are in: the place, and its number.
    pub(super) calling: BTreeMap<Tid, (u64, u64)>,
}

impl Debugger {
    /// Returns all places where threads leave the cache.
    pub(super) fn stops(&self) -> BTreeSet<u64> {
        let after_calls = self.calling.values().map(|(ip, _)| ip);
        self.stops.iter().chain(&self.following).chain(after_calls).copied().collect()
    }
}
