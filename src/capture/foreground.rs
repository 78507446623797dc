//! Signals to a process whose child uses the terminal: the process ignores those that the terminal
//! sends to both, and passes on those that would end it, so that the child ends first.

use super::signals::{Handler, restore_action, set_action};
use crate::common::Pid;
use std::sync::atomic::{AtomicI32, Ordering};

/// Signals that the terminal sends to its foreground process group, so the child gets them as well.
/// SIGTSTP is not among them: shells wait for both processes to stop.
const FROM_TERMINAL: [libc::c_int; 2] = [libc::SIGINT, libc::SIGQUIT];
const FORWARDED: [libc::c_int; 2] = [libc::SIGTERM, libc::SIGHUP];

static CHILD: AtomicI32 = AtomicI32::new(0);

/// Handlers that ignore SIGINT and SIGQUIT, and pass SIGTERM and SIGHUP on to the child, until this
/// is dropped. Programs that the child executes do not inherit them.
#[derive(Debug)]
pub struct ForegroundSignals {
    old: Vec<(libc::c_int, libc::sigaction)>,
}

impl ForegroundSignals {
    /// Sets the handlers. Call this before the child is started, so that no signal is lost.
    pub fn take() -> Self {
        CHILD.store(0, Ordering::Relaxed);
        let (ignore, forward): (Handler, Handler) = (ignore, forward);
        let ignored = FROM_TERMINAL.map(|signal| (signal, ignore));
        let handlers = ignored.into_iter().chain(FORWARDED.map(|signal| (signal, forward)));
        let set = |(signal, handler): (libc::c_int, Handler)| {
            (signal, set_action(signal, handler as usize, libc::SA_RESTART))
        };
        Self { old: handlers.map(set).collect() }
    }

    /// Sets the child to which SIGTERM and SIGHUP are passed on.
    pub fn forward_to(&self, child: Pid) {
        CHILD.store(child.0, Ordering::Relaxed);
    }
}

impl Drop for ForegroundSignals {
    fn drop(&mut self) {
        for (signal, old) in &self.old {
            restore_action(*signal, old);
        }
    }
}

extern "C" fn ignore(_: libc::c_int, _: *const libc::siginfo_t, _: *mut libc::c_void) {}

extern "C" fn forward(signal: libc::c_int, _: *const libc::siginfo_t, _: *mut libc::c_void) {
    let child = CHILD.load(Ordering::Relaxed);
    if child > 0 {
        // SAFETY: kill(2) is async-signal-safe and touches no memory.
        unsafe { libc::kill(child, signal) };
    }
}
