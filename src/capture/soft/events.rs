//! Handles stops of threads: execve(2), exit stops, ends. `births` handles births, `signals` stops
//! for signals, which include requests of the code cache and system calls.
//!
//! A thread ends in two steps. It first has an *exit stop*, where its trace ends, and is gone once
//! it is resumed from there. If it ends alone, it is resumed at once. If its process ends, it is
//! kept there until all threads are: then the final state is written, and all are resumed
//! (`end_if_all_at_exit`). The kernel reports the end of a process's first thread last, and the
//! recording is completed then. A thread may be gone without an exit stop that was seen: it is
//! *lost*.
//!
//! The thread that ended the process is the *culprit* (`crate::capture::culprit`). A *borrower* is
//! a child that uses its parent's memory (`births`).

use super::engine::Engine;
use super::exact::Exactness;
use super::process::Process;
use super::thread::{Activity, Thread};
use crate::capture::begin::{finish_execve, runs_64_bit_code};
use crate::capture::clock::now;
use crate::capture::culprit::{ExitStop, any_is_in_execve, exit_of};
use crate::capture::error::gone_is_fine;
use crate::capture::harm::Harm;
use crate::capture::signals::stop_with_program;
use crate::capture::{Error, Report, final_state};
use crate::common::{Addr, Pid, Tid};
use crate::encode::TraceItem;
use crate::engine::Place;
use crate::insn::Registers;
use crate::tracee::{PtraceEvent, Stop, Tracee};

impl Engine {
    /// Handles a stop of any kind of thread, and resumes it unless it is to stay stopped. A stop of
    /// an unknown thread is kept until its birth is reported; if it is its exit stop, the thread is
    /// also resumed.
    pub(super) fn handle(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        if self.borrowers.contains_key(&tid) {
            return self.handle_borrower_stop(tid, stop);
        }
        let ended = matches!(stop, Stop::Exited(_) | Stop::Killed { .. });
        let known = self.threads.contains_key(&tid);
        let executed = stop == Stop::Event(PtraceEvent::Exec);
        // A process's first thread may be gone long before its process is. A thread that executes a
        // program gets the first thread's number.
        let of_process = self.processes.contains_key(&Pid(tid.0));
        if !(known || (ended || executed) && of_process) {
            if ended && self.unrecorded_ending.remove(&tid) {
                return Ok(());
            }
            self.early_stops.insert(tid, stop);
            if stop == Stop::Event(PtraceEvent::Exit) {
                // The new thread's process ends, and its birth may never be reported.
                return gone_is_fine(Tracee(tid).resume(0));
            }
            return Ok(());
        }
        match stop {
            Stop::Exited(_) | Stop::Killed { .. } => self.handle_thread_end(tid, stop),
            Stop::Signal(signal) => self.handle_signal_stop(tid, signal),
            Stop::Group(signal) => {
                self.with_thread(tid, |_, thread| Ok(thread.tracee().listen()?))?;
                stop_with_program(signal);
                Ok(())
            }
            Stop::Event(PtraceEvent::Stop) => {
                self.with_thread(tid, |_, thread| thread.resume_activity(0))
            }
            Stop::Event(PtraceEvent::Exit) => self.handle_exit_stop(tid),
            Stop::Event(PtraceEvent::Exec) => self.handle_execve(tid),
            Stop::Event(event @ (PtraceEvent::Clone | PtraceEvent::Fork | PtraceEvent::Vfork)) => {
                self.handle_birth(tid, event)
            }
            Stop::Event(PtraceEvent::Other(_)) => {
                self.with_thread(tid, |_, thread| Ok(thread.tracee().resume(0)?))
            }
            Stop::Call => self.handle_syscall_stop(tid),
        }
    }

