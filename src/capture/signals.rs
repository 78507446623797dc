//! The recorder's handling of signals. It ignores those that the terminal or the program sends to
//! the whole process group, since the program gets them as well. It passes on those that were sent
//! to it alone.
//!
//! There are four uses, each a part of this file:
//!
//! - [`Forwarding`], while a program is recorded.
//! - [`expect_to_be_orphaned`], in a recorder that is the child of a front (module `front`).
//! - [`Leaving`]: signals at which the recorder leaves its program: detaches from it, so that it
//!   runs on untraced.
//! - [`SnapshotSignal`]: SIGUSR2 requests a snapshot.
//!
//! A handler can only reach static variables, so each use has some. The handlers of the last three
//! set one, and interrupt the *tracing thread* ([`TRACER`]), which waits for stops of the program's
//! threads. It then asks ([`Leaving::is_asked`], [`SnapshotSignal::take_request`]). The kernel may
//! run a handler on any thread of this process, so a handler sends a signal to the tracing thread.
//! One that comes just before the thread begins to wait interrupts nothing: so SIGALRM comes again
//! each second (`interrupt_tracer`), and a requester sends SIGUSR2 again.

use super::request::Request;
use crate::common::Pid;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The process to which signals are passed on; 0 before there is one, and after an attach.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// The signal of job control that this process got last, by which its program may stop; 0 for none.
static LAST_STOP_SIGNAL: AtomicI32 = AtomicI32::new(0);

/// A signal handler. It only reads and sets atomics and makes async-signal-safe calls.
pub(super) type Handler = extern "C" fn(libc::c_int, *const libc::siginfo_t, *mut libc::c_void);

/// Handlers that leave signals to the program, and pass SIGTERM and SIGHUP on to it, until this is
/// dropped.
#[derive(Debug)]
pub(super) struct Forwarding {
    old: Vec<(libc::c_int, libc::sigaction)>,
}

impl Forwarding {
    /// Sets the handlers for the program `pid` if it was launched. Returns `None`, and sets none,
    /// if the recorder attached to it: the terminal's signals are not meant for it.
    pub(super) fn for_request(request: &Request, pid: Pid) -> Option<Self> {
        request.attach.is_none().then(|| Self::to(pid))
    }

    /// Sets the handlers: SIGTERM and SIGHUP are passed on to the process `pid`, most other signals
    /// are ignored, and those of job control are noted ([`stop_with_program`]). A signal that this
    /// process handles already stays as it is, except for the usual ones that end a process or are
    /// raised by faults.
    pub(super) fn to(pid: Pid) -> Self {
        PROGRAM.store(pid.0, Ordering::Relaxed);
        LAST_STOP_SIGNAL.store(0, Ordering::Relaxed);
        let signals = (1..=libc::SIGRTMAX()).filter(|signal| !stays_ignored(*signal));
        let handled = signals.filter_map(|signal| Some((signal, handle_for_program(signal)?)));
        Self { old: handled.collect() }
    }
}

/// Sets the action for one signal while a program is recorded: passed on, noted or ignored. Returns
/// the old action; `None` if that stays.
fn handle_for_program(signal: libc::c_int) -> Option<libc::sigaction> {
    let forward: Handler = forward;
    let note_stop: Handler = note_stop_signal;
    match signal {
        // They cannot be handled, or do nothing by default.
        libc::SIGKILL | libc::SIGSTOP | libc::SIGCHLD | libc::SIGCONT => None,
        libc::SIGTERM | libc::SIGHUP => {
            Some(set_action(signal, forward as usize, libc::SA_RESTART))
        }
        libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => {
            Some(set_action(signal, note_stop as usize, libc::SA_RESTART))
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
            restore_action(signal, &old);
            None
        }
    }
}

/// Returns true if `signal` is SIGHUP, and this process was started to ignore it, as by nohup(1):
/// it goes on to ignore it then, and the program inherits that.
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

