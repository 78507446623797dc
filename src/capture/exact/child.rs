//! The recorder of a followed child: a fork of its parent's recorder, which hands the child over
//! (`follow`). The child waits in pause(2), untraced, until this recorder has attached to it.

use super::engine::{ExactRecorder, FLUSH_PERIOD};
use super::family::Family;
use super::followed::Followed;
use crate::capture::front::leave_when_orphaned;
use crate::capture::periodic_signal::PeriodicSignal;
use crate::capture::recorder::Prepared;
use crate::capture::request::Request;
use crate::capture::shared_cpu::SharedCpu;
use crate::capture::signals::{Forwarding, Leaving};
use crate::capture::{Backend, Error};
use crate::common::{Addr, Pid, Tid};
use crate::engine::Gate;
use crate::insn::Registers;
use crate::tracee::{
    self, Cpus, Memory, Tracee, command_line, executable, process_status, wait_for,
};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

const STDERR: libc::c_int = 2;

/// A child that is handed over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Child {
    pub(super) pid: Pid,
    /// The registers with which it goes on.
    pub(super) registers: Registers,
    /// The signals that it blocks.
    pub(super) mask: u64,
    /// The address of the SYSCALL instruction by which it waits in pause(2).
    pub(super) call: Addr,
    /// The child's code that the SYSCALL instruction replaces, if it replaces any.
    pub(super) code: Option<[u8; 2]>,
    /// True if it has executed a program since its birth, and is at the start of that.
    pub(super) has_executed: bool,
    /// The gate, if it has filters of system calls.
    pub(super) gate: Option<Gate>,
    /// The parent's `Process::was_running`, which the child inherits with the parent's memory.
    pub(super) was_running: bool,
    /// The CPUs of its parent's recorder, if that and its program share one.
    pub(super) shared_cpu: Option<SharedCpu>,
    /// The process of its parent's recorder.
    pub(super) parent_recorder: Pid,
}

impl Child {
    /// Returns the number of the child's first thread, its only one.
    fn tid(&self) -> Tid {
        Tid(self.pid.0)
    }

    /// Restores the code, the registers and the signal mask that the child had before it was made
    /// to wait for its recorder. Does not resume it.
    pub(super) fn restore_state(&self, tracee: Tracee) -> Result<(), Error> {
        if let Some(code) = self.code {
            write_code(&Memory::open(self.pid)?, self.call, code)?;
        }
        tracee.set_registers(&self.registers)?;
        Ok(tracee.set_signal_mask(self.mask)?)
    }

    /// Attaches to the child, which waits, and stops it with the state that it had before. Fails if
    /// it ends instead.
    fn attach(&self) -> Result<(), Error> {
        let tracee = Tracee(self.tid());
        tracee.seize()?;
        tracee.interrupt()?;
        match wait_for(tracee.0)? {
            stop if stop.is_end() => Err(tracee::Error::Disturbed { tid: tracee.0, stop }.into()),
            _ => self.restore_state(tracee),
        }
    }

    /// Kills the child, to which this recorder could not attach: it would wait for ever. First
    /// resumes it, since it may be at its exit stop. Returns a note about that; `None`, without
    /// killing, if the child has ended or is about to.
    fn kill_lost(&self, error: &Error) -> Option<String> {
        let _ = Tracee(self.tid()).resume(0);
        let is_there =
            process_status(self.pid).is_some_and(|state| !matches!(state.letter, 'Z' | 'X'));
        if error.is_of_end() || !is_there {
            return None;
        }
        Tracee::kill_process(self.pid);
        Some(format!("process {} was killed, since its recorder lost it: {error}", self.pid))
    }

    /// Creates its recording. Fails if this recorder has no right to trace the child.
    fn create_recording(&self, request: &Request) -> Result<Prepared, Error> {
        let program = executable(self.pid)?;
        let argv = command_line(self.pid);
        let attach = Some(self.pid);
        let request = Request { attach, program, argv, start_at: None, ..request.clone() };
        // This takes the same rights as to attach to the child.
        Memory::open(self.pid)?;
        Ok(Prepared::of_child(&request, Backend::Exact)?)
    }
}

