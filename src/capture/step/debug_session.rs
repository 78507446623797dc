//! The state of a debugger's session with a stepped program.

use super::thread::Thread;
use crate::capture::contract::{Forks, Go};
use crate::tracee::debug_registers::Slot;

/// The state of a debugger's session with the program.
#[derive(Debug, Default)]
pub(super) struct Debugger {
    /// The current request, while threads run.
    pub(super) go: Option<Go>,
    /// True if only the thread of the request runs.
    pub(super) alone: bool,
    /// The number of single steps that the debugger has requested in a row.
    pub(super) steps_in_a_row: u32,
    /// The watchpoints that each thread's debug registers contain.
    pub(super) slots: Vec<Slot>,
}

impl Debugger {
    /// Returns the debugger's current request; `None` between two requests.
    pub(super) fn go(&self) -> Option<&Go> {
        self.go.as_ref()
    }

    /// Returns the kinds of births of processes at which the parent stops for the debugger.
    pub(super) fn forks(&self) -> Forks {
        self.go.as_ref().map(|go| go.forks).unwrap_or_default()
    }

    /// Returns true if the debugger's request lets the thread run; false between two requests.
    pub(super) fn lets_run(&self, thread: &Thread) -> bool {
        self.go.as_ref().is_some_and(|go| !self.alone || go.thread == thread.tid())
    }
}
