//! Waits for traced threads.
//!
//! A wait for a process's first thread alone can hang: the kernel does not report its end while
//! others are there, which may be stopped for this tracer. A signal that asks the waiting thread to
//! end its work interrupts the wait, which looks for this case then.

use super::error::Error;
use super::procfs::{ProcessStatus, process_status, threads};
use super::stop::{Stop, decode};
use crate::common::{Pid, Tid};
use nix::errno::Errno;
use nix::unistd::gettid;

/// Limits waits to children and tracees of the calling thread (`__WNOTHREAD`): this process's other
/// threads wait for their own.
const OWN: libc::c_int = libc::__WNOTHREAD;

/// Waits for a thread, or for any if `who` is -1. Returns `None` only if `block` is false and none
/// has stopped. After an interruption, returns a SIGKILL for a first thread whose end the kernel
/// does not report.
fn wait(who: libc::pid_t, block: bool) -> Result<Option<(Tid, Stop)>, Error> {
    let flags = libc::__WALL | OWN | if block { 0 } else { libc::WNOHANG };
    let mut status = 0;
    loop {
        // SAFETY: waitpid writes the status and nothing else.
        let result = unsafe { libc::waitpid(who, &raw mut status, flags) };
        match Errno::result(result) {
            // For -1, there is no such process in /proc, so this is false.
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

/// Returns true if the first thread of a traced process is gone, and another one is stopped. The
/// kernel reports the end of the first thread after all others have ended. If their tracer waits
/// for the first one alone, it never reports that.
fn is_gone_unreported(pid: Pid) -> bool {
    let is_own = |state: &ProcessStatus| state.tracer == gettid().as_raw();
    let is_gone = process_status(pid).is_some_and(|state| state.letter == 'Z' && is_own(&state));
    let is_stopped =
        |tid: &Tid| process_status(Pid(tid.0)).is_some_and(|state| state.letter == 't');
    is_gone && threads(pid).iter().any(is_stopped)
}

/// Returns true if a thread has a stop or end that was not waited for, or does not exist.
pub fn has_stop(tid: Tid) -> bool {
    let number = libc::id_t::try_from(tid.0).unwrap_or(0);
    let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL | OWN;
    // SAFETY: `siginfo_t` is plain data, of which zeros are a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: waitid(2) writes to `info` and nothing else.
    let result = unsafe { libc::waitid(libc::P_PID, number, &raw mut info, flags) };
    // SAFETY: waitid(2) sets `si_pid`, to 0 if there is no stop or end.
    result != 0 || unsafe { info.si_pid() } != 0
}

/// Waits for the next stop or end of any tracee or child of the calling thread. Returns `None` if
/// `block` is false and none has stopped; an error (ECHILD) if there are none.
pub fn wait_any(block: bool) -> Result<Option<(Tid, Stop)>, Error> {
    wait(-1, block)
}

/// Waits for the next stop or end of any tracee or child of the calling thread. Returns `None` if a
/// signal to the calling thread interrupted the wait, and an error (ECHILD) if there are none.
pub fn wait_interruptibly() -> Result<Option<(Tid, Stop)>, Error> {
    let mut status = 0;
    // SAFETY: waitpid writes the status and nothing else.
    let result = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | OWN) };
    match Errno::result(result) {
        Err(Errno::EINTR) => Ok(None),
        Err(errno) => Err(Error::System { call: "waitpid", errno }),
        Ok(tid) => Ok(Some((Tid(tid), decode(status)))),
    }
}

/// Waits for the next stop of one thread, or its end, and returns it. A signal to the calling
/// thread does not end the wait, with one exception: if the thread is a process's first one, and is
/// gone without a report since others are stopped, returns a SIGKILL at such a signal. Fails
/// (ECHILD) if the thread is no tracee or child of the calling thread, or its end was reported
/// before.
pub fn wait_for(tid: Tid) -> Result<Stop, Error> {
    // A wait that blocks always returns a stop.
    loop {
        if let Some((_, stop)) = wait(tid.0, true)? {
            return Ok(stop);
        }
    }
}

/// Waits for the exit stop or end of a thread that was killed. Its end may have been reported
/// before and lost: then returns that of a SIGKILL, since any other fatal signal would have been
/// reported first (ptrace(2)).
pub fn wait_for_killed(tid: Tid) -> Result<Stop, Error> {
    match wait_for(tid) {
        Err(Error::System { errno: Errno::ECHILD, .. }) => {
            Ok(Stop::Killed { signal: libc::SIGKILL, core_dumped: false })
        }
        result => result,
    }
}

/// Returns the stop or end of one thread that no wait has reported yet; `None` if there is none.
/// Does not block. No later wait reports the same stop. Fails (ECHILD) as [`wait_for`] does.
pub fn pending_stop(tid: Tid) -> Result<Option<Stop>, Error> {
    Ok(wait(tid.0, false)?.map(|(_, stop)| stop))
}
