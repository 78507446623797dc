//! Signs that a program has damaged the memory that it shares with its recorder. That memory has
//! the *code cache*, in which the program's code runs translated, and the threads' buffers.

use crate::capture::Error;
use crate::common::Pid;
use crate::tracee::{Error as TraceeError, Signo, Stop};

/// The damage that a program did to the memory which it shares with its recorder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Harm {
    /// No harm was noticed.
    #[default]
    None,
    /// This harm was noticed, and nothing was done about it yet. The text is a predicate: "damaged
    /// ...".
    Found(&'static str),
    /// The process was killed for the harm.
    Ended,
}

/// Returns the note on a process that was killed for harming its recorder. `what` is the harm, such
/// as "damaged the code cache".
pub(super) fn killed_note(pid: Pid, what: &str) -> String {
    format!(
        "process {pid} {what}, and the recorder cannot go on with it: it was killed, and its \
         recording ends there"
    )
}

/// Returns the harm of which an error is a sign, as a predicate like that of [`Harm::Found`];
/// `None` if it is a sign of none.
pub(super) fn harm_of(error: &Error) -> Option<&'static str> {
    match error {
        Error::Inexact { .. } => Some("left the code cache's ways"),
        // The recorder makes its calls with all signals blocked, so only their own faults stop
        // them.
        Error::Tracee(TraceeError::Disturbed { stop: Stop::Signal(signal), .. })
            if is_fault(*signal) =>
        {
            Some("damaged the code cache")
        }
        _ => None,
    }
}

/// Returns true for a signal that an instruction can raise, other than SIGTRAP. The signal may
/// still have been sent by a process.
pub(super) fn is_fault(signal: Signo) -> bool {
    matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE)
}
