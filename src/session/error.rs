//! Errors of operations on a run.

use crate::state::NoThreadLocal;

/// An error of an operation on a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A write to registers or memory of a recording.
    #[error("the past cannot be changed: this is a recording (registers and memory are read-only)")]
    PastIsFixed,
    /// A write to registers or memory of a live program's past.
    #[error("the past cannot be changed")]
    LivePastIsFixed,
    /// A move through the past while watchpoints are inserted, in a run that is not exact.
    #[error(
        "watchpoints cannot be checked in the past, where values are unknown: delete or disable \
         them first"
    )]
    NoPastWatches,
    /// A thread-local variable without a known address.
    #[error(transparent)]
    NoThreadLocal(NoThreadLocal),
    /// A write to a program that is gone, or to a thread that does not exist.
    #[error("the program is gone")]
    Gone,
    /// A start of a program in a session of a recording.
    #[error("a recording cannot run again")]
    NotRunAgain,
    /// A start without a program's name or arguments, and without a previous program.
    #[error("no program was run before: say which one to run")]
    NoProgram,
    /// An order that needs two processes to be debugged at once.
    #[error("two processes are stopped here, and only one can be debugged")]
    TwoProcesses,
    /// A move backwards in a process without a recording.
    #[error("this process has no history yet: go forward first")]
    NotRecordedYet,
    /// A question about values of the past in a run that is not an exact recording.
    #[error("only an exact recording has the values of the past")]
    NotExact,
    /// A seek or a search in a run without a history.
    #[error("there is no history")]
    NoHistory,
    /// A `siginfo_t` whose size differs from the kernel's.
    #[error("a siginfo_t has 128 bytes")]
    NotSiginfo,
    /// A write to a register that does not exist or cannot be written.
    #[error("this register cannot be written")]
    NoSuchRegister,
    /// An operation that failed or was refused for this reason.
    #[error("{0}")]
    Refused(String),
    /// The debugger allocated too much memory.
    #[error("the debugger has allocated too much memory")]
    NoRoom,
    /// A seek outside the history.
    #[error("no such position: {position} (the history has 0 to {total})")]
    NoSuchPosition {
        /// The requested position; in an exact recording, its moment.
        position: u64,
        /// The last position of the history; in an exact recording, its last moment.
        total: u64,
    },
}
