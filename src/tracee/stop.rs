//! What a wait tells of a traced thread.

use super::error::Error;
use super::ptrace::Signo;
use crate::common::Tid;
use nix::errno::Errno;

/// Why a thread stopped, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It exited with this status; for a process's first thread, after all others.
    Exited(i32),
    /// A signal killed it.
    Killed {
        /// Which.
        signal: Signo,
        /// Whether the kernel wrote a core file.
        core_dumped: bool,
    },
    /// A signal is about to be delivered; SIGTRAP may also be the end of a single step.
    Signal(Signo),
    /// A system call begins or ends.
    Call,
    /// The process is stopped by job control.
    Group(Signo),
    /// Something that the tracer asked to be told of.
    Event(PtraceEvent),
}

impl Stop {
    /// Whether the thread is at its end, or gone.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Event(PtraceEvent::Exit) | Self::Exited(_) | Self::Killed { .. })
    }
}

/// The events of ptrace(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtraceEvent {
    /// A child process was made by fork.
    Fork,
    /// A child process was made by vfork.
    Vfork,
    /// A thread was made (or a process by clone).
    Clone,
    /// Another program runs.
    Exec,
    /// The thread is about to end; its registers can still be read.
    Exit,
    /// A new thread's first stop, or the stop that an interrupt asked for.
    Stop,
    /// One that contraflow did not ask for.
    Other(i32),
}

/// Children and tracees of the calling thread, and not of others of this process
/// (`__WNOTHREAD`): whoever started those waits for them.
const OWN: libc::c_int = libc::__WNOTHREAD;

/// Waits for any traced thread or child. None: `block` is false and there is no news.
pub fn wait_any(block: bool) -> Result<Option<(Tid, Stop)>, Error> {
    wait(-1, block)
}

/// Waits for any traced thread or child. None: this thread took a signal.
pub fn wait_or_signal() -> Result<Option<(Tid, Stop)>, Error> {
    let mut status = 0;
    // SAFETY: waitpid writes the status and nothing else.
    let result = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | OWN) };
    match Errno::result(result) {
        Err(Errno::EINTR) => Ok(None),
        Err(errno) => Err(Error::System { call: "waitpid", errno }),
        Ok(tid) => Ok(Some((Tid(tid), decode(status)))),
    }
}

/// Waits for this thread.
pub fn wait_for(tid: Tid) -> Result<Stop, Error> {
    loop {
        if let Some((_, stop)) = wait(tid.0, true)? {
            return Ok(stop);
        }
    }
}

/// The news of this thread, if there are any.
pub fn news_of(tid: Tid) -> Result<Option<Stop>, Error> {
    Ok(wait(tid.0, false)?.map(|(_, stop)| stop))
}

fn wait(who: libc::pid_t, block: bool) -> Result<Option<(Tid, Stop)>, Error> {
    let flags = libc::__WALL | OWN | if block { 0 } else { libc::WNOHANG };
    let mut status = 0;
    loop {
        // SAFETY: waitpid writes the status and nothing else.
        let result = unsafe { libc::waitpid(who, &raw mut status, flags) };
        match Errno::result(result) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::System { call: "waitpid", errno }),
            Ok(0) => return Ok(None),
            Ok(tid) => return Ok(Some((Tid(tid), decode(status)))),
        }
    }
}

/// What `PTRACE_O_TRACESYSGOOD` makes of SIGTRAP.
const CALL: i32 = libc::SIGTRAP | 0x80;

/// The status word of wait(2) under `PTRACE_SEIZE`.
fn decode(status: i32) -> Stop {
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
