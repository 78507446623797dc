//! A thread that the CPU traces.

use super::tap::Tap;
use crate::common::{Pid, Tid};
use crate::image::core;
use crate::tracee::{SiginfoBytes, Tracee};

/// What a thread is doing, as far as its tracer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It was born, and stands before its first instruction, or will.
    Born,
    /// It runs.
    Running,
    /// It stands still: it was told to.
    Standing,
    /// Stopped with its process by job control.
    Stopped,
    /// Stands at its end, with its registers read, until all of its process do.
    AtEnd,
}

/// A traced thread.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) tracee: Tracee,
    pub(super) pid: Pid,
    pub(super) doing: Doing,
    pub(super) tap: Option<Tap>,
    /// What is in its ring is wanted, as soon as it stands still.
    pub(super) is_asked: bool,
    /// What the last signal was, which may be its end.
    pub(super) siginfo: Option<SiginfoBytes>,
    pub(super) ending: Option<core::Thread>,
}

impl Thread {
    pub(super) fn new(tid: Tid, pid: Pid) -> Self {
        Self {
            tracee: Tracee(tid),
            pid,
            doing: Doing::Born,
            tap: None,
            is_asked: false,
            siginfo: None,
            ending: None,
        }
    }
}
