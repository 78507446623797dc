//! Signals to a process whose child has the terminal: what the terminal sends is the child's, and
//! what would end this process ends the child first.

use crate::common::Pid;
use std::sync::atomic::{AtomicI32, Ordering};

/// Sent by the terminal to its foreground process group, so the child gets them as well. SIGTSTP
/// is not among them: shells wait for both processes to stop.
const FROM_TERMINAL: [libc::c_int; 2] = [libc::SIGINT, libc::SIGQUIT];
const FORWARDED: [libc::c_int; 2] = [libc::SIGTERM, libc::SIGHUP];

static CHILD: AtomicI32 = AtomicI32::new(0);

/// While it lives, SIGINT and SIGQUIT do nothing to this process, and SIGTERM and SIGHUP are
/// passed on to its child. The handlers are not inherited by programs that the child executes.
#[derive(Debug)]
pub struct ForegroundSignals {
    old: Vec<(libc::c_int, libc::sighandler_t)>,
}

impl ForegroundSignals {
    /// Takes the signals. Call it before the child is started, so that none is lost on this
    /// process.
    pub fn take() -> Self {
        CHILD.store(0, Ordering::Relaxed);
        let ignored: extern "C" fn(libc::c_int) = ignore;
        let forwarded: extern "C" fn(libc::c_int) = forward;
        let handlers = FROM_TERMINAL.map(|signal| (signal, ignored));
        let handlers = handlers.into_iter().chain(FORWARDED.map(|signal| (signal, forwarded)));
        let set = |(signal, handler): (libc::c_int, extern "C" fn(libc::c_int))| {
            // SAFETY: both handlers only read an atomic and call kill(2).
            (signal, unsafe { libc::signal(signal, handler as libc::sighandler_t) })
        };
        Self { old: handlers.map(set).collect() }
    }

    /// Names the child that SIGTERM and SIGHUP are passed on to.
    pub fn forward_to(&self, child: Pid) {
        CHILD.store(child.0, Ordering::Relaxed);
    }
}

impl Drop for ForegroundSignals {
    fn drop(&mut self) {
        for &(signal, handler) in &self.old {
            // SAFETY: puts back what was there.
            unsafe { libc::signal(signal, handler) };
        }
    }
}

extern "C" fn ignore(_: libc::c_int) {}

extern "C" fn forward(signal: libc::c_int) {
    let child = CHILD.load(Ordering::Relaxed);
    if child > 0 {
        // SAFETY: kill(2) is async-signal-safe and touches no memory.
        unsafe { libc::kill(child, signal) };
    }
}
