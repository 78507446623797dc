//! Resumes a program under a debugger, and stops all its threads again at the next event:
//! [`Engine::go`]. The steps of a request are those of `crate::capture::debugged`.
//!
//! A single step is executed natively, outside the cache, with these exceptions, which run in the
//! cache up to the step's end: a SYSCALL, a step that begins with a signal, and a thread that waits
//! for its vfork(2) child. In a native step, the thread runs alone. In case it waits for another
//! thread, the others have their *turn* in one step of [`STEPS_PER_TURN`].
//!
//! A *newborn*, a child that is not recorded yet (`live`), runs natively, without the program.

use super::engine::Engine;
use super::process::Process;
use super::thread::{Activity, Thread};
use crate::capture::Error;
use crate::capture::clock::now;
use crate::capture::contract::{Go, Report};
use crate::capture::culprit::Culprit;
use crate::capture::debugged::Debugged;
use crate::capture::delivery::keeps_thread_in_place;
use crate::capture::error::gone_is_fine;
use crate::capture::periodic_signal::PeriodicSignal;
use crate::capture::signals::Forwarding;
use crate::common::{Addr, Pid, Tid};
use crate::encode::TraceItem;
use crate::recording::Exit;
use crate::tracee::debug_registers::slots;
use crate::tracee::dispositions;
use std::collections::BTreeMap;
use std::time::Duration;

/// The period at which the recorder checks for an interrupt, and saves the records so far, while
/// the program runs.
const CHECK_PERIOD: Duration = Duration::from_millis(50);
/// While one thread is single-stepped, the other threads may run during each step whose number in a
/// row is a multiple of this, since the thread may wait for them.
const STEPS_PER_TURN: u32 = 256;
/// The bytes of the SYSCALL instruction.
const SYSCALL_INSN: [u8; 2] = [0x0f, 0x05];

impl Engine {
    /// Runs threads as `go` requests until an event, stops all again, and returns the event with
    /// its thread. Resumes none if an event is left to report. Polls `interrupted`, and if that
    /// returns true, stops with [`Report::Interrupted`]. If `go.thread` is a newborn, runs that
    /// child alone. If the program is gone, or all its threads are at their exit stops, lets it
    /// end, and returns its end.
    pub(super) fn go(
        &mut self,
        go: &Go,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(Tid, Report), Error> {
        if self.newborns.get(Pid(go.thread.0)).is_some() {
            return self.run_newborn(Pid(go.thread.0), go, interrupted);
        }
        if let Some(end) = self.take_end()? {
            return Ok(end);
        }
        let resumed = match self.resume_requested(go)? {
            ResumeResult::Resumed(resumed) => resumed,
            ResumeResult::EventFirst(tid, report) => {
                self.newborns.mark_reported(report);
                return Ok((tid, report));
            }
        };
        let _forwarding = Forwarding::for_request(&self.request, self.program);
        let _periodic_signal = PeriodicSignal::start(CHECK_PERIOD);
        let report = loop {
            if let Some(report) = self.take_report(go.thread, resumed == ResumedThreads::One) {
                break report;
            }
            if interrupted() {
                break (go.thread, Report::Interrupted);
            }
            if PeriodicSignal::take_due() {
                self.save_so_far()?;
                self.end_without_first_threads()?;
            }
            if let Some((tid, stop)) = self.wait()? {
                self.handle(tid, stop)?;
            }
        };
        self.halt_all()?;
        self.newborns.mark_reported(report.1);
        if let Some(debugger) =
            self.processes.get_mut(&self.program).and_then(|p| p.debugger.as_mut())
        {
            (debugger.stepping, debugger.step_ends_at) = (None, None);
        }
        Ok(self.report_after_halt(go, report))
    }

    /// Resumes the threads that `go` requests, and does not wait. Resumes none if one of them has
    /// an event to report first.
    fn resume_requested(&mut self, go: &Go) -> Result<ResumeResult, Error> {
        if let Some((tid, report)) = self.take_report_on_resume(go) {
            return Ok(ResumeResult::EventFirst(tid, report));
        }
        if let Some((tid, report)) = self.take_unreported(go)? {
            return Ok(ResumeResult::EventFirst(tid, report));
        }
        let call_end = self.end_of_next_syscall(go)?;
        self.set_chosen_signals(go);
        let is_native_step = call_end.is_none() && self.is_native_step(go);
        let Some(others_run) = self.apply_request(go, call_end, is_native_step)? else {
            return Ok(ResumeResult::Resumed(ResumedThreads::All));
        };
        if others_run && let Some((tid, report)) = self.take_report_of_others(go) {
            return Ok(ResumeResult::EventFirst(tid, report));
        }
        if is_native_step {
            self.step_one_natively(go.thread)?;
        }
        self.resume_stopped(go, others_run)?;
        Ok(ResumeResult::Resumed(if others_run {
            ResumedThreads::All
        } else {
            ResumedThreads::One
        }))
    }

    /// Notes the signals of `go` in their threads, to be delivered when these are resumed: another
    /// thread's event may be reported before. A thread keeps a signal that was chosen earlier if
    /// `go` has none for it.
    fn set_chosen_signals(&mut self, go: &Go) {
        let others = go.signals.iter().copied().filter(|(tid, _)| *tid != go.thread);
        let own = Some((go.thread, go.signal)).filter(|(_, signal)| *signal != 0);
        for (tid, signal) in others.chain(own) {
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.chosen_signal = signal;
            }
        }
    }

