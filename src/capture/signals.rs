//! Signals sent to the recorder: what the terminal or the program sends to the whole process group
//! goes to the program as well, so the recorder ignores it; what somebody sends to the recorder
//! alone is passed on.

use super::recorder::Request;
use crate::common::Pid;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// What the recorder was told to stop by, until its program stops.
static STOPPED_BY: AtomicI32 = AtomicI32::new(0);

type Handler = extern "C" fn(libc::c_int, *const libc::siginfo_t, *mut libc::c_void);

/// While it lives, signals are left to the program, and SIGTERM and SIGHUP are passed on to it.
#[derive(Debug)]
pub(super) struct Forwarding {
    old: Vec<(libc::c_int, libc::sigaction)>,
}

impl Forwarding {
    /// For a program that was launched. One that was taken over is not whom the terminal means.
    pub(super) fn for_request(request: &Request, pid: Pid) -> Option<Self> {
        request.attach.is_none().then(|| Self::to(pid))
    }

    pub(super) fn to(pid: Pid) -> Self {
        PROGRAM.store(pid.0, Ordering::Relaxed);
        STOPPED_BY.store(0, Ordering::Relaxed);
        let signals = (1..=libc::SIGRTMAX()).filter(|signal| !stays_ignored(*signal));
        let taken = signals.filter_map(|signal| Some((signal, take(signal)?)));
        Self { old: taken.collect() }
    }
}

/// Takes a signal for the program. Returns what was done with it before; none: that is still done.
fn take(signal: libc::c_int) -> Option<libc::sigaction> {
    let forward: Handler = forward;
    let stop: Handler = stop;
    match signal {
        // They cannot be taken, or do nothing.
        libc::SIGKILL | libc::SIGSTOP | libc::SIGCHLD | libc::SIGCONT => None,
        libc::SIGTERM | libc::SIGHUP => {
            Some(set_action(signal, forward as usize, libc::SA_RESTART))
        }
        libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => {
            Some(set_action(signal, stop as usize, libc::SA_RESTART))
        }
        // The runtime's handlers would let the second one end the recorder. A fault of its own does
        // so even where they are ignored (`force_sig_info_to_task` in the kernel). A file that may
        // not become larger (SIGXFSZ) is an error like others.
        libc::SIGINT | libc::SIGQUIT | libc::SIGSEGV | libc::SIGBUS | libc::SIGXFSZ => {
            Some(set_action(signal, libc::SIG_IGN, 0))
        }
        _ => {
            let old = set_action(signal, libc::SIG_IGN, 0);
            if old.sa_sigaction == libc::SIG_DFL {
                return Some(old);
            }
            // The recorder itself has a use for it.
            put_back(signal, &old);
            None
        }
    }
}

/// Returns true for SIGHUP if whoever started this process lets it ignore that, as nohup(1) does.
/// What it starts is to inherit that.
fn stays_ignored(signal: libc::c_int) -> bool {
    // SAFETY: all bit patterns of this plain structure are valid, and nothing is changed.
    let old = unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut old);
        old
    };
    signal == libc::SIGHUP && old.sa_sigaction == libc::SIG_IGN
}

/// What tells a recorder behind a front (`front`) that it is alone: nobody else sends it.
pub(super) const ORPHANED_SIGNAL: libc::c_int = libc::SIGPWR;

static ORPHANED: AtomicBool = AtomicBool::new(false);
static MAY_BE_ORPHANED: AtomicBool = AtomicBool::new(false);

/// The process whose end leaves this one an orphan.
static FRONT: AtomicI32 = AtomicI32::new(0);

/// From now on this process leaves its program when it is orphaned by `front`.
pub(super) fn expect_to_be_orphaned(front: Pid) {
    FRONT.store(front.0, Ordering::Relaxed);
    TRACER.store(nix::unistd::gettid().as_raw(), Ordering::Relaxed);
    MAY_BE_ORPHANED.store(true, Ordering::Relaxed);
    let handler: extern "C" fn(libc::c_int) = orphaned;
    for signal in [ORPHANED_SIGNAL, libc::SIGALRM] {
        set(signal, handler);
    }
}

