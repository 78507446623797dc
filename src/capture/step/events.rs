//! Handles stops of threads: ends of steps, signals, births, execve(2), exits. The main loop
//! decides which thread runs.
//!
//! The life of an instruction: the main loop decodes it (`insn`), and steps the thread. The stop
//! after the step is a SIGTRAP, at which the instruction is *retired*: added to the thread's
//! *path*, which encodes executed instructions as packets. `divert` adds a move that no instruction
//! made, such as to a signal's handler. In between, `enter_user` adds a return from the kernel to
//! the program, and `interrupt` an entry into the kernel. A system call takes several stops
//! (`calls`), and is retired when it is done, or before, if the thread ends in it or waits for a
//! child.

use super::calls;
use super::engine::{BACKEND, Engine};
use super::process::Process;
use super::thread::{Activity, Call, Thread};
use super::trap::TrapDecision;
use crate::capture::culprit::{ExitStop, any_is_in_execve, exit_of};
use crate::capture::error::gone_is_fine;
use crate::capture::recorder::Prepared;
use crate::capture::restart::will_restart_call;
use crate::capture::signals::stop_with_program;
use crate::capture::{Error, final_state};
use crate::common::{Addr, Pid, Tid};
use crate::insn::Insn;
use crate::sideband::Event;
use crate::tracee::siginfo;
use crate::tracee::trap_flag::hide_after_step;
use crate::tracee::{
    PtraceEvent, SiginfoBytes, Stop, Tracee, USER_CS_64, executable, is_thread_of, wait_for,
};

/// `si_code` of a SIGTRAP (sigaction(2), and arch/x86 in the kernel).
const TRAP_BRKPT: i32 = 1;
const TRAP_TRACE: i32 = 2;
/// The `si_code` when a stepped thread enters a signal handler.
const HANDLER_ENTERED: i32 = libc::SIGTRAP;

impl Engine {
    /// Handles a stop of any kind. A stop of an unknown thread is kept until its birth is reported.
    pub(super) fn handle(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        let ended = matches!(stop, Stop::Exited(_) | Stop::Killed { .. });
        let known = self.threads.contains_key(&tid);
        // The first thread may end long before its process does. Its number then passes to a thread
        // that executes a program.
        let executed = stop == Stop::Event(PtraceEvent::Exec);
        let of_process = self.processes.contains_key(&Pid(tid.0));
        if !(known || (ended || executed) && of_process) {
            self.early_stops.insert(tid, stop);
            return Ok(());
        }
        if let Some(thread) = self.threads.get_mut(&tid).filter(|_| !ended) {
            // The thread stays ready until it is resumed, even if something below fails.
            thread.activity = Activity::Ready;
            thread.trap.at_step = false;
        }
        match stop {
            Stop::Exited(_) | Stop::Killed { .. } => self.handle_thread_end(tid, stop),
            Stop::Signal(libc::SIGTRAP) => self.with_thread(tid, handle_sigtrap),
            Stop::Signal(_) => self.with_thread(tid, |process, thread| {
                let Some(info) = info_of(thread)? else { return Ok(()) };
                handle_signal(process, thread, info)
            }),
            Stop::Call => self.with_thread(tid, calls::handle_call_stop),
            Stop::Group(signal) => {
                self.with_thread(tid, |_, thread| thread.stop_with_process())?;
                stop_with_program(signal);
                Ok(())
            }
            Stop::Event(PtraceEvent::Stop) => self.with_thread(tid, handle_event_stop),
            Stop::Event(PtraceEvent::Exit) => self.handle_exit_stop(tid),
            Stop::Event(PtraceEvent::Exec) => self.handle_execve(tid),
            Stop::Event(event @ (PtraceEvent::Clone | PtraceEvent::Fork | PtraceEvent::Vfork)) => {
                self.handle_birth(tid, event)
            }
            Stop::Event(PtraceEvent::Other(_)) => self.resume_in_call(tid),
        }
    }

    /// Calls `act` with a thread and its process, and returns its result. Does nothing if either is
    /// unknown.
    pub(super) fn with_thread(
        &mut self,
        tid: Tid,
        act: impl FnOnce(&mut Process, &mut Thread) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let Some(process) = self.processes.get_mut(&thread.pid) else { return Ok(()) };
        act(process, thread)
    }

