//! Runs of threads: how far they go, and why they end.

use crate::insn::Registers;
use crate::tracee::{SiginfoBytes, Stop};
use crate::translate::{Bound, Hook};

/// The limit of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// Until a budget is spent, as [`super::TranslatedProcess::budget`] returns it.
    Budget(u64),
    /// Exactly this far, unless the superblock ends before.
    Bound(Bound),
}

/// A run that was begun.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    pub(super) budget: u64,
    /// The superblock that ends at a bound.
    pub(super) bounded: Option<u32>,
    /// Times that the thread left the cache.
    pub requests: u64,
    /// The registers with which it began, if stops are glances.
    pub(super) glances: Option<Registers>,
}

impl Running {
    /// Returns the ticks up to a point where R11 was `budget`, and counts from there on.
    pub fn ticks_until(&mut self, budget: u64) -> u64 {
        std::mem::replace(&mut self.budget, budget).wrapping_sub(budget)
    }
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub enum Run {
    /// The thread is stopped in the program, with its own registers.
    Ran(Ran),
    /// The thread is stopped in the program, and a signal is to be delivered to it.
    Signal(Ran, SiginfoBytes),
    /// Another stop, which the caller handles. The thread is where that left it.
    Other(Stop),
    /// It made and logged a system call, but the log lacks some of its effects. The run goes on.
    Called,
    /// It is at a stop, and waits in the cache for the answer to its glance.
    Glance(Glance),
}

/// The distance that a thread ran.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Ticks that it executed.
    pub ticks: u64,
    /// Instructions after the last tick, or in all where there is no tick. None: not counted.
    pub instructions: Option<u64>,
    /// Why the run ended.
    pub end: RunEnd,
}

/// The result of a step.
#[derive(Clone, Copy, Debug)]
pub enum Stepped {
    /// The instruction is executed.
    Done,
    /// A signal of the program is to be delivered first, or came of the instruction.
    Signal(SiginfoBytes),
    /// Something else happened to the thread.
    Other(Stop),
}

/// Why a run ended.
#[derive(Clone, Copy, Debug)]
pub enum RunEnd {
    /// The thread ran as far as it may, or its superblock ended.
    Distance,
    /// It is at a place where threads are to stop.
    Stop,
    /// It is at an instruction that its tracer has to execute, and what that asks for if it does
    /// not follow from the program's state.
    Native(Option<Hook>),
    /// It has executed an instruction that accessed memory which a debug register watches.
    Watchpoint,
    /// A signal came.
    Signal,
}

/// A thread at a stop, in the cache.
#[derive(Clone, Copy, Debug)]
pub struct Glance {
    /// The program's registers.
    pub registers: Registers,
    /// Answers to system calls that it has taken in the run.
    pub answered: u64,
    /// Its ticks since the last of them, or in the run if there is none.
    pub ticks: u64,
}