    /// Returns true if `go` is a step of a thread that is stopped outside the cache and in no call,
    /// and gets no signal, as [`Self::set_chosen_signals`] noted before. The caller excludes steps
    /// of a SYSCALL.
    fn is_native_step(&self, go: &Go) -> bool {
        let is_stopped = |t: &Thread| {
            t.activity == Activity::Stopped && !t.waits_for_child && t.chosen_signal == 0
        };
        go.step && self.threads.get(&go.thread).is_some_and(is_stopped)
    }

    /// Copies the request to the debugger's session: stops, caught calls, signals; sets watchpoints
    /// in all stopped threads. `call_end` is the address after the system call that is to be
    /// stepped; `is_native_step` is true for a step that is to be executed outside the cache.
    /// Returns whether threads other than the requested one run as well; `None` if the program is
    /// gone.
    fn apply_request(
        &mut self,
        go: &Go,
        call_end: Option<u64>,
        is_native_step: bool,
    ) -> Result<Option<bool>, Error> {
        let Some(process) = self.processes.get_mut(&self.program) else { return Ok(None) };
        process.set_catches(&go.catches);
        process.note_caught_calls(&self.threads);
        let debugger = process.debugger.get_or_insert_default();
        debugger.stops = go.stops.iter().map(|addr| addr.0).collect();
        debugger.stepping = go.step.then_some(go.thread);
        debugger.others_stay = go.locked;
        debugger.step_ends_at = call_end;
        (debugger.passed, debugger.passed_to_stepper) = (go.passed, go.passed_to_stepper);
        debugger.forks = go.forks;
        debugger.slots = slots(&go.watches);
        let program = self.program;
        let of_program = self.threads.values_mut().filter(|thread| thread.pid() == program);
        for thread in of_program.filter(|thread| thread.activity == Activity::Stopped) {
            gone_is_fine(thread.watched.set(thread.tracee(), &debugger.slots))?;
        }
        debugger.steps_in_a_row = if is_native_step { debugger.steps_in_a_row + 1 } else { 0 };
        // The others run now and then, since the stepping thread may wait for them.
        let others_run = !go.locked
            && (!is_native_step || debugger.steps_in_a_row.is_multiple_of(STEPS_PER_TURN));
        debugger.holds_new_threads = !others_run;
        let stops = debugger.stops();
        process.engine.set_stops(&stops);
        Ok(Some(others_run))
    }

    /// Lets a thread that is stopped outside the cache execute one instruction natively, without a
    /// signal. Does not wait.
    fn step_one_natively(&mut self, tid: Tid) -> Result<(), Error> {
        self.with_thread(tid, |process, thread| {
            let ip = thread.tracee().registers()?.rip;
            thread.held_signal = 0;
            thread.pending.note_resumed(0);
            process.send(thread.tid(), TraceItem::ReturnFromKernel { ip, tsc: now().0 });
            process.step_natively(thread, Addr(ip))
        })?;
        Ok(())
    }

    /// Resumes the program's stopped threads, each with its chosen signal; only the requested one
    /// if not `others_run`.
    fn resume_stopped(&mut self, go: &Go, others_run: bool) -> Result<(), Error> {
        // A thread that steps natively is no longer `Stopped`, so it is not resumed here.
        let goes_on = |thread: &&Thread| others_run || thread.tid() == go.thread;
        let program = self.program;
        let of_program = self.threads.values().filter(|thread| thread.pid() == program);
        let stopped = of_program.filter(|thread| thread.activity == Activity::Stopped);
        let tids: Vec<Tid> = stopped.filter(goes_on).map(Thread::tid).collect();
        for tid in tids {
            self.with_thread(tid, Process::resume_as_chosen)?;
        }
        Ok(())
    }

