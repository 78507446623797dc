//! Handles stops of threads: signals, births, execve(2), exits. The trace itself needs none of
//! them. A new thread is traced from its first stop on, up to its *exit stop*, the last one before
//! it is gone. If its process ends, all threads are kept at their exit stops until the last one is
//! there.
//!
//! The *tap* of a thread takes its trace out of the AUX area, and is closed when the trace
//! ends (module `tap`). All threads of the recorder write to a process's recording, one at a time
//! (module `process_recording`).

use super::engine::{BACKEND, Engine, note_hardware, registers_of};
use super::tap::{Tap, lock};
use super::thread::{Activity, Thread};
use crate::capture::culprit::{ExitStop, any_is_in_execve, exit_of};
use crate::capture::error::gone_is_fine;
use crate::capture::recorder::Prepared;
use crate::capture::signals::stop_with_program;
use crate::capture::{Error, final_state};
use crate::common::{Addr, Pid, Tid};
use crate::recording::Exit;
use crate::sideband::Event;
use crate::tracee::siginfo;
use crate::tracee::{
    PtraceEvent, Signo, Stop, Tracee, USER_CS_64, comm, executable, is_thread_of, threads, wait_for,
};

impl Engine<'_> {
    /// Handles a stop of any kind. A stop of an unknown thread is kept until its birth is reported.
    pub(super) fn handle(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        let ended = matches!(stop, Stop::Exited(_) | Stop::Killed { .. });
        let executed = stop == Stop::Event(PtraceEvent::Exec);
        // The first thread may end long before its process does. Its number then passes to a thread
        // that executes a program.
        let of_process = (ended || executed) && self.processes.contains_key(&Pid(tid.0));
        if !self.threads.contains_key(&tid) && !of_process {
            self.early_stops.insert(tid, stop);
            return Ok(());
        }
        // A snapshot may wait for the ring of a thread that stops.
        if !ended {
            self.write_awaited_ring(tid)?;
        }
        match stop {
            Stop::Exited(_) | Stop::Killed { .. } => self.handle_thread_end(tid, stop),
            Stop::Event(PtraceEvent::Exit) => self.handle_exit_stop(tid),
            Stop::Event(PtraceEvent::Exec) => self.handle_execve(tid),
            Stop::Event(PtraceEvent::Clone | PtraceEvent::Fork | PtraceEvent::Vfork) => {
                self.handle_birth(tid)
            }
            Stop::Signal(signal) => self.handle_signal(tid, signal),
            Stop::Group(_) if self.is_leaving => self.mark_ready_to_detach(tid),
            Stop::Group(signal) => {
                self.enter_group_stop(tid)?;
                stop_with_program(signal);
                Ok(())
            }
            Stop::Event(PtraceEvent::Stop) => self.handle_event_stop(tid),
            Stop::Call => self.handle_call_stop(tid),
            Stop::Event(PtraceEvent::Other(_)) => self.resume(tid, 0),
        }
    }

    /// Resumes a thread with `signal` (0: none). If all are to be detached, interrupts it again at
    /// once. Under a debugger, resumes it as the debugger's request wants.
    fn resume(&mut self, tid: Tid, signal: Signo) -> Result<(), Error> {
        if self.debugger.is_some() {
            return self.resume_for_debugger(tid, signal);
        }
        self.resume_thread(tid, signal)?;
        if self.is_leaving {
            // Any stop cancels the earlier request to stop.
            gone_is_fine(Tracee(tid).interrupt())?;
        }
        Ok(())
    }

    /// Handles a `PTRACE_EVENT_STOP`: a new thread's first stop, from which on it is traced; the
    /// end of a group stop; or a requested stop. Resumes the thread, unless it is to be detached,
    /// or is new and the debugger runs another thread alone.
    fn handle_event_stop(&mut self, tid: Tid) -> Result<(), Error> {
        let is_new =
            self.threads.get(&tid).is_some_and(|t| t.activity == Activity::New && t.tap.is_none());
        if is_new {
            self.start_tracing(tid)?;
            self.set_watchpoints(tid)?;
        }
        if self.is_leaving {
            self.mark_ready_to_detach(tid)
        } else if is_new && self.holds_new_threads() {
            self.mark_halted(tid)
        } else {
            self.resume(tid, 0)
        }
    }

    /// Returns true if one thread runs alone, so that threads it creates stay stopped.
    fn holds_new_threads(&self) -> bool {
        let go = self.debugger.as_ref().and_then(|debugger| debugger.go.as_ref());
        go.is_some_and(|go| go.locked)
    }

    /// Leaves a thread stopped with its process, for job control (`PTRACE_LISTEN`). Its next stop
    /// will be reported.
    fn enter_group_stop(&mut self, tid: Tid) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        thread.activity = Activity::GroupStopped;
        gone_is_fine(thread.tracee.listen())
    }

    /// Handles a stop at a system call: looks for newly mapped code, and resumes the thread.
    fn handle_call_stop(&mut self, tid: Tid) -> Result<(), Error> {
        let pid = self.threads.get(&tid).map_or(self.program, |thread| thread.pid);
        self.update_filter_of(pid)?;
        self.resume(tid, 0)
    }

    /// Looks for newly mapped code that the filter names. If there is some, sets the new filter on
    /// the events of all threads of the process, and enables them.
    fn update_filter_of(&mut self, pid: Pid) -> Result<(), Error> {
        let ranges = self.pmu.filter_ranges();
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        if let Some(filter) = process.update_filter(ranges)? {
            let taps =
                self.threads.values().filter(|t| t.pid == pid).filter_map(|t| t.tap.as_ref());
            for tap in taps {
                apply_new_filter(tap, &filter)?;
            }
        }
        Ok(())
    }

    /// Records a signal before its delivery, and delivers it, unless the debugger wants to see it
    /// first. Does nothing if the thread is gone.
    fn handle_signal(&mut self, tid: Tid, signal: Signo) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        match thread.tracee.signal_info() {
            Err(error) if error.is_gone() => return Ok(()),
            result => {
                let info = result?;
                thread.siginfo = Some(info);
                let event = Event::Signal {
                    number: signal,
                    code: siginfo::code_of(&info),
                    addr: siginfo::fault_address(&info),
                };
                if let Some(process) = self.processes.get(&thread.pid) {
                    lock(&process.recording).recorder.record_event(tid, event)?;
                }
            }
        }
        if self.debugger.is_some() {
            return self.stop_or_deliver(tid, signal);
        }
        self.resume(tid, signal)
    }

    /// Handles the birth of a thread or process, reported by a stop of its parent, and resumes the
    /// parent. A new thread is traced from its first stop on, or detached from if only one thread
    /// is recorded. Does nothing if the parent is gone.
    fn handle_birth(&mut self, parent: Tid) -> Result<(), Error> {
        let Ok(message) = Tracee(parent).event_message() else { return Ok(()) };
        let child = Tid(i32::try_from(message).unwrap_or(0));
        let pid = self.threads.get(&parent).map_or(self.program, |thread| thread.pid);
        let first_stop = self.early_stops.remove(&child);
        let is_thread = is_thread_of(child, pid);
        if is_thread && self.request.only_thread.is_none() {
            self.threads.insert(child, Thread::new(child, pid));
            if let Some(stop) = first_stop {
                self.handle(child, stop)?;
            }
        } else {
            if first_stop.is_none() {
                wait_for(child)?;
            }
            if is_thread {
                gone_is_fine(Tracee(child).detach(0))?;
            } else {
                self.handle_child_process(parent, pid, Pid(child.0))?;
            }
        }
        self.resume(parent, 0)
    }

    /// Handles a child process at its birth: begins to record and resumes it if children are
    /// followed, otherwise detaches from it.
    fn handle_child_process(&mut self, parent: Tid, pid: Pid, child: Pid) -> Result<(), Error> {
        if let Some(process) = self.processes.get(&pid) {
            lock(&process.recording).recorder.record_event(parent, Event::Fork { child })?;
        }
        let tid = Tid(child.0);
        self.remove_int3s_from_child(parent, child);
        if !self.request.follow_forks || self.is_leaving {
            return gone_is_fine(Tracee(tid).detach(0));
        }
        let mut prepared = Prepared::of_child(&self.request, BACKEND)?;
        note_hardware(&mut prepared, &*self.pmu);
        self.threads.insert(tid, Thread::new(tid, child));
        self.add_process(prepared, child)?;
        self.handle_event_stop(tid)
    }

    /// Handles the stop in an execve(2), after which `tid` is the only thread of its process:
    /// updates the process and its filter, and resumes the thread, or stops it for the debugger.
    /// Detaches from a 32-bit program instead.
    fn handle_execve(&mut self, tid: Tid) -> Result<(), Error> {
        let old = Tracee(tid).event_message();
        let old = old.map_or(tid, |old| Tid(i32::try_from(old).unwrap_or(tid.0)));
        let Some(pid) = self.threads.get(&old).map(|thread| thread.pid) else { return Ok(()) };
        if let Some(process) = self.processes.get_mut(&pid) {
            lock(&process.recording).write_sidebands()?;
            process.exec()?;
        }
        if old != tid {
            // The kernel gave the thread the number of the first one, whose trace it continues.
            for one in [old, tid] {
                self.stop_tracing(one)?;
                if let Some(thread) = self.threads.remove(&one) {
                    self.record_thread_end(one, &thread, None)?;
                }
            }
            self.threads.insert(tid, Thread::new(tid, pid));
            self.start_tracing(tid)?;
        }
        self.update_filter_of(pid)?;
        if registers_of(Tracee(tid)).is_some_and(|registers| registers.cs != USER_CS_64) {
            return self.end_unrecordable(pid, "runs a 32-bit program");
        }
        if self.debugger.is_some() {
            return self.stop_in_new_program(tid);
        }
        self.resume(tid, 0)
    }

    /// Ends the recording of a process that does something unsupported, as the clause `why` states:
    /// detaches from it, so that it goes on natively, and adds a note for the user.
    fn end_unrecordable(&mut self, pid: Pid, why: &str) -> Result<(), Error> {
        let path = executable(pid).map(|p| p.display().to_string()).unwrap_or_default();
        self.notes.push(format!("process {pid} {why} ({path}) and is recorded up to there"));
        for thread in self.threads.values().filter(|thread| thread.pid == pid) {
            gone_is_fine(thread.tracee.detach(0))?;
        }
        self.finish(pid, None)
    }

    /// Handles a thread's exit stop, the last chance to read its registers: ends its trace. The
    /// thread is kept there if its process ends with it, or if it is the last one; otherwise it is
    /// resumed and forgotten. If the thread is recorded alone, ends the recording instead.
    fn handle_exit_stop(&mut self, tid: Tid) -> Result<(), Error> {
        let status = Tracee(tid).event_message().unwrap_or(0);
        self.stop_tracing(tid)?;
        let Some(mut thread) = self.threads.remove(&tid) else { return Ok(()) };
        let pid = thread.pid;
        let call = registers_of(thread.tracee).map(|registers| registers.orig_rax);
        thread.exit_state = final_state::read_thread(thread.tracee, thread.siginfo);
        let final_pc = thread.exit_state.as_ref().map(|ending| Addr(ending.registers.rip));
        self.record_thread_end(tid, &thread, final_pc)?;
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let stop = ExitStop { tid, status, call, siginfo: thread.siginfo };
        let others =
            self.threads.values().filter(|t| t.pid == pid && t.activity != Activity::AtExitStop);
        let alive: Vec<Tid> = others.map(|thread| thread.tracee.0).collect();
        let is_alone = self.request.only_thread.is_some();
        let ends_process = process.culprit.note_exit_stop(&stop, || {
            // If one thread is recorded alone, only the kernel knows the others.
            let others = || threads(pid).into_iter().filter(|other| *other != tid).collect();
            let alive = if is_alone { others() } else { alive.clone() };
            any_is_in_execve(pid, alive.into_iter())
        });
        if is_alone {
            return self.finish_only_thread(pid, thread, ends_process.then_some(status));
        }
        if ends_process || alive.is_empty() {
            thread.activity = Activity::AtExitStop;
            self.threads.insert(tid, thread);
            return self.end_if_all_at_exit(pid);
        }
        gone_is_fine(thread.tracee.resume(0))
    }

    /// Ends the recording at the exit stop of its only recorded thread. `status` is the wait status
    /// of the process, if it ends as well.
    fn finish_only_thread(
        &mut self,
        pid: Pid,
        thread: Thread,
        status: Option<u64>,
    ) -> Result<(), Error> {
        self.threads.insert(thread.tracee.0, Thread { activity: Activity::AtExitStop, ..thread });
        self.end_if_all_at_exit(pid)?;
        let exit = status.map(|status| match i32::try_from(status & 0x7f).unwrap_or(0) {
            0 => Exit::Code(i32::try_from(status >> 8 & 0xff).unwrap_or(0)),
            signal => Exit::Signal(signal),
        });
        self.finish(pid, exit)
    }

    /// Records the end of a thread, with its last address if known.
    pub(super) fn record_thread_end(
        &self,
        tid: Tid,
        thread: &Thread,
        at: Option<Addr>,
    ) -> Result<(), Error> {
        let Some(process) = self.processes.get(&thread.pid) else { return Ok(()) };
        let name = comm(thread.pid, tid);
        // Only decoding can count the instructions.
        Ok(lock(&process.recording).recorder.thread_ended(tid, name, 0, at)?)
    }

    /// Handles the end of a thread, which is gone now. If it has the number of its process, that
    /// has ended as well, and its recording is completed; so is that of a thread that is recorded
    /// alone. If all are to be detached, and all other threads are stopped, detaches from them.
    fn handle_thread_end(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        let pid = self.threads.get(&tid).map(|thread| thread.pid);
        self.stop_tracing(tid)?;
        let removed = self.threads.remove(&tid);
        // The thread was killed without an exit stop.
        let lost = removed.filter(|thread| thread.activity != Activity::AtExitStop);
        if let Some(thread) = &lost {
            self.record_thread_end(tid, thread, None)?;
        }
        if self.processes.contains_key(&Pid(tid.0)) {
            self.finish(Pid(tid.0), exit_of(stop))?;
        } else if let Some(pid) = pid.filter(|_| lost.is_some()) {
            // The other threads may have waited for this one.
            self.end_if_all_at_exit(pid)?;
            if self.request.only_thread.is_some() {
                self.finish(pid, exit_of(stop).filter(|exit| matches!(exit, Exit::Signal(_))))?;
            }
        }
        if self.is_leaving { self.detach_if_all_stopped() } else { Ok(()) }
    }

    /// Marks a thread as stopped to be detached from. Detaches from all processes if it was the
    /// last one to stop.
    fn mark_ready_to_detach(&mut self, tid: Tid) -> Result<(), Error> {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.activity = Activity::Stopped;
        }
        self.detach_if_all_stopped()
    }

    /// Detaches from all processes if all threads are stopped.
    pub(super) fn detach_if_all_stopped(&mut self) -> Result<(), Error> {
        let is_stopped = |thread: &Thread| matches!(thread.activity, Activity::Stopped);
        if !self.threads.values().all(is_stopped) {
            return Ok(());
        }
        let pids: Vec<Pid> = self.processes.keys().copied().collect();
        for pid in pids {
            self.detach_process(pid)?;
        }
        Ok(())
    }

    /// Writes the final state of a process whose threads are all stopped, if that of any thread can
    /// be read. Detaches from the threads, delivers the signals that they hold, and completes the
    /// recording.
    pub(super) fn detach_process(&mut self, pid: Pid) -> Result<(), Error> {
        let tids: Vec<Tid> =
            self.threads.values().filter(|t| t.pid == pid).map(|t| t.tracee.0).collect();
        let mut ending = Vec::new();
        for tid in &tids {
            self.stop_tracing(*tid)?;
            let Some(thread) = self.threads.get(tid) else { continue };
            let state = final_state::read_thread(thread.tracee, None);
            let at = state.as_ref().map(|state| Addr(state.registers.rip));
            self.record_thread_end(*tid, thread, at)?;
            ending.extend(state);
        }
        if let Some(process) = self.processes.get(&pid)
            && !ending.is_empty()
        {
            let ending = final_state::sort_threads(ending, Tid(pid.0));
            let recording = lock(&process.recording);
            final_state::write_core(&recording.recorder, &process.memory, ending, 0, &[])?;
        }
        for tid in tids {
            let signal = self.threads.get(&tid).map_or(0, |thread| thread.held_signal);
            gone_is_fine(Tracee(tid).detach(signal))?;
        }
        self.finish(pid, None)
    }
}

/// Enables a thread's event, after setting another filter on it unless that is empty (no filter).
fn apply_new_filter(tap: &Tap, filter: &str) -> Result<(), Error> {
    if !filter.is_empty() {
        tap.set_filter(filter)?;
    }
    tap.enable();
    Ok(())
}
