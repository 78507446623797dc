//! The ends of threads, of the process, and of a recording whose process goes on *natively*:
//! without the recorder.
//!
//! A thread that is to end has an *exit stop* (`PTRACE_EVENT_EXIT`), and is gone once it is resumed
//! from there. `handle_end` takes its last state there, and has three cases:
//!
//! - It ends alone: it is resumed at once, and its end is logged (`let_thread_end`).
//! - Another thread's execve(2) ends it: it is resumed, and forgotten.
//! - The whole process ends. Each thread stays at its exit stop until all are there. Then the
//!   program's end is logged, the final state and a last *keyframe* (the whole state, from which a
//!   replay can begin) are written, and all are resumed (`end_if_all_at_exit`). The recording is
//!   complete when the first thread is gone, which the kernel reports last.
//!
//! The place of the program's end (`program_end`) is that of the thread which ended it. It is noted
//! before, at its `exit_group(2)`, or else at the first exit stop; nothing that threads execute
//! from then on is recorded. If the recorder leaves the program instead, the place is where the
//! thread with the token is (`stop_recording`).

use super::effects::{contents, ranges_of};
use super::engine::ExactRecorder;
use super::followed::Followed;
use super::process::{Process, log_place_of};
use super::special::Reason;
use super::thread::{Activity, LastState, Thread};
use crate::capture::culprit::exit_of;
use crate::capture::error::gone_is_fine;
use crate::capture::harm::{harm_of, killed_note};
use crate::capture::restart::registers_outside_call;
use crate::capture::{Error, final_state};
use crate::common::{Addr, Pid, Tid};
use crate::engine::{Place, RunOutcome, TranslatedProcess};
use crate::insn::Registers;
use crate::recording::log::{LogEvent, Write};
use crate::tracee::call_numbers::{EXECVE, EXECVEAT, EXIT, RESTART_SYSCALL};
use crate::tracee::{
    self, Signo, Stop, TRAP_BIT, Tracee, comm, executable, siginfo, signals, wait_for,
};
use nix::sys::signal::{Signal, kill};
use std::time::Duration;

/// The exit status of a thread that a filter of system calls kills alone.
const SIGSYS_STATUS: u64 = libc::SIGSYS as u64;

impl ExactRecorder {
    /// Notes that the program ends, or its recording does, at a thread's place with these
    /// registers. Replaces an end that was noted before. The end is logged later, by
    /// [`Self::log_program_end`].
    pub(super) fn note_program_end(&mut self, tid: Tid, registers: &Registers) {
        self.has_program_ended = true;
        self.program_end.place = Some((tid, *registers));
    }

    /// Logs the end of the program at the noted place, after the memory that the kernel wrote when
    /// it ended the calls in which threads were killed. Decides whether a keyframe is stored at the
    /// end. If the thread is gone, logs the end without a place, and no memory. Does nothing if no
    /// end was noted, or if it was logged before.
    pub(super) fn log_program_end(&mut self) -> Result<(), Error> {
        let Some((tid, registers)) = self.program_end.place.take() else { return Ok(()) };
        let keeps_end = self.is_end_worth_a_keyframe();
        let Some(process) = &mut self.process else { return Ok(()) };
        let writes = std::mem::take(&mut self.program_end.writes);
        let Some(thread) = self.threads.get_mut(&tid) else {
            return process.log_without_ticks(tid, LogEvent::Finish { place: None });
        };
        let place = log_place_of(&registers);
        if !writes.is_empty() {
            let changed = LogEvent::Changed { place, state: None, writes };
            process.log(thread, &registers, changed)?;
        } else if keeps_end {
            // A keyframe has each thread at its last entry in the log: this one, if there is no
            // other for this place.
            process.log(thread, &registers, LogEvent::Switch { place })?;
        }
        // The keyframe's place in the log is before `Finish`, to which a replay from it runs.
        self.program_end.keyframe = keeps_end.then(|| (tid, process.recorder.log_so_far().entries));
        process.log(thread, &registers, LogEvent::Finish { place: Some(place) })
    }

