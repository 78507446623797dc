//! Lets a program under a debugger go on, and stops all of it again. The steps of a request are
//! those of `crate::capture::debugged`.
//!
//! Between two requests of the debugger, every thread is stopped: *halted* in its system call
//! (`is_halted_in_call`), in the program, or at its exit stop; only a thread that waits for a
//! vfork(2) child stays in the kernel. An event that a thread has for the debugger waits in
//! `debug.pending` until it is reported; one request reports one event.
//!
//! During a request, the recorder's loop (`engine`) runs one thread at a time. Halted threads are
//! first resumed in their calls: the requested one at once, the others when they may run, or when
//! the requested one cannot go on without them. A step of a thread that is in no call, and gets no
//! signal, runs that thread alone, but for one in [`LONE_STEPS`].

use super::debug_session::Debugger;
use super::engine::ExactRecorder;
use super::process::Process;
use super::thread::{Activity, Thread};
use crate::capture::Error;
use crate::capture::contract::{Go, Report};
use crate::capture::culprit::Culprit;
use crate::capture::debugged::Debugged;
use crate::capture::error::gone_is_fine;
use crate::capture::periodic_signal::PeriodicSignal;
use crate::capture::signals::Forwarding;
use crate::common::{Pid, Tid};
use crate::recording::Exit;
use crate::tracee::debug_registers::slots;
use crate::tracee::{PtraceEvent, Stop, Tracee, wait_for, wait_interruptibly};
use std::collections::BTreeMap;
use std::time::Duration;

/// The period at which the recorder checks, while the program runs, if the user interrupts it.
const INTERRUPT_CHECK_PERIOD: Duration = Duration::from_millis(50);
/// The number of steps in a row by one thread alone after which the others may run during a step.
const LONE_STEPS: u32 = 256;

impl ExactRecorder {
    /// Lets the program go on as `go` asks until a thread has an event or `interrupted` returns
    /// true, then stops all threads. Blocks until then. Returns the event to report, with its
    /// thread. An event that was not reported yet is returned at once, without running the program.
    /// Logs the debugger's changes before the program runs.
    pub(super) fn go(
        &mut self,
        go: &Go,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(Tid, Report), Error> {
        if let Some(end) = self.take_end()? {
            return Ok(end);
        }
        if let Some(report) = self.take_report_on_resume(go) {
            return Ok(report);
        }
        if let Some(report) = self.take_unreported(go)? {
            return Ok(report);
        }
        self.log_changes()?;
        let others_run = self.apply_request(go)?;
        if others_run && let Some(report) = self.take_report_of_others(go) {
            return Ok(report);
        }
        let _forwarding = Forwarding::for_request(&self.request, self.pid);
        let _periodic_signal = PeriodicSignal::start(INTERRUPT_CHECK_PERIOD);
        self.resume_halted(go.thread)?;
        self.let_vfork_child_run()?;
        let mut are_released = false;
        let news = loop {
            if let Some(news) = self.take_report(go.thread, !others_run) {
                break news;
            }
            if interrupted() {
                break (go.thread, Report::Interrupted);
            }
            self.flush_if_due()?;
            let is_blocked = self.threads.get(&go.thread).is_none_or(|thread| !thread.can_go());
            if !are_released && !go.locked && (others_run || is_blocked) {
                self.resume_all_halted()?;
                are_released = true;
            }
            self.advance_next_thread()?;
        };
        self.halt_all()?;
        if let Some(debugger) = &mut self.debugger {
            (debugger.stepping, debugger.preferred_thread) = (None, None);
        }
        Ok(self.report_after_halt(go, news))
    }

    /// Applies the debugger's request to the program and its threads: its stops, watched memory,
    /// signals (which may be sent now), and the thread to step. Resumes no thread. Returns true if
    /// all threads may run, and not only `go.thread`.
    fn apply_request(&mut self, go: &Go) -> Result<bool, Error> {
        if let Some(thread) = self.threads.get_mut(&go.thread)
            && go.signal != 0
        {
            // Kept, since another thread's event may be reported before this one goes on.
            thread.debug.chosen_signal = go.signal;
        }
        for (tid, signal) in &go.signals {
            if let Some(thread) = self.threads.get_mut(tid).filter(|t| t.tid() != go.thread) {
                thread.debug.chosen_signal = *signal;
            }
        }
        let runs = |thread: &Thread| {
            matches!(thread.activity, Activity::Runs) && thread.debug.chosen_signal == 0
        };
        // A step over an instruction, without a signal, needs no other thread.
        let steps_alone = go.step && self.threads.get(&go.thread).is_some_and(runs);
        let Some(debugger) = &mut self.debugger else { return Ok(true) };
        debugger.lone_steps = if steps_alone { debugger.lone_steps.wrapping_add(1) } else { 0 };
        // The thread may wait for the others.
        let is_turn_of_others = debugger.lone_steps.is_multiple_of(LONE_STEPS);
        let others_run = !go.locked && (!steps_alone || is_turn_of_others);
        let lone_steps = debugger.lone_steps;
        let is_preferred = go.locked || go.step && !(steps_alone && is_turn_of_others);
        *debugger = Debugger {
            stops: go.stops.iter().map(|addr| addr.0).collect(),
            stepping: go.step.then_some(go.thread),
            preferred_thread: is_preferred.then_some(go.thread),
            is_locked: go.locked,
            passed: go.passed,
            passed_to_stepper: go.passed_to_stepper,
            catches: go.catches.clone(),
            forks: go.forks,
            watch_slots: slots(&go.watches),
            lone_steps,
            is_saved: false,
        };
        self.apply_debugger_stops();
        self.prepare_threads(go, others_run)?;
        Ok(others_run)
    }

    /// Prepares the threads for a request: sets their debug registers, and lets each go on from a
    /// stop at its current address. Of those that may run, forgets the events that were not
    /// reported, and sends the chosen signals that cannot be delivered at a signal's stop.
    fn prepare_threads(&mut self, go: &Go, others_run: bool) -> Result<(), Error> {
        let slots = self.debugger.as_ref().map(|d| d.watch_slots.clone()).unwrap_or_default();
        let pid = self.pid;
        for (tid, thread) in &mut self.threads {
            if matches!(thread.activity, Activity::AtExitStop) {
                continue;
            }
            gone_is_fine(thread.debug.watched.set(thread.tracee(), &slots))?;
            let runs = matches!(thread.activity, Activity::Runs);
            let ip = thread.tracee().instruction_pointer().ok();
            // gdb, which steps over a breakpoint as the signal comes, inserts one for when the
            // signal is delivered, even if nothing happens then.
            let gets_held_signal =
                thread.debug.held_signal.is_some() && thread.debug.chosen_signal != 0;
            thread.debug.skipped_stop = ip.filter(|_| runs && !gets_held_signal).map(|ip| ip.0);
            let is_sent = thread.debug.held_signal.is_none() && thread.debug.chosen_signal != 0;
            if others_run || *tid == go.thread {
                let signal = thread.debug.chosen_signal;
                thread.debug.pending.note_resumed(signal);
                if is_sent {
                    // Only a thread that stopped for a signal can be given one.
                    thread.debug.chosen_signal = 0;
                    thread.debug.pending.sent_signal = signal;
                    gone_is_fine(thread.tracee().send(pid, signal))?;
                }
            }
        }
        Ok(())
    }

    /// Sets the debugger's stops, and whether it watches system calls, in the code cache: for each
    /// request, and for a program that has just begun. Does nothing without a debugger.
    pub(super) fn apply_debugger_stops(&mut self) {
        if let (Some(debugger), Some(process)) = (&self.debugger, &mut self.process) {
            process.engine.watch_calls(debugger.watches_calls());
            process.engine.set_stops(&debugger.stops);
        }
    }

    /// Resumes a thread that was halted in its system call. Does nothing for other threads: the
    /// recorder's loop resumes those.
    fn resume_halted(&mut self, tid: Tid) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        if std::mem::take(&mut thread.debug.is_halted_in_call) {
            gone_is_fine(thread.tracee().step(0))?;
        }
        Ok(())
    }