/// The signal that the kernel sends a recorder when its parent, the front, ends. Module `front`,
/// which also raises it, names it there as `Signal::SIGPWR`.
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
    let handler: Handler = note_orphaned;
    for signal in [ORPHANED_SIGNAL, libc::SIGALRM] {
        set_action(signal, handler as usize, 0);
    }
}

/// Handles [`ORPHANED_SIGNAL`]: notes that the front has ended, and interrupts the tracing thread.
/// Handles SIGALRM, which repeats that interruption: the first may come just before the thread
/// waits. Does nothing while the front exists.
extern "C" fn note_orphaned(signal: libc::c_int, _: *const libc::siginfo_t, _: *mut libc::c_void) {
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
static LEAVE_REQUESTED: AtomicBool = AtomicBool::new(false);
/// The thread that traces, which handlers interrupt.
static TRACER: AtomicI32 = AtomicI32::new(0);

/// Handlers by which signals that would end this process ask it to leave the program instead, or to
/// end a long task, until this is dropped. The task polls [`Self::is_asked`]; the signal also
/// interrupts a wait of the tracing thread.
#[derive(Debug)]
pub struct Leaving {
    old: Vec<(libc::c_int, libc::sigaction)>,
}

impl Leaving {
    /// Sets handlers of SIGINT, SIGTERM, SIGHUP and SIGQUIT, and of SIGALRM, which repeats the
    /// interruption of the tracing thread. The calling thread must be the one that traces. Forgets
    /// requests of earlier signals.
    pub fn on_signals() -> Self {
        TRACER.store(nix::unistd::gettid().as_raw(), Ordering::Relaxed);
        LEAVE_REQUESTED.store(false, Ordering::Relaxed);
        let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGALRM];
        let signals = signals.into_iter().filter(|signal| !stays_ignored(*signal));
        let handler: Handler = request_leave;
        let set = |signal| (signal, set_action(signal, handler as usize, 0));
        Self { old: signals.map(set).collect() }
    }

    /// Returns a value that asks to leave the program once the front of this process has ended.
    /// Sets no handlers. Returns `None` if the process has no front.
    pub(super) fn when_orphaned() -> Option<Self> {
        MAY_BE_ORPHANED.load(Ordering::Relaxed).then(|| Self { old: Vec::new() })
    }

    /// Returns true if a signal has asked to leave the program, or the front has ended. Stays true
    /// from then on. A value of `when_orphaned` does not ask for signals.
    pub fn is_asked(&self) -> bool {
        ORPHANED.load(Ordering::Relaxed)
            || !self.old.is_empty() && LEAVE_REQUESTED.load(Ordering::Relaxed)
    }
}

/// True if SIGUSR2 requested a snapshot since [`SnapshotSignal::take_request`] was last called.
static SNAPSHOT_REQUESTED: AtomicBool = AtomicBool::new(false);
/// True while an [`SnapshotSignal`] exists.
static TAKES_SNAPSHOTS: AtomicBool = AtomicBool::new(false);

/// The handler of SIGUSR2, which requests a snapshot of the recorder's rings, until this is
/// dropped. The signal interrupts the waiting of the tracing thread, which then calls
/// [`Self::take_request`].
pub(super) struct SnapshotSignal {
    old: libc::sigaction,
}

impl SnapshotSignal {
    /// Sets the handler, and forgets earlier requests. The calling thread must be the one that
    /// traces.
    pub(super) fn handle() -> Self {
        TRACER.store(nix::unistd::gettid().as_raw(), Ordering::Relaxed);
        SNAPSHOT_REQUESTED.store(false, Ordering::Relaxed);
        TAKES_SNAPSHOTS.store(true, Ordering::Relaxed);
        let handler: Handler = request_snapshot;
        Self { old: set_action(libc::SIGUSR2, handler as usize, 0) }
    }