    /// Handles the end of a thread: its exit stop, or that it is gone. At the exit stop, resumes
    /// and forgets a thread that ends by another thread's execve(2); keeps the last state of any
    /// other. Resumes it if it ends alone. Otherwise the whole process ends, and the thread stays
    /// at its exit stop until all threads are there.
    pub(super) fn handle_end(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        if matches!(stop, Stop::Exited(_) | Stop::Killed { .. }) {
            return self.handle_gone(tid, stop);
        }
        let chose_to = self.threads.get(&tid).and_then(Thread::current_call);
        let chose_to = chose_to.is_some_and(|current| current.call.number == EXIT);
        if !chose_to && self.is_another_in_execve(tid) {
            // The execve(2) of another thread ends this one.
            self.threads.remove(&tid);
            self.unrecorded.insert(tid);
            return gone_is_fine(Tracee(tid).resume(0));
        }
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        if thread.translated.place == Place::Cache
            && let Some(process) = &mut self.process
        {
            note_state_of_killed(process, thread)?;
        }
        let call = thread.current_call().filter(|current| current.is_logged).map(|c| c.call.number);
        thread.last_state = state_at_exit(thread).map(|state| LastState { state, call });
        if let Some(process) = &self.process {
            self.program_end.writes.extend(writes_of_killed_call(&process.engine, thread));
        }
        if self.threads.len() > 1 && (chose_to || self.is_killed_alone(tid)) {
            return self.let_thread_end(tid);
        }
        if !self.has_program_ended {
            self.note_program_killed(tid);
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.activity = Activity::AtExitStop;
        }
        self.end_if_all_at_exit()
    }

    /// Returns true if another thread than this one is in an execve(2).
    fn is_another_in_execve(&self, tid: Tid) -> bool {
        let executes = |thread: &Thread| {
            thread.tid() != tid
                && thread.current_call().is_some_and(|c| matches!(c.call.number, EXECVE | EXECVEAT))
        };
        self.threads.values().any(executes)
    }

    /// Returns true if a filter of system calls killed a thread alone (`SECCOMP_RET_KILL_THREAD`):
    /// the thread exits with `SIGSYS_STATUS`, and its process gets no fatal signal.
    fn is_killed_alone(&self, tid: Tid) -> bool {
        let is_filtered = self.process.as_ref().is_some_and(|process| process.is_filtered);
        is_filtered
            && Tracee(tid).event_message().is_ok_and(|status| status == SIGSYS_STATUS)
            && !tracee::is_being_killed(self.pid, tid)
    }

    /// Notes the end of a program that was killed, at the last registers of a thread; does nothing
    /// if they are not known.
    fn note_program_killed(&mut self, tid: Tid) {
        if let Some(registers) = self.threads.get(&tid).and_then(last_registers) {
            self.note_program_end(tid, &registers);
        }
    }

    /// Lets a thread end while others go on: resumes it from its exit stop, waits until it is gone,
    /// removes it, and logs its end with the memory that the kernel wrote then, before another
    /// thread runs. Its area in the code cache is free afterwards.
    fn let_thread_end(&mut self, tid: Tid) -> Result<(), Error> {
        let name = comm(self.pid, tid);
        if self.debugger.is_some() {
            self.names.insert(tid, name.clone());
        }
        gone_is_fine(Tracee(tid).resume(0))?;
        self.wait_until_gone(tid);
        if self.holder != tid {
            self.log_holder_place()?;
        }
        let Some(mut thread) = self.threads.remove(&tid) else { return Ok(()) };
        let Some(process) = &mut self.process else { return Ok(()) };
        let memory = |addr: Addr, buf: &mut [u8]| process.engine.read_visible(addr, buf);
        let written = thread.registered.written_at_end(&memory);
        let writes = contents(&process.engine, written);
        let current = thread.take_call();
        let registers = current.map(|current| current.registers).unwrap_or_default();
        process.log(&mut thread, &registers, LogEvent::Ends { writes })?;
        process.recorder.thread_ended(tid, name, 0, None)?;
        let Thread { translated, .. } = thread;
        process.engine.recycle_area(translated.area, translated.busy);
        Ok(())
    }

