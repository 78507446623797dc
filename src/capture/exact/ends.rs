//! The ends of threads, of the process, and of a recording whose process goes on natively. A thread
//! that is to end has an *exit stop* (`PTRACE_EVENT_EXIT`) before it is gone.

use super::effects::{contents, ranges_of};
use super::engine::Engine;
use super::followed::Followed;
use super::process::{Process, place_of};
use super::special::Reason;
use super::thread::{Doing, Ending, Thread};
use crate::capture::culprit::exit_of;
use crate::capture::error::gone_is_fine;
use crate::capture::harm::{harm_of, killed_note};
use crate::capture::restart::registers_outside_call;
use crate::capture::{Error, final_state};
use crate::common::{Addr, Pid, Tid};
use crate::engine::{Place, Run, TranslatedProcess};
use crate::insn::Registers;
use crate::recording::log::{Happening, Write};
use crate::tracee::call_numbers::{EXECVE, EXECVEAT, EXIT, RESTART_SYSCALL};
use crate::tracee::{
    self, Signo, Stop, TRAP_BIT, Tracee, comm, executable, siginfo, signals, wait_for,
};
use nix::sys::signal::{Signal, kill};
use std::time::Duration;

/// The exit status of a thread that a filter of system calls kills alone.
const SIGSYS_STATUS: u64 = libc::SIGSYS as u64;

impl Engine {
    /// Notes that the program ends with a thread that has these registers. The end is logged when
    /// all threads are at their exit stops.
    pub(super) fn ends_at(&mut self, tid: Tid, registers: &Registers) {
        self.is_finished = true;
        self.last.place = Some((tid, *registers));
    }

    /// Logs the last place of the program, and what the kernel wrote when it ended the calls that
    /// threads were killed in. Does nothing if no end was noted, or if it was logged before.
    pub(super) fn log_finish(&mut self) -> Result<(), Error> {
        let Some((tid, registers)) = self.last.place.take() else { return Ok(()) };
        let keeps_end = self.is_end_worth_a_keyframe();
        let Some(process) = &mut self.process else { return Ok(()) };
        let writes = std::mem::take(&mut self.last.writes);
        let Some(thread) = self.threads.get_mut(&tid) else {
            return process.log_beside(tid, Happening::Finish { place: None });
        };
        let place = place_of(&registers);
        if !writes.is_empty() {
            let changed = Happening::Changed { place, state: None, writes };
            process.log(thread, &registers, changed)?;
        } else if keeps_end {
            process.log(thread, &registers, Happening::Switch { place })?;
        }
        self.last.keyframe = keeps_end.then(|| (tid, process.recorder.log_so_far().entries));
        process.log(thread, &registers, Happening::Finish { place: Some(place) })
    }

    /// Handles the end of a thread: its exit stop, or that it is gone. If the whole process ends,
    /// the thread stays at its exit stop until all threads are there.
    pub(super) fn ending(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        if matches!(stop, Stop::Exited(_) | Stop::Killed { .. }) {
            return self.gone(tid, stop);
        }
        let executes = |thread: &Thread| {
            thread.tid() != tid
                && thread.calling().is_some_and(|c| matches!(c.call.number, EXECVE | EXECVEAT))
        };
        if self.threads.values().any(executes) {
            // The execve(2) of another thread ends this one.
            self.threads.remove(&tid);
            self.left.insert(tid);
            return gone_is_fine(Tracee(tid).resume(0));
        }
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let chose_to = thread.calling().is_some_and(|calling| calling.call.number == EXIT);
        if thread.translated.place == Place::Cache
            && let Some(process) = &mut self.process
        {
            take_out(process, thread)?;
        }
        let call = thread.calling().filter(|calling| calling.is_logged).map(|c| c.call.number);
        thread.ending = last_state(thread).map(|state| Ending { state, call });
        if let Some(process) = &self.process {
            self.last.writes.extend(late_writes(&process.engine, thread));
        }
        if self.threads.len() > 1 && (chose_to || self.is_killed_alone(tid)) {
            return self.thread_ends(tid);
        }
        if !self.is_finished {
            self.ends_where(tid);
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.doing = Doing::AtEnd;
        }
        self.end_if_all_are()
    }

