//! Handles stops of threads: signals, births, execve(2), exits. The trace itself needs none of
//! them. The *tap* of a thread takes its trace out of the AUX area, and is closed when the trace
//! ends; the *book* of a process is its recording (modules `tap` and `book`).

use super::engine::{BACKEND, Engine, note_hardware, registers_of};
use super::tap::{Tap, lock};
use super::thread::{Doing, Thread};
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
            self.early.insert(tid, stop);
            return Ok(());
        }
        // A snapshot may wait for the ring of a thread that stops.
        if !ended {
            self.answer(tid)?;
        }
        match stop {
            Stop::Exited(_) | Stop::Killed { .. } => self.ended(tid, stop),
            Stop::Event(PtraceEvent::Exit) => self.ending(tid),
            Stop::Event(PtraceEvent::Exec) => self.executed(tid),
            Stop::Event(PtraceEvent::Clone | PtraceEvent::Fork | PtraceEvent::Vfork) => {
                self.born(tid)
            }
            Stop::Signal(signal) => self.signalled(tid, signal),
            Stop::Group(_) if self.is_leaving => self.stands(tid),
            Stop::Group(signal) => {
                self.stopped(tid)?;
                stop_with_program(signal);
                Ok(())
            }
            Stop::Event(PtraceEvent::Stop) => self.stood(tid),
            Stop::Call => self.called(tid),
            Stop::Event(PtraceEvent::Other(_)) => self.go_on(tid, 0),
        }
    }

    /// Resumes a thread, unless all are to be detached.
    fn go_on(&mut self, tid: Tid, signal: Signo) -> Result<(), Error> {
        if self.debugger.is_some() {
            return self.let_run(tid, signal);
        }
        self.run_on(tid, signal)?;
        if self.is_leaving {
            // Any stop cancels the earlier request to stop.
            gone_is_fine(Tracee(tid).interrupt())?;
        }
        Ok(())
    }

    /// Handles a new thread's first stop, the end of a group stop, or a requested stop.
    fn stood(&mut self, tid: Tid) -> Result<(), Error> {
        let is_new =
            self.threads.get(&tid).is_some_and(|t| t.doing == Doing::Born && t.tap.is_none());
        if is_new {
            self.tap(tid)?;
            self.watch_with(tid)?;
        }
        if self.is_leaving {
            self.stands(tid)
        } else if is_new && self.holds_newborns() {
            self.halted(tid)
        } else {
            self.go_on(tid, 0)
        }
    }

    /// Returns true if one thread runs alone, so that threads it creates stay stopped.
    fn holds_newborns(&self) -> bool {
        let go = self.debugger.as_ref().and_then(|debugger| debugger.go.as_ref());
        go.is_some_and(|go| go.locked)
    }

    /// Leaves a thread stopped with its process, for job control.
    fn stopped(&mut self, tid: Tid) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        thread.doing = Doing::Stopped;
        gone_is_fine(thread.tracee.listen())
    }

    /// Handles a stop at a system call, which is used to look for newly mapped code.
    fn called(&mut self, tid: Tid) -> Result<(), Error> {
        let pid = self.threads.get(&tid).map_or(self.program, |thread| thread.pid);
        self.look_for_code(pid)?;
        self.go_on(tid, 0)
    }

    /// Looks for newly mapped code, and updates the filter of the process.
    fn look_for_code(&mut self, pid: Pid) -> Result<(), Error> {
        let ranges = self.pmu.filter_ranges();
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        if let Some(filter) = process.look_for_code(ranges)? {
            let taps =
                self.threads.values().filter(|t| t.pid == pid).filter_map(|t| t.tap.as_ref());
            for tap in taps {
                refilter(tap, &filter)?;
            }
        }
        Ok(())
    }

    /// Records a signal before its delivery, and delivers it, unless the debugger wants to see it
    /// first.
    fn signalled(&mut self, tid: Tid, signal: Signo) -> Result<(), Error> {
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
                    lock(&process.book).recorder.record_event(tid, event)?;
                }
            }
        }
        if self.debugger.is_some() {
            return self.report_signal(tid, signal);
        }
        self.go_on(tid, signal)
    }

    /// Handles the birth of a thread or process, reported by a stop of its parent, and resumes the
    /// parent.
    fn born(&mut self, parent: Tid) -> Result<(), Error> {
        let Ok(message) = Tracee(parent).event_message() else { return Ok(()) };
        let child = Tid(i32::try_from(message).unwrap_or(0));
        let pid = self.threads.get(&parent).map_or(self.program, |thread| thread.pid);
        let first_stop = self.early.remove(&child);
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
                self.forked(parent, pid, Pid(child.0))?;
            }
        }
        self.go_on(parent, 0)
    }

    /// Records a newborn child process, or detaches from it.
    fn forked(&mut self, parent: Tid, pid: Pid, child: Pid) -> Result<(), Error> {
        if let Some(process) = self.processes.get(&pid) {
            lock(&process.book).recorder.record_event(parent, Event::Fork { child })?;
        }
        let tid = Tid(child.0);
        self.keep_stops_out_of(parent, child);
        if !self.request.follow_forks || self.is_leaving {
            return gone_is_fine(Tracee(tid).detach(0));
        }
        let mut prepared = Prepared::of_child(&self.request, BACKEND)?;
        note_hardware(&mut prepared, &*self.pmu);
        self.threads.insert(tid, Thread::new(tid, child));
        self.add_process(prepared, child)?;
        self.stood(tid)
    }

    /// Handles an execve(2), after which `tid` is the only thread of its process.
    fn executed(&mut self, tid: Tid) -> Result<(), Error> {
        let old = Tracee(tid).event_message();
        let old = old.map_or(tid, |old| Tid(i32::try_from(old).unwrap_or(tid.0)));
        let Some(pid) = self.threads.get(&old).map(|thread| thread.pid) else { return Ok(()) };
        if let Some(process) = self.processes.get_mut(&pid) {
            lock(&process.book).hear()?;
            process.exec()?;
        }
        if old != tid {
            // The kernel gave the thread the number of the first one, whose trace it continues.
            for one in [old, tid] {
                self.close(one)?;
                if let Some(thread) = self.threads.remove(&one) {
                    self.note_end(one, &thread, None)?;
                }
            }
            self.threads.insert(tid, Thread::new(tid, pid));
            self.tap(tid)?;
        }
        self.look_for_code(pid)?;
        if registers_of(Tracee(tid)).is_some_and(|registers| registers.cs != USER_CS_64) {
            return self.leave_alone(pid, "runs a 32-bit program");
        }
        if self.debugger.is_some() {
            return self.stand_in_new_program(tid);
        }
        self.go_on(tid, 0)
    }

    /// Ends the recording of a process that does something unsupported, as the clause `why` states,
    /// and detaches from it.
    fn leave_alone(&mut self, pid: Pid, why: &str) -> Result<(), Error> {
        let path = executable(pid).map(|p| p.display().to_string()).unwrap_or_default();
        self.notes.push(format!("process {pid} {why} ({path}) and is recorded up to there"));
        for thread in self.threads.values().filter(|thread| thread.pid == pid) {
            gone_is_fine(thread.tracee.detach(0))?;
        }
        self.finish(pid, None)
    }

    /// Handles a thread's exit stop, the last chance to read its registers. The thread is kept
    /// there if its process ends with it.
    fn ending(&mut self, tid: Tid) -> Result<(), Error> {
        let status = Tracee(tid).event_message().unwrap_or(0);
        self.close(tid)?;
        let Some(mut thread) = self.threads.remove(&tid) else { return Ok(()) };
        let pid = thread.pid;
        let call = registers_of(thread.tracee).map(|registers| registers.orig_rax);
        thread.ending = final_state::read_thread(thread.tracee, thread.siginfo);
        let final_pc = thread.ending.as_ref().map(|ending| Addr(ending.registers.rip));
        self.note_end(tid, &thread, final_pc)?;
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let stop = ExitStop { tid, status, call, siginfo: thread.siginfo };
        let others = self.threads.values().filter(|t| t.pid == pid && t.doing != Doing::AtEnd);
        let alive: Vec<Tid> = others.map(|thread| thread.tracee.0).collect();
        let is_alone = self.request.only_thread.is_some();
        let ends_process = process.culprit.note_exit_stop(&stop, || {
            // If one thread is recorded alone, only the kernel knows the others.
            let others = || threads(pid).into_iter().filter(|other| *other != tid).collect();
            let alive = if is_alone { others() } else { alive.clone() };
            any_is_in_execve(pid, alive.into_iter())
        });
        if is_alone {
            return self.end_alone(pid, thread, ends_process.then_some(status));
        }
        if ends_process || alive.is_empty() {
            thread.doing = Doing::AtEnd;
            self.threads.insert(tid, thread);
            return self.end_if_all_are(pid);
        }
        gone_is_fine(thread.tracee.resume(0))
    }

    /// Ends the recording at the exit stop of its only recorded thread. `status` is the wait status
    /// of the process, if it ends as well.
    fn end_alone(&mut self, pid: Pid, thread: Thread, status: Option<u64>) -> Result<(), Error> {
        self.threads.insert(thread.tracee.0, Thread { doing: Doing::AtEnd, ..thread });
        self.end_if_all_are(pid)?;
        let exit = status.map(|status| match i32::try_from(status & 0x7f).unwrap_or(0) {
            0 => Exit::Code(i32::try_from(status >> 8 & 0xff).unwrap_or(0)),
            signal => Exit::Signal(signal),
        });
        self.finish(pid, exit)
    }

    /// Records the end of a thread, with its last address if known.
    pub(super) fn note_end(
        &self,
        tid: Tid,
        thread: &Thread,
        at: Option<Addr>,
    ) -> Result<(), Error> {
        let Some(process) = self.processes.get(&thread.pid) else { return Ok(()) };
        let name = comm(thread.pid, tid);
        // Only decoding can count the instructions.
        Ok(lock(&process.book).recorder.thread_ended(tid, name, 0, at)?)
    }

    /// Handles the end of a thread after its exit stop. If it has the number of its process, that
    /// has ended as well, and its recording is completed.
    fn ended(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        let pid = self.threads.get(&tid).map(|thread| thread.pid);
        self.close(tid)?;
        let removed = self.threads.remove(&tid);
        // The thread was killed without an exit stop.
        let lost = removed.filter(|thread| thread.doing != Doing::AtEnd);
        if let Some(thread) = &lost {
            self.note_end(tid, thread, None)?;
        }
        if self.processes.contains_key(&Pid(tid.0)) {
            self.finish(Pid(tid.0), exit_of(stop))?;
        } else if let Some(pid) = pid.filter(|_| lost.is_some()) {
            // The other threads may have waited for this one.
            self.end_if_all_are(pid)?;
            if self.request.only_thread.is_some() {
                self.finish(pid, exit_of(stop).filter(|exit| matches!(exit, Exit::Signal(_))))?;
            }
        }
        if self.is_leaving { self.part_if_all_stand() } else { Ok(()) }
    }

    /// Marks a thread as stopped to be detached from.
    fn stands(&mut self, tid: Tid) -> Result<(), Error> {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.doing = Doing::Standing;
        }
        self.part_if_all_stand()
    }

    /// Detaches from all processes once all their threads are stopped.
    pub(super) fn part_if_all_stand(&mut self) -> Result<(), Error> {
        let stands = |thread: &Thread| matches!(thread.doing, Doing::Standing);
        if !self.threads.values().all(stands) {
            return Ok(());
        }
        let pids: Vec<Pid> = self.processes.keys().copied().collect();
        for pid in pids {
            self.part(pid)?;
        }
        Ok(())
    }

    /// Writes the final state of a process whose threads are all stopped, detaches from them, and
    /// completes the recording.
    pub(super) fn part(&mut self, pid: Pid) -> Result<(), Error> {
        let tids: Vec<Tid> =
            self.threads.values().filter(|t| t.pid == pid).map(|t| t.tracee.0).collect();
        let mut ending = Vec::new();
        for tid in &tids {
            self.close(*tid)?;
            let Some(thread) = self.threads.get(tid) else { continue };
            let state = final_state::read_thread(thread.tracee, None);
            let at = state.as_ref().map(|state| Addr(state.registers.rip));
            self.note_end(*tid, thread, at)?;
            ending.extend(state);
        }
        if let Some(process) = self.processes.get(&pid)
            && !ending.is_empty()
        {
            let ending = final_state::sort_threads(ending, Tid(pid.0));
            let book = lock(&process.book);
            final_state::write_core(&book.recorder, &process.memory, ending, 0, &[])?;
        }
        for tid in tids {
            let signal = self.threads.get(&tid).map_or(0, |thread| thread.held);
            gone_is_fine(Tracee(tid).detach(signal))?;
        }
        self.finish(pid, None)
    }
}

/// Sets another filter on a thread's running event, if not empty, and enables it.
fn refilter(tap: &Tap, filter: &str) -> Result<(), Error> {
    if !filter.is_empty() {
        tap.set_filter(filter)?;
    }
    tap.enable();
    Ok(())
}
