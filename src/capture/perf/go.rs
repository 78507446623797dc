//! Resumes a program under a debugger, and stops all its threads again. Where threads are to stop,
//! the program has INT3s while it runs (`debugger`). The steps of a request are those of
//! `crate::capture::debugged`, and resuming is this:
//!
//! 1. If the requested thread steps over an instruction that makes no system call, or is at an
//!    address where threads are to stop, it first executes that instruction alone, before INT3s are
//!    inserted (it *passes* it). Of a system call, it executes only the entry. A step ends with
//!    that; once in [`STEPS_PER_TURN`] steps in a row, the other threads run for a moment, in case
//!    the thread waits for them.
//! 2. The INT3s are inserted, and all threads that may run are resumed, until one has an event.
//! 3. The threads are *halted*: all are interrupted, and wait for the debugger as
//!    [`Activity::Stopped`]. The INT3s are removed.

use super::debug_session::Debugger;
use super::engine::Engine;
use super::thread::{Activity, Thread};
use crate::capture::Error;
use crate::capture::contract::{Go, Report};
use crate::capture::culprit::Culprit;
use crate::capture::debugged::Debugged;
use crate::capture::error::gone_is_fine;
use crate::capture::signals::Forwarding;
use crate::common::{Addr, Pid, Tid};
use crate::recording::Exit;
use crate::tracee::debug_registers::slots;
use crate::tracee::{PtraceEvent, Stop, Tracee, wait_any};
use std::collections::BTreeMap;
use std::time::Duration;

/// The number of single steps in a row after which the other threads run for [`OTHERS_RUN_TIME`].
const STEPS_PER_TURN: u32 = 256;
/// The time for which the other threads run.
const OTHERS_RUN_TIME: Duration = Duration::from_millis(1);
/// The pause between two checks for a stop.
const CHECK_PERIOD: Duration = Duration::from_micros(300);
/// The number of checks for a stop before the first pause.
const CHECKS_BEFORE_PAUSE: u32 = 64;

