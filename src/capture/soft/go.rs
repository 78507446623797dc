//! Resumes a program under a debugger, and stops all its threads again at the next event.

use super::engine::Engine;
use super::process::Process;
use super::thread::{Doing, Thread};
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
use crate::encode::Item;
use crate::recording::Exit;
use crate::tracee::debug_registers::slots;
use crate::tracee::dispositions;
use std::collections::BTreeMap;
use std::time::Duration;

/// The period at which the recorder checks for an interrupt, and saves the records so far, while
/// the program runs.
const LOOK_PERIOD: Duration = Duration::from_millis(50);
/// While one thread is single-stepped, the other threads may run during each step whose number in a
/// row is a multiple of this, since the thread may wait for them.
const LONE_STEPS: u32 = 256;
/// The bytes of the SYSCALL instruction.
const SYSCALL_INSN: [u8; 2] = [0x0f, 0x05];

impl Engine {
    /// Runs threads as `go` requests until an event, and stops all again. Returns the event, with
    /// the thread to which it happened. `interrupted` returns true to stop early.
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
        let runs = match self.begin(go)? {
            Begun::Runs(runs) => runs,
            Begun::Already(tid, news) => {
                self.newborns.mark_reported(news);
                return Ok((tid, news));
            }
        };
        let _forwarding = Forwarding::for_request(&self.request, self.program);
        let _periodic_signal = PeriodicSignal::start(LOOK_PERIOD);
        let news = loop {
            if let Some(news) = self.take_report(go.thread, runs == Runs::One) {
                break news;
            }
            if interrupted() {
                break (go.thread, Report::Interrupted);
            }
            if PeriodicSignal::take_due() {
                self.save_so_far()?;
                self.end_those_that_wait_in_vain()?;
            }
            if let Some((tid, stop)) = self.wait()? {
                self.handle(tid, stop)?;
            }
        };
        self.halt_all()?;
        self.newborns.mark_reported(news.1);
        if let Some(debugger) =
            self.processes.get_mut(&self.program).and_then(|p| p.debugger.as_mut())
        {
            (debugger.stepping, debugger.following) = (None, None);
        }
        Ok(self.report_after_halt(go, news))
    }

    /// Resumes the threads that `go` requests, unless one of them has an event to report first. All
    /// are resumed in the cache, but for most single steps, which are native. Not native are the
    /// step of a SYSCALL, for which the thread runs in the cache to the address after it, one that
    /// begins with a signal, and one of a thread that waits for its vfork(2) child.
    fn begin(&mut self, go: &Go) -> Result<Begun, Error> {
        if let Some((tid, news)) = self.take_report_on_resume(go) {
            return Ok(Begun::Already(tid, news));
        }
        if let Some((tid, news)) = self.take_unreported(go)? {
            return Ok(Begun::Already(tid, news));
        }
        let next = self.next_call(go)?;
        self.choose_signals(go);
        let steps_alone = next.is_none() && self.is_native_step(go);
        let Some(others_run) = self.arm_debugger(go, next, steps_alone)? else {
            return Ok(Begun::Runs(Runs::All));
        };
        if others_run && let Some((tid, news)) = self.take_report_of_others(go) {
            return Ok(Begun::Already(tid, news));
        }
        if steps_alone {
            self.step_alone(go.thread)?;
        }
        self.resume_standing(go, others_run)?;
        Ok(Begun::Runs(if others_run { Runs::All } else { Runs::One }))
    }

    /// Keeps the signals that `go` sends in their threads, since another thread's event may be
    /// reported before these are resumed.
    fn choose_signals(&mut self, go: &Go) {
        let others = go.signals.iter().copied().filter(|(tid, _)| *tid != go.thread);
        let own = Some((go.thread, go.signal)).filter(|(_, signal)| *signal != 0);
        for (tid, signal) in others.chain(own) {
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.chosen = signal;
            }
        }
    }

    /// Returns true if `go` is a step of a thread that is stopped in the program, and gets no signal.
    fn is_native_step(&self, go: &Go) -> bool {
        let stands = |t: &Thread| t.doing == Doing::Standing && !t.waits && t.chosen == 0;
        go.step && self.threads.get(&go.thread).is_some_and(stands)
    }

    /// Sets all that the program's debugger wants of the run: stops, watches, and what to follow.
    /// `next` is the end of a step over a system call. Returns true if threads other than the
    /// requested one run, too; `None` if the program is gone.
    fn arm_debugger(
        &mut self,
        go: &Go,
        next: Option<u64>,
        steps_alone: bool,
    ) -> Result<Option<bool>, Error> {
        let Some(process) = self.processes.get_mut(&self.program) else { return Ok(None) };
        process.catch_calls(&go.catches);
        process.note_calling(&self.threads);
        let debugger = process.debugger.get_or_insert_default();
        debugger.stops = go.stops.iter().map(|addr| addr.0).collect();
        debugger.stepping = go.step.then_some(go.thread);
        debugger.steps_alone = go.locked;
        debugger.following = next;
        (debugger.passed, debugger.passed_to_stepper) = (go.passed, go.passed_to_stepper);
        debugger.forks = go.forks;
        debugger.slots = slots(&go.watches);
        let program = self.program;
        let of_program = self.threads.values_mut().filter(|thread| thread.pid() == program);
        for thread in of_program.filter(|thread| thread.doing == Doing::Standing) {
            gone_is_fine(thread.watched.set(thread.tracee(), &debugger.slots))?;
        }
        debugger.lone_steps = if steps_alone { debugger.lone_steps + 1 } else { 0 };
        // The others run now and then, since the stepping thread may wait for them.
        let others_run =
            !go.locked && (!steps_alone || debugger.lone_steps.is_multiple_of(LONE_STEPS));
        debugger.holds_newborns = !others_run;
        let stops = debugger.stops();
        process.engine.set_stops(&stops);
        Ok(Some(others_run))
    }

    /// Lets a thread, which is stopped in the program, execute one instruction there.
    fn step_alone(&mut self, tid: Tid) -> Result<(), Error> {
        self.with(tid, |process, thread| {
            let ip = thread.tracee().registers()?.rip;
            thread.held = 0;
            thread.pending.note_resumed(0);
            process.send(thread.tid(), Item::Enter { ip, tsc: now().0 });
            process.step_natively(thread, Addr(ip))
        })?;
        Ok(())
    }

    /// Resumes the program's threads that are stopped, or only the requested one.
    fn resume_standing(&mut self, go: &Go, others_run: bool) -> Result<(), Error> {
        // A thread that steps natively is no longer `Standing`, so it is not resumed here.
        let goes_on = |thread: &&Thread| others_run || thread.tid() == go.thread;
        let program = self.program;
        let of_program = self.threads.values().filter(|thread| thread.pid() == program);
        let standing = of_program.filter(|thread| thread.doing == Doing::Standing);
        let tids: Vec<Tid> = standing.filter(goes_on).map(Thread::tid).collect();
        for tid in tids {
            self.with(tid, Process::let_go_on)?;
        }
        Ok(())
    }

    /// Returns the address after the next instruction of a stepping thread if that is a SYSCALL,
    /// which the thread makes from the cache; `None` for other instructions, or without a step.
    fn next_call(&self, go: &Go) -> Result<Option<u64>, Error> {
        let (Some(thread), true) = (self.threads.get(&go.thread), go.step) else { return Ok(None) };
        if thread.doing == Doing::Waiting {
            return Ok(None);
        }
        let ip = thread.tracee().registers()?.rip;
        let mut bytes = [0; SYSCALL_INSN.len()];
        let Some(process) = self.processes.get(&self.program) else { return Ok(None) };
        let known = process.engine.memory.read(Addr(ip), &mut bytes);
        let is_call = known == bytes.len() && bytes == SYSCALL_INSN;
        Ok(is_call.then(|| ip + SYSCALL_INSN.len() as u64))
    }

    /// Interrupts all running threads, and waits until they are stopped outside the cache. Stops
    /// that threads have for other reasons are handled first, and may add events.
    pub(super) fn halt_all(&mut self) -> Result<(), Error> {
        for thread in self.threads.values_mut().filter(|thread| runs(thread)) {
            thread.is_young = false;
            gone_is_fine(thread.tracee().interrupt())?;
        }
        while self.threads.values().any(runs) {
            let Some((tid, stop)) = self.wait()? else { continue };
            if !self.bring_out(tid, stop, Process::halt)? {
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
        self.part_from(self.program)
    }
}

/// The result of resuming threads.
enum Begun {
    /// These threads were resumed.
    Runs(Runs),
    /// This thread had an event to report, so none was resumed.
    Already(Tid, Report),
}

/// The threads of the program that were resumed: all, or only the one that the request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    All,
    One,
}

/// Returns true if a thread is still to be stopped.
fn runs(thread: &Thread) -> bool {
    !matches!(thread.doing, Doing::Standing | Doing::AtEnd | Doing::Waiting)
}

impl Process {
    /// Resumes a stopped thread in the cache, with the signal that the debugger chose for it, if
    /// any.
    fn let_go_on(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let held = std::mem::take(&mut thread.held);
        let signal = std::mem::take(&mut thread.chosen);
        thread.pending.note_resumed(signal);
        let ip = thread.tracee().registers()?.rip;
        // The call at which the thread stopped is not caught again, unless the thread was moved.
        thread.caught = thread.caught.filter(|(caught, _)| *caught == ip);
        if signal == 0 {
            return self.go_on_in_cache(thread);
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
            // the signal, even if the signal has no effect. `go_on_in_cache` would pass the
            // breakpoint.
            self.enter(thread)?;
            thread.doing = Doing::Running;
            return Ok(thread.tracee().resume(0)?);
        }
        self.go_on_in_cache(thread)
    }
}
