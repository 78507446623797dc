//! Births of threads and of child processes.
//!
//! 1. The parent stops in its system call with an event of the birth (`handle_birth`). The kernel
//!    reports the child's first stop before or after that; one that comes before is kept in
//!    `early_stops`.
//! 2. A new thread is recorded. It takes the area for trace buffers that was prepared before the
//!    call (`calls`), and goes on in the code cache.
//! 3. A child process leaves the code cache, and loses the recorder's memory if it has a copy of
//!    its parent's. It is then kept stopped for the debugger (`forks`), detached from, or recorded.
//! 4. A child that shares its parent's memory (vfork(2)) cannot be recorded yet. It runs natively
//!    as a *borrower*, up to its execve(2), and its recording starts there.
//!
//! A child killed before its first instruction gets no recording. If the parent is killed in the
//! call, the birth is not reported: `handle_unreported_birth` looks for the child at the parent's
//! *exit stop*, the last stop of a thread before it is gone.

use super::engine::{BACKEND, Engine};
use super::events::disturbing_stop;
use super::thread::Thread;
use crate::capture::Error;
use crate::capture::begin::{finish_execve, reason_not_to_record};
use crate::capture::clock::now;
use crate::capture::error::gone_is_fine;
use crate::capture::newborn::shares_memory;
use crate::capture::recorder::Prepared;
use crate::common::{Addr, Pid, Tid};
use crate::encode::TraceItem;
use crate::engine::Place;
use crate::sideband::Event;
use crate::tracee::call_numbers::{CLONE, CLONE3, FORK, VFORK};
use crate::tracee::{
    self, PtraceEvent, Stop, Tracee, is_thread_of, is_traced_here, pending_stop, wait_for,
    wait_for_killed,
};

/// Bytes of the SYSCALL instruction.
const SYSCALL_BYTES: u64 = 2;

impl Engine {
    /// Handles the birth of a thread or process, reported by a stop of its parent: begins to record
    /// it, or leaves it. Resumes the parent, unless a debugger is to see the birth. Does nothing if
    /// the parent is gone.
    pub(super) fn handle_birth(&mut self, parent: Tid, event: PtraceEvent) -> Result<(), Error> {
        let Ok(message) = Tracee(parent).event_message() else { return Ok(()) };
        let child = Tid(i32::try_from(message).unwrap_or(0));
        if let Some(thread) = self.threads.get_mut(&parent) {
            thread.last_child = Some(child);
        }
        if self.adopt_or_leave(parent, child, event)? {
            return self.stop_at_fork(parent, Pid(child.0), event);
        }
        gone_is_fine(Tracee(parent).resume(0))
    }

    /// Handles a birth that was never reported, if there was one: `parent`, now at its exit stop,
    /// was killed in the system call that made the child. Otherwise the child would stay stopped
    /// for ever.
    pub(super) fn handle_unreported_birth(&mut self, parent: Tid) -> Result<(), Error> {
        let Some(thread) = self.threads.get(&parent) else { return Ok(()) };
        let Some((child, event)) = child_of(parent) else { return Ok(()) };
        let is_known = thread.last_child == Some(child)
            || self.threads.contains_key(&child)
            || self.borrowers.contains_key(&child);
        // The child's number in the register is wrong here if the parent has another PID namespace.
        let is_there = || self.early_stops.contains_key(&child) || is_traced_here(child);
        if !is_known && is_there() && self.adopt_or_leave(parent, child, event)? {
            // No birth is reported to the debugger, so the child is left.
            return gone_is_fine(Tracee(child).detach(0));
        }
        Ok(())
    }