    /// Resumes a thread that stopped inside a system call.
    fn resume_in_call(&mut self, tid: Tid) -> Result<(), Error> {
        self.with_thread(tid, |_, thread| calls::resume_in_call(thread))
    }

    /// Handles the birth of a thread or process, reported by a stop of its parent, and resumes the
    /// parent, unless a debugger is to see the birth first.
    fn handle_birth(&mut self, parent: Tid, event: PtraceEvent) -> Result<(), Error> {
        let Ok(message) = Tracee(parent).event_message() else { return Ok(()) };
        let child = Tid(i32::try_from(message).unwrap_or(0));
        let pid = self.threads.get(&parent).map_or(self.program, |thread| thread.pid);
        let first_stop = self.early_stops.remove(&child);
        if is_thread_of(child, pid) {
            self.add_thread(child, pid, Activity::InCall)?;
            if let Some(stop) = first_stop {
                self.handle(child, stop)?;
            }
        } else {
            if first_stop.is_none() {
                wait_for(child)?;
            }
            if self.handle_child_process(parent, pid, Pid(child.0), event)? {
                return Ok(());
            }
        }
        self.resume_in_call(parent)
    }

    /// Records a newborn child process, detaches from it, or keeps it stopped for the debugger.
    /// Returns true if its parent stays stopped inside the call.
    fn handle_child_process(
        &mut self,
        parent: Tid,
        pid: Pid,
        child: Pid,
        event: PtraceEvent,
    ) -> Result<bool, Error> {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.recorder.record_event(parent, Event::Fork { child })?;
        }
        let tid = Tid(child.0);
        if self.debugger_wants_fork(pid, event) {
            return self.keep_newborn(parent, child, event);
        }
        if !self.request.follow_forks {
            return gone_is_fine(Tracee(tid).detach(0)).map(|()| false);
        }
        let mut process = Process::start(
            Prepared::of_child(&self.request, BACKEND)?,
            &self.request.filter,
            child,
        )?;
        if let Some(parent) = self.processes.get(&pid) {
            process.trap_ignored = parent.trap_ignored;
        }
        self.processes.insert(child, process);
        self.add_thread(tid, child, Activity::InCall)?;
        self.with_thread(tid, handle_event_stop).map(|()| false)
    }

    /// Handles the stop in an execve(2), after which `tid` is the only thread of its process, and
    /// resumes the thread. Ends the recording of a process that runs a 32-bit program.
    fn handle_execve(&mut self, tid: Tid) -> Result<(), Error> {
        let old =
            Tracee(tid).event_message().map_or(tid, |old| Tid(i32::try_from(old).unwrap_or(tid.0)));
        let Some(mut thread) = self.threads.remove(&old) else { return Ok(()) };
        let pid = thread.pid;
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let call = thread.current_call;
        thread.retire_call();
        if old != tid {
            process.end_path(&mut thread, None)?;
            // The kernel gave the thread the number of the first one, whose path it continues.
            thread = match self.threads.remove(&tid) {
                Some(leader) => leader,
                None => Thread::new(tid, pid, thread.ip, self.new_path(tid, pid)),
            };
            thread.path.interrupt(thread.ip);
        }
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        process.exec(tid)?;
        let Ok(registers) = Tracee(tid).registers() else { return Ok(()) };
        thread.ip = Addr(registers.rip);
        thread.current_call = call.map(|call| Call { is_in_path: true, ..call });
        thread.insn = None;
        thread.is_in_execve = true;
        self.threads.insert(tid, thread);
        if registers.cs != USER_CS_64 {
            return self.end_unrecordable(pid, "runs a 32-bit program");
        }
        self.resume_in_call(tid)
    }

    /// Ends the recording of a process that does something unsupported, as the clause `why` states,
    /// detaches from it, and adds a note for the user.
    fn end_unrecordable(&mut self, pid: Pid, why: &str) -> Result<(), Error> {
        let path = executable(pid).map(|p| p.display().to_string()).unwrap_or_default();
        self.notes.push(format!("process {pid} {why} ({path}) and is recorded up to there"));
        for thread in self.threads.values_mut().filter(|thread| thread.pid == pid) {
            thread.activity = Activity::Ready;
        }
        self.detach_process(pid)
    }

    /// Ends the paths of a process's threads, detaches from them, running or not, and completes the
    /// recording.
    pub(super) fn detach_process(&mut self, pid: Pid) -> Result<(), Error> {
        let mine = |thread: &&mut Thread| thread.pid == pid;
        for thread in self.threads.values_mut().filter(mine) {
            if let Some(process) = self.processes.get_mut(&pid) {
                thread.current_call = thread.current_call.filter(|call| call.is_entered);
                thread.retire_call();
                process.end_path(thread, Some(thread.ip))?;
            }
            thread.detach();
        }
        self.finish(pid, None)
    }

    /// Handles a thread's exit stop, the last chance to read its registers: ends its path. The
    /// thread is kept there if its process ends with it, or if it is the last one; otherwise it is
    /// resumed and forgotten.
    fn handle_exit_stop(&mut self, tid: Tid) -> Result<(), Error> {
        let status = Tracee(tid).event_message().unwrap_or(0);
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let pid = thread.pid;
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let call = thread.current_call.and_then(|call| call.number);
        thread.exit_state = final_state::read_thread(thread.tracee, thread.siginfo);
        let registers = thread.exit_state.as_ref().map(|ending| ending.registers);
        let final_pc = registers.map(|registers| Addr(registers.rip));
        // A thread that was killed before it made the call has not executed it.
        thread.current_call = thread.current_call.filter(|call| call.is_entered);
        thread.retire_call();
        process.end_path(thread, final_pc)?;
        let stop = ExitStop { tid, status, call, siginfo: thread.siginfo };
        let others = || self.threads.values().filter(|t| t.pid == pid && t.tid() != tid);
        let alive = || others().filter(|t| t.activity != Activity::AtExitStop).map(Thread::tid);
        let ends_process = process.culprit.note_exit_stop(&stop, || any_is_in_execve(pid, alive()));
        let hold = ends_process || alive().next().is_none();
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        if hold {
            thread.activity = Activity::AtExitStop;
            return self.end_if_all_at_exit(pid);
        }
        let result = gone_is_fine(thread.tracee.resume(0));
        self.threads.remove(&tid);
        result
    }

    /// Handles the end of a thread, which is gone now. If it has the number of its process, that
    /// has ended as well, and its recording is completed.
    fn handle_thread_end(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        let removed = self.threads.remove(&tid);
        // The thread was killed without an exit stop.
        let lost = removed.filter(|thread| thread.activity != Activity::AtExitStop);
        let pid = lost.as_ref().map(|thread| thread.pid);
        if let Some(mut thread) = lost
            && let Some(process) = self.processes.get_mut(&thread.pid)
        {
            process.end_path(&mut thread, None)?;
        }
        if self.processes.contains_key(&Pid(tid.0)) {
            return self.finish(Pid(tid.0), exit_of(stop));
        }
        // The other threads may have waited for this one.
        pid.map_or(Ok(()), |pid| self.end_if_all_at_exit(pid))
    }
}