    /// Handles the stop in an execve(2), after which `tid` is the only thread of its process: ends
    /// the traces of the others, and begins to record the new program.
    fn handle_execve(&mut self, tid: Tid) -> Result<(), Error> {
        let message = Tracee(tid).event_message();
        let old = message.map_or(tid, |old| Tid(i32::try_from(old).unwrap_or(tid.0)));
        let Some(thread) = self.threads.get(&old) else { return Ok(()) };
        let pid = thread.pid();
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let pointer = thread.translated.trace_pointer(process.engine.shared());
        for (&other, thread) in self.threads.iter_mut().filter(|(_, thread)| thread.pid() == pid) {
            if other == old {
                process.take_records(thread, pointer);
                process.send_kept(other);
            }
            if other != tid {
                process.thread_ended(other, None);
            }
        }
        let returned = process.take_call_return(old);
        self.threads.retain(|_, thread| thread.pid() != pid);
        let begun = self.record_new_program(tid, pid);
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.pending.report_on_resume = returned;
        }
        begun.or_else(|error| {
            self.handle_if_killed(tid, error)?;
            if let Some(process) = self.processes.get_mut(&pid) {
                process.thread_ended(tid, None);
            }
            Ok(())
        })
    }

    /// Begins to record the program that an execve(2) started, with `tid` as its only thread,
    /// stopped in that call. Resumes the thread in the cache, or stops it for the debugger.
    /// Detaches from a 32-bit program instead.
    fn record_new_program(&mut self, tid: Tid, pid: Pid) -> Result<(), Error> {
        if !runs_64_bit_code(Tracee(tid))? {
            gone_is_fine(Tracee(tid).detach(0))?;
            if let Some(process) = self.processes.get_mut(&pid) {
                process.thread_ended(tid, None);
            }
            return self.end_unrecordable(pid, "runs a 32-bit program");
        }
        finish_execve(Tracee(tid))?;
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        process.start_new_program(tid)?;
        self.add_thread(tid, pid, Place::Program)?;
        self.with_thread(tid, |process, thread| {
            if process.debugger.is_some() {
                thread.stop_with(Report::Executed);
                return Ok(());
            }
            process.trace_and_enter(thread)?;
            Ok(thread.tracee().resume(0)?)
        })
    }

    /// Handles the exit stop of a thread (`PTRACE_EVENT_EXIT`), the last moment to read its
    /// registers: ends its trace. Keeps the thread stopped if its process ends with it, or if it is
    /// the last one; otherwise resumes it, and forgets it. If all threads that are left are at
    /// their exit stops then, lets the process end ([`Self::end_if_all_at_exit`]).
    fn handle_exit_stop(&mut self, tid: Tid) -> Result<(), Error> {
        self.handle_unreported_birth(tid)?;
        let status = Tracee(tid).event_message().unwrap_or(0);
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let pid = thread.pid();
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let Ok(registers) = thread.tracee().registers() else { return Ok(()) };
        let call = (registers.orig_rax.cast_signed() >= 0).then_some(registers.orig_rax);
        let siginfo = thread.siginfo;
        let program = process.end_path_at_exit(thread, &registers);
        thread.exit_state = program
            .as_ref()
            .map(|program| final_state::read_thread_with(thread.tracee(), program, thread.siginfo))
            .map(final_state::forget_cache_address);
        process.thread_ended(tid, program.map(|program| Addr(program.rip)));
        process.write_packets()?;
        let stop = ExitStop { tid, status, call, siginfo };
        let others = || self.threads.values().filter(|t| t.pid() == pid && t.tid() != tid);
        let alive = || others().filter(|t| t.activity != Activity::AtExitStop).map(Thread::tid);
        let ends_process = process.culprit.note_exit_stop(&stop, || any_is_in_execve(pid, alive()));
        let is_kept = ends_process || alive().next().is_none();
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        if is_kept {
            thread.activity = Activity::AtExitStop;
            return self.end_if_all_at_exit(pid);
        }
        let tracee = thread.tracee();
        if let Some(thread) = self.threads.remove(&tid)
            && let Some(process) = self.processes.get_mut(&pid)
        {
            process.free_buffers(thread);
        }
        gone_is_fine(tracee.resume(0))?;
        self.end_if_all_at_exit(pid)
    }

    /// Handles the end of a thread, which is gone now. If it has the number of its process, that
    /// has ended as well, and its recording is completed.
    fn handle_thread_end(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        self.early_stops.remove(&tid);
        let pid = self.threads.get(&tid).map_or(Pid(tid.0), Thread::pid);
        // The process's other threads may have waited for this one.
        let was_awaited = self.forget_lost_thread(tid);
        if Tid(pid.0) == tid {
            return self.finish(pid, exit_of(stop));
        }
        if was_awaited { self.end_if_all_at_exit(pid) } else { Ok(()) }
    }

    /// Forgets a thread that is gone. If its exit stop was not seen, ends its trace, and returns
    /// true: its process may be complete at its exit stops now. Returns false otherwise, or if it
    /// is unknown.
    pub(super) fn forget_lost_thread(&mut self, tid: Tid) -> bool {
        let thread = self.threads.remove(&tid);
        let Some(thread) = thread.filter(|t| t.activity != Activity::AtExitStop) else {
            return false;
        };
        if let Some(process) = self.processes.get_mut(&thread.pid()) {
            process.end_lost_trace(thread);
        }
        true
    }
}

