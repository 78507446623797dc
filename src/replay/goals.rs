//! The *goals* of a run through a replay, at which it ends before its target, and the reasons why a
//! move or a run ended. A goal is a *stop*, the address of an instruction, or an *act of the
//! kernel*: a system call, its return or a signal.

use super::outline::KernelEvent;
use super::process::Replay;
use crate::common::Addr;
use crate::recording::log::{Cursor, Entry};
use crate::tracee::SiginfoBytes;
use std::collections::BTreeSet;

/// The conditions that end a run before its target. Watches of memory are given besides them.
#[derive(Clone, Copy)]
pub struct Goals<'a> {
    /// The addresses of instructions before which the run ends.
    pub stops: &'a BTreeSet<Addr>,
    /// Called when the run is at one of these instructions, with the replay there. The run goes on
    /// if it returns false. It is called again, at a stopped thread, if [`Replay::needs_stop`] is
    /// true after the call.
    pub accepts: &'a dyn Fn(&Replay) -> bool,
    /// Returns true for the acts of the kernel at which the run ends.
    pub events: &'a dyn Fn(KernelEvent) -> bool,
    /// The number of an entry before which the run does not end, though it makes a system call or
    /// delivers a signal that is a goal: the last run ended there.
    pub passed: Option<u64>,
    /// A number that is the same only for goals whose functions return the same. The hits of a
    /// search are kept for later ones with the same key.
    pub key: u64,
    /// Called regularly. The run ends if it returns true.
    pub interrupted: &'a dyn Fn() -> bool,
}

impl<'a> Goals<'a> {
    /// Returns goals that end a run at each of these stops, or when `interrupted` returns true. No
    /// act of the kernel ends it.
    pub fn at(stops: &'a BTreeSet<Addr>, interrupted: &'a dyn Fn() -> bool) -> Self {
        let (accepts, events) = (&|_: &Replay| true, &|_| false);
        Self { stops, accepts, events, passed: None, key: 0, interrupted }
    }
}

impl Replay {
    /// Returns the system call that the next entry makes, or the signal that it delivers, if it is
    /// a goal that ends a run before the entry ([`Self::event_before`]). Called when the entry's
    /// thread is where the entry happens.
    pub(super) fn event_ahead(&self, goals: &Goals<'_>) -> Option<KernelEvent> {
        self.event_before(self.cursor.index(), goals)
    }

    /// Returns the system call that entry number `entry` makes, or the signal that it delivers, if
    /// it is a goal that ends a run before the entry. `None` also for the entry of
    /// [`Goals::passed`].
    pub(super) fn event_before(&self, entry: u64, goals: &Goals<'_>) -> Option<KernelEvent> {
        let event = self.outline.event_before(entry).filter(|_| goals.passed != Some(entry));
        event.filter(|event| (goals.events)(*event))
    }

    /// Returns the system call that returned in the last entry before the cursor, if that is a goal
    /// that ends a run after the entry.
    pub(super) fn event_passed(&self, goals: &Goals<'_>) -> Option<KernelEvent> {
        self.event_after(self.cursor.index().checked_sub(1)?, goals)
    }

    /// Returns the system call that returned in an entry, if that is a goal that ends a run after
    /// the entry.
    pub(super) fn event_after(&self, entry: u64, goals: &Goals<'_>) -> Option<KernelEvent> {
        let event = self.outline.event_after(entry);
        event.filter(|event| (goals.events)(*event))
    }
}

/// The reason why a move of the replay ended: a run, a step or a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveEnd {
    /// The replay is where the move was to lead, after a step for instance.
    Target,
    /// The replay is at the beginning or the end of the run: there are no more instructions in the
    /// direction of the move.
    NoMoreHistory,
    /// A thread is about to execute an instruction of [`Goals::stops`] that the goals accept.
    Stop,
    /// The kernel is about to do something that is a goal, or has done so.
    Event(KernelEvent),
    /// The memory of the watch with this index was accessed. The access is done; after a move
    /// backwards, it is about to happen.
    Watch(usize),
    /// The user interrupted the run.
    Interrupted,
}

/// The reason why one run of the loaded thread in the engine ended. A move consists of many such
/// runs.
pub(super) enum EngineEvent {
    /// The thread executed up to its limit, or a part of that, and nothing happened.
    Nothing,
    /// The thread is at an instruction with a hook, for which the log has an entry.
    Hook,
    /// The thread is at one of the stops.
    Stop,
    /// Watched memory may have been accessed: the caller compares it. True if the thread is also at
    /// a stop, which the next run would pass.
    MaybeWatch(bool),
    /// The thread has faulted.
    Fault(Box<SiginfoBytes>),
}

/// The facts by which the tracer decides whether a thread goes on from a glance, a stop that the
/// engine reports while the thread waits in the code cache. Either `entry` is set or `cursors`: in
/// a run to a hook, the cache may *answer* entries, apply their effects itself
/// ([`super::answers`]).
pub(super) struct GlanceFacts<'a> {
    pub(super) goals: &'a Goals<'a>,
    /// The next entry of the log, in a run in which the cache answers none.
    pub(super) entry: Option<&'a Entry>,
    /// In a run to a hook: a cursor at each entry that the cache may answer, and at the next one
    /// after them.
    pub(super) cursors: Option<&'a [Cursor]>,
}
