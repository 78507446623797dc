//! The effect of a signal on a program.

use crate::tracee::{Dispositions, Signo};

/// Returns true if the delivery of a signal neither ends a thread nor moves its IP: the signal has
/// no handler, and is ignored, or only stops the process until it is continued (signal(7)). `known`
/// are the actions that the thread's process has now. Returns true for SIGCONT without a handler,
/// and false for SIGKILL.
pub(super) fn keeps_thread_in_place(signal: Signo, known: Dispositions) -> bool {
    let bit = 1_u64 << (signal - 1).clamp(0, 63);
    let stops = matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU);
    let harmless = matches!(signal, libc::SIGCHLD | libc::SIGWINCH | libc::SIGURG | libc::SIGCONT);
    known.caught & bit == 0
        && (known.ignored & bit != 0 || harmless || stops)
        && signal != libc::SIGKILL
}
