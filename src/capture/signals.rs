//! The recorder's handling of signals. It ignores those that the terminal or the program sends to
//! the whole process group, since the program gets them as well. It passes on those that were sent
//! to it alone.
//!
//! There are four uses, each a part of this file:
//!
//! - [`Forwarding`], while a program is recorded.
//! - [`expect_to_be_orphaned`], in a recorder that is the child of a front (module `front`).
//! - [`Leaving`]: signals by which the recorder leaves its program to run on, untraced.
//! - [`Asking`]: SIGUSR2 requests a snapshot.
//!
//! A handler can only reach static variables, so each use has some. Those of the last three
//! interrupt the wait of the tracing thread ([`TRACER`]), which then reads these variables.

use super::request::Request;
use crate::common::Pid;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The program to which signals are passed on; 0 before there is one.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// The signal of job control that this process got last, by which its program may stop; 0 for none.
static STOPPED_BY: AtomicI32 = AtomicI32::new(0);

/// A signal handler. It only reads and sets atomics and makes async-signal-safe calls.
pub(super) type Handler = extern "C" fn(libc::c_int, *const libc::siginfo_t, *mut libc::c_void);

/// Handlers that leave signals to the program, and pass SIGTERM and SIGHUP on to it, until this is
/// dropped.
#[derive(Debug)]
pub(super) struct Forwarding {
    old: Vec<(libc::c_int, libc::sigaction)>,
}

impl Forwarding {
    /// Sets the handlers for a program that was launched. Returns `None` for one that was attached
    /// to: the terminal's signals are not meant for it.
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

/// Sets the handler of one signal for the program. Returns the old action, or `None` if it stays.
fn take(signal: libc::c_int) -> Option<libc::sigaction> {
    let forward: Handler = forward;
    let stop: Handler = stop;
    match signal {
        // They cannot be handled, or do nothing by default.
        libc::SIGKILL | libc::SIGSTOP | libc::SIGCHLD | libc::SIGCONT => None,
        libc::SIGTERM | libc::SIGHUP => {
            Some(set_action(signal, forward as usize, libc::SA_RESTART))
        }
        libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => {
            Some(set_action(signal, stop as usize, libc::SA_RESTART))
        }
        // The Rust runtime's handler of a fault would let the second SIGSEGV or SIGBUS end the
        // recorder. A real fault does so even if the signal is ignored (`force_sig_info_to_task` in
        // the kernel). A file that may not become larger (SIGXFSZ) is an error like others.
        libc::SIGINT | libc::SIGQUIT | libc::SIGSEGV | libc::SIGBUS | libc::SIGXFSZ => {
            Some(set_action(signal, libc::SIG_IGN, 0))
        }
        _ => {
            let old = set_action(signal, libc::SIG_IGN, 0);
            if old.sa_sigaction == libc::SIG_DFL {
                return Some(old);
            }
            // The recorder itself uses this signal.
            put_back(signal, &old);
            None
        }
    }
}

/// Returns true for SIGHUP if this process was started to ignore it, as nohup(1) does: the program
/// is to inherit that.
fn stays_ignored(signal: libc::c_int) -> bool {
    if signal != libc::SIGHUP {
        return false;
    }
    // SAFETY: all bit patterns of this plain structure are valid, and nothing is changed.
    let old = unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut old);
        old
    };
    old.sa_sigaction == libc::SIG_IGN
}

/// The signal that the kernel sends a recorder when its parent, the front (module `front`), ends.
pub(super) const ORPHANED_SIGNAL: libc::c_int = libc::SIGPWR;

/// True once the front has ended.
static ORPHANED: AtomicBool = AtomicBool::new(false);
/// True if this process has a front.
static MAY_BE_ORPHANED: AtomicBool = AtomicBool::new(false);

/// The front: the process whose end makes this one an orphan.
static FRONT: AtomicI32 = AtomicI32::new(0);

/// Sets handlers that let this process leave its program when `front`, its parent, ends.
pub(super) fn expect_to_be_orphaned(front: Pid) {
    FRONT.store(front.0, Ordering::Relaxed);
    TRACER.store(nix::unistd::gettid().as_raw(), Ordering::Relaxed);
    MAY_BE_ORPHANED.store(true, Ordering::Relaxed);
    let handler: Handler = orphaned;
    for signal in [ORPHANED_SIGNAL, libc::SIGALRM] {
        set_action(signal, handler as usize, 0);
    }
}

/// Handles [`ORPHANED_SIGNAL`], and SIGALRM, which repeats it: the first signal may come just
/// before the tracer waits.
extern "C" fn orphaned(signal: libc::c_int, _: *const libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: getppid(2) touches no memory.
    let parent = unsafe { libc::getppid() };
    if parent == FRONT.load(Ordering::Relaxed) {
        // The parent exists: the program sent the signal to its whole process group.
        return;
    }
    if signal == ORPHANED_SIGNAL {
        ORPHANED.store(true, Ordering::Relaxed);
    }
    interrupt_tracer();
}

/// True once a signal has asked to leave the program.
static LEAVING: AtomicBool = AtomicBool::new(false);
/// The thread that traces, which handlers interrupt.
static TRACER: AtomicI32 = AtomicI32::new(0);