    /// Waits for the first stop of the new thread or process `child`, and begins to record it, or
    /// leaves it. Lets it end if it was killed before. Returns true if it is a process that stays
    /// stopped at its birth until a debugger has seen it: the caller keeps it (`stop_at_fork`), or
    /// detaches from it.
    fn adopt_or_leave(
        &mut self,
        parent: Tid,
        child: Tid,
        event: PtraceEvent,
    ) -> Result<bool, Error> {
        let first = match self.early_stops.remove(&child) {
            Some(stop) => stop,
            None => wait_for_killed(child)?,
        };
        let pid = self.threads.get(&parent).map_or(self.program, Thread::pid);
        let call = Tracee(parent).registers().map_or(0, |registers| registers.orig_rax);
        // These calls may create a thread, so an area was prepared before them.
        if matches!(call, CLONE | CLONE3)
            && let Some(process) = self.processes.get_mut(&pid)
        {
            process.engine.settle_prepared_area();
        }
        if first.is_end() {
            // The child ended before it ran.
            return self.let_unrecorded_end(child, first).map(|()| false);
        }
        let is_thread = is_thread_of(child, pid);
        if let Some(process) = self.processes.get_mut(&pid)
            && let Some(shared_cpu) = process.shared_cpu
        {
            // The child inherited the affinity to one CPU. If it is recorded, it could notice that.
            shared_cpu.unpin(child);
            if is_thread || self.request.follow_forks {
                process.end_sharing();
            }
        }
        if !is_thread {
            return self
                .handle_child_process(parent, pid, Pid(child.0), event)
                .or_else(|error| self.handle_if_killed(child, error).map(|()| false));
        }
        let gs_base = self.threads.get(&parent).map_or(0, |maker| maker.translated.gs_base());
        self.add_thread(child, pid, Place::Cache)?;
        let mut disturbance = None;
        self.with_thread(child, |process, thread| {
            if let Some(debugger) = &process.debugger {
                thread.watched.set(thread.tracee(), &debugger.slots)?;
            }
            thread.translated.begin_in_cache(gs_base)?;
            process.send(child, TraceItem::CreationTime { tsc: now().0 });
            if !process.debugger.as_ref().is_some_and(|debugger| debugger.holds_new_threads) {
                return Ok(thread.tracee().resume(0)?);
            }
            disturbance = disturbing_stop(process.make_exact(thread)?);
            if disturbance.is_some() { Ok(()) } else { process.halt(thread) }
        })?;
        self.stop_queue.extend(disturbance.map(|stop| (child, stop)));
        Ok(false)
    }

