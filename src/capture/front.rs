//! A recorder whose program survives the process that the user sees, the *front*. The recorder
//! works in a child of the front, and leaves the program when the front ends.
//!
//! No third process could take the program over in time: its threads run in the code cache and need
//! their tracer at any moment. So the front is not the tracer. If the tracer is killed
//! nevertheless, the kernel kills the program (`PTRACE_O_EXITKILL`).

use super::Error;
use super::signals::{
    Handler, Leaving, ORPHANED_SIGNAL, expect_to_be_orphaned, ignore_signals_to_front, set_action,
};
use crate::tracee;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};
use std::sync::atomic::{AtomicI32, Ordering};

/// The end of the recorder, as its front reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecorderEnd {
    /// The recorder exited with this status.
    Exited(i32),
    /// This signal killed the recorder, and its program with it.
    Killed(i32),
}

/// Forks a child, which is to record. Returns `None` in the child, and sets it up to leave its
/// program when this process, its front, ends. In this process, waits for the child's end and
/// returns it; passes signals on to the child. Call this while the process has one thread: locks
/// that another one has would stay locked in the child.
pub fn record_with_front() -> Result<Option<RecorderEnd>, Error> {
    let system = |call, errno| tracee::Error::System { call, errno };
    let front = getpid();
    // SAFETY: this process has one thread, so that the child finds all of its memory at rest.
    match unsafe { fork() }.map_err(|errno| system("fork", errno))? {
        ForkResult::Child => {
            leave_when_front_ends(front).map_err(|errno| system("prctl", errno))?;
            Ok(None)
        }
        ForkResult::Parent { child } => Ok(Some(wait_for_recorder(child)?)),
    }
}

/// Sets up that this process, which the recorder `recorder` forked to record another process,
/// leaves its program when `recorder` ends. Does nothing if `recorder` has no front.
pub(super) fn leave_when_orphaned(recorder: crate::common::Pid) {
    if Leaving::when_orphaned().is_some() {
        // If this fails, the program is killed with its recorder.
        let _ = leave_when_front_ends(Pid::from_raw(recorder.0));
    }
}

/// Sets up that this process leaves its program when `front`, its parent, ends: sets handlers, and
/// requests a signal from the kernel.
fn leave_when_front_ends(front: Pid) -> Result<(), Errno> {
    expect_to_be_orphaned(crate::common::Pid(front.as_raw()));
    let signal = usize::try_from(ORPHANED_SIGNAL).unwrap_or(0);
    // SAFETY: prctl(2) with this request touches no memory.
    Errno::result(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) })?;
    if getppid() != front {
        // The front ended before the signal was set: raises `ORPHANED_SIGNAL` in its place.
        let _ = nix::sys::signal::raise(Signal::SIGPWR);
    }
    Ok(())
}

/// The recorder's process ID, for the signal handler.
static RECORDER: AtomicI32 = AtomicI32::new(0);

/// Waits for the end of the recorder, and returns it. Passes SIGINT, SIGQUIT, SIGTERM and SIGHUP on
/// to the recorder, and ignores most other signals.
fn wait_for_recorder(recorder: Pid) -> Result<RecorderEnd, Error> {
    RECORDER.store(recorder.as_raw(), Ordering::Relaxed);
    ignore_signals_to_front();
    let pass_on: Handler = pass_on;
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
        set_action(signal, pass_on as usize, libc::SA_RESTART);
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

/// Passes a signal on to the recorder.
extern "C" fn pass_on(signal: libc::c_int, _: *const libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: kill(2) is async-signal-safe and touches no memory.
    unsafe { libc::kill(RECORDER.load(Ordering::Relaxed), signal) };
}