/// Returns the information of the signal for which a thread stopped; `None` if it is gone.
fn info_of(thread: &Thread) -> Result<Option<SiginfoBytes>, Error> {
    match thread.tracee.signal_info() {
        Err(error) if error.is_gone() => Ok(None),
        result => Ok(Some(result?)),
    }
}

/// Handles a new thread's first stop, a requested stop, or the end of a group stop: the thread is
/// ready from then on.
pub(super) fn handle_event_stop(_: &mut Process, thread: &mut Thread) -> Result<(), Error> {
    if thread.ip == Addr(0) {
        match thread.tracee.instruction_pointer() {
            Err(error) if error.is_gone() => return Ok(()),
            result => thread.ip = result?,
        }
    }
    thread.activity = Activity::Ready;
    thread.trap.read_mask(thread.tracee)
}

/// Handles a SIGTRAP: a step ended, a handler was entered, or the program trapped itself.
fn handle_sigtrap(process: &mut Process, thread: &mut Thread) -> Result<(), Error> {
    let next = match thread.tracee.instruction_pointer() {
        Err(error) if error.is_gone() => return Ok(()),
        result => result?,
    };
    let plain = thread.insn.filter(|insn| insn.next() == next && !insn.class.is_far());
    if let Some(insn) = plain.filter(|_| thread.current_call.is_none()) {
        // Most stops take this path: only a step stops a thread exactly one instruction further.
        return retire_step(process, thread, &insn, next);
    }
    let Some(info) = info_of(thread)? else { return Ok(()) };
    match siginfo::code_of(&info) {
        HANDLER_ENTERED => {
            thread.divert(next);
            thread.restarting_call = None;
            thread.activity = Activity::Ready;
            thread.trap.read_mask(thread.tracee)
        }
        TRAP_TRACE | TRAP_BRKPT => {
            thread.activity = Activity::Ready;
            handle_step_end(process, thread, next)
        }
        _ => match thread.trap.decide(thread.tracee, info)? {
            TrapDecision::Deliver(info) if !process.trap_ignored.drops(&info) => {
                handle_signal(process, thread, info)
            }
            _ => {
                thread.activity = Activity::Ready;
                Ok(())
            }
        },
    }
}

