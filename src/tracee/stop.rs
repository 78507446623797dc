//! Waits for traced threads and decodes their wait statuses.

use super::error::Error;
use super::procfs::{State, state, threads};
use crate::common::{Pid, Tid};
use nix::errno::Errno;
use nix::unistd::gettid;

/// A signal's number: nix's enumeration lacks the real-time signals.
pub type Signo = i32;

/// The reason why a thread stopped, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It exited with this status. A process's first thread is reported after all others.
    Exited(i32),
    /// A signal killed it.
    Killed {
        /// The signal.
        signal: Signo,
        /// True if the kernel wrote a core file.
        core_dumped: bool,
    },
    /// A signal is about to be delivered; SIGTRAP may also be the end of a single step.
    Signal(Signo),
    /// A system call is entered or left.
    Call,
    /// Job control stopped the process.
    Group(Signo),
    /// A ptrace event.
    Event(PtraceEvent),
}

impl Stop {
    /// Returns true if the thread is in its exit stop, or gone.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Event(PtraceEvent::Exit) | Self::Exited(_) | Self::Killed { .. })
    }
}

/// A ptrace event (ptrace(2)).
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

/// Limits waits to children and tracees of the calling thread (`__WNOTHREAD`): this process's other
/// threads wait for their own.
const OWN: libc::c_int = libc::__WNOTHREAD;

/// Waits for any traced thread or child. Returns `None` if `block` is false and none has stopped.
pub fn wait_any(block: bool) -> Result<Option<(Tid, Stop)>, Error> {
    wait(-1, block)
}

/// Waits for any traced thread or child. Returns `None` if a signal interrupted the wait.
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

/// Waits for one thread.
pub fn wait_for(tid: Tid) -> Result<Stop, Error> {
    loop {
        if let Some((_, stop)) = wait(tid.0, true)? {
            return Ok(stop);
        }
    }
}

/// Waits for one thread that was killed, and whose end may have been reported before and lost. Such an
/// end counts as a SIGKILL: any other fatal signal would have been reported first (ptrace(2)).
pub fn wait_for_killed(tid: Tid) -> Result<Stop, Error> {
    match wait_for(tid) {
        Err(Error::System { errno: Errno::ECHILD, .. }) => {
            Ok(Stop::Killed { signal: libc::SIGKILL, core_dumped: false })
        }
        result => result,
    }
}

/// Returns the pending stop of one thread, without blocking; `None` if there is none.
pub fn news_of(tid: Tid) -> Result<Option<Stop>, Error> {
    Ok(wait(tid.0, false)?.map(|(_, stop)| stop))
}

/// Returns true if a traced first thread is gone, and another thread of its process is stopped: the kernel
/// reports the first thread after all others, which is never if their tracer waits for it alone.
fn is_gone_unreported(pid: Pid) -> bool {
    let is_own = |state: &State| state.tracer == gettid().as_raw();
    let is_gone = state(pid).is_some_and(|state| state.letter == 'Z' && is_own(&state));
    let is_stopped = |tid: &Tid| state(Pid(tid.0)).is_some_and(|state| state.letter == 't');
    is_gone && threads(pid).iter().any(is_stopped)
}

fn wait(who: libc::pid_t, block: bool) -> Result<Option<(Tid, Stop)>, Error> {
    let flags = libc::__WALL | OWN | if block { 0 } else { libc::WNOHANG };
    let mut status = 0;
    loop {
        // SAFETY: waitpid writes the status and nothing else.
        let result = unsafe { libc::waitpid(who, &raw mut status, flags) };
        match Errno::result(result) {
            Err(Errno::EINTR) if block && is_gone_unreported(Pid(who)) => {
                let end = || (Tid(who), Stop::Killed { signal: libc::SIGKILL, core_dumped: false });
                return Ok(wait(who, false)?.or_else(|| Some(end())));
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::System { call: "waitpid", errno }),
            Ok(0) => return Ok(None),
            Ok(tid) => return Ok(Some((Tid(tid), decode(status)))),
        }
    }
}

/// The signal of a system call's stop under `PTRACE_O_TRACESYSGOOD`.
const CALL: i32 = libc::SIGTRAP | 0x80;

/// Decodes the status word of wait(2) under `PTRACE_SEIZE`.
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