/// Handlers by which signals that would end the recorder ask it to leave the program instead, until
/// this is dropped. The signal interrupts the waiting of the tracing thread.
#[derive(Debug)]
pub struct Leaving {
    old: Vec<(libc::c_int, libc::sigaction)>,
}

impl Leaving {
    /// Sets handlers of SIGINT, SIGTERM, SIGHUP and SIGQUIT, and of SIGALRM, by which the handler
    /// interrupts the tracing thread. The calling thread must be the one that traces.
    pub fn on_signals() -> Self {
        TRACER.store(nix::unistd::gettid().as_raw(), Ordering::Relaxed);
        LEAVING.store(false, Ordering::Relaxed);
        let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGALRM];
        let signals = signals.into_iter().filter(|signal| !stays_ignored(*signal));
        let handler: Handler = leave;
        let set = |signal| (signal, set_action(signal, handler as usize, 0));
        Self { old: signals.map(set).collect() }
    }

    /// Returns a value that asks to leave the program once this process is orphaned, and at no
    /// signal; `None` if the process has no front.
    pub(super) fn when_orphaned() -> Option<Self> {
        MAY_BE_ORPHANED.load(Ordering::Relaxed).then(|| Self { old: Vec::new() })
    }

    /// Returns true if the recorder is to leave the program.
    pub fn is_asked(&self) -> bool {
        ORPHANED.load(Ordering::Relaxed) || !self.old.is_empty() && LEAVING.load(Ordering::Relaxed)
    }
}

/// True if a snapshot was requested since [`Asking::was_asked`] was last called.
static WANTED: AtomicBool = AtomicBool::new(false);
/// True while an [`Asking`] exists.
static ANSWERS: AtomicBool = AtomicBool::new(false);

/// A handler by which SIGUSR2 requests a snapshot of the recorder's rings, until this is dropped.
/// The signal interrupts the waiting of the tracing thread.
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

    /// Returns true if this process takes requests for snapshots: while an `Asking` exists.
    pub(super) fn is_possible() -> bool {
        ANSWERS.load(Ordering::Relaxed)
    }

    /// Returns true if a snapshot was requested since the last call.
    pub(super) fn was_asked() -> bool {
        WANTED.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        ANSWERS.store(false, Ordering::Relaxed);
        put_back(libc::SIGUSR2, &self.old);
    }
}

/// Handles SIGUSR2. Passes it on to the tracing thread if another one got it. Ignores one that the
/// program sent to its whole process group.
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

impl Drop for Leaving {
    fn drop(&mut self) {
        // Without the handler, a SIGALRM that `interrupt_tracer` still repeats would end the
        // recorder.
        // SAFETY: alarm(2) touches no memory.
        unsafe { libc::alarm(0) };
        for (signal, old) in &self.old {
            put_back(*signal, old);
        }
    }
}

extern "C" fn leave(_: libc::c_int, _: *const libc::siginfo_t, _: *mut libc::c_void) {
    LEAVING.store(true, Ordering::Relaxed);
    interrupt_tracer();
}

/// Sends SIGALRM to the tracing thread, and again a second later: another thread may have got the
/// signal, or the tracer may have been about to wait.
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

/// Sets the action for a signal: a [`Handler`], `SIG_IGN` or `SIG_DFL`. Returns the old action.
pub(super) fn set_action(
    signal: libc::c_int,
    action: usize,
    flags: libc::c_int,
) -> libc::sigaction {
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

pub(super) fn put_back(signal: libc::c_int, old: &libc::sigaction) {
    // SAFETY: restores the action that `set_action` returned.
    unsafe { libc::sigaction(signal, &raw const *old, std::ptr::null_mut()) };
}

/// Returns true if the program sent a signal.
fn is_from_program(info: *const libc::siginfo_t) -> bool {
    // SAFETY: the kernel gives a valid siginfo to handlers with SA_SIGINFO.
    let sender = unsafe { info.as_ref().map_or(0, |info| info.si_pid()) };
    sender == PROGRAM.load(Ordering::Relaxed)
}

/// Passes a signal on to the program, unless the program sent it to its whole process group.
extern "C" fn forward(signal: libc::c_int, info: *const libc::siginfo_t, _: *mut libc::c_void) {
    let program = PROGRAM.load(Ordering::Relaxed);
    if program > 0 && !is_from_program(info) {
        // SAFETY: kill(2) is async-signal-safe and touches no memory.
        unsafe { libc::kill(program, signal) };
    }
}

/// Ignores most signals in the front of a recorder: the program may send them to its whole process
/// group. SIGINT, SIGQUIT, SIGTERM and SIGHUP are passed on, and job control works as usual.
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

/// Notes a signal of job control. The program may have a handler for it, and not stop.
extern "C" fn stop(signal: libc::c_int, _: *const libc::siginfo_t, _: *mut libc::c_void) {
    STOPPED_BY.store(signal, Ordering::Relaxed);
}

/// Stops the recorder if it also got `signal`, by which job control stopped the program: a shell
/// waits for the recorder only.
pub(super) fn stop_with_program(signal: libc::c_int) {
    let stopped = Ordering::Relaxed;
    if signal != 0 && STOPPED_BY.compare_exchange(signal, 0, stopped, stopped).is_ok() {
        // SAFETY: raise(3) touches no memory.
        unsafe { libc::raise(libc::SIGSTOP) };
    }
}
