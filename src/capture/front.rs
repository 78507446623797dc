//! A recorder whose end is not its program's: it works in a child process, behind the one that its
//! user sees, and leaves the program to itself when that one is gone.
//!
//! Nobody else could do that in time: the program's threads run in the code cache, and need their
//! tracer there at any moment. So the tracer is not what gets killed. Where it is killed all the
//! same, the kernel kills the program (`PTRACE_O_EXITKILL`), as it has no way on.

use super::Error;
use super::signals::{ORPHANED_SIGNAL, expect_to_be_orphaned, ignore_others};
use crate::tracee;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};
use std::sync::atomic::{AtomicI32, Ordering};

/// What the user's process tells of the recorder, once that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecorderEnd {
    /// Its exit status.
    Exited(i32),
    /// The signal that killed it, and its program with it.
    Killed(i32),
}

/// Makes a child process to record in, which leaves its program when this process ends. Gives
/// nothing there, and here how it ended. Call it before there are other threads.
pub fn record_behind_a_front() -> Result<Option<RecorderEnd>, Error> {
    let system = |call, errno| tracee::Error::System { call, errno };
    let front = getpid();
    // SAFETY: this process has one thread, so that the child finds all of its memory at rest.
    match unsafe { fork() }.map_err(|errno| system("fork", errno))? {
        ForkResult::Child => {
            expect_to_be_orphaned(crate::common::Pid(front.as_raw()));
            let signal = usize::try_from(ORPHANED_SIGNAL).unwrap_or(0);
            // SAFETY: prctl(2) with this request touches no memory.
            Errno::result(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) })
                .map_err(|errno| system("prctl", errno))?;
            if getppid() != front {
                // It was gone before that.
                let _ = nix::sys::signal::raise(Signal::SIGPWR);
            }
            Ok(None)
        }
        ForkResult::Parent { child } => Ok(Some(wait(child)?)),
    }
}

/// The child, for the handler.
static RECORDER: AtomicI32 = AtomicI32::new(0);

fn wait(recorder: Pid) -> Result<RecorderEnd, Error> {
    RECORDER.store(recorder.as_raw(), Ordering::Relaxed);
    ignore_others();
    let pass_on: extern "C" fn(libc::c_int) = pass_on;
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only reads an atomic and calls kill(2).
        unsafe { libc::signal(signal, pass_on as libc::sighandler_t) };
    }
    loop {
        match waitpid(recorder, None) {
            Ok(WaitStatus::Exited(_, status)) => return Ok(RecorderEnd::Exited(status)),
            Ok(WaitStatus::Signaled(_, signal, _)) => {
                return Ok(RecorderEnd::Killed(signal as i32));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(tracee::Error::System { call: "waitpid", errno }.into()),
        }
    }
}

/// The recorder knows what to make of it.
extern "C" fn pass_on(signal: libc::c_int) {
    // SAFETY: kill(2) is async-signal-safe and touches no memory.
    unsafe { libc::kill(RECORDER.load(Ordering::Relaxed), signal) };
}
