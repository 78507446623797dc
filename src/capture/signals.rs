//! Signals sent to the recorder: what the terminal sends goes to the program as well, so the
//! recorder ignores it; what somebody sends to the recorder alone is passed on.

use std::sync::atomic::{AtomicI32, Ordering};

static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// While it lives, SIGINT and SIGQUIT are left to the program, and SIGTERM and SIGHUP are passed
/// on to it.
#[derive(Debug)]
pub(super) struct Forwarding {
    old: Vec<(libc::c_int, libc::sighandler_t)>,
}

impl Forwarding {
    pub(super) fn to(pid: crate::common::Pid) -> Self {
        PROGRAM.store(pid.0, Ordering::Relaxed);
        let forward: extern "C" fn(libc::c_int) = forward;
        let handlers = [
            (libc::SIGINT, libc::SIG_IGN),
            (libc::SIGQUIT, libc::SIG_IGN),
            (libc::SIGTERM, forward as libc::sighandler_t),
            (libc::SIGHUP, forward as libc::sighandler_t),
        ];
        // SAFETY: the handler only reads an atomic and calls kill(2).
        let set = |(signal, handler)| (signal, unsafe { libc::signal(signal, handler) });
        Self { old: handlers.into_iter().map(set).collect() }
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        for &(signal, handler) in &self.old {
            // SAFETY: puts back what was there.
            unsafe { libc::signal(signal, handler) };
        }
    }
}

extern "C" fn forward(signal: libc::c_int) {
    let program = PROGRAM.load(Ordering::Relaxed);
    if program > 0 {
        // SAFETY: kill(2) is async-signal-safe and touches no memory.
        unsafe { libc::kill(program, signal) };
    }
}