/// Handles the end of a single step, after which the thread is at `next`. Does not step it again.
fn handle_step_end(process: &mut Process, thread: &mut Thread, next: Addr) -> Result<(), Error> {
    thread.trap.at_step = true;
    match thread.insn {
        // A single step of a REP instruction executes one repetition. The instruction counts as
        // executed when the IP moves on.
        Some(insn) if insn.rep && next == insn.ip => {
            thread.path.enter_user(insn.ip);
            Ok(())
        }
        Some(insn) => retire_step(process, thread, &insn, next),
        // The instruction could not be decoded: the path has a gap, as if the kernel had moved the
        // thread.
        None => {
            thread.path.enter_user(thread.ip);
            thread.divert(next);
            Ok(())
        }
    }
}

/// Adds the stepped instruction to the path, and hides the trap flag of the step from the program.
fn retire_step(
    process: &mut Process,
    thread: &mut Thread,
    insn: &Insn,
    next: Addr,
) -> Result<(), Error> {
    thread.retire(insn, next);
    thread.activity = Activity::Ready;
    thread.trap.at_step = true;
    gone_is_fine(hide_after_step(thread.tracee, insn.flags, &process.memory).map(drop))
}

/// Records a signal of the program, and notes it as the one to deliver next. Does not resume the
/// thread.
fn handle_signal(
    process: &mut Process,
    thread: &mut Thread,
    mut info: SiginfoBytes,
) -> Result<(), Error> {
    if let Some(written) = thread.pending.take_written_siginfo(siginfo::signal_of(&info)) {
        info = written;
        gone_is_fine(thread.tracee.set_signal_info(&info))?;
    }
    let registers = match thread.tracee.registers() {
        Err(error) if error.is_gone() => return Ok(()),
        result => result?,
    };
    let now_at = Addr(registers.rip);
    // The signal came before the thread made the call at its IP.
    thread.current_call = None;
    if thread.restarting_call.is_some() {
        // Unless a handler runs, the kernel returns to the call instruction.
        thread.restarting_call = thread.restarting_call.filter(|_| will_restart_call(&registers));
        thread.ip = thread.restarting_call.unwrap_or(now_at);
    } else if now_at != thread.ip {
        match thread.insn.filter(|insn| insn.class.is_far()) {
            Some(trap) => thread.retire(&trap, now_at),
            None => thread.divert(now_at),
        }
    }
    thread.insn = None;
    thread.signal_to_deliver = siginfo::signal_of(&info);
    thread.siginfo = Some(info);
    thread.activity = Activity::Ready;
    let event = Event::Signal {
        number: thread.signal_to_deliver,
        code: siginfo::code_of(&info),
        addr: siginfo::fault_address(&info),
    };
    Ok(process.recorder.record_event(thread.tid(), event)?)
}

impl Thread {
    /// Adds the system call that the thread is in to the path, unless it is there already.
    pub(super) fn retire_call(&mut self) {
        let pending = self.current_call.filter(|call| !call.is_in_path);
        if let Some((insn, call)) = self.insn.zip(pending) {
            self.path.retire(&insn, insn.next());
            self.ip = insn.next();
            self.current_call = Some(Call { is_in_path: true, ..call });
        }
    }
}
