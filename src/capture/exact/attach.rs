//! Takes over a process that runs already, or a followed child at its birth: its memory and
//! registers go to the log, and from there on it is recorded like one that was launched. In this
//! order:
//!
//! 1. A process that cannot be recorded exactly is refused.
//! 2. Threads in system calls are moved out of them, so that they make an interrupted call again.
//! 3. The vdso's functions are replaced, the code cache is made, and restartable sequences
//!    (rseq(2)) are ended.
//! 4. The log gets the memory and the first thread (`log_start`), then each other thread (`Born`).

use super::engine::{ExactRecorder, FLUSH_PERIOD};
use super::followed::Followed;
use super::process::{Process, state_of};
use super::thread::Thread;
use super::vdso::Vdso;
use crate::capture::limits::FILLED_AT_ANY_TIME;
use crate::capture::periodic_signal::PeriodicSignal;
use crate::capture::recorder::{Prepared, Recorder};
use crate::capture::request::{Outcome, Request};
use crate::capture::restart::registers_outside_call;
use crate::capture::signals::Leaving;
use crate::capture::space::MappingRecorder;
use crate::capture::{Backend, Error};
use crate::common::{Pid, Tid};
use crate::engine::{Gate, Place, TranslatedThread};
use crate::recording::log::LogEvent;
use crate::sideband::Mapping;
use crate::syscalls::Registered;
use crate::tracee::call_numbers::RESTART_SYSCALL;
use crate::tracee::{self, Memory, Tracee, USER_CS_64, auxv, mappings};

/// The names of mappings that the kernel fills at any time, without a call.
const FILLED_BY_KERNEL: [&str; 2] = ["anon_inode:[io_uring]", "/[aio]"];

/// Records a running process, until it ends or the recorder is asked to leave it, then waits for
/// the recorders of its children. After an error, the process goes on natively.
pub(in crate::capture) fn attach(request: &Request, pid: Pid) -> Result<Outcome, Error> {
    let followed = Followed::if_requested(request)?;
    let (prepared, tids) = Prepared::attach(request, Backend::Exact, pid)?;
    let _periodic_signal = PeriodicSignal::start(FLUSH_PERIOD);
    let mut recorder = ExactRecorder::new(request, pid, None);
    recorder.leaving = Some(Leaving::on_signals());
    recorder.followed = followed;
    prepared.set_latest(&request.store)?;
    let result = recorder.take_over(prepared, &tids, None).and_then(|()| recorder.record_to_end());
    if let Err(error) = result {
        recorder.detach_and_wait();
        return Err(error);
    }
    recorder.outcome()
}

impl ExactRecorder {
    /// Begins to record a process whose threads `tids` are all stopped: logs their state and the
    /// memory. The first of them executes next. Those that were interrupted in a system call make
    /// it again. Replaces the vdso's functions, and ends the threads' restartable sequences
    /// (rseq(2)). `gate` is `None` if the process has no filters of system calls (seccomp). If it
    /// cannot be recorded exactly, gives `prepared` up and returns the error. Without threads,
    /// gives it up and returns `Ok`. After a later error, the recording stays. Resumes no thread:
    /// the recorder's loop does.
    pub(super) fn take_over(
        &mut self,
        prepared: Prepared,
        tids: &[Tid],
        gate: Option<Gate>,
    ) -> Result<(), Error> {
        let pid = self.pid;
        let threads: Vec<Tracee> = tids.iter().copied().map(Tracee).collect();
        let refused = refuse(pid, &threads);
        let left =
            refused.and_then(|()| threads.iter().map(|thread| leave_call(*thread)).collect());
        let (restarted_calls, first): (Vec<_>, Tracee) = match (left, threads.first()) {
            (Ok(restarted_calls), Some(first)) => (restarted_calls, *first),
            (Err(error), _) => {
                prepared.give_up();
                return Err(error);
            }
            (Ok(_), None) => {
                prepared.give_up();
                return Ok(());
            }
        };
        let recorder = Recorder::start(prepared, pid)?;
        let vdso = Vdso::replace(pid, &Memory::open(pid)?, &threads)?;
        let process = Process::open(recorder, first, MappingRecorder::of_all_files(), gate)?;
        let process = self.process.insert(Process { vdso, was_running: true, ..process });
        let forbid = |thread: &Tracee| process.engine.forbid_rseq(*thread);
        let sequences: Vec<_> = threads.iter().map(forbid).collect::<Result<_, _>>()?;
        process.log_start(first, threads.len(), auxv(pid))?;
        self.holder = first.0;
        for ((thread, rseq), restarted_call) in
            threads.into_iter().zip(sequences).zip(restarted_calls)
        {
            if thread != first {
                let state = Box::new(state_of(thread, &thread.registers()?)?);
                process
                    .log_without_ticks(thread.0, LogEvent::Born { state, writes: Vec::new() })?;
            }
            process.recorder.add_thread(thread.0)?;
            let Some(area) = process.engine.take_area() else { continue };
            let translated = TranslatedThread::new(thread.0, pid, area, Place::Program);
            let registered = process.registered(&translated)?;
            let thread = Thread { registered, restarted_call, rseq, ..Thread::new(translated) };
            self.threads.insert(thread.tid(), thread);
        }
        Ok(())
    }
}

impl Process {
    /// Returns the pointers that a thread has registered with the kernel, which writes through them
    /// when the thread ends: its `clear_child_tid`, and its list of robust futexes. Adds a note for
    /// the user if the kernel does not report the first.
    fn registered(&mut self, thread: &TranslatedThread) -> Result<Registered, Error> {
        let reported = self.engine.tid_address(thread)?;
        if reported.is_none() {
            self.add_user_note(
                "the kernel does not say what it writes at the ends of the process's threads: the \
                 replay may end there"
                    .to_owned(),
            );
        }
        let clear_tid = reported.filter(|addr| addr.0 != 0);
        Ok(Registered { clear_tid, robust_list: thread.tracee.robust_list() })
    }
}

/// Returns an error if a process cannot be recorded exactly: the kernel writes to its memory at any
/// time (`io_uring`, aio), or it runs 32-bit code.
fn refuse(pid: Pid, threads: &[Tracee]) -> Result<(), Error> {
    let because = |why: String| Err(tracee::Error::NotAttachable { pid, why }.into());
    let is_filled = |m: &Mapping| FILLED_BY_KERNEL.iter().any(|name| m.name.starts_with(name));
    if let Some(mapping) = mappings(pid)?.into_iter().find(is_filled) {
        let name = mapping.name;
        return because(format!("{FILLED_AT_ANY_TIME} ({name})"));
    }
    for thread in threads {
        if thread.registers()?.cs != USER_CS_64 {
            return because("it runs 32-bit code".to_owned());
        }
    }
    Ok(())
}

/// Moves a thread out of the system call in which it is stopped, if any: before the call if the
/// kernel would repeat it, otherwise after it. Returns the call's number if it is repeated by a
/// `restart_syscall(2)`; otherwise `None`.
fn leave_call(thread: Tracee) -> Result<Option<u64>, Error> {
    let registers = thread.registers()?;
    let before = registers_outside_call(&registers);
    thread.set_registers(&before)?;
    let is_restart = registers.rip != before.rip && before.rax == RESTART_SYSCALL;
    Ok(is_restart.then_some(registers.orig_rax))
}