/// SIGALRM comes again and again then, as the first one may have come in a bad moment.
extern "C" fn orphaned(signal: libc::c_int) {
    // SAFETY: getppid(2) touches no memory.
    let parent = unsafe { libc::getppid() };
    if parent == FRONT.load(Ordering::Relaxed) {
        // Sent to its whole process group, by the program.
        return;
    }
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
        let signals = signals.into_iter().filter(|signal| !stays_ignored(*signal));
        let handler: extern "C" fn(libc::c_int) = leave;
        Self { old: signals.map(|signal| (signal, set(signal, handler))).collect() }
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
        let ask: Handler = ask;
        Self { old: set_action(libc::SIGUSR2, ask as usize, 0) }
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

/// Another thread may have taken the signal: it is sent on. The program may have sent it to its whole
/// process group, and asks for nothing.
extern "C" fn ask(_: libc::c_int, info: *const libc::siginfo_t, _: *mut libc::c_void) {
    if is_from_program(info) {
        return;
    }
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
        for (signal, old) in &self.old {
            put_back(*signal, old);
        }
    }
}

/// Does `action`, a [`Handler`] or one of the kernel's, at a signal. Returns what was done before.
fn set_action(signal: libc::c_int, action: usize, flags: libc::c_int) -> libc::sigaction {
    // SAFETY: all bit patterns of these plain structures are valid. Handlers only read and set
    // atomics and make async-signal-safe calls.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = action;
        new.sa_flags = flags | libc::SA_SIGINFO;
        libc::sigaction(signal, &raw const new, &raw mut old);
        old
    }
}

fn put_back(signal: libc::c_int, old: &libc::sigaction) {
    // SAFETY: puts back what was there.
    unsafe { libc::sigaction(signal, &raw const *old, std::ptr::null_mut()) };
}

/// Returns true if the program sent a signal.
fn is_from_program(info: *const libc::siginfo_t) -> bool {
    // SAFETY: the kernel gives a valid siginfo to handlers with SA_SIGINFO.
    let sender = unsafe { info.as_ref().map_or(0, |info| info.si_pid()) };
    sender == PROGRAM.load(Ordering::Relaxed)
}

/// Passes a signal on, unless the program sent it itself, to its whole process group.
extern "C" fn forward(signal: libc::c_int, info: *const libc::siginfo_t, _: *mut libc::c_void) {
    let program = PROGRAM.load(Ordering::Relaxed);
    if program > 0 && !is_from_program(info) {
        // SAFETY: kill(2) is async-signal-safe and touches no memory.
        unsafe { libc::kill(program, signal) };
    }
}

/// Ignores what the program sends to its whole process group, for a process in front of the recorder
/// that passes on SIGINT, SIGQUIT, SIGTERM and SIGHUP.
pub(super) fn ignore_others() {
    let stays = |signal: &libc::c_int| {
        matches!(
            *signal,
            libc::SIGINT
                | libc::SIGQUIT
                | libc::SIGTERM
                | libc::SIGHUP
                | libc::SIGKILL
                | libc::SIGSTOP
                | libc::SIGCHLD
                | libc::SIGCONT
                | libc::SIGTSTP
                | libc::SIGTTIN
                | libc::SIGTTOU
        )
    };
    for signal in (1..=libc::SIGRTMAX()).filter(|signal| !stays(signal)) {
        set_action(signal, libc::SIG_IGN, 0);
    }
}

/// The program may have a handler for it, and not stop.
extern "C" fn stop(signal: libc::c_int, _: *const libc::siginfo_t, _: *mut libc::c_void) {
    STOPPED_BY.store(signal, Ordering::Relaxed);
}

/// A thread of the program stopped by job control: so does the recorder where the signal was for
/// both, as a shell waits for it alone.
pub(super) fn stop_with_program(signal: libc::c_int) {
    let stopped = Ordering::Relaxed;
    if signal != 0 && STOPPED_BY.compare_exchange(signal, 0, stopped, stopped).is_ok() {
        // SAFETY: raise(3) touches no memory.
        unsafe { libc::raise(libc::SIGSTOP) };
    }
}
