//! The state of a debugger session.

use super::thread::Thread;
use crate::capture::contract::{Forks, Go};
use crate::tracee::debug_registers::Slot;

/// The state of a debugger session.
#[derive(Debug, Default)]
pub(super) struct Debugger {
    /// The current request, while threads run.
    pub(super) go: Option<Go>,
    /// True if only the requested thread runs.
    pub(super) alone: bool,
    /// The number of single steps of that thread in a row.
    pub(super) lone_steps: u32,
    /// The slots that all threads' debug registers watch.
    pub(super) slots: Vec<Slot>,
}

impl Debugger {
    pub(super) fn go(&self) -> Option<&Go> {
        self.go.as_ref()
    }

    /// Returns the births of processes that the debugger catches.
    pub(super) fn forks(&self) -> Forks {
        self.go.as_ref().map(|go| go.forks).unwrap_or_default()
    }

    pub(super) fn lets_go(&self, thread: &Thread) -> bool {
        self.go.as_ref().is_some_and(|go| !self.alone || go.thread == thread.tid())
    }
}