impl Process {
    /// Begins or continues the trace of a thread that is stopped outside the cache (TIP.PGE with
    /// the time), and sets it up to enter the cache at its IP. The caller resumes it.
    pub(super) fn trace_and_enter(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let ip = thread.tracee().registers()?.rip;
        self.send(thread.tid(), TraceItem::ReturnFromKernel { ip, tsc: now().0 });
        self.dispatch(thread)
    }

    /// Ends the trace of a thread that was killed without an exit stop. The records up to its last
    /// system call, at least, are kept, unless the program overwrote its trace pointer.
    pub(super) fn end_lost_trace(&mut self, mut thread: Thread) {
        let pointer = thread.translated.trace_pointer(self.engine.shared());
        if thread.buffers.holds(pointer) {
            self.take_records(&mut thread, pointer);
        }
        self.thread_ended(thread.tid(), None);
        self.free_buffers(thread);
    }

    /// Sends the last records of a thread that is at its exit stop with `registers`. Returns the
    /// program's registers at the end; `None` if they are unknown.
    fn end_path_at_exit(
        &mut self,
        thread: &mut Thread,
        registers: &Registers,
    ) -> Option<Registers> {
        let tid = thread.tid();
        if thread.translated.place == Place::Program {
            if self.engine.is_tracers(Addr(registers.rip)) {
                // The thread was killed while it made a system call for the recorder.
                return None;
            }
            if let Activity::Stepping(Some(insn)) = thread.activity
                && insn.ip.0 != registers.rip
            {
                self.send(tid, TraceItem::SteppedInsn { insn, next: registers.rip });
            }
            self.send(tid, TraceItem::EnterKernel { ip: registers.rip });
            return Some(thread.translated.own_registers(registers));
        }
        // If the program damaged the shared memory, registers that are read from there are
        // unreliable.
        let exact = (self.harm == Harm::None).then(|| self.exact_soon(thread, registers)).flatten();
        let Some(exact) = exact else {
            self.take_known_records(thread, registers);
            return None;
        };
        self.take_records(thread, exact.pointer);
        if let Some((steps, ip)) = exact.partial {
            self.send(tid, TraceItem::PartialPath { steps, ip });
            self.send(tid, TraceItem::EnterKernel { ip });
        }
        Some(exact.program)
    }

    /// Sends the records of a thread at its exit stop whose exact state is unknown: at least those
    /// up to its last system call. `registers` are those at the stop, in the cache.
    fn take_known_records(&mut self, thread: &mut Thread, registers: &Registers) {
        let in_register = self.engine.may_have_trace_pointer(registers).then_some(registers.r11);
        let kept = thread.translated.trace_pointer(self.engine.shared());
        let pointers = [in_register, Some(kept)];
        let pointer = pointers.into_iter().flatten().find(|pointer| thread.buffers.holds(*pointer));
        if let Some(pointer) = pointer {
            self.take_records(thread, pointer);
        }
    }
}

/// Returns the stop that interrupted [`Process::make_exact`], which its caller has to handle;
/// `None` if there was none.
pub(super) fn disturbing_stop(exactness: Exactness) -> Option<Stop> {
    match exactness {
        Exactness::Exact => None,
        Exactness::Disturbed(stop) => Some(stop),
    }
}