    /// Returns true if a filter of system calls killed a thread alone (`SECCOMP_RET_KILL_THREAD`):
    /// the thread exits with `SIGSYS_STATUS`, and its process gets no fatal signal.
    fn is_killed_alone(&self, tid: Tid) -> bool {
        let is_filtered = self.process.as_ref().is_some_and(|process| process.is_filtered);
        is_filtered
            && Tracee(tid).event_message().is_ok_and(|status| status == SIGSYS_STATUS)
            && !tracee::is_being_killed(self.pid, tid)
    }

    /// Notes the end of a program that was killed, with a thread's last registers, if they are
    /// known.
    fn ends_where(&mut self, tid: Tid) {
        if let Some(registers) = self.threads.get(&tid).and_then(last_registers) {
            self.ends_at(tid, &registers);
        }
    }

    /// Lets a thread end while others go on. Waits until it is gone, and logs the memory that the
    /// kernel wrote at its end before another thread runs.
    fn thread_ends(&mut self, tid: Tid) -> Result<(), Error> {
        let name = comm(self.pid, tid);
        if self.debugger.is_some() {
            self.names.insert(tid, name.clone());
        }
        gone_is_fine(Tracee(tid).resume(0))?;
        self.wait_until_gone(tid);
        if self.holder != tid {
            self.log_place()?;
        }
        let Some(mut thread) = self.threads.remove(&tid) else { return Ok(()) };
        let Some(process) = &mut self.process else { return Ok(()) };
        let memory = |addr: Addr, buf: &mut [u8]| process.engine.read_visible(addr, buf);
        let written = thread.registered.written_at_end(&memory);
        let writes = contents(&process.engine, written);
        let calling = thread.take_call();
        let registers = calling.map(|calling| calling.registers).unwrap_or_default();
        process.log(&mut thread, &registers, Happening::Ends { writes })?;
        process.recorder.thread_ended(tid, name, 0, None)?;
        let Thread { translated, .. } = thread;
        process.engine.recycle_area(translated.area, translated.busy);
        Ok(())
    }