impl Engine<'_> {
    /// Resumes the program as requested until there is an event, and stops all its threads again.
    /// Returns the event with its thread. Even after an error, threads are halted and INT3s
    /// removed.
    pub(super) fn go(
        &mut self,
        go: &Go,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(Tid, Report), Error> {
        if let Some(end) = self.take_end()? {
            return Ok(end);
        }
        let _forwarding = Forwarding::for_request(&self.request, self.program);
        let report = self.resume_until_event(go, interrupted);
        let halted = self.halt_all();
        self.remove_int3s();
        let report = report.and_then(|report| halted.map(|()| report))?;
        Ok(self.report_after_halt(go, report))
    }

    /// Resumes the program as requested until there is an event, and returns it. The caller stops
    /// the threads.
    fn resume_until_event(
        &mut self,
        go: &Go,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(Tid, Report), Error> {
        self.set_all_watchpoints(go)?;
        let debugger = self.debugger.get_or_insert_default();
        debugger.go = Some(go.clone());
        let mut has_signal = false;
        if let Some(owed) = self.take_report_on_resume(go) {
            return Ok(owed);
        }
        if let Some(unreported) = self.take_unreported(go)? {
            return Ok(unreported);
        }
        if let Some(thread) = self.threads.get_mut(&go.thread) {
            // Keep the signal in the thread: another thread's event may be reported before this one
            // runs.
            if go.signal != 0 {
                thread.chosen_signal = go.signal;
            }
            has_signal = thread.chosen_signal != 0;
        }
        for (tid, signal) in &go.signals {
            if let Some(thread) = self.threads.get_mut(tid).filter(|t| t.tid() != go.thread) {
                thread.chosen_signal = *signal;
            }
        }
        let step = self.next_step(go.thread).unwrap_or_default();
        let ip = Tracee(go.thread).instruction_pointer().unwrap_or(Addr(0));
        let caught = self.threads.get(&go.thread).and_then(|thread| thread.stopped_before_call);
        if let Some(number) = step.call.filter(|call| go.catches.has(*call) && caught != Some(ip))
            && let Some(thread) = self.threads.get_mut(&go.thread).filter(|_| !has_signal)
        {
            thread.stopped_before_call = Some(ip);
            return Ok((go.thread, Report::Call(number)));
        }
        let steps_alone = go.step && !has_signal && step.call.is_none();
        if !go.locked
            && !steps_alone
            && let Some(report) = self.take_report_of_others(go)
        {
            return Ok(report);
        }
        let runs_alone = go.locked || steps_alone;
        // Step over an INT3 before it is inserted.
        let passes = step.call.is_none() && (go.step || go.stops.contains(&ip) && !has_signal);
        if passes {
            if let Some(debugger) = &mut self.debugger {
                debugger.stepping = Some((go.thread, step));
            }
            self.resume_as_chosen(go.thread)?;
            let report = self.wait_for_event(go.thread, true, interrupted)?;
            let goes_on = !go.step && report == (go.thread, Report::Stepped);
            if !goes_on {
                self.let_others_run_if_due(steps_alone && !go.locked)?;
                return Ok(report);
            }
        } else if step.call.is_some() && go.stops.contains(&ip) && !has_signal {
            self.enter_call_without_int3s(go.thread, interrupted)?;
        }
        if go.step
            && !passes
            && let Some(debugger) = &mut self.debugger
        {
            debugger.stepping = Some((go.thread, step));
        }
        self.insert_int3s();
        let goes = |thread: &&Thread| !runs_alone || thread.tid() == go.thread;
        let stopped = self.threads.values().filter(|thread| thread.activity == Activity::Stopped);
        let tids: Vec<Tid> = stopped.filter(goes).map(Thread::tid).collect();
        tids.into_iter().try_for_each(|tid| self.resume_as_chosen(tid))?;
        self.wait_for_event(go.thread, runs_alone, interrupted)
    }

    /// Lets one thread enter the system call that it is about to make at an address where threads
    /// are to stop, before the INT3s are inserted. Drops the signal that stopped it. Returns early
    /// if the thread stops for something else, or if `interrupted` returns true: the thread may run
    /// then.
    fn enter_call_without_int3s(
        &mut self,
        tid: Tid,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let tracee = thread.tracee;
        // The signal that stopped the thread is dropped.
        thread.held_signal = 0;
        thread.activity = Activity::Running;
        gone_is_fine(self.pmu.resume(tracee, 0, true))?;
        loop {
            let Some((other, stop)) = next_stop(interrupted)? else { return Ok(()) };
            if other == tid && stop == Stop::Call {
                // The call begins: the thread's IP is after the instruction.
                self.pmu.is_internal_stop(tid, stop)?;
                let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
                let number = thread.tracee.registers().map_or(0, |registers| registers.orig_rax);
                (thread.current_call, thread.stopped_before_call, thread.activity) =
                    (Some(number), None, Activity::Stopped);
                return Ok(());
            }
            self.handle_for_debugger(other, stop)?;
            if !self.threads.get(&tid).is_some_and(|thread| thread.activity == Activity::Running) {
                return Ok(());
            }
        }
    }

    /// Counts a native single step, or starts again at 0 unless `steps_alone`. After each
    /// [`STEPS_PER_TURN`] steps, lets the other threads run for [`OTHERS_RUN_TIME`], since the
    /// stepping thread may wait for them. The caller stops them.
    fn let_others_run_if_due(&mut self, steps_alone: bool) -> Result<(), Error> {
        let Some(debugger) = &mut self.debugger else { return Ok(()) };
        debugger.steps_in_a_row = if steps_alone { debugger.steps_in_a_row + 1 } else { 0 };
        let Some(go) = debugger.go.as_ref().filter(|_| debugger.steps_in_a_row >= STEPS_PER_TURN)
        else {
            return Ok(());
        };
        let thread = go.thread;
        debugger.steps_in_a_row = 0;
        self.insert_int3s();
        let stopped = self.threads.values().filter(|thread| thread.activity == Activity::Stopped);
        // Threads with unreported events stay stopped.
        let others =
            stopped.filter(|other| other.tid() != thread && other.pending.unreported.is_none());
        let tids: Vec<Tid> = others.map(Thread::tid).collect();
        tids.into_iter().try_for_each(|tid| self.resume_as_chosen(tid))?;
        std::thread::sleep(OTHERS_RUN_TIME);
        Ok(())
    }

    /// Resumes a stopped thread, with the signal chosen for it. If job control had stopped it
    /// before it was halted, puts it back into that stop instead.
    fn resume_as_chosen(&mut self, tid: Tid) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let held = std::mem::take(&mut thread.held_signal);
        let mut signal = std::mem::take(&mut thread.chosen_signal);
        thread.pending.note_resumed(signal);
        let ip = thread.tracee.instruction_pointer().unwrap_or(Addr(0));
        thread.stopped_before_call = thread.stopped_before_call.filter(|caught| *caught == ip);
        if signal != 0 && held == 0 {
            // ptrace(2) can inject a signal only into a thread that stopped for one.
            thread.pending.sent_signal = signal;
            gone_is_fine(thread.tracee.send(thread.pid, signal))?;
            signal = 0;
        }
        if std::mem::take(&mut thread.returns_to_group_stop) {
            thread.activity = Activity::GroupStopped;
            return gone_is_fine(thread.tracee.listen());
        }
        self.resume_for_debugger(tid, signal)
    }

    /// Handles stops until there is an event to report, and returns it; only an event of `thread`
    /// if `alone`. Returns [`Report::Interrupted`] if `interrupted` returns true.
    fn wait_for_event(
        &mut self,
        thread: Tid,
        alone: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(Tid, Report), Error> {
        loop {
            if let Some(report) = self.take_report(thread, alone) {
                return Ok(report);
            }
            let Some((tid, stop)) = next_stop(interrupted)? else {
                return Ok((thread, Report::Interrupted));
            };
            self.handle_for_debugger(tid, stop)?;
            for process in self.processes.values() {
                super::tap::lock(&process.recording).take_failure()?;
            }
        }
    }

    /// Handles a stop while a debugger controls the program. Resumes the thread, or notes the event
    /// for which it stays stopped.
    pub(super) fn handle_for_debugger(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        let steps = self.debugger.as_ref().and_then(|debugger| debugger.stepping);
        if self.pmu.is_internal_stop(tid, stop)? {
            let Some(thread) = self.threads.get(&tid) else { return Ok(()) };
            let tracee = thread.tracee;
            return match steps.filter(|(stepping, _)| *stepping == tid) {
                Some(_) => gone_is_fine(self.pmu.step(tracee, 0)),
                None => self.resume_for_debugger(tid, 0),
            };
        }
        let Some(activity) = self.threads.get(&tid).map(|thread| thread.activity) else {
            return self.handle(tid, stop);
        };
        match stop {
            Stop::Signal(libc::SIGTRAP) if self.handle_sigtrap(tid)? => Ok(()),
            Stop::Call => self.handle_call_stop_for_debugger(tid),
            Stop::Group(_) if self.is_halting() => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    (thread.activity, thread.returns_to_group_stop) = (Activity::Stopped, true);
                }
                Ok(())
            }
            Stop::Event(PtraceEvent::Stop) if activity == Activity::New => self.handle(tid, stop),
            // A trap that occurred at the same time is reported first.
            Stop::Event(PtraceEvent::Stop) if Tracee(tid).has_pending_trap(self.program) => {
                self.resume_for_debugger(tid, 0)
            }
            Stop::Event(PtraceEvent::Stop) if self.is_halting() => self.mark_halted(tid),
            stop => self.handle(tid, stop),
        }
    }

    /// Returns true while all threads are being stopped for the debugger.
    fn is_halting(&self) -> bool {
        self.debugger.as_ref().is_some_and(|debugger| debugger.is_halting)
    }

    /// Interrupts all running threads, waits until they are stopped, and forgets the request.
    fn halt_all(&mut self) -> Result<(), Error> {
        let Some(debugger) = &mut self.debugger else { return Ok(()) };
        debugger.is_halting = true;
        for thread in self.threads.values().filter(|thread| is_not_stopped(thread)) {
            gone_is_fine(thread.tracee.interrupt())?;
        }
        while self.threads.values().any(is_not_stopped) {
            let Some((tid, stop)) = next_stop(&|| false)? else { continue };
            self.handle_for_debugger(tid, stop)?;
        }
        if let Some(debugger) = &mut self.debugger {
            (debugger.is_halting, debugger.stepping, debugger.go) = (false, None, None);
        }
        Ok(())
    }

    /// Sets the debug registers of all stopped threads to the requested watchpoints.
    fn set_all_watchpoints(&mut self, go: &Go) -> Result<(), Error> {
        let slots = slots(&go.watches);
        self.debugger.get_or_insert_with(Debugger::default).slots = slots;
        let stopped = self.threads.values().filter(|thread| thread.activity == Activity::Stopped);
        let tids: Vec<Tid> = stopped.map(Thread::tid).collect();
        tids.into_iter().try_for_each(|tid| self.set_watchpoints(tid))
    }

    /// Handles stops until the program is gone.
    fn wait_until_gone(&mut self) -> Result<(), Error> {
        while !self.is_gone() {
            let Some((tid, stop)) = next_stop(&|| false)? else { continue };
            if self.pmu.is_internal_stop(tid, stop)? {
                gone_is_fine(self.pmu.resume(Tracee(tid), 0, false))?;
            } else {
                self.handle(tid, stop)?;
            }
        }
        Ok(())
    }

    /// Kills the program, and waits until it has ended. Does nothing if it is gone.
    pub(super) fn kill(&mut self) -> Result<(), Error> {
        if self.is_gone() {
            return Ok(());
        }
        Tracee::kill_process(self.program);
        self.debugger = None;
        self.let_program_end()
    }
}

