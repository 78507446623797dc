//! Lets a program under a debugger go on, and stops all of it again.

use super::debug_session::Debugger;
use super::engine::Engine;
use super::process::Process;
use super::thread::{Doing, Thread};
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

/// The period at which a running program is checked for interrupts.
const LOOK_PERIOD: Duration = Duration::from_millis(50);
/// The number of steps in a row by one thread alone after which the others may run during a step.
const LONE_STEPS: u32 = 256;

impl Engine {
    /// Lets the program go on as `go` asks until a thread has an event or `interrupted` returns
    /// true, and stops all threads. Returns the event to report, with its thread. An event that was
    /// not reported yet is returned at once.
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
        let others_run = self.take_request(go)?;
        if others_run && let Some(report) = self.take_report_of_others(go) {
            return Ok(report);
        }
        let _forwarding = Forwarding::for_request(&self.request, self.pid);
        let _periodic_signal = PeriodicSignal::start(LOOK_PERIOD);
        self.release(go.thread)?;
        self.let_child_run()?;
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
                self.release_all()?;
                are_released = true;
            }
            self.turn()?;
        };
        self.halt_all()?;
        if let Some(debugger) = &mut self.debugger {
            (debugger.stepping, debugger.only) = (None, None);
        }
        Ok(self.report_after_halt(go, news))
    }

    /// Applies the debugger's request to the program and its threads. Returns true if all threads
    /// run.
    fn take_request(&mut self, go: &Go) -> Result<bool, Error> {
        if let Some(thread) = self.threads.get_mut(&go.thread)
            && go.signal != 0
        {
            // Kept, since another thread's event may be reported before this one goes on.
            thread.debug.chosen = go.signal;
        }
        for (tid, signal) in &go.signals {
            if let Some(thread) = self.threads.get_mut(tid).filter(|t| t.tid() != go.thread) {
                thread.debug.chosen = *signal;
            }
        }
        let runs =
            |thread: &Thread| matches!(thread.doing, Doing::Runs) && thread.debug.chosen == 0;
        let steps_alone = go.step && self.threads.get(&go.thread).is_some_and(runs);
        let Some(debugger) = &mut self.debugger else { return Ok(true) };
        debugger.lone_steps = if steps_alone { debugger.lone_steps.wrapping_add(1) } else { 0 };
        // The thread may wait for the others.
        let is_turn_of_others = debugger.lone_steps.is_multiple_of(LONE_STEPS);
        let others_run = !go.locked && (!steps_alone || is_turn_of_others);
        let lone_steps = debugger.lone_steps;
        let is_alone = go.locked || go.step && !(steps_alone && is_turn_of_others);
        *debugger = Debugger {
            stops: go.stops.iter().map(|addr| addr.0).collect(),
            stepping: go.step.then_some(go.thread),
            only: is_alone.then_some(go.thread),
            is_locked: go.locked,
            passed: go.passed,
            passed_to_stepper: go.passed_to_stepper,
            catches: go.catches.clone(),
            forks: go.forks,
            slots: slots(&go.watches),
            lone_steps,
            is_saved: false,
        };
        let (pid, slots) = (self.pid, debugger.slots.clone());
        let (stops, watches_calls) = (debugger.stops.clone(), debugger.watches_calls());
        if let Some(process) = &mut self.process {
            process.engine.watch_calls(watches_calls);
            process.engine.set_stops(&stops);
        }
        for (tid, thread) in &mut self.threads {
            if matches!(thread.doing, Doing::AtEnd) {
                continue;
            }
            gone_is_fine(thread.debug.watched.set(thread.tracee(), &slots))?;
            let runs = matches!(thread.doing, Doing::Runs);
            let ip = thread.tracee().instruction_pointer().ok();
            // gdb, which steps over a breakpoint as the signal comes, inserts one for when the
            // signal is delivered, even if nothing happens then.
            let gets_held = thread.debug.held.is_some() && thread.debug.chosen != 0;
            thread.debug.passes = ip.filter(|_| runs && !gets_held).map(|ip| ip.0);
            let is_sent = thread.debug.held.is_none() && thread.debug.chosen != 0;
            if others_run || *tid == go.thread {
                let signal = thread.debug.chosen;
                thread.debug.pending.note_resumed(signal);
                if is_sent {
                    // Only a thread that stopped for a signal can be given one.
                    thread.debug.chosen = 0;
                    thread.debug.pending.sent_signal = signal;
                    gone_is_fine(thread.tracee().send(pid, signal))?;
                }
            }
        }
        Ok(others_run)
    }

    /// Sets the debugger's stops in the process of a program that has just begun.
    pub(super) fn begin_debugging_program(&mut self) {
        if let (Some(debugger), Some(process)) = (&self.debugger, &mut self.process) {
            process.engine.watch_calls(debugger.watches_calls());
            process.engine.set_stops(&debugger.stops);
        }
    }

    /// Lets a thread go on that was stopped in its system call.
    fn release(&mut self, tid: Tid) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        if std::mem::take(&mut thread.debug.is_halted) {
            gone_is_fine(thread.tracee().step(0))?;
        }
        Ok(())
    }

    fn release_all(&mut self) -> Result<(), Error> {
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        tids.into_iter().try_for_each(|tid| self.release(tid))
    }

    /// Stops all threads: those that execute the program at an exact place, and the others in their
    /// system calls.
    pub(super) fn halt_all(&mut self) -> Result<(), Error> {
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        for tid in tids {
            self.halt(tid)?;
        }
        Ok(())
    }

    /// Stops a thread: at an exact place if it executes the program, otherwise in its system call.
    /// Completes a call that is done by then. Does not stop a thread that waits for its child
    /// (vfork(2)).
    fn halt(&mut self, tid: Tid) -> Result<(), Error> {
        self.with(tid, Process::end_run)?;
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let is_stopped = thread.stop.is_some() || thread.debug.held.is_some();
        let Some(calling) = thread.calling().filter(|_| !thread.debug.is_halted) else {
            return Ok(());
        };
        let waits = |process: &Process| process.waits_for_child(&calling.call);
        if !is_stopped && self.process.as_ref().is_some_and(waits) {
            return Ok(());
        }
        if !is_stopped {
            gone_is_fine(thread.tracee().interrupt())?;
            let stop = wait_for(tid)?;
            if stop == Stop::Event(PtraceEvent::Stop) {
                thread.debug.is_halted = true;
                return Ok(());
            }
            self.note_stop(tid, stop)?;
        }
        // Its call is done, or a signal came, or it has a child.
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let is_signal = matches!(thread.stop, Some(Stop::Signal(_)));
        match thread.stop.take_if(|_| is_signal) {
            Some(stop) => {
                if self.holder != tid {
                    self.log_place()?;
                }
                self.go_on_in_call(tid, stop)?;
                self.halt(tid)
            }
            None => Ok(()),
        }
    }
}

impl Debugged for Engine {
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
        self.end_if_all_are()?;
        while self.finished.is_none() {
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

impl Engine {
    /// Kills the program, and waits until it has ended.
    pub(super) fn kill(&mut self) -> Result<(), Error> {
        if self.finished.is_some() || self.process.is_none() {
            return Ok(());
        }
        self.debugger = None;
        Tracee::kill_process(self.pid);
        self.let_program_end()
    }
}