    /// Waits until a thread is gone, and reaps it. The first thread of the process is polled
    /// instead: the kernel reports its end only after those of the others.
    fn wait_until_gone(&self, tid: Tid) {
        if tid.0 != self.pid.0 {
            while !matches!(wait_for(tid), Ok(Stop::Exited(_) | Stop::Killed { .. }) | Err(_)) {}
            return;
        }
        while !tracee::is_first_thread_gone(self.pid) {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Logs the program's end if all threads are at their exit stops. Without a debugger, also
    /// writes the final state, and lets the threads end.
    pub(super) fn end_if_all_are(&mut self) -> Result<(), Error> {
        let all_are = self.threads.values().all(|thread| matches!(thread.doing, Doing::AtEnd));
        if all_are {
            self.log_finish()?;
        }
        // A debugger looks at the end before the threads go on to it.
        if !all_are || self.is_over || self.debugger.is_some() {
            return Ok(());
        }
        let Some(process) = &mut self.process else { return Ok(()) };
        self.is_over = true;
        let first = self.holder;
        let endings = self.threads.values().filter_map(|thread| thread.ending.as_ref());
        let threads = endings.map(|ending| ending.state.clone()).collect();
        let last = self.threads.get(&first).and_then(|thread| thread.siginfo);
        let status = Tracee(first).event_message().unwrap_or(0) & 0x7f;
        let signal = last.map_or(0, |info| siginfo::signal_of(&info));
        let signal = if u64::from(signal.unsigned_abs()) == status { signal } else { 0 };
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

    /// Removes a thread that is gone. If it is the process's first thread, whose end is reported
    /// last, completes the recording.
    fn gone(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        if self.last.place.is_some_and(|(last, _)| last == tid) {
            self.log_finish()?;
        }
        self.threads.remove(&tid);
        if tid.0 == self.pid.0 {
            return self.finish(exit_of(stop));
        }
        self.end_if_all_are()
    }

    /// Ends the recording for a reason, with a note for the user.
    pub(super) fn leave_for(&mut self, why: &Reason) -> Result<(), Error> {
        let path = executable(self.pid).map(|path| path.display().to_string()).unwrap_or_default();
        if let Some(process) = &mut self.process {
            let (pid, Reason(clause)) = (process.pid(), why);
            process.note(format!("process {pid} {clause} ({path}) and is recorded up to there"));
        }
        self.leave()
    }

    /// Kills a process that harmed its recorder, as `error` shows, and records its end. Returns any
    /// other error.
    pub(super) fn end_if_harmed(&mut self, error: Error) -> Result<(), Error> {
        let (Some(what), Some(process)) = (harm_of(&error), &mut self.process) else {
            return Err(error);
        };
        process.note(killed_note(process.pid(), what));
        // It may be gone already.
        let _ = kill(nix::unistd::Pid::from_raw(self.pid.0), Signal::SIGKILL);
        self.run()
    }

    /// Ends the recording where the program is. The program goes on natively, and the recorder
    /// waits for its end.
    pub(super) fn leave(&mut self) -> Result<(), Error> {
        self.log_last_place()?;
        self.let_go();
        self.finish(self.exit)
    }

    /// Ends the recording where the debugger stopped the program, which goes on natively.
    pub(super) fn leave_debugged(&mut self) -> Result<(), Error> {
        self.leave_beside()?;
        tracee::detach_all_traced();
        Ok(())
    }

    /// Ends the recording of the program like `leave_debugged`, but leaves other processes stopped.
    pub(super) fn leave_beside(&mut self) -> Result<(), Error> {
        self.log_changes()?;
        for thread in self.threads.values() {
            gone_is_fine(thread.debug.watched.end(thread.tracee()))?;
        }
        self.debugger = None;
        self.log_last_place()?;
        self.part_from_process();
        self.finish(self.exit)
    }

    /// Logs the end of a recording whose program goes on: the place of the thread with the token,
    /// before the system call that it may be in.
    fn log_last_place(&mut self) -> Result<(), Error> {
        let holder = self.holder;
        self.with(holder, Process::end_run)?;
        let Some(thread) = self.threads.get(&holder) else { return Ok(()) };
        // A call that is not logged yet is not part of the recorded run.
        let before_call = thread.calling().map(|calling| calling.registers);
        if let Some(registers) = before_call.or_else(|| thread.tracee().registers().ok()) {
            self.ends_at(holder, &registers);
        }
        self.log_finish()
    }

    /// Lets the process go on untraced. Waits for its end if it is a child of the recorder, so that
    /// it keeps its terminal.
    pub(super) fn let_go(&mut self) {
        self.part_from_process();
        tracee::detach_all_traced();
        self.wait_for_end();
    }

    /// Takes the process out of the cache, and lets it go on untraced. Ignores failures. Does not
    /// complete the recording.
    pub(super) fn part_from_process(&mut self) {
        self.followed.iter_mut().for_each(Followed::forget_borrowers);
        let Some(process) = &mut self.process else {
            return tracee::detach_process(self.pid);
        };
        let mut stopped = Vec::new();
        // A thread in its exit stop can execute nothing more: resuming would end it.
        let ends = |thread: &Thread| {
            matches!(thread.doing, Doing::AtEnd) || thread.stop.is_some_and(Stop::is_end)
        };
        let ending: Vec<Tracee> =
            self.threads.values().filter(|thread| ends(thread)).map(Thread::tracee).collect();
        for thread in self.threads.values_mut().filter(|thread| !ends(thread)) {
            let tracee = thread.tracee();
            let signal = halt(self.pid, thread);
            // Where this fails, nothing better is possible than to go on.
            let _ = process.end_run(thread);
            let begins_again = thread.calling().filter(|calling| !calling.scratch.is_empty());
            if let Some(calling) = begins_again {
                let _ = process.take_from_scratch(tracee, calling);
            }
            if let Ok(registers) = tracee.registers() {
                let mut settled = registers_outside_call(&registers);
                if let Some(calling) = begins_again.filter(|_| settled.rax == RESTART_SYSCALL) {
                    // The kernel would go on with the recorder's buffer.
                    settled.rax = calling.call.number;
                }
                let _ = tracee.set_registers(&settled);
                stopped.push((tracee, signal));
            }
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
            let _ = process.engine.leave(*first);
        }
        for (tracee, signal) in stopped.into_iter().chain(ending.into_iter().map(|of| (of, 0))) {
            let _ = tracee.detach(signal);
        }
        if let Some(shared_cpu) = self.shared_cpu.take() {
            shared_cpu.unpin(Tid(self.pid.0));
        }
    }

    /// Waits for the end of a process that goes on natively, and notes its exit. Does not wait for
    /// a process that is not a child of the recorder.
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
    /// Takes a thread out of the cache if it is in the midst of a run.
    pub(super) fn end_run(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let Some(mut running) = thread.running.take() else { return Ok(()) };
        let run = self.engine.end_run(&mut thread.translated, &running)?;
        let logged = self.take_calls(thread, &mut running)?;
        match run {
            Run::Ran(ran) | Run::Signal(ran, _) => thread.ticks += ran.ticks.wrapping_sub(logged),
            Run::Other(stop) => thread.stop = Some(stop),
            Run::Called | Run::Glance(_) => {}
        }
        Ok(())
    }
}

/// Stops a thread, if it is not stopped yet. Returns the signal that it was about to get; 0 for
/// none.
fn halt(pid: Pid, thread: &mut Thread) -> Signo {
    let tracee = thread.tracee();
    // The end of its call may have stopped it, which was not reported yet.
    let is_stopped = thread.debug.is_halted || thread.debug.held.is_some();
    let is_in_call = thread.calling().is_some() && thread.stop.is_none() && !is_stopped;
    let mut signal = thread.stop.take().map_or(0, signal_of);
    if (is_in_call || tracee.registers().is_err()) && tracee.interrupt().is_ok() {
        // If it ends now, there is nothing to detach from.
        signal = wait_for(tracee.0).map_or(0, signal_of);
    }
    // The trap of its step through a call would end the program.
    let has_trap = || signals(pid, tracee.0).is_ok_and(|signals| signals.pending & TRAP_BIT != 0);
    if thread.calling().is_some() && signal == 0 && has_trap() && tracee.resume(0).is_ok() {
        signal = wait_for(tracee.0).map_or(0, signal_of);
    }
    signal
}

/// Returns the program's signal that a stop is for; 0 if it is for none. A SIGTRAP is the
/// recorder's.
fn signal_of(stop: Stop) -> Signo {
    match stop {
        Stop::Signal(signal) if signal != libc::SIGTRAP => signal,
        _ => 0,
    }
}

/// Notes the registers and ticks of a thread that was killed in the code cache, if they can be
/// found.
fn take_out(process: &mut Process, thread: &mut Thread) -> Result<(), Error> {
    let Some(mut running) = thread.running.take().filter(|_| matches!(thread.doing, Doing::Runs))
    else {
        return Ok(());
    };
    let end = process.engine.end_of_run(&thread.translated, &running)?;
    let logged = process.take_calls(thread, &mut running)?;
    if let Some((registers, ticks)) = end {
        thread.killed_at = Some(registers);
        thread.ticks += ticks.wrapping_sub(logged);
    }
    Ok(())
}

/// Returns the memory that the kernel wrote as a thread was killed in a system call, such as the
/// time that is left of a sleep. Buffers of the recorder (`Scratch`) do not count: the program does
/// not see them.
fn late_writes(engine: &TranslatedProcess, thread: &Thread) -> Vec<Write> {
    let Some(calling) = thread.calling().filter(|calling| calling.scratch.is_empty()) else {
        return Vec::new();
    };
    let memory = |addr: Addr, buf: &mut [u8]| engine.read_visible(addr, buf);
    contents(engine, ranges_of(calling.open.end(-i64::from(libc::EINTR), &memory)))
}

/// Returns the registers that the program had where a thread ended. None: they are not known.
fn last_registers(thread: &Thread) -> Option<Registers> {
    match thread.calling() {
        Some(calling) => Some(calling.registers),
        None if thread.killed_at.is_some() => thread.killed_at,
        None if thread.translated.place == Place::Program => thread.tracee().registers().ok(),
        None => None,
    }
}

/// Returns the state of a thread at its exit stop, with the program's registers; `None` if they are
/// not known.
fn last_state(thread: &Thread) -> Option<crate::image::core::Thread> {
    let program = last_registers(thread)?;
    let state = final_state::read_thread_with(thread.tracee(), &program, thread.siginfo);
    Some(final_state::forget_cache_address(state))
}
