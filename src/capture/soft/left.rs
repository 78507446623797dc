//! Leaves processes at once that can no longer be recorded, or after an error: moves their threads
//! out of the code cache, removes all that the recorder put into their memory, and detaches.
//! Module `detach` leaves processes by request.

use super::engine::Engine;
use super::process::Process;
use super::thread::Thread;
use crate::capture::Error;
use crate::capture::restart::registers_outside_call;
use crate::common::{Pid, Tid};
use crate::encode::TraceItem;
use crate::tracee::{Signo, Stop, Tracee, executable, wait_for};

impl Engine {
    /// Detaches from a process that does something which cannot be recorded, as the clause `why`
    /// states, and adds a note. Completes its recording, or if the recorder launched it, leaves
    /// that to the process's end.
    pub(super) fn end_unrecordable(&mut self, pid: Pid, why: &str) -> Result<(), Error> {
        let path = executable(pid).map(|path| path.display().to_string()).unwrap_or_default();
        self.notes.push(format!("process {pid} {why} ({path}) and is recorded up to there"));
        self.detach_ignoring_errors(pid);
        let of_process = self.threads.values().filter(|thread| thread.pid() == pid);
        let tids: Vec<Tid> = of_process.map(Thread::tid).collect();
        self.threads.retain(|_, thread| thread.pid() != pid);
        if let Some(process) = self.processes.get_mut(&pid) {
            for tid in tids {
                process.thread_ended(tid, None);
            }
        }
        // A process that the recorder launched still reports its end, which completes its
        // recording.
        let is_child = pid == self.program && self.request.attach.is_none();
        if is_child { Ok(()) } else { self.finish(pid, None) }
    }

    /// Stops all threads of a process, moves them out of the cache, removes the recorder's memory,
    /// and detaches. A thread whose registers are unknown is killed. Errors are ignored. The
    /// process stays in `processes`.
    pub(super) fn detach_ignoring_errors(&mut self, pid: Pid) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.end_sharing();
        let mut stopped = Vec::new();
        for thread in self.threads.values_mut().filter(|thread| thread.pid() == pid) {
            // A thread that is gone needs no detaching.
            if let Ok(signal) = stop_outside_cache(process, thread) {
                stopped.push((&*thread, signal));
            }
        }
        let unharmed = stopped.iter().filter(|(_, signal)| *signal != libc::SIGKILL);
        let mut threads: Vec<_> = unharmed.copied().collect();
        // A pending signal interrupts a system call, so threads without one make the recorder's
        // calls if possible.
        threads.sort_by_key(|(_, signal)| *signal != 0);
        let first = threads.first().map(|(thread, _)| thread.tracee());
        let quiet: Vec<_> =
            threads.iter().filter(|(_, signal)| *signal == 0).map(|(thread, _)| *thread).collect();
        if let Some(first) = first {
            // If this fails, nothing else can be done.
            let _ = process.remove_recorder_from(first, &quiet);
        }
        for (thread, signal) in stopped {
            let _ = thread.watched.end(thread.tracee());
            let _ = thread.tracee().detach(signal);
        }
    }
}

impl Process {
    /// Removes the recorder's memory from a process whose threads are all stopped outside the
    /// cache, by system calls of `first`. Registers the restartable sequences of each of `threads`
    /// again.
    pub(super) fn remove_recorder_from(
        &mut self,
        first: Tracee,
        threads: &[&Thread],
    ) -> Result<(), Error> {
        self.engine.unprotect_all(first)?;
        for thread in threads {
            thread.rseq.map_or(Ok(()), |rseq| self.engine.allow_rseq(thread.tracee(), rseq))?;
        }
        Ok(self.engine.restore_native(first)?)
    }
}

/// Returns the signal of the program for which a thread stopped; 0 for other stops, and for
/// SIGTRAP, which the code cache uses.
fn signal_of_stop(stop: Stop) -> Signo {
    match stop {
        Stop::Signal(number) if number != libc::SIGTRAP => number,
        _ => 0,
    }
}

/// Stops a thread outside the cache, with the program's registers. Returns the signal to detach
/// with: SIGKILL if the registers are unknown, otherwise the one for which a running thread stopped
/// instead of at the interruption; 0 for none. Returns an error if the thread is gone.
fn stop_outside_cache(process: &mut Process, thread: &mut Thread) -> Result<Signo, Error> {
    let tracee = thread.tracee();
    let mut signal = 0;
    if tracee.interrupt().is_ok() && tracee.registers().is_err() {
        signal = signal_of_stop(wait_for(tracee.0)?);
        if signal == 0 && thread.translated.is_forced_pending()? {
            tracee.resume(0)?;
            signal = signal_of_stop(wait_for(tracee.0)?);
        }
    }
    if process.make_exact(thread).is_err() {
        signal = libc::SIGKILL;
    } else {
        let registers = tracee.registers()?;
        process.send(thread.tid(), TraceItem::EnterKernel { ip: registers.rip });
        if signal == 0 {
            tracee.set_registers(&registers_outside_call(&registers))?;
        }
    }
    Ok(signal)
}