/// Records a child in this process, a fork of its parent's recorder, and exits. `parent` is this
/// process's copy of that recorder.
///
/// `socket` leads to the parent's recorder, for the protocol that is described in `follow`. Without
/// a first byte from there, records nothing. If that recorder ends before it sends its last byte,
/// this one records the child all the same: it may wait already. If the recorder only closes the
/// socket then, gives the recording up.
pub(super) fn record_child(parent: &mut ExactRecorder, child: &Child, mut socket: UnixStream) -> ! {
    let recorded = catch_unwind(AssertUnwindSafe(|| {
        let Some(followed) = parent.followed.take() else { return };
        let Followed { family, .. } = followed;
        close_others(&[family.fd(), socket.as_raw_fd()]);
        let request = Request { start_at: None, ..parent.request.clone() };
        let mut begun = [0];
        if socket.read_exact(&mut begun).is_err() {
            return;
        }
        let prepared = match child.create_recording(&request) {
            Ok(prepared) => prepared,
            Err(error) => {
                family.add_note(&format!("process {} is not recorded: {error}", child.pid));
                return;
            }
        };
        let given = socket.write_all(&[1]).and_then(|()| socket.read_exact(&mut begun));
        // A recorder that was killed just now may have left the child waiting: no other would
        // wake it.
        if given.is_err() && !is_gone_soon(child.parent_recorder) {
            return prepared.give_up();
        }
        record(&request, child, prepared, family);
    }));
    // SAFETY: ends this process, which shares its memory with none.
    unsafe { libc::_exit(i32::from(recorded.is_err())) }
}

/// Returns true if this process's parent, which has closed its end of a socket, ends within a
/// second. Waits for that.
fn is_gone_soon(parent: Pid) -> bool {
    let begun = Instant::now();
    while nix::unistd::getppid().as_raw() == parent.0 {
        if begun.elapsed() > Duration::from_secs(1) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Attaches to a child that waits, records it to its end, and waits for the recorders of its
/// children. Adds its recording to the family. Errors become notes of the family.
fn record(request: &Request, child: &Child, prepared: Prepared, family: Family) {
    let tid = child.tid();
    let shared_cpu = child.shared_cpu.and_then(|_| SharedCpu::pin_this_thread().ok());
    // Signals of the terminal, or of a user who ends recorders, are meant for the programs.
    let forwarding = request.attach.is_none().then(|| Forwarding::to(child.pid));
    let periodic_signal = PeriodicSignal::start(FLUSH_PERIOD);
    leave_when_orphaned(child.parent_recorder);
    let mut recorder = ExactRecorder::new(request, child.pid, shared_cpu.as_ref());
    if request.attach.is_some() {
        recorder.leaving = Some(Leaving::on_signals());
    }
    let dir = prepared.dir().to_owned();
    if let Err(error) = child.attach() {
        child.kill_lost(&error).iter().for_each(|note| family.add_note(note));
        return prepared.give_up();
    }
    if shared_cpu.is_some()
        && let Ok(here) = Cpus::current()
    {
        // If this fails, recording is slower.
        let _ = here.pin(tid);
    }
    let begun = if child.has_executed {
        recorder.start_executed(prepared, child.gate)
    } else {
        recorder.take_over(prepared, &[tid], child.gate)
    };
    if begun.is_ok() {
        family.add_recording(&dir);
    }
    if let Some(process) = recorder.process.as_mut().filter(|_| !child.has_executed) {
        process.was_running = child.was_running;
    }
    recorder.followed = Some(Followed::new(family));
    let result = begun.and_then(|()| recorder.record_to_end());
    let is_begun = recorder.process.is_some() || recorder.completed.is_some();
    match result {
        // A child that is killed before its first instruction gets no recording.
        Err(error) if error.is_of_end() && !is_begun => {
            let _ = std::fs::remove_dir_all(dir);
            let _ = Tracee(tid).resume(0);
        }
        Err(error) => {
            add_family_note(&recorder, &format!("process {}: {error}", child.pid));
            recorder.detach_and_wait();
        }
        Ok(()) => {}
    }
    drop(periodic_signal);
    drop(forwarding);
    if let Err(error) = recorder.wait_for_followed() {
        add_family_note(&recorder, &format!("the children of process {}: {error}", child.pid));
    }
    let notes = recorder.completed.take().map(|(.., notes)| notes);
    notes.iter().flatten().for_each(|text| add_family_note(&recorder, text));
}

/// Adds a sentence for the user to the family's notes.
fn add_family_note(recorder: &ExactRecorder, text: &str) {
    if let Some(followed) = &recorder.followed {
        followed.family.add_note(text);
    }
}

/// Closes all files but the standard ones and `kept`: the others belong to the parent's recording.
fn close_others(kept: &[libc::c_int]) {
    let mut kept = kept.to_vec();
    kept.sort_unstable();
    let mut first = STDERR + 1;
    for fd in kept.into_iter().chain([libc::c_int::MAX]) {
        if first < fd {
            let (from, to) = (first.unsigned_abs(), (fd - 1).unsigned_abs());
            // SAFETY: the descriptors belong to values that are never used or dropped here. If the
            // kernel does not know the call, they stay open, which harms nothing.
            unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
        }
        first = fd.saturating_add(1);
    }
}

/// Writes two bytes to the code of a process, whatever the protection there.
pub(super) fn write_code(memory: &Memory, at: Addr, bytes: [u8; 2]) -> Result<(), Error> {
    memory.write(at, &bytes).map_err(|error| {
        let errno = nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
        tracee::Error::System { call: "write", errno }.into()
    })
}