    /// Handles a child process at its birth, stopped in a copy of the code cache, or in the cache
    /// itself if it shares its parent's memory: gives it the program's registers, and removes the
    /// recorder's memory from its own. Returns true if it stays stopped until a debugger has seen
    /// it. Otherwise leaves it, or begins to record it, at once or at its execve(2) (`borrowers`).
    fn handle_child_process(
        &mut self,
        parent: Tid,
        pid: Pid,
        child: Pid,
        event: PtraceEvent,
    ) -> Result<bool, Error> {
        let (tid, is_reported) = (Tid(child.0), self.debugger_wants_fork(pid, event));
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(false) };
        process.recorder.record_event(parent, Event::Fork { child })?;
        let Some(thread) = self.threads.get(&parent) else { return Ok(false) };
        let tracee = Tracee(tid);
        let registers = tracee.registers()?;
        let Some(at) = process.engine.locate(registers.rip) else {
            return gone_is_fine(tracee.detach(0)).map(|()| false);
        };
        let (program, _) = process.engine.program_registers_at(&thread.translated, &registers, &at);
        tracee.set_registers(&program)?;
        let shares = shares_memory(&registers, &process.engine.memory);
        if !shares {
            // The child has a copy of its parent's memory, but shares the cache, which it must not
            // use.
            let gadget = Addr(program.rip.wrapping_sub(SYSCALL_BYTES));
            process.engine.unprotect_child(tracee, gadget)?;
            process.engine.unmap_from_child(tracee, gadget)?;
        }
        if is_reported {
            return Ok(true);
        }
        if !self.request.follow_forks {
            return gone_is_fine(tracee.detach(0)).map(|()| false);
        }
        if shares {
            self.borrowers.insert(tid, pid);
            return gone_is_fine(tracee.resume(0)).map(|()| false);
        }
        let actions = process.engine.actions().clone();
        self.adopt_child(child)?;
        if let Some(process) = self.processes.get_mut(&child) {
            process.engine.set_actions(actions);
        }
        Ok(false)
    }

    /// Handles a stop of a borrower, a child that shares its parent's memory and runs natively
    /// until its execve(2): begins to record it then, and until then resumes it, with its signals.
    /// Detaches from children of the borrower.
    pub(super) fn handle_borrower_stop(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        let tracee = Tracee(tid);
        match stop {
            Stop::Exited(_) | Stop::Killed { .. } => {
                self.borrowers.remove(&tid);
                Ok(())
            }
            Stop::Event(PtraceEvent::Exec) => {
                self.borrowers.remove(&tid);
                self.adopt_borrower(tid).or_else(|error| self.handle_if_killed(tid, error))
            }
            Stop::Event(PtraceEvent::Clone | PtraceEvent::Fork | PtraceEvent::Vfork) => {
                let child = Tid(i32::try_from(tracee.event_message().unwrap_or(0)).unwrap_or(0));
                if self.early_stops.remove(&child).is_none() {
                    wait_for(child)?;
                }
                gone_is_fine(Tracee(child).detach(0))?;
                gone_is_fine(tracee.resume(0))
            }
            Stop::Group(_) => gone_is_fine(tracee.listen()),
            Stop::Signal(signal) => gone_is_fine(tracee.resume(signal)),
            Stop::Event(_) | Stop::Call => gone_is_fine(tracee.resume(0)),
        }
    }

    /// Begins to record a borrower after its execve(2), which gave it memory that it does not
    /// share. Leaves one that cannot be recorded, with a note.
    fn adopt_borrower(&mut self, tid: Tid) -> Result<(), Error> {
        let tracee = Tracee(tid);
        if let Some(clause) = reason_not_to_record(Pid(tid.0), Pid(nix::unistd::getpid().as_raw()))?
        {
            self.notes.push(format!("process {tid} {clause}: not recorded"));
            return gone_is_fine(tracee.detach(0));
        }
        finish_execve(tracee)?;
        self.adopt_child(Pid(tid.0))
    }

    /// Begins to record a child in a new recording, and resumes it. If it ends before it is
    /// recorded, or cannot be recorded, removes the recording, and returns `Ok`: one that cannot be
    /// recorded is left, with a note.
    fn adopt_child(&mut self, child: Pid) -> Result<(), Error> {
        let prepared = Prepared::of_child(&self.request, BACKEND)?;
        let dir = prepared.dir().to_owned();
        self.adopt(prepared, child).or_else(|error| {
            let killed = self.handle_if_killed(Tid(child.0), error);
            let refused = killed.or_else(|error| self.leave_child(child, &error));
            if !self.processes.contains_key(&child) {
                // If the directory cannot be removed, it stays as a recording without threads.
                let _ = std::fs::remove_dir_all(dir);
            }
            refused
        })
    }

    /// Detaches from a child that cannot be recorded because of `error`, so that it runs natively,
    /// and adds a note.
    fn leave_child(&mut self, child: Pid, error: &Error) -> Result<(), Error> {
        self.notes.push(format!("process {child} is not recorded: {error}"));
        self.detach_ignoring_errors(child);
        self.threads.remove(&Tid(child.0));
        self.processes.remove(&child);
        gone_is_fine(Tracee(Tid(child.0)).detach(0))
    }

    /// Handles `error`, which occurred while a stopped thread was prepared. If its cause is that
    /// the thread was killed, handles or queues the thread's exit stop, and returns `Ok`. Otherwise
    /// returns the error.
    pub(super) fn handle_if_killed(&mut self, tid: Tid, error: Error) -> Result<(), Error> {
        let is_recorded = self.processes.contains_key(&Pid(tid.0));
        let stop = match &error {
            Error::Tracee(tracee::Error::Disturbed { tid: whose, stop }) if *whose == tid => *stop,
            // A killed thread leaves its stop at once, and reaches its end some time later.
            _ if Tracee(tid).registers().is_err() => wait_for_killed(tid)?,
            _ => match pending_stop(tid)? {
                Some(stop) => stop,
                None => return Err(error),
            },
        };
        if !stop.is_end() {
            return Err(error);
        }
        if is_recorded {
            self.stop_queue.push_back((tid, stop));
            return Ok(());
        }
        self.let_unrecorded_end(tid, stop)
    }

    /// Resumes a thread that is not in the recording from its exit stop, so that it ends, and notes
    /// that its end is to be ignored. Does nothing if `stop` is another stop.
    fn let_unrecorded_end(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        if stop != Stop::Event(PtraceEvent::Exit) {
            return Ok(());
        }
        self.unrecorded_ending.insert(tid);
        gone_is_fine(Tracee(tid).resume(0))
    }
}

/// Returns the child that a thread at its exit stop created by the system call in which it was
/// killed, and the event that would have reported it; `None` if the registers show none.
fn child_of(parent: Tid) -> Option<(Tid, PtraceEvent)> {
    let registers = Tracee(parent).registers().ok()?;
    let event = match registers.orig_rax {
        FORK => PtraceEvent::Fork,
        VFORK => PtraceEvent::Vfork,
        CLONE | CLONE3 => PtraceEvent::Clone,
        _ => return None,
    };
    let child = i32::try_from(registers.rax.cast_signed()).ok().filter(|child| *child > 0)?;
    Some((Tid(child), event))
}