    /// Resumes all threads that were halted in their system calls.
    fn resume_all_halted(&mut self) -> Result<(), Error> {
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        tids.into_iter().try_for_each(|tid| self.resume_halted(tid))
    }

    /// Stops all threads: those that execute the program at an exact place in the program, and the
    /// others in their system calls. Calls that are done by then are finished and logged.
    pub(super) fn halt_all(&mut self) -> Result<(), Error> {
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        for tid in tids {
            self.halt(tid)?;
        }
        Ok(())
    }

    /// Stops a thread: takes it out of the cache to an exact place if it executes the program,
    /// otherwise halts it in its system call. Finishes a call that is done by then, and handles a
    /// signal that came. Does not stop a thread that waits for its child (vfork(2)).
    fn halt(&mut self, tid: Tid) -> Result<(), Error> {
        self.with_thread(tid, Process::take_out_of_cache)?;
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let is_stopped = thread.noted_stop.is_some() || thread.debug.held_signal.is_some();
        let Some(current) = thread.current_call().filter(|_| !thread.debug.is_halted_in_call)
        else {
            return Ok(());
        };
        let waits = |process: &Process| process.waits_for_child(&current.call);
        if !is_stopped && self.process.as_ref().is_some_and(waits) {
            return Ok(());
        }
        if !is_stopped {
            gone_is_fine(thread.tracee().interrupt())?;
            let stop = wait_for(tid)?;
            if stop == Stop::Event(PtraceEvent::Stop) {
                thread.debug.is_halted_in_call = true;
                return Ok(());
            }
            self.note_stop(tid, stop)?;
        }
        // Its call is done, or a signal came, or it has a child.
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let is_signal = matches!(thread.noted_stop, Some(Stop::Signal(_)));
        match thread.noted_stop.take_if(|_| is_signal) {
            Some(stop) => {
                if self.holder != tid {
                    self.log_holder_place()?;
                }
                self.handle_call_stop(tid, stop)?;
                self.halt(tid)
            }
            None => Ok(()),
        }
    }
}

impl Debugged for ExactRecorder {
    type Thread = Thread;

    fn program(&self) -> Pid {
        self.pid
    }

    fn threads(&self) -> &BTreeMap<Tid, Thread> {
        &self.threads
    }

    fn threads_mut(&mut self) -> &mut BTreeMap<Tid, Thread> {
        &mut self.threads
    }

    fn culprit(&self) -> Option<Culprit> {
        self.process.as_ref().map(|_| Culprit::default())
    }

    fn exit(&self) -> Option<Exit> {
        self.exit
    }

    fn let_program_end(&mut self) -> Result<(), Error> {
        self.debugger = None;
        self.end_if_all_at_exit()?;
        while self.completed.is_none() {
            if let Some((tid, stop)) = wait_interruptibly()? {
                self.note_stop(tid, stop)?;
            }
        }
        Ok(())
    }

    fn detach_from_program(&mut self) -> Result<(), Error> {
        self.leave_debugged()
    }
}

impl ExactRecorder {
    /// Kills the program, waits until it has ended, and completes its recording. Does nothing if
    /// there is no recorded process any more. The debugger's session ends.
    pub(super) fn kill(&mut self) -> Result<(), Error> {
        if self.completed.is_some() || self.process.is_none() {
            return Ok(());
        }
        self.debugger = None;
        Tracee::kill_process(self.pid);
        self.let_program_end()
    }
}
