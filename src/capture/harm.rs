//! Signs that a program has harmed its recorder.

use crate::capture::Error;
use crate::common::Pid;
use crate::tracee::{Error as TraceeError, Signo, Stop};

/// The harm that a program did to its recorder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Harm {
    /// None that was noticed.
    #[default]
    None,
    /// This harm, as said of the process. Nothing was done about it yet.
    Found(&'static str),
    /// Some, for which the process was killed.
    Ended,
}

/// Returns the note on a process that was killed for harming its recorder. `what` is the harm, such
/// as "damaged the code cache".
pub(super) fn killed_for(pid: Pid, what: &str) -> String {
    format!(
        "process {pid} {what}, and the recorder cannot go on with it: it was killed, and its \
         recording ends there"
    )
}

/// Returns the harm to the recorder's memory that an error shows, if it does.
pub(super) fn harm_of(error: &Error) -> Option<&'static str> {
    match error {
        Error::Inexact { .. } => Some("left the code cache's ways"),
        // The recorder's calls are made with all signals blocked, so only their own faults stop
        // them.
        Error::Tracee(TraceeError::Disturbed { stop: Stop::Signal(signal), .. })
            if is_fault(*signal) =>
        {
            Some("damaged the code cache")
        }
        _ => None,
    }
}

/// Returns true for a signal that an instruction raises, other than a trap.
pub(super) fn is_fault(signal: Signo) -> bool {
    matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE)
}
