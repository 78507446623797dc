//! The stops of traced threads, and their wait statuses.

/// A signal's number: nix's enumeration lacks the real-time signals.
pub type Signo = i32;

/// The reason why a thread stopped, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The thread exited with this status. A process's first thread is reported after all others.
    Exited(i32),
    /// A signal killed the thread.
    Killed {
        /// The number of the signal.
        signal: Signo,
        /// True if the kernel wrote a core file.
        core_dumped: bool,
    },
    /// This signal is about to be delivered to the thread; SIGTRAP may also be the end of a single
    /// step.
    Signal(Signo),
    /// The thread enters or leaves a system call.
    Call,
    /// Job control stopped the process, with this signal.
    Group(Signo),
    /// The thread had a ptrace event.
    Event(PtraceEvent),
}

impl Stop {
    /// Returns true if the thread is in its exit stop, or gone.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Event(PtraceEvent::Exit) | Self::Exited(_) | Self::Killed { .. })
    }
}

/// An event that the kernel reports to the tracer by a stop (`PTRACE_EVENT_*` of ptrace(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtraceEvent {
    /// The thread created a child process by fork.
    Fork,
    /// The thread created a child process by vfork.
    Vfork,
    /// The thread created a thread (or, by clone, a process).
    Clone,
    /// The thread executed a new program.
    Exec,
    /// The thread is about to end; its registers can still be read.
    Exit,
    /// A new thread's first stop, or the stop after an interrupt request.
    Stop,
    /// An event that contraflow does not request.
    Other(i32),
}

/// The signal of a system call's stop under `PTRACE_O_TRACESYSGOOD`.
const CALL: i32 = libc::SIGTRAP | 0x80;

/// Decodes the status word of wait(2) under `PTRACE_SEIZE`.
pub(super) fn decode(status: i32) -> Stop {
    if libc::WIFEXITED(status) {
        return Stop::Exited(libc::WEXITSTATUS(status));
    }
    if libc::WIFSIGNALED(status) {
        let core_dumped = libc::WCOREDUMP(status);
        return Stop::Killed { signal: libc::WTERMSIG(status), core_dumped };
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        0 if signal == CALL => Stop::Call,
        0 => Stop::Signal(signal),
        libc::PTRACE_EVENT_FORK => Stop::Event(PtraceEvent::Fork),
        libc::PTRACE_EVENT_VFORK => Stop::Event(PtraceEvent::Vfork),
        libc::PTRACE_EVENT_CLONE => Stop::Event(PtraceEvent::Clone),
        libc::PTRACE_EVENT_EXEC => Stop::Event(PtraceEvent::Exec),
        libc::PTRACE_EVENT_EXIT => Stop::Event(PtraceEvent::Exit),
        libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Stop::Event(PtraceEvent::Stop),
        libc::PTRACE_EVENT_STOP => Stop::Group(signal),
        other => Stop::Event(PtraceEvent::Other(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_words_of_the_manual() {
        let stopped = |signal: i32, event: i32| event << 16 | signal << 8 | 0x7f;
        assert_eq!(decode(0x0300), Stop::Exited(3));
        assert_eq!(decode(0x8b), Stop::Killed { signal: 11, core_dumped: true });
        assert_eq!(decode(stopped(35, 0)), Stop::Signal(35));
        assert_eq!(decode(stopped(0x85, 0)), Stop::Call);
        assert_eq!(decode(stopped(5, 128)), Stop::Event(PtraceEvent::Stop));
        assert_eq!(decode(stopped(19, 128)), Stop::Group(19));
        assert_eq!(decode(stopped(5, 6)), Stop::Event(PtraceEvent::Exit));
    }
}