impl Debugged for Engine<'_> {
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
        for thread in self.threads.values().filter(|thread| thread.activity == Activity::AtExitStop)
        {
            gone_is_fine(thread.tracee.resume(0))?;
        }
        self.wait_until_gone()
    }

    fn detach_from_program(&mut self) -> Result<(), Error> {
        self.remove_int3s();
        self.debugger = None;
        for thread in self.threads.values() {
            gone_is_fine(thread.watched.end(thread.tracee))?;
        }
        self.detach_process(self.program)
    }
}

/// Returns true if a thread runs, is in a group stop, or is at a stop that was not handled yet.
fn is_not_stopped(thread: &Thread) -> bool {
    !matches!(thread.activity, Activity::Stopped | Activity::AtExitStop)
}

/// Waits for the next stop of any thread. Returns `None` if `interrupted` returns true first.
fn next_stop(interrupted: &dyn Fn() -> bool) -> Result<Option<(Tid, Stop)>, Error> {
    let mut checks = 0_u32;
    loop {
        if let Some(stop) = wait_any(false)? {
            return Ok(Some(stop));
        }
        checks = checks.saturating_add(1);
        if checks < CHECKS_BEFORE_PAUSE {
            std::thread::yield_now();
            continue;
        }
        if interrupted() {
            return Ok(None);
        }
        std::thread::sleep(CHECK_PERIOD);
    }
}
