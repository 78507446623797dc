//! The goals of a run through a replay, and what it found.

use super::outline::KernelEvent;
use super::process::Replay;
use crate::common::Addr;
use crate::recording::log::{Cursor, Entry};
use crate::tracee::SiginfoBytes;
use std::collections::BTreeSet;

/// The conditions that end a run on its way.
#[derive(Clone, Copy)]
pub struct Goals<'a> {
    /// The addresses of instructions before which the run ends.
    pub stops: &'a BTreeSet<Addr>,
    /// Called at each of these instructions. The run goes on if it returns false. It is called
    /// again, at a stopped thread, if [`Replay::needs_stop`] is true after the call.
    pub accepts: &'a dyn Fn(&Replay) -> bool,
    /// Returns true for the acts of the kernel at which the run ends.
    pub events: &'a dyn Fn(KernelEvent) -> bool,
    /// The number of an entry whose system call or signal does not end the run: the last run ended
    /// before it.
    pub passed: Option<u64>,
    /// A number that is the same only for goals whose functions return the same. The hits of a
    /// search are kept for later ones with the same key.
    pub key: u64,
    /// Called regularly. The run ends if it returns true.
    pub interrupted: &'a dyn Fn() -> bool,
}

impl<'a> Goals<'a> {
    /// Returns goals that end a run at these stops only.
    pub fn at(stops: &'a BTreeSet<Addr>, interrupted: &'a dyn Fn() -> bool) -> Self {
        let (accepts, events) = (&|_: &Replay| true, &|_| false);
        Self { stops, accepts, events, passed: None, key: 0, interrupted }
    }
}

/// The reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The run is where it was to go.
    Goal,
    /// The run has no more instructions in this direction.
    End,
    /// A thread is about to execute an instruction that is a goal.
    Stop,
    /// The kernel is about to do something to a thread, or has done so.
    Event(KernelEvent),
    /// The memory of the watch with this index was accessed. The access is done.
    Watch(usize),
    /// The user interrupted the run.
    Interrupted,
}

/// The reason why the loaded thread's run in the engine ended.
pub(super) enum Met {
    /// The thread executed its distance, or a part of it, and nothing happened.
    Nothing,
    /// The thread is at an instruction with a hook.
    Hook,
    /// The thread is at a stop.
    Stop,
    /// Perhaps watched memory was accessed. True if the thread is also at a stop, which the next
    /// run would pass.
    Watch(bool),
    /// The thread has faulted.
    Fault(Box<SiginfoBytes>),
}

/// The facts by which the tracer decides whether a thread goes on from a glance, a stop that the
/// engine reports while the thread waits in the code cache.
pub(super) struct GlanceFacts<'a> {
    pub(super) goals: &'a Goals<'a>,
    /// The next entry of the log, if no entries are answered in the cache.
    pub(super) entry: Option<&'a Entry>,
    /// The places in the log of the entries that are answered in the cache, if such are offered.
    pub(super) answered: Option<&'a [Cursor]>,
}
