//! Orders to a run, and its stops.

use super::{BreakpointKind, Direction, Ending, Watchpoint};
use crate::common::{Pid, Tid};

/// The action of a resumed thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Execute one instruction.
    Step,
    /// Run until something stops it.
    Continue,
}

/// A request to resume a run, by a step or a continue of one thread and perhaps the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Step or continue.
    pub action: Action,
    /// The direction through time.
    pub direction: Direction,
    /// The thread that steps, or from whose view the stop is reported.
    pub thread: Tid,
    /// True if the other threads of a live program stay stopped, and in a path only this thread may
    /// stop the run (gdb's scheduler locking). A replay of an exact recording ignores it: the order
    /// of its threads is recorded.
    pub locked: bool,
    /// The signal to deliver to the thread of a live program; 0 for none.
    pub signal: i32,
}

/// An end of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The beginning.
    Begin,
    /// The end.
    End,
}

/// The reason of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The run was just opened, or moved by something other than an [`Order`], such as a seek.
    Moved,
    /// The step is complete.
    Step,
    /// The instruction at a breakpoint is about to execute.
    Breakpoint(BreakpointKind),
    /// The history has no more instructions in this direction, or cannot be followed any further
    /// ([`Run::failure`](super::Run::failure)). At the live end: the program is about to exit.
    Edge(Edge),
    /// The user interrupted the run.
    Interrupted,
    /// Watched memory was accessed, in a live program or an exact recording; on the way backward,
    /// the access is about to happen.
    Watchpoint(Watchpoint),
    /// A live program is about to receive a signal (the kernel's number); in the past, its handler
    /// begins.
    Signal(i32),
    /// The system call with this number is about to be made.
    Call(u64),
    /// The system call with this number has returned.
    CallReturn(u64),
    /// A live program has forked this process, which is stopped as well.
    Forked(Pid),
    /// A live program has vforked this process, and waits until it executes a program or ends.
    Vforked(Pid),
    /// A live program no longer waits for its vfork child.
    VforkDone,
    /// A live program has executed another program.
    Executed,
    /// The only resumed thread of a live program has ended; other threads are still stopped.
    NoneRuns,
    /// A process of a live program is gone; the stop's thread is the first thread of that process.
    Gone(Ending),
}

impl StopReason {
    /// A placeholder for the number of an unknown system call.
    pub const UNKNOWN_CALL: u64 = u64::MAX;
}

/// A stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The thread that stopped.
    pub thread: Tid,
    /// The reason.
    pub reason: StopReason,
}
