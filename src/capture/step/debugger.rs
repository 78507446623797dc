//! Runs a stepped program for a debugger until an event, then stops all threads. Each instruction
//! ends in a stop anyway, so breakpoints need no INT3s: `must_stop_before` looks for one before a
//! thread is stepped, and `handle_for_debugger` looks for other events after each stop. The steps
//! of a request are those of `crate::capture::debugged`.
//!
//! A *newborn* is a child that stays stopped at its birth until the debugger follows or leaves it.
//! An *exit stop* is the last stop of a thread, before it is gone. A step that makes no system
//! call, and gets no signal, runs one thread alone (`Debugger::alone`), but for one in
//! [`STEPS_PER_TURN`].

use super::engine::{Engine, TURN_STEPS};
use super::process::Process;
use super::thread::{Activity, Thread};
use crate::capture::Error;
use crate::capture::contract::{Catches, Go, Report};
use crate::capture::culprit::Culprit;
use crate::capture::debugged::Debugged;
use crate::capture::error::gone_is_fine;
use crate::capture::signals::Forwarding;
use crate::common::{Pid, Tid};
use crate::recording::Exit;
use crate::tracee::debug_registers::slots;
use crate::tracee::{Signo, Stop, wait_any};
use std::collections::BTreeMap;
use std::time::Duration;

/// The other threads run before each debugger step whose number in a row is a multiple of this,
/// since the stepping thread may wait for them.
const STEPS_PER_TURN: u32 = 256;
/// The number of stops between two checks for interruptions and for a due flush.
const STOPS_PER_CHECK: u32 = 64;
/// The pause between two checks for a stop while all threads are in the kernel.
const CHECK_PERIOD: Duration = Duration::from_millis(2);

impl Thread {
    /// Handles the debugger's choice of a signal for the thread (0: none): sets it as the one to
    /// deliver in place of the one that stopped the thread. If the thread stopped for none, sends
    /// the signal to it. If there is no signal, forgets the siginfo that the debugger set.
    fn choose_signal(&mut self, signal: Signo) -> Result<(), Error> {
        if signal == 0 {
            self.pending.next_siginfo = None;
        }
        if std::mem::take(&mut self.is_signal_held) {
            self.signal_to_deliver = signal;
        } else if signal != 0 {
            // ptrace(2) can inject a signal only into a thread that stopped for one.
            self.pending.sent_signal = signal;
            gone_is_fine(self.tracee.send(self.pid, signal))?;
        }
        Ok(())
    }

    /// Takes the number of the system call that the thread has made, and returns the event for its
    /// return if it is in `catches`.
    fn take_call_return(&mut self, catches: Option<&Catches>) -> Option<Report> {
        let number = self.returned_call.take()?;
        catches.is_some_and(|catches| catches.has(number)).then_some(Report::CallReturn(number))
    }

    /// Returns true if the thread is stopped outside the kernel, with no system call or signal
    /// pending.
    pub(super) fn is_in_program(&self) -> bool {
        self.activity == Activity::Ready
            && self.current_call.is_none()
            && self.restarting_call.is_none()
            && self.signal_to_deliver == 0
    }
}

impl Engine {
    /// Returns true if the thread is ready, its process does not end, and the debugger lets it run.
    pub(super) fn may_resume(&self, thread: &Thread) -> bool {
        // A thread of a process that is killed leaves its stop for its exit stop. Resuming it could
        // take it out of that one before it is seen.
        let ends = |process: &Process| process.culprit.known().is_some();
        thread.activity == Activity::Ready
            && !thread.is_signal_held
            && !self.processes.get(&thread.pid).is_some_and(ends)
            && self
                .debugger
                .as_ref()
                .is_none_or(|debugger| thread.pid == self.program && debugger.lets_run(thread))
    }

