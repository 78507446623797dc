//! The effect of a signal on a program.

use crate::tracee::{Dispositions, Signo};

/// Returns true if a thread goes on where it is after a signal, if need be when its process is
/// continued: there is no handler, and the signal is ignored, or stops the process (signal(7)).
pub(super) fn leaves_it_running(signal: Signo, known: Dispositions) -> bool {
    let bit = 1_u64 << (signal - 1).clamp(0, 63);
    let stops = matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU);
    let harmless = matches!(signal, libc::SIGCHLD | libc::SIGWINCH | libc::SIGURG | libc::SIGCONT);
    known.caught & bit == 0
        && (known.ignored & bit != 0 || harmless || stops)
        && signal != libc::SIGKILL
}