    /// Waits until a thread is gone, and reaps it. The first thread of the process is polled
    /// instead of reaped: the kernel reports its end only after those of the others. A stop of a
    /// thread with its number is that of another one, which has executed a program.
    fn wait_until_gone(&self, tid: Tid) {
        if tid.0 != self.pid.0 {
            while !matches!(wait_for(tid), Ok(Stop::Exited(_) | Stop::Killed { .. }) | Err(_)) {}
            return;
        }
        while !tracee::is_first_thread_gone(self.pid) && !tracee::has_stop(tid) {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Logs the program's end if all threads are at their exit stops. Without a debugger, also
    /// writes the final state and the last keyframe, and resumes the threads to their ends, once.
    /// With one, they stay until the debugger goes on.
    pub(super) fn end_if_all_at_exit(&mut self) -> Result<(), Error> {
        let all_at_exit =
            self.threads.values().all(|thread| matches!(thread.activity, Activity::AtExitStop));
        if all_at_exit {
            self.log_program_end()?;
        }
        // A debugger looks at the end before the threads go on to it.
        if !all_at_exit || self.is_final_state_written || self.debugger.is_some() {
            return Ok(());
        }
        let Some(process) = &mut self.process else { return Ok(()) };
        self.is_final_state_written = true;
        // The thread that executed last comes first in the final state.
        let first = self.holder;
        let endings = self.threads.values().filter_map(|thread| thread.last_state.as_ref());
        let threads = endings.map(|ending| ending.state.clone()).collect();
        let siginfo = self.threads.get(&first).and_then(|thread| thread.last_siginfo);
        // The low bits of the exit status are the signal that killed the process (wait(2)).
        let killed_by = Tracee(first).event_message().unwrap_or(0) & 0x7f;
        let signal = siginfo.map_or(0, |info| siginfo::signal_of(&info));
        let signal = if u64::from(signal.unsigned_abs()) == killed_by { signal } else { 0 };
        let hidden = process.engine.space.hidden();
        let threads = final_state::sort_threads(threads, first);
        let (recorder, memory) = (&process.recorder, &process.engine.memory);
        let dumped = final_state::write_core(recorder, memory, threads, signal, hidden)?;
        self.store_last_keyframe(&dumped)?;
        let Some(process) = &mut self.process else { return Ok(()) };
        for &tid in self.threads.keys() {
            let name = comm(process.pid(), tid);
            process.recorder.thread_ended(tid, name, 0, None)?;
        }
        self.threads.values().try_for_each(|thread| gone_is_fine(thread.tracee().resume(0)))
    }

    /// Removes a thread that is gone, after logging the program's end if that is at this thread. If
    /// it is the process's first thread, whose end is reported last, completes the recording;
    /// otherwise, the rest may now all be at their exit stops.
    fn handle_gone(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        if self.program_end.place.is_some_and(|(last, _)| last == tid) {
            self.log_program_end()?;
        }
        self.threads.remove(&tid);
        if tid.0 == self.pid.0 {
            return self.complete_recording(exit_of(stop));
        }
        self.end_if_all_at_exit()
    }

    /// Ends and completes the recording as [`Self::stop_recording`] does, after a note for the user
    /// with the reason.
    pub(super) fn stop_recording_because(&mut self, why: &Reason) -> Result<(), Error> {
        let path = executable(self.pid).map(|path| path.display().to_string()).unwrap_or_default();
        if let Some(process) = &mut self.process {
            let (pid, Reason(clause)) = (process.pid(), why);
            process.add_user_note(format!(
                "process {pid} {clause} ({path}) and is recorded up to there"
            ));
        }
        self.stop_recording()
    }

    /// Kills a process that harmed its recorder, as `error` shows, adds a note, and records on to
    /// its end. Returns `error` itself, and does nothing, if it shows no harm, or if there is no
    /// recorded process.
    pub(super) fn kill_if_harmed(&mut self, error: Error) -> Result<(), Error> {
        let (Some(what), Some(process)) = (harm_of(&error), &mut self.process) else {
            return Err(error);
        };
        process.add_user_note(killed_note(process.pid(), what));
        // It may be gone already.
        let _ = kill(nix::unistd::Pid::from_raw(self.pid.0), Signal::SIGKILL);
        self.record_to_end()
    }

    /// Ends the recording where the program is, and completes it. The program goes on natively.
    /// Waits for its end if it is a child of the recorder.
    pub(super) fn stop_recording(&mut self) -> Result<(), Error> {
        self.log_end_of_recording()?;
        self.detach_and_wait();
        self.complete_recording(self.exit)
    }

    /// Ends and completes the recording where the debugger stopped the program, and detaches from
    /// all processes that this thread traces, which go on natively. Does not wait.
    pub(super) fn leave_debugged(&mut self) -> Result<(), Error> {
        self.leave_debugged_process()?;
        tracee::detach_all_traced();
        Ok(())
    }

    /// Ends and completes the recording where the debugger stopped the program, with the debugger's
    /// last changes, and detaches from the program alone: other processes stay stopped. Does not
    /// wait. The debugger's session ends.
    pub(super) fn leave_debugged_process(&mut self) -> Result<(), Error> {
        self.log_changes()?;
        for thread in self.threads.values() {
            gone_is_fine(thread.debug.watched.end(thread.tracee()))?;
        }
        self.debugger = None;
        self.log_end_of_recording()?;
        self.detach_process();
        self.complete_recording(self.exit)
    }

    /// Logs the end of a recording whose program goes on: at the place of the thread with the
    /// token, which is taken out of the cache for that, and before the system call that it may be
    /// in.
    fn log_end_of_recording(&mut self) -> Result<(), Error> {
        let holder = self.holder;
        self.with_thread(holder, Process::take_out_of_cache)?;
        let Some(thread) = self.threads.get(&holder) else { return Ok(()) };
        // A call that is not logged yet is not part of the recorded run.
        let before_call = thread.current_call().map(|current| current.registers);
        if let Some(registers) = before_call.or_else(|| thread.tracee().registers().ok()) {
            self.note_program_end(holder, &registers);
        }
        self.log_program_end()
    }

    /// Detaches from the process and from all others, which go on natively. Waits for the process's
    /// end if it is a child of the recorder, so that it keeps its terminal. Does not complete the
    /// recording.
    pub(super) fn detach_and_wait(&mut self) {
        self.detach_process();
        tracee::detach_all_traced();
        self.wait_for_end();
    }

    /// Stops all threads of the process, takes them out of the cache, removes the recorder's
    /// memory, and detaches, so that they go on natively with the signals that they were about to
    /// get. Ignores failures. Does not wait for the process, and does not complete the recording.
    pub(super) fn detach_process(&mut self) {
        self.followed.iter_mut().for_each(Followed::forget_borrowers);
        let Some(process) = &mut self.process else {
            return tracee::detach_process(self.pid);
        };
        let mut stopped = Vec::new();
        // A thread in its exit stop can execute nothing more: resuming would end it.
        let ends = |thread: &Thread| {
            matches!(thread.activity, Activity::AtExitStop)
                || thread.noted_stop.is_some_and(Stop::is_end)
        };
        let ending: Vec<Tracee> =
            self.threads.values().filter(|thread| ends(thread)).map(Thread::tracee).collect();
        for thread in self.threads.values_mut().filter(|thread| !ends(thread)) {
            let signal = settle_to_detach(self.pid, process, thread);
            stopped.extend(signal.map(|signal| (thread.tracee(), signal)));
        }
        if let Some((first, _)) = stopped.first() {
            // If any of this fails, nothing better is possible.
            for thread in self.threads.values() {
                let again = |rseq| process.engine.allow_rseq(thread.tracee(), rseq);
                let _ = thread.rseq.map_or(Ok(()), again);
            }
            if let Some(vdso) = &process.vdso {
                let threads: Vec<Tracee> = stopped.iter().map(|(tracee, _)| *tracee).collect();
                let _ = vdso.restore(&process.engine.memory, &threads);
            }
            let _ = process.engine.restore_native(*first);
        }
        for (tracee, signal) in
            stopped.into_iter().chain(ending.into_iter().map(|tracee| (tracee, 0)))
        {
            let _ = tracee.detach(signal);
        }
        if let Some(shared_cpu) = self.shared_cpu.take() {
            shared_cpu.unpin(Tid(self.pid.0));
        }
    }

    /// Waits for the end of a process that goes on natively, and notes its exit in `exit`. Detaches
    /// from its first thread at each stop that comes before. Does not wait for a process that is
    /// not a child of the recorder.
    fn wait_for_end(&mut self) {
        while let Ok(stop) = wait_for(Tid(self.pid.0)) {
            if matches!(stop, Stop::Exited(_) | Stop::Killed { .. }) {
                self.exit = exit_of(stop);
                break;
            }
            let _ = Tracee(Tid(self.pid.0)).detach(signal_of(stop));
        }
    }
}

impl Process {
    /// Ends a thread's paused run, if it has one, and takes the thread out of the cache, to the
    /// next place where its registers are exact. Logs the run's calls and counts its ticks. If
    /// another stop came first, that becomes the thread's noted stop. The thread must be stopped.
    pub(super) fn take_out_of_cache(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let Some(mut running) = thread.paused_run.take() else { return Ok(()) };
        let run = self.engine.interrupt_run(&mut thread.translated, &running)?;
        let logged = self.log_run_calls(thread, &mut running)?;
        match run {
            RunOutcome::Ended(ran) | RunOutcome::Signal(ran, _) => {
                thread.ticks += ran.ticks.wrapping_sub(logged);
            }
            RunOutcome::Other(stop) => thread.noted_stop = Some(stop),
            RunOutcome::IncompleteCall | RunOutcome::Glance(_) => {}
        }
        Ok(())
    }
}

/// Stops a thread from which the recorder is to detach, takes it out of the cache, and restores the
/// program's registers: before its system call if the kernel would make that again. Returns the
/// signal that it was about to get, 0 for none; `None` if the thread is gone.
fn settle_to_detach(pid: Pid, process: &mut Process, thread: &mut Thread) -> Option<Signo> {
    let tracee = thread.tracee();
    let signal = stop_to_detach(pid, thread);
    // Where this fails, nothing better is possible than to go on.
    let _ = process.take_out_of_cache(thread);
    let with_scratch = thread.current_call().filter(|current| !current.scratch.is_empty());
    if let Some(current) = with_scratch {
        let _ = process.give_back_scratch(tracee, current);
    }
    let mut settled = registers_outside_call(&tracee.registers().ok()?);
    if let Some(current) = with_scratch.filter(|_| settled.rax == RESTART_SYSCALL) {
        // The kernel would go on with the recorder's buffer.
        settled.rax = current.call.number;
    }
    let _ = tracee.set_registers(&settled);
    Some(signal)
}

/// Stops a thread from which the recorder is to detach, if it is not stopped yet. Takes its noted
/// stop, the signal for which the debugger stopped it, and the trap of its step through a call.
/// Returns the signal that it was about to get, the debugger's only if there is no other; 0 for
/// none.
fn stop_to_detach(pid: Pid, thread: &mut Thread) -> Signo {
    let tracee = thread.tracee();
    // The end of its call may have stopped it, which was not reported yet.
    let is_stopped = thread.debug.is_halted_in_call || thread.debug.held_signal.is_some();
    let is_in_call = thread.current_call().is_some() && thread.noted_stop.is_none() && !is_stopped;
    let mut signal = thread.noted_stop.take().map_or(0, signal_of);
    if (is_in_call || tracee.registers().is_err()) && tracee.interrupt().is_ok() {
        // If it ends now, there is nothing to detach from.
        signal = wait_for(tracee.0).map_or(0, signal_of);
    }
    // The trap of its step through a call would end the program.
    let has_trap = || signals(pid, tracee.0).is_ok_and(|signals| signals.pending & TRAP_BIT != 0);
    if thread.current_call().is_some() && signal == 0 && has_trap() && tracee.resume(0).is_ok() {
        signal = wait_for(tracee.0).map_or(0, signal_of);
    }
    let held = thread.debug.held_signal.take().filter(|_| signal == 0);
    held.map_or(signal, |info| siginfo::signal_of(&info))
}

/// Returns the program's signal that a stop is for; 0 if it is for none. A SIGTRAP is taken for the
/// recorder's, which gives 0, too.
fn signal_of(stop: Stop) -> Signo {
    match stop {
        Stop::Signal(signal) if signal != libc::SIGTRAP => signal,
        _ => 0,
    }
}

/// Notes the registers (`killed_at`) and ticks of a thread that was killed in its paused run in the
/// code cache, if they can be found, and logs the run's calls. The run is dropped. Does nothing if
/// the thread has none, or is in a system call.
fn note_state_of_killed(process: &mut Process, thread: &mut Thread) -> Result<(), Error> {
    let Some(mut running) =
        thread.paused_run.take().filter(|_| matches!(thread.activity, Activity::Runs))
    else {
        return Ok(());
    };
    let end = process.engine.killed_run_state(&thread.translated, &running)?;
    let logged = process.log_run_calls(thread, &mut running)?;
    if let Some((registers, ticks)) = end {
        thread.killed_at = Some(registers);
        thread.ticks += ticks.wrapping_sub(logged);
    }
    Ok(())
}

/// Returns the memory that the kernel wrote as a thread was killed in a system call, such as the
/// time that is left of a sleep. Returns none for a call whose buffers the recorder replaced
/// (`Scratch`): the program does not see these writes. Returns none if it was killed in no call.
fn writes_of_killed_call(engine: &TranslatedProcess, thread: &Thread) -> Vec<Write> {
    let Some(current) = thread.current_call().filter(|current| current.scratch.is_empty()) else {
        return Vec::new();
    };
    let memory = |addr: Addr, buf: &mut [u8]| engine.read_visible(addr, buf);
    contents(engine, ranges_of(current.effects.end(-i64::from(libc::EINTR), &memory)))
}

/// Returns the registers that the program had where a thread at its exit stop ended: those before
/// its system call, if it ended in one. `None` if they are not known.
fn last_registers(thread: &Thread) -> Option<Registers> {
    match thread.current_call() {
        Some(current) => Some(current.registers),
        None if thread.killed_at.is_some() => thread.killed_at,
        None if thread.translated.place == Place::Program => thread.tracee().registers().ok(),
        None => None,
    }
}

/// Returns the state of a thread at its exit stop, with the program's registers; `None` if they are
/// not known.
fn state_at_exit(thread: &Thread) -> Option<crate::image::core::Thread> {
    let program = last_registers(thread)?;
    let state = final_state::read_thread_with(thread.tracee(), &program, thread.last_siginfo);
    Some(final_state::forget_cache_address(state))
}
