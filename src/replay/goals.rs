//! The goals of a run through a replay, and what it found.

use super::outline::KernelEvent;
use super::process::Replay;
use crate::common::Addr;
use crate::recording::log::{Cursor, Entry};
use crate::tracee::SiginfoBytes;
use std::collections::BTreeSet;

/// The reasons to end a run on its way.
#[derive(Clone, Copy)]
pub struct Goals<'a> {
    /// Instructions before which it ends.
    pub stops: &'a BTreeSet<Addr>,
    /// Asked at each of them; false passes it. Where [`Replay::needs_stop`] is true then, it is
    /// asked again.
    pub accepts: &'a dyn Fn(&Replay) -> bool,
    /// Says at which acts of the kernel it ends.
    pub events: &'a dyn Fn(KernelEvent) -> bool,
    /// The number of the entry before whose system call or signal it does not end.
    pub passed: Option<u64>,
    /// Equal for equal answers of these.
    pub key: u64,
    /// Asked regularly; true ends it.
    pub interrupted: &'a dyn Fn() -> bool,
}

impl<'a> Goals<'a> {
    /// Returns goals that are stops alone.
    pub fn at(stops: &'a BTreeSet<Addr>, interrupted: &'a dyn Fn() -> bool) -> Self {
        let (accepts, events) = (&|_: &Replay| true, &|_| false);
        Self { stops, accepts, events, passed: None, key: 0, interrupted }
    }
}

/// The reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is where it was to go.
    Goal,
    /// The run has no more instructions.
    End,
    /// A thread is about to execute an instruction that is a goal.
    Stop,
    /// The kernel is about to do something to a thread, or has done so.
    Event(KernelEvent),
    /// Watched memory was accessed: the number of the watch. The access is done.
    Watch(usize),
    /// The user had enough.
    Interrupted,
}

/// The reason why a piece of a run ended.
pub(super) enum Met {
    /// It executed what it should.
    Nothing,
    /// The thread is at an instruction with a hook.
    Hook,
    /// A stop.
    Stop,
    /// Perhaps an access to watched memory. True: the next instruction is a stop, which another run
    /// would pass.
    Watch(bool),
    /// A fault.
    Fault(Box<SiginfoBytes>),
}

/// The facts by which stops are judged on the way of a run.
pub(super) struct Looks<'a> {
    pub(super) goals: &'a Goals<'a>,
    /// The entry that comes next, where none is answered in the cache.
    pub(super) entry: Option<&'a Entry>,
    /// Where the log has the entries that are answered there.
    pub(super) answered: Option<&'a [Cursor]>,
}