    /// Returns true if the thread must stop for the debugger before its next instruction, at a
    /// breakpoint or a caught system call, and notes that event for it. Returns false for a thread
    /// in a call or with a signal, and without a request.
    pub(super) fn must_stop_before(&mut self, tid: Tid) -> bool {
        let Some(go) = self.debugger.as_ref().and_then(|debugger| debugger.go.as_ref()) else {
            return false;
        };
        let Some(thread) = self.threads.get_mut(&tid) else { return false };
        if !thread.is_in_program() {
            return false;
        }
        if !thread.passes_breakpoint && go.stops.contains(&thread.ip) {
            thread.pending.unreported = Some(Report::Breakpoint);
            return true;
        }
        if go.catches == Catches::None || thread.caught_call.is_some() {
            return false;
        }
        let process = self.processes.get(&self.program);
        let call = process.and_then(|process| super::calls::next_call(process, thread));
        thread.caught_call = call.filter(|number| go.catches.has(*number));
        if let Some(number) = thread.caught_call {
            thread.pending.unreported = Some(Report::Call(number));
        }
        thread.caught_call.is_some()
    }

    /// Resumes the program as requested until there is an event, stops all its threads again, and
    /// returns the event with its thread. Follows a newborn child if that is to be resumed.
    pub(super) fn go(
        &mut self,
        go: &Go,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(Tid, Report), Error> {
        if self.newborns.get(Pid(go.thread.0)).is_some() {
            self.record_followed(Pid(go.thread.0))?;
        }
        if let Some(end) = self.take_end()? {
            return Ok(end);
        }
        if let Some(report) = self.prepare_threads(go)? {
            self.newborns.mark_reported(report.1);
            return Ok(report);
        }
        let _forwarding = Forwarding::to(self.program);
        let mut stops = 0_u32;
        let report = loop {
            if let Some(report) = self.take_report(go.thread, self.runs_one_thread()) {
                break report;
            }
            self.schedule()?;
            if let Some(report) = self.take_report(go.thread, self.runs_one_thread()) {
                break report;
            }
            stops = stops.wrapping_add(1);
            if stops.is_multiple_of(STOPS_PER_CHECK) {
                if interrupted() {
                    break (go.thread, Report::Interrupted);
                }
                self.processes.values_mut().try_for_each(|p| p.recorder.flush_if_due())?;
            }
            let Some((tid, stop)) = self.wait_or_interrupted(interrupted)? else {
                break (go.thread, Report::Interrupted);
            };
            self.handle_for_debugger(tid, stop)?;
        };
        self.halt_all()?;
        self.newborns.mark_reported(report.1);
        Ok(self.report_after_halt(go, report))
    }

    /// Returns true if only the thread of the request runs.
    fn runs_one_thread(&self) -> bool {
        self.debugger.as_ref().is_some_and(|debugger| debugger.alone)
    }

    /// Prepares all threads for the request, without resuming them. Returns an event instead if one
    /// is to be reported first.
    fn prepare_threads(&mut self, go: &Go) -> Result<Option<(Tid, Report)>, Error> {
        if let Some(owed) = self.take_report_on_resume(go) {
            return Ok(Some(owed));
        }
        if let Some(unreported) = self.take_unreported(go)? {
            return Ok(Some(unreported));
        }
        self.set_watchpoints(go)?;
        let Some(debugger) = &mut self.debugger else { return Ok(None) };
        let makes_call = match (self.threads.get(&go.thread), self.processes.get(&self.program)) {
            (Some(thread), Some(process)) => {
                !thread.is_in_program() || super::calls::is_system_call(process, thread.ip)
            }
            _ => true,
        };
        let steps_alone = go.step && go.signal == 0 && !makes_call;
        debugger.steps_in_a_row = if steps_alone { debugger.steps_in_a_row + 1 } else { 0 };
        // The others run now and then, since the thread may wait for them.
        let is_theirs = debugger.steps_in_a_row.is_multiple_of(STEPS_PER_TURN);
        debugger.alone = go.locked || steps_alone && !is_theirs;
        let alone = debugger.alone;
        if let Some(thread) = self.threads.get_mut(&go.thread) {
            (thread.has_moved, thread.passes_breakpoint) = (false, true);
            // Decide this now: another thread may be reported before this one runs. If a signal
            // comes while gdb steps over a breakpoint, gdb expects a stop there after the signal,
            // even if no handler runs.
            thread.passes_breakpoint = !thread.is_signal_held || go.signal == 0;
            thread.choose_signal(go.signal)?;
        }
        for (tid, signal) in &go.signals {
            if let Some(thread) = self.threads.get_mut(tid).filter(|t| t.tid() != go.thread) {
                thread.choose_signal(*signal)?;
            }
        }
        if !alone && let Some(report) = self.take_report_of_others(go) {
            return Ok(Some(report));
        }
        let program = self.program;
        for thread in self.threads.values_mut().filter(|thread| thread.pid == program) {
            thread.is_to_stop = false;
            if alone && thread.tid() != go.thread {
                continue;
            }
            if thread.tid() != go.thread {
                thread.passes_breakpoint = thread.pending.reported_stop == Some(thread.ip);
            }
            if std::mem::take(&mut thread.is_signal_held) {
                // The signal was reported, and is not to be delivered.
                thread.signal_to_deliver = 0;
            }
            if std::mem::take(&mut thread.returns_to_group_stop) {
                thread.stop_with_process()?;
            }
        }
        if let Some(debugger) = &mut self.debugger {
            debugger.go = Some(go.clone());
        }
        if alone || !steps_alone {
            self.steps_left = TURN_STEPS;
        } else {
            // The other threads run first.
            self.steps_left = 0;
        }
        Ok(None)
    }

    /// Sets the debug registers of all ready threads to the requested watchpoints.
    fn set_watchpoints(&mut self, go: &Go) -> Result<(), Error> {
        let Some(debugger) = &mut self.debugger else { return Ok(()) };
        debugger.slots = slots(&go.watches);
        let mut ready =
            self.threads.values_mut().filter(|thread| thread.activity == Activity::Ready);
        ready.try_for_each(|t| gone_is_fine(t.watched.set(t.tracee, &debugger.slots)))
    }

    /// Waits for the next stop of any thread. Returns `None` if `interrupted` returns true first;
    /// does not call it while a thread is being stepped, as a step ends soon. Otherwise writes out
    /// pending data first.
    fn wait_or_interrupted(
        &mut self,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<(Tid, Stop)>, Error> {
        if self.is_stepping() {
            return self.wait_ignoring_signals().map(Some);
        }
        self.write_all()?;
        loop {
            if let Some(stop) = wait_any(false)? {
                return Ok(Some(stop));
            }
            if interrupted() {
                return Ok(None);
            }
            std::thread::sleep(CHECK_PERIOD);
        }
    }

    /// Handles a stop, and notes the event that it is for the debugger.
    pub(super) fn handle_for_debugger(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        self.handle(tid, stop)?;
        self.pass_ranges_to_paths();
        let (Some(debugger), Some(thread)) = (&self.debugger, self.threads.get_mut(&tid)) else {
            return Ok(());
        };
        if thread.activity != Activity::Ready {
            return Ok(());
        }
        if thread.is_in_execve && thread.current_call.is_none() {
            thread.is_in_execve = false;
            thread.watched.forget();
            thread.pending.unreported = Some(Report::Executed);
            let catches = debugger.go.as_ref().map(|go| &go.catches);
            thread.pending.report_on_resume = thread.take_call_return(catches);
        }
        gone_is_fine(thread.watched.set(thread.tracee, &debugger.slots))?;
        if let Some(addr) = thread.watched.take_hit(thread.tracee).unwrap_or(None) {
            thread.pending.unreported = Some(Report::Watch(addr));
        }
        let Some(go) = &debugger.go else { return Ok(()) };
        if thread.signal_to_deliver != 0 {
            if thread.pending.stops_for_signal(thread.signal_to_deliver, go.passed_to(tid)) {
                thread.is_signal_held = true;
                thread.pending.unreported = Some(Report::Signal(thread.signal_to_deliver));
            }
            return Ok(());
        }
        if let Some(report) = thread.take_child_event() {
            let is_wanted = report != Report::VforkDone || go.forks.vfork;
            let steps = is_wanted && go.step && go.thread == tid;
            // gdb requests no catches while it waits for the end of a vfork. The call's return is
            // reported anyway if its start was.
            let all = Catches::All;
            let was_reported = report == Report::VforkDone && thread.entry_was_reported;
            let returned =
                thread.take_call_return(Some(if was_reported { &all } else { &go.catches }));
            if steps && go.locked && report.is_birth() {
                // gdb steps over a breakpoint this way, and accepts only the end of the step as an
                // answer.
                (thread.pending.unreported, thread.pending.report_on_resume) =
                    (Some(Report::Stepped), Some(report));
                return Ok(());
            }
            thread.pending.unreported = is_wanted.then_some(report).or(thread.pending.unreported);
            thread.pending.report_on_resume = returned.or(steps.then_some(Report::Stepped));
            return Ok(());
        }
        if let Some(returned) = thread.take_call_return(Some(&go.catches)) {
            thread.pending.unreported = Some(returned);
        }
        let steps = go.step && go.thread == tid && thread.has_moved && thread.is_in_program();
        if steps && thread.pending.unreported.is_none() {
            thread.pending.unreported = Some(Report::Stepped);
        }
        Ok(())
    }

    /// Interrupts all threads that run, handles stops until all are stopped, and forgets the
    /// request.
    fn halt_all(&mut self) -> Result<(), Error> {
        self.threads.values_mut().for_each(|thread| thread.is_to_stop = true);
        while self.threads.values().any(is_not_stopped) {
            for thread in self.threads.values_mut().filter(|thread| is_not_stopped(thread)) {
                thread.is_to_stop = true;
                if thread.activity != Activity::Stepping {
                    gone_is_fine(thread.tracee.interrupt())?;
                }
            }
            let (tid, stop) = self.wait_ignoring_signals()?;
            self.handle_for_debugger(tid, stop)?;
        }
        if let Some(debugger) = &mut self.debugger {
            debugger.go = None;
        }
        Ok(())
    }

    /// Lets a process end whose threads are at their exit stops, and waits until its recording is
    /// completed. Ends the debugger's session if it is the program.
    fn let_process_end(&mut self, pid: Pid) -> Result<(), Error> {
        if pid == self.program {
            self.debugger = None;
        }
        self.end_if_all_at_exit(pid)?;
        while self.processes.contains_key(&pid) {
            let (tid, stop) = self.wait_ignoring_signals()?;
            self.handle(tid, stop)?;
        }
        Ok(())
    }

    /// Clears the debug registers of a process's threads, which are all stopped, detaches from it,
    /// and completes its recording.
    pub(super) fn detach_from(&mut self, pid: Pid) -> Result<(), Error> {
        for thread in
            self.threads.values().filter(|t| t.pid == pid && t.activity == Activity::Ready)
        {
            gone_is_fine(thread.watched.end(thread.tracee))?;
        }
        self.detach_process(pid)
    }

    /// Kills the program and the other processes, recorded or newborn.
    pub(super) fn kill(&mut self) -> Result<(), Error> {
        self.newborns.kill_all();
        let pids: Vec<Pid> = self.processes.keys().copied().collect();
        pids.into_iter().try_for_each(|pid| self.kill_process(pid))
    }

    /// Kills a process, and waits until it has ended.
    pub(super) fn kill_process(&mut self, pid: Pid) -> Result<(), Error> {
        crate::tracee::Tracee::kill_process(pid);
        let mut of_process = self.threads.values().filter(|thread| thread.pid == pid).peekable();
        if of_process.peek().is_some()
            && of_process.all(|thread| thread.activity == Activity::AtExitStop)
        {
            return self.let_process_end(pid);
        }
        if pid == self.program {
            self.debugger = None;
        }
        let at_end =
            |thread: &&Thread| thread.pid == pid && thread.activity == Activity::AtExitStop;
        for thread in self.threads.values().filter(at_end) {
            gone_is_fine(thread.tracee.resume(0))?;
        }
        while self.processes.contains_key(&pid) {
            let (tid, stop) = self.wait_ignoring_signals()?;
            self.handle(tid, stop)?;
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
        self.let_process_end(self.program)
    }

    fn detach_from_program(&mut self) -> Result<(), Error> {
        self.detach_from(self.program)
    }
}

/// Returns true if a thread runs or is in a group stop, and does not wait for its child.
fn is_not_stopped(thread: &Thread) -> bool {
    let waits = thread.waits_for_child && thread.activity == Activity::InCall;
    matches!(thread.activity, Activity::Stepping | Activity::InCall | Activity::GroupStopped)
        && !waits
}
