//! Signals sent to the recorder: what the terminal sends goes to the program as well, so the
//! recorder ignores it; what somebody sends to the recorder alone is passed on.

use super::recorder::Request;
use crate::common::Pid;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// While it lives, SIGINT and SIGQUIT are left to the program, SIGXFSZ to whoever writes, and SIGTERM and SIGHUP are passed
/// on to it.
#[derive(Debug)]
pub(super) struct Forwarding {
    old: Vec<(libc::c_int, libc::sighandler_t)>,
}

impl Forwarding {
    /// For a program that was launched. One that was taken over is not whom the terminal means.
    pub(super) fn for_request(request: &Request, pid: Pid) -> Option<Self> {
        request.attach.is_none().then(|| Self::to(pid))
    }

    pub(super) fn to(pid: Pid) -> Self {
        PROGRAM.store(pid.0, Ordering::Relaxed);
        let forward: extern "C" fn(libc::c_int) = forward;
        let handlers = [
            (libc::SIGINT, libc::SIG_IGN),
            (libc::SIGQUIT, libc::SIG_IGN),
            (libc::SIGTERM, forward as libc::sighandler_t),
            (libc::SIGHUP, forward as libc::sighandler_t),
            // A file that may not become larger is an error like others.
            (libc::SIGXFSZ, libc::SIG_IGN),
        ];
        // SAFETY: the handler only reads an atomic and calls kill(2).
        let ignore = |(signal, handler)| (signal, unsafe { libc::signal(signal, handler) });
        Self { old: handlers.into_iter().map(ignore).collect() }
    }
}

/// What tells a recorder behind a front (`front`) that it is alone: nobody else sends it.
pub(super) const ORPHANED_SIGNAL: libc::c_int = libc::SIGPWR;

static ORPHANED: AtomicBool = AtomicBool::new(false);
static MAY_BE_ORPHANED: AtomicBool = AtomicBool::new(false);

/// From now on this process leaves its program when it is orphaned.
pub(super) fn expect_to_be_orphaned() {
    TRACER.store(nix::unistd::gettid().as_raw(), Ordering::Relaxed);
    MAY_BE_ORPHANED.store(true, Ordering::Relaxed);
    let handler: extern "C" fn(libc::c_int) = orphaned;
    for signal in [ORPHANED_SIGNAL, libc::SIGALRM] {
        set(signal, handler);
    }
}

/// SIGALRM comes again and again then, as the first one may have come in a bad moment.
extern "C" fn orphaned(signal: libc::c_int) {
    if signal == ORPHANED_SIGNAL {
        ORPHANED.store(true, Ordering::Relaxed);
    }
    interrupt_tracer();
}

static LEAVING: AtomicBool = AtomicBool::new(false);
static TRACER: AtomicI32 = AtomicI32::new(0);

/// While it lives, a signal that would end the recorder asks it to leave the program instead. This
/// thread's waiting is interrupted then.
#[derive(Debug)]
pub struct Leaving {
    old: Vec<(libc::c_int, libc::sigaction)>,
}

impl Leaving {
    /// Of SIGINT, SIGTERM, SIGHUP and SIGQUIT, for the thread that calls this, which must be the one
    /// that traces.
    pub fn on_signals() -> Self {
        TRACER.store(nix::unistd::gettid().as_raw(), Ordering::Relaxed);
        LEAVING.store(false, Ordering::Relaxed);
        let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGALRM];
        let handler: extern "C" fn(libc::c_int) = leave;
        Self { old: signals.into_iter().map(|signal| (signal, set(signal, handler))).collect() }
    }

    /// Where this process may be orphaned: it leaves the program then, and not before.
    pub(super) fn when_orphaned() -> Option<Self> {
        MAY_BE_ORPHANED.load(Ordering::Relaxed).then(|| Self { old: Vec::new() })
    }

    /// Whether it is time.
    pub fn is_asked(&self) -> bool {
        ORPHANED.load(Ordering::Relaxed) || !self.old.is_empty() && LEAVING.load(Ordering::Relaxed)
    }
}

static WANTED: AtomicBool = AtomicBool::new(false);
static ANSWERS: AtomicBool = AtomicBool::new(false);

/// While it lives, SIGUSR2 asks the recorder for what is in its rings now. This thread's waiting is
/// interrupted then.
pub(super) struct Asking {
    old: libc::sigaction,
}

impl Asking {
    pub(super) fn on_signal() -> Self {
        TRACER.store(nix::unistd::gettid().as_raw(), Ordering::Relaxed);
        WANTED.store(false, Ordering::Relaxed);
        ANSWERS.store(true, Ordering::Relaxed);
        Self { old: set(libc::SIGUSR2, ask) }
    }

    /// Whether this process answers who asks.
    pub(super) fn is_possible() -> bool {
        ANSWERS.load(Ordering::Relaxed)
    }

    /// Whether somebody asked since the last time.
    pub(super) fn was_asked() -> bool {
        WANTED.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        ANSWERS.store(false, Ordering::Relaxed);
        // SAFETY: puts back what was there.
        unsafe { libc::sigaction(libc::SIGUSR2, &raw const self.old, std::ptr::null_mut()) };
    }
}

/// Another thread may have taken the signal: it is sent on.
extern "C" fn ask(_: libc::c_int) {
    WANTED.store(true, Ordering::Relaxed);
    let tracer = TRACER.load(Ordering::Relaxed);
    // SAFETY: getpid(2), gettid(2) and tgkill(2) touch no memory.
    unsafe {
        if libc::syscall(libc::SYS_gettid) != i64::from(tracer) {
            libc::syscall(libc::SYS_tgkill, libc::getpid(), tracer, libc::SIGUSR2);
        }
    }
}

/// Lets a signal call `handler`, and interrupt system calls. Gives what was before. The handler
/// only reads and sets atomics and makes async-signal-safe calls.
fn set(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) -> libc::sigaction {
    // SAFETY: all bit patterns of these plain structures are valid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        libc::sigaction(signal, &raw const action, &raw mut old);
        old
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        // Nobody wants the signal any more that would come again, and it would end the recorder.
        // SAFETY: alarm(2) touches no memory.
        unsafe { libc::alarm(0) };
        for (signal, old) in &self.old {
            // SAFETY: puts back what was there.
            unsafe { libc::sigaction(*signal, &raw const *old, std::ptr::null_mut()) };
        }
    }
}

extern "C" fn leave(_: libc::c_int) {
    LEAVING.store(true, Ordering::Relaxed);
    interrupt_tracer();
}

/// Another thread may have taken the signal, and this one may have been about to wait: it is sent
/// on, and comes again, until nobody wants it any more.
fn interrupt_tracer() {
    let tracer = TRACER.load(Ordering::Relaxed);
    // SAFETY: getpid(2), gettid(2), tgkill(2) and alarm(2) touch no memory.
    unsafe {
        if libc::syscall(libc::SYS_gettid) != i64::from(tracer) {
            libc::syscall(libc::SYS_tgkill, libc::getpid(), tracer, libc::SIGALRM);
        }
        libc::alarm(1);
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
