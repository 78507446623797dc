//! Resumes a program under a debugger, and stops all its threads again.

use super::debug_session::Debugger;
use super::engine::Engine;
use super::thread::{Doing, Thread};
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

/// The number of single steps in a row after which the other threads run for [`TURN`].
const LONE_STEPS: u32 = 256;
/// The time for which the other threads run.
const TURN: Duration = Duration::from_millis(1);
/// The pause between two checks for a stop.
const LOOK_PERIOD: Duration = Duration::from_micros(300);
/// The number of checks for a stop before the first pause.
const LOOKS: u32 = 64;

impl Engine<'_> {
    /// Resumes the program as requested until there is an event, and stops all its threads again.
    /// Returns the event with its thread.
    pub(super) fn go(
        &mut self,
        go: &Go,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(Tid, Report), Error> {
        if let Some(end) = self.take_end()? {
            return Ok(end);
        }
        let _forwarding = Forwarding::for_request(&self.request, self.program);
        let news = self.go_until(go, interrupted);
        let halted = self.halt_all();
        self.remove_int3s();
        let news = news.and_then(|news| halted.map(|()| news))?;
        Ok(self.report_after_halt(go, news))
    }

    /// Resumes the program as requested until there is an event, and returns it. The caller stops
    /// the threads.
    fn go_until(
        &mut self,
        go: &Go,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(Tid, Report), Error> {
        self.watch_all(go)?;
        let debugger = self.debugger.get_or_insert_default();
        debugger.go = Some(go.clone());
        let mut has_signal = false;
        if let Some(unreported) = self.take_unreported(go)? {
            return Ok(unreported);
        }
        if let Some(thread) = self.threads.get_mut(&go.thread) {
            // Keep the signal in the thread: another thread's event may be reported before this one
            // runs.
            if go.signal != 0 {
                thread.chosen = go.signal;
            }
            has_signal = thread.chosen != 0;
        }
        for (tid, signal) in &go.signals {
            if let Some(thread) = self.threads.get_mut(tid).filter(|t| t.tid() != go.thread) {
                thread.chosen = *signal;
            }
        }
        let step = self.look_at_step(go.thread).unwrap_or_default();
        let ip = Tracee(go.thread).instruction_pointer().unwrap_or(Addr(0));
        let caught = self.threads.get(&go.thread).and_then(|thread| thread.caught);
        if let Some(number) = step.call.filter(|call| go.catches.has(*call) && caught != Some(ip))
            && let Some(thread) = self.threads.get_mut(&go.thread).filter(|_| !has_signal)
        {
            thread.caught = Some(ip);
            return Ok((go.thread, Report::Call(number)));
        }
        let steps_alone = go.step && !has_signal && step.call.is_none();
        if !go.locked
            && !steps_alone
            && let Some(news) = self.take_report_of_others(go)
        {
            return Ok(news);
        }
        let runs_alone = go.locked || steps_alone;
        // Step over an INT3 before it is inserted.
        let passes = step.call.is_none() && (go.step || go.stops.contains(&ip) && !has_signal);
        if passes {
            if let Some(debugger) = &mut self.debugger {
                debugger.stepping = Some((go.thread, step));
            }
            self.let_thread_go(go.thread)?;
            let news = self.run_until(go.thread, true, interrupted)?;
            let goes_on = !go.step && news == (go.thread, Report::Stepped);
            if !goes_on {
                self.take_turns(steps_alone && !go.locked)?;
                return Ok(news);
            }
        } else if step.call.is_some() && go.stops.contains(&ip) && !has_signal {
            self.enter_call(go.thread, interrupted)?;
        }
        if go.step
            && !passes
            && let Some(debugger) = &mut self.debugger
        {
            debugger.stepping = Some((go.thread, step));
        }
        self.insert_int3s();
        let goes = |thread: &&Thread| !runs_alone || thread.tid() == go.thread;
        let standing = self.threads.values().filter(|thread| thread.doing == Doing::Standing);
        let tids: Vec<Tid> = standing.filter(goes).map(Thread::tid).collect();
        tids.into_iter().try_for_each(|tid| self.let_thread_go(tid))?;
        self.run_until(go.thread, runs_alone, interrupted)
    }

    /// Lets one thread enter the system call that it is about to make at an address where threads
    /// are to stop, before the INT3s are inserted.
    fn enter_call(&mut self, tid: Tid, interrupted: &dyn Fn() -> bool) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let tracee = thread.tracee;
        // The signal that stopped the thread is dropped.
        thread.held = 0;
        thread.doing = Doing::Running;
        gone_is_fine(self.pmu.resume(tracee, 0, true))?;
        loop {
            let Some((other, stop)) = next_stop(interrupted)? else { return Ok(()) };
            if other == tid && stop == Stop::Call {
                // The call begins: the thread's IP is after the instruction.
                self.pmu.is_own(tid, stop)?;
                let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
                let number = thread.tracee.registers().map_or(0, |registers| registers.orig_rax);
                (thread.call, thread.caught, thread.doing) = (Some(number), None, Doing::Standing);
                return Ok(());
            }
            self.take_in(other, stop)?;
            if !self.threads.get(&tid).is_some_and(|thread| thread.doing == Doing::Running) {
                return Ok(());
            }
        }
    }

    /// Counts a single step, or starts again at 0 unless `steps_alone`. Runs the other threads
    /// after each [`LONE_STEPS`], since the stepping thread may wait for them. The caller stops
    /// them.
    fn take_turns(&mut self, steps_alone: bool) -> Result<(), Error> {
        let Some(debugger) = &mut self.debugger else { return Ok(()) };
        debugger.lone_steps = if steps_alone { debugger.lone_steps + 1 } else { 0 };
        let Some(go) = debugger.go.as_ref().filter(|_| debugger.lone_steps >= LONE_STEPS) else {
            return Ok(());
        };
        let thread = go.thread;
        debugger.lone_steps = 0;
        self.insert_int3s();
        let standing = self.threads.values().filter(|thread| thread.doing == Doing::Standing);
        // Threads with unreported news stay stopped.
        let others =
            standing.filter(|other| other.tid() != thread && other.pending.unreported.is_none());
        let tids: Vec<Tid> = others.map(Thread::tid).collect();
        tids.into_iter().try_for_each(|tid| self.let_thread_go(tid))?;
        std::thread::sleep(TURN);
        Ok(())
    }

    /// Resumes a stopped thread, with the signal chosen for it. If job control had stopped it
    /// before it was halted, puts it back into that stop instead.
    fn let_thread_go(&mut self, tid: Tid) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let held = std::mem::take(&mut thread.held);
        let mut signal = std::mem::take(&mut thread.chosen);
        thread.pending.note_resumed(signal);
        let ip = thread.tracee.instruction_pointer().unwrap_or(Addr(0));
        thread.caught = thread.caught.filter(|caught| *caught == ip);
        if signal != 0 && held == 0 {
            // ptrace(2) can inject a signal only into a thread that stopped for one.
            thread.pending.sent_signal = signal;
            gone_is_fine(thread.tracee.send(thread.pid, signal))?;
            signal = 0;
        }
        if std::mem::take(&mut thread.group_stopped) {
            thread.doing = Doing::Stopped;
            return gone_is_fine(thread.tracee.listen());
        }
        self.let_run(tid, signal)
    }

    /// Handles stops until there is an event to report, and returns it; only of `thread` if
    /// `alone`.
    fn run_until(
        &mut self,
        thread: Tid,
        alone: bool,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(Tid, Report), Error> {
        loop {
            if let Some(news) = self.take_report(thread, alone) {
                return Ok(news);
            }
            let Some((tid, stop)) = next_stop(interrupted)? else {
                return Ok((thread, Report::Interrupted));
            };
            self.take_in(tid, stop)?;
            for process in self.processes.values() {
                super::tap::lock(&process.book).take_failure()?;
            }
        }
    }

    /// Handles a stop while a debugger controls the program.
    pub(super) fn take_in(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        let steps = self.debugger.as_ref().and_then(|debugger| debugger.stepping);
        if self.pmu.is_own(tid, stop)? {
            let Some(thread) = self.threads.get(&tid) else { return Ok(()) };
            let tracee = thread.tracee;
            return match steps.filter(|(stepping, _)| *stepping == tid) {
                Some(_) => gone_is_fine(self.pmu.step(tracee, 0)),
                None => self.let_run(tid, 0),
            };
        }
        let Some(doing) = self.threads.get(&tid).map(|thread| thread.doing) else {
            return self.handle(tid, stop);
        };
        match stop {
            Stop::Signal(libc::SIGTRAP) if self.trapped(tid)? => Ok(()),
            Stop::Call => self.call_stop(tid),
            Stop::Group(_) if self.halts() => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    (thread.doing, thread.group_stopped) = (Doing::Standing, true);
                }
                Ok(())
            }
            Stop::Event(PtraceEvent::Stop) if doing == Doing::Born => self.handle(tid, stop),
            // A trap that occurred at the same time is reported first.
            Stop::Event(PtraceEvent::Stop) if Tracee(tid).has_trapped(self.program) => {
                self.let_run(tid, 0)
            }
            Stop::Event(PtraceEvent::Stop) if self.halts() => self.halted(tid),
            stop => self.handle(tid, stop),
        }
    }

    fn halts(&self) -> bool {
        self.debugger.as_ref().is_some_and(|debugger| debugger.halts)
    }

    /// Interrupts all running threads, and waits until they are stopped.
    fn halt_all(&mut self) -> Result<(), Error> {
        let Some(debugger) = &mut self.debugger else { return Ok(()) };
        debugger.halts = true;
        for thread in self.threads.values().filter(|thread| is_out(thread)) {
            gone_is_fine(thread.tracee.interrupt())?;
        }
        while self.threads.values().any(is_out) {
            let Some((tid, stop)) = next_stop(&|| false)? else { continue };
            self.take_in(tid, stop)?;
        }
        if let Some(debugger) = &mut self.debugger {
            (debugger.halts, debugger.stepping, debugger.go) = (false, None, None);
        }
        Ok(())
    }

    /// Sets the debug registers of all stopped threads to the requested watchpoints.
    fn watch_all(&mut self, go: &Go) -> Result<(), Error> {
        let slots = slots(&go.watches);
        self.debugger.get_or_insert_with(Debugger::default).slots = slots;
        let standing = self.threads.values().filter(|thread| thread.doing == Doing::Standing);
        let tids: Vec<Tid> = standing.map(Thread::tid).collect();
        tids.into_iter().try_for_each(|tid| self.watch_with(tid))
    }

    /// Handles stops until the program is gone.
    fn wait_for_end(&mut self) -> Result<(), Error> {
        while !self.is_gone() {
            let Some((tid, stop)) = next_stop(&|| false)? else { continue };
            if self.pmu.is_own(tid, stop)? {
                gone_is_fine(self.pmu.resume(Tracee(tid), 0, false))?;
            } else {
                self.handle(tid, stop)?;
            }
        }
        Ok(())
    }

    /// Kills the program, and waits until it has ended.
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
        for thread in self.threads.values().filter(|thread| thread.doing == Doing::AtEnd) {
            gone_is_fine(thread.tracee.resume(0))?;
        }
        self.wait_for_end()
    }

    fn detach_from_program(&mut self) -> Result<(), Error> {
        self.remove_int3s();
        self.debugger = None;
        for thread in self.threads.values() {
            gone_is_fine(thread.watched.end(thread.tracee))?;
        }
        self.part(self.program)
    }
}

/// Returns true unless the thread is at a stop that its tracer has handled.
fn is_out(thread: &Thread) -> bool {
    !matches!(thread.doing, Doing::Standing | Doing::AtEnd)
}

/// Waits for the next stop of any thread. Returns `None` if `interrupted` returns true first.
fn next_stop(interrupted: &dyn Fn() -> bool) -> Result<Option<(Tid, Stop)>, Error> {
    let mut looks = 0_u32;
    loop {
        if let Some(stop) = wait_any(false)? {
            return Ok(Some(stop));
        }
        looks = looks.saturating_add(1);
        if looks < LOOKS {
            std::thread::yield_now();
            continue;
        }
        if interrupted() {
            return Ok(None);
        }
        std::thread::sleep(LOOK_PERIOD);
    }
}
