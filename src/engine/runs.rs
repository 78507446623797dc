//! Runs of threads in code that counts *ticks* ([`crate::translate::is_tick`]): how far they go,
//! and why they end. A run is limited by a budget of ticks, which it may leave unused in part, or
//! by a bound, at which it ends exactly. A *glance* is a stop at which the thread waits in the
//! cache. A *superblock* is a translated piece of the program. *In the program* means at its own
//! code, outside of the cache.

use crate::insn::Registers;
use crate::tracee::{SiginfoBytes, Stop};
use crate::translate::{Bound, Hook};

/// The limit of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLimit {
    /// Until a budget is spent, as [`super::TranslatedProcess::budget`] returns it.
    Budget(u64),
    /// Exactly as far as this bound, or to the end of the first superblock if that comes before.
    Bound(Bound),
}

/// A run that was begun and has not ended.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    /// The budget from which the run's ticks are counted.
    pub(super) budget: u64,
    /// The number of the superblock that was made for this run and ends at its bound; `None` if the
    /// run is limited by a budget.
    pub(super) bounded: Option<u32>,
    /// The number of times that the thread stopped for its tracer.
    pub stops: u64,
    /// The thread's registers when the run began, for those that a glance does not show; `None` if
    /// the thread stops where it could glance.
    pub(super) glances: Option<Registers>,
}

impl Running {
    /// Returns the budget from which the run's ticks are counted.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Returns the ticks that the run had executed when `budget` was left, and counts its later
    /// ticks from there on: [`Self::budget`] is `budget` afterwards.
    pub fn ticks_until(&mut self, budget: u64) -> u64 {
        std::mem::replace(&mut self.budget, budget).wrapping_sub(budget)
    }
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub enum RunOutcome {
    /// The thread is stopped in the program, with its own registers.
    Ended(EndedRun),
    /// The thread is stopped in the program, and this signal of the program is to be delivered to
    /// it.
    Signal(EndedRun, SiginfoBytes),
    /// Another stop, which the caller handles. The thread is where that left it.
    Other(Stop),
    /// The thread made and logged a system call, and is stopped in the cache after it, since the
    /// log lacks some of its effects. The run has not ended.
    IncompleteCall,
    /// The thread is at an address where threads are to stop, and waits in the cache, running, for
    /// the answer to its glance. The run has not ended.
    Glance(Glance),
}

/// The distance that a thread ran, and why it stopped.
#[derive(Clone, Copy, Debug)]
pub struct EndedRun {
    /// The number of ticks that the thread executed.
    pub ticks: u64,
    /// The number of instructions after the last tick, or in all where there is no tick; `None` if
    /// they are not counted, as in runs by a budget.
    pub instructions: Option<u64>,
    /// Why the run ended.
    pub end: RunEnd,
}

/// The result of executing one instruction of the program.
#[derive(Clone, Copy, Debug)]
pub enum Stepped {
    /// The instruction is executed, with all its repetitions.
    Done,
    /// A signal of the program is to be delivered: it came first, or the instruction raised it.
    Signal(SiginfoBytes),
    /// The thread had another stop, which the caller handles.
    Other(Stop),
}

/// Why a run ended.
#[derive(Clone, Copy, Debug)]
pub enum RunEnd {
    /// The thread ran as far as it may: its budget is spent, its bounded superblock has ended, the
    /// cache has no room, or the run was interrupted.
    Limit,
    /// The thread is at an address where threads are to stop.
    Stop,
    /// The thread is at an instruction that its tracer has to execute: because of this hook, or,
    /// without one, as it is. Then it is not translated, is to write to code or to use foreign
    /// memory, or branches to an address that is not canonical.
    Native(Option<Hook>),
    /// The thread has executed an instruction that accessed memory which a debug register watches.
    Watchpoint,
    /// A signal of the program came.
    Signal,
}

/// The state of a thread that waits at a stop, in the cache.
#[derive(Clone, Copy, Debug)]
pub struct Glance {
    /// The program's registers.
    pub registers: Registers,
    /// The number of answers to system calls that the thread has taken in the run.
    pub answered: u64,
    /// The thread's ticks since the last of these answers, or in the run if there is none.
    pub ticks: u64,
}