    /// Returns the address after the next instruction of the thread to step if that is a SYSCALL,
    /// which it makes from the cache; `None` for other instructions, or if `go` is no step.
    fn end_of_next_syscall(&self, go: &Go) -> Result<Option<u64>, Error> {
        let (Some(thread), true) = (self.threads.get(&go.thread), go.step) else { return Ok(None) };
        if thread.activity == Activity::WaitingForChild {
            return Ok(None);
        }
        let ip = thread.tracee().registers()?.rip;
        let mut bytes = [0; SYSCALL_INSN.len()];
        let Some(process) = self.processes.get(&self.program) else { return Ok(None) };
        let known = process.engine.memory.read(Addr(ip), &mut bytes);
        let is_call = known == bytes.len() && bytes == SYSCALL_INSN;
        Ok(is_call.then(|| ip + SYSCALL_INSN.len() as u64))
    }

    /// Interrupts all running threads, and waits until they are stopped outside the cache, or at
    /// their exit stops. Other stops in between are handled, and may add unreported events. Threads
    /// that wait for a vfork(2) child stay in the kernel.
    pub(super) fn halt_all(&mut self) -> Result<(), Error> {
        for thread in self.threads.values_mut().filter(|thread| is_to_be_stopped(thread)) {
            thread.was_never_interrupted = false;
            gone_is_fine(thread.tracee().interrupt())?;
        }
        while self.threads.values().any(is_to_be_stopped) {
            let Some((tid, stop)) = self.wait()? else { continue };
            if !self.move_out_if_interrupted(tid, stop, Process::halt)? {
                self.handle(tid, stop)?;
            }
        }
        Ok(())
    }
}

impl Debugged for Engine {
    type Thread = Thread;

    fn program(&self) -> Pid {
        self.program
    }

    fn threads(&self) -> &BTreeMap<Tid, Thread> {
        &self.threads
    }

    fn threads_mut(&mut self) -> &mut BTreeMap<Tid, Thread> {
        &mut self.threads
    }

    fn culprit(&self) -> Option<Culprit> {
        self.processes.get(&self.program).map(|process| process.culprit)
    }

    fn exit(&self) -> Option<Exit> {
        self.exit
    }

    fn let_program_end(&mut self) -> Result<(), Error> {
        for thread in self.threads.values().filter(|thread| thread.pid() == self.program) {
            gone_is_fine(thread.tracee().resume(0))?;
        }
        while !self.is_gone() {
            if let Some((tid, stop)) = self.wait()? {
                self.handle(tid, stop)?;
            }
        }
        Ok(())
    }

    fn detach_from_program(&mut self) -> Result<(), Error> {
        self.detach_from(self.program)
    }
}

/// The result of [`Engine::resume_requested`].
enum ResumeResult {
    /// These threads were resumed.
    Resumed(ResumedThreads),
    /// This thread had an event to report, so none was resumed.
    EventFirst(Tid, Report),
}

/// The threads of the program that were resumed: all, or only the one that the request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResumedThreads {
    All,
    One,
}

/// Returns true if a thread is still to be stopped, when all are being stopped for the debugger.
fn is_to_be_stopped(thread: &Thread) -> bool {
    !matches!(thread.activity, Activity::Stopped | Activity::AtExitStop | Activity::WaitingForChild)
}

impl Process {
    /// Resumes a stopped thread in the cache, with the signal that the debugger chose for it. Drops
    /// the signal for which it stopped, unless that was chosen.
    fn resume_as_chosen(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let held = std::mem::take(&mut thread.held_signal);
        let signal = std::mem::take(&mut thread.chosen_signal);
        thread.pending.note_resumed(signal);
        let ip = thread.tracee().registers()?.rip;
        // The call at which the thread stopped is not caught again, unless the thread was moved.
        thread.caught_call = thread.caught_call.filter(|(caught, _)| *caught == ip);
        if signal == 0 {
            return self.resume_in_cache(thread);
        }
        // If the thread stopped for a signal (`held`), ptrace(2) can deliver one here. One that is
        // ignored, or that stops the process, is sent anew below instead, and delivered in the
        // cache.
        let known = dispositions(thread.tid())?;
        if held != 0 && !keeps_thread_in_place(signal, known) {
            let caught = known.caught & 1 << (signal - 1).clamp(0, 63) != 0;
            return thread.deliver(signal, caught);
        }
        // In all other cases the signal is sent.
        thread.pending.sent_signal = signal;
        thread.tracee().send(thread.pid(), signal)?;
        if held != 0 {
            // If a signal comes while gdb steps over a breakpoint, gdb expects a stop there after
            // the signal, even if the signal has no effect. `resume_in_cache` would pass the
            // breakpoint.
            self.trace_and_enter(thread)?;
            thread.activity = Activity::Running;
            return Ok(thread.tracee().resume(0)?);
        }
        self.resume_in_cache(thread)
    }
}