    /// Returns true while a [`SnapshotSignal`] exists, so that this process takes requests for
    /// snapshots.
    pub(super) fn is_handled() -> bool {
        TAKES_SNAPSHOTS.load(Ordering::Relaxed)
    }

    /// Returns true if a snapshot was requested, and forgets that.
    pub(super) fn take_request() -> bool {
        SNAPSHOT_REQUESTED.swap(false, Ordering::Relaxed)
    }
}

impl Drop for SnapshotSignal {
    fn drop(&mut self) {
        TAKES_SNAPSHOTS.store(false, Ordering::Relaxed);
        restore_action(libc::SIGUSR2, &self.old);
    }
}

/// Handles SIGUSR2: notes the request for a snapshot. Passes the signal on to the tracing thread if
/// another one got it. Ignores one that the program sent to its whole process group.
extern "C" fn request_snapshot(_: libc::c_int, info: *const libc::siginfo_t, _: *mut libc::c_void) {
    if is_from_program(info) {
        return;
    }
    SNAPSHOT_REQUESTED.store(true, Ordering::Relaxed);
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
            restore_action(*signal, old);
        }
    }
}

extern "C" fn request_leave(_: libc::c_int, _: *const libc::siginfo_t, _: *mut libc::c_void) {
    LEAVE_REQUESTED.store(true, Ordering::Relaxed);
    interrupt_tracer();
}

/// Sends SIGALRM to the tracing thread, unless that runs the handler itself, and to this process a
/// second later: the tracing thread may have been about to wait. The handler of that SIGALRM calls
/// this again, so the signal repeats until [`Leaving`] is dropped.
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
            restore_action(*signal, old);
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

/// Restores the action for a signal that [`set_action`] returned.
pub(super) fn restore_action(signal: libc::c_int, old: &libc::sigaction) {
    // SAFETY: restores the action that `set_action` returned.
    unsafe { libc::sigaction(signal, &raw const *old, std::ptr::null_mut()) };
}

/// Returns true if the sender of the signal, by its process number, is the process that signals are
/// passed on to ([`PROGRAM`]). Its children count as other senders.
fn is_from_program(info: *const libc::siginfo_t) -> bool {
    // SAFETY: the kernel gives a valid siginfo to handlers with SA_SIGINFO.
    let sender = unsafe { info.as_ref().map_or(0, |info| info.si_pid()) };
    sender == PROGRAM.load(Ordering::Relaxed)
}

/// Handles SIGTERM and SIGHUP: passes the signal on to the program, unless the program itself sent
/// it: to its whole process group, so that it got it as well. If a child of the program did that,
/// the program gets the signal twice.
extern "C" fn forward(signal: libc::c_int, info: *const libc::siginfo_t, _: *mut libc::c_void) {
    let program = PROGRAM.load(Ordering::Relaxed);
    if program > 0 && !is_from_program(info) {
        // SAFETY: kill(2) is async-signal-safe and touches no memory.
        unsafe { libc::kill(program, signal) };
    }
}

/// Ignores most signals in the front of a recorder: the program may send them to its whole process
/// group. SIGINT, SIGQUIT, SIGTERM and SIGHUP are passed on, and job control works as usual.
pub(super) fn ignore_signals_to_front() {
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
extern "C" fn note_stop_signal(
    signal: libc::c_int,
    _: *const libc::siginfo_t,
    _: *mut libc::c_void,
) {
    LAST_STOP_SIGNAL.store(signal, Ordering::Relaxed);
}

/// Stops this process by SIGSTOP if it also got `signal`, by which job control stopped the program:
/// a shell waits for the recorder only. Returns once this process is continued. Called at each
/// group stop of the program.
pub(super) fn stop_with_program(signal: libc::c_int) {
    let order = Ordering::Relaxed;
    if signal != 0 && LAST_STOP_SIGNAL.compare_exchange(signal, 0, order, order).is_ok() {
        // SAFETY: raise(3) touches no memory.
        unsafe { libc::raise(libc::SIGSTOP) };
    }
}
