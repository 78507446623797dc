//! The recorder's loop: it lets one thread go on at a time, and handles the thread's next stop.

use super::chaos::Chaos;
use super::debug_session::Debugger;
use super::followed::Followed;
use super::keyframe_plan::Keyframes;
use super::last::Last;
use super::process::{Finished, Process};
use super::thread::{Doing, Thread};
use super::witness_file::Witness;
use crate::capture::culprit::exit_of;
use crate::capture::error::gone_is_fine;
use crate::capture::newborn::Newborns;
use crate::capture::periodic_signal::PeriodicSignal;
use crate::capture::recorder::Prepared;
use crate::capture::request::{Outcome, Request, Schedule};
use crate::capture::shared_cpu::SharedCpu;
use crate::capture::signals::{Forwarding, Leaving, stop_with_program};
use crate::capture::start::run_to_function;
use crate::capture::{Backend, Error, Report};
use crate::common::{Pid, Tid};
use crate::engine::{Distance, Phase, Ran, Run, RunEnd, SignalStop, Stepped, call_at};
use crate::recording::Exit;
use crate::recording::log::Happening;
use crate::tracee::{self, PtraceEvent, Stop, Tracee, pending_stop, wait_for, wait_interruptibly};
use crate::translate::{Hook, is_tick};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The longest time that a thread keeps the token while others can go on.
const SLICE_PERIOD: Duration = Duration::from_millis(2);

/// The maximum time until a log entry is on disk.
pub(super) const FLUSH_PERIOD: Duration = Duration::from_millis(200);

/// Launches a program, and records it to its end, from `request.start_at` on if that is set. After
/// an error, the program goes on natively, and the recorder waits for its end.
pub(in crate::capture) fn record(request: &Request) -> Result<Outcome, Error> {
    // If recorder and program cannot share one CPU, recording is only slower.
    let shared_cpu = SharedCpu::pin_this_thread().ok();
    let (prepared, pid) = Prepared::launch(request, Backend::Exact)?;
    let forwarding = Forwarding::to(pid);
    let periodic_signal = PeriodicSignal::start(FLUSH_PERIOD);
    let mut engine = Engine::new(request, pid, shared_cpu.as_ref());
    engine.witness = request.witness.as_deref().map(Witness::create).transpose()?;
    engine.followed = Followed::of(request)?;
    prepared.set_latest(&request.store)?;
    let started = match &request.start_at {
        None => engine.start(prepared),
        Some(code) => match run_to_function(pid, code) {
            Ok(tids) => engine.take_over(prepared, &tids, None),
            Err(error) => {
                prepared.give_up();
                Err(error)
            }
        },
    };
    let result = started.and_then(|()| engine.run()).or_else(|error| engine.end_if_harmed(error));
    if let Some(shared_cpu) = shared_cpu {
        let _ = shared_cpu.all.pin_this_thread();
    }
    if let Err(error) = result {
        engine.let_go();
        return Err(error);
    }
    // From here on, a signal is not forwarded: it ends the wait for the children's recorders.
    drop(periodic_signal);
    drop(forwarding);
    engine.outcome()
}

/// The recorder of one process: its threads, and the order in which they run.
#[derive(Debug)]
pub(in crate::capture) struct Engine {
    pub(super) request: Request,
    pub(super) pid: Pid,
    pub(super) process: Option<Process>,
    pub(super) threads: BTreeMap<Tid, Thread>,
    /// The thread that has the token.
    pub(super) holder: Tid,
    /// True if the holder's slice is over: another thread may get the token.
    pub(super) is_slice_over: bool,
    pub(super) slice_began: Instant,
    /// The scheduler's random choices; `None` if threads run in the usual order.
    pub(super) chaos: Option<Chaos>,
    /// The file of states at random moments, if a test asked for one.
    pub(super) witness: Option<Witness>,
    pub(super) keyframes: Keyframes,
    /// First stops of threads and processes whose birth was not reported yet.
    pub(super) early: BTreeMap<Tid, Stop>,
    /// Threads and processes that are left unrecorded, and whose end may be reported.
    pub(super) left: BTreeSet<Tid>,
    /// The recorders of children; `None` if children are not followed.
    pub(super) followed: Option<Followed>,
    /// The children that are stopped until the debugger decides about them.
    pub(super) newborns: Newborns,
    /// New threads whose birth is not logged yet, by the threads that created them.
    pub(super) unborn: BTreeMap<Tid, Thread>,
    pub(super) shared_cpu: Option<SharedCpu>,
    pub(super) debugger: Option<Debugger>,
    /// The names of threads that ended, for the debugger.
    pub(super) names: BTreeMap<Tid, String>,
    pub(super) leaving: Option<Leaving>,
    pub(super) exit: Option<Exit>,
    /// True once the program executes nothing more.
    pub(super) is_finished: bool,
    /// The program's end, until it is logged.
    pub(super) last: Last,
    /// True once the final state is written, and the threads go on to their ends.
    pub(super) is_over: bool,
    pub(super) finished: Option<Finished>,
}

impl Engine {
    pub(super) fn new(request: &Request, pid: Pid, shared_cpu: Option<&SharedCpu>) -> Self {
        Self {
            request: request.clone(),
            pid,
            process: None,
            threads: BTreeMap::new(),
            holder: Tid(pid.0),
            is_slice_over: false,
            slice_began: Instant::now(),
            chaos: (request.schedule == Schedule::Chaos).then(Chaos::new),
            witness: None,
            keyframes: Keyframes::new(request.keyframe_period, request.keep),
            early: BTreeMap::new(),
            left: BTreeSet::new(),
            followed: None,
            newborns: Newborns::default(),
            unborn: BTreeMap::new(),
            shared_cpu: shared_cpu.copied(),
            debugger: None,
            names: BTreeMap::new(),
            leaving: Leaving::when_orphaned(),
            exit: None,
            is_finished: false,
            last: Last::default(),
            is_over: false,
            finished: None,
        }
    }

    /// Calls `act` with the process and a thread. Returns `None` if one of them is gone, or if
    /// another stop or the thread's end disturbed `act`: that stop is noted.
    pub(super) fn with<T>(
        &mut self,
        tid: Tid,
        act: impl FnOnce(&mut Process, &mut Thread) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let (Some(process), Some(thread)) = (&mut self.process, self.threads.get_mut(&tid)) else {
            return Ok(None);
        };
        match act(process, thread) {
            Err(Error::Tracee(tracee::Error::Disturbed { tid: whose, stop })) => {
                self.note_stop(whose, stop)?;
                Ok(None)
            }
            Err(Error::Tracee(error)) if error.is_gone() => {
                let stop = wait_for(tid)?;
                self.note_stop(tid, stop)?;
                Ok(None)
            }
            result => result.map(Some),
        }
    }

    /// Records the process until its end, or until the recorder is asked to leave it.
    pub(super) fn run(&mut self) -> Result<(), Error> {
        while self.finished.is_none() {
            self.flush_if_due()?;
            if self.leaving.as_ref().is_some_and(Leaving::is_asked) {
                self.followed.iter().for_each(Followed::leave);
                return self.leave();
            }
            self.turn()?;
        }
        Ok(())
    }

    /// Flushes the log, and looks for other users of shared memory, if it is time to.
    pub(super) fn flush_if_due(&mut self) -> Result<(), Error> {
        match &mut self.process {
            Some(process) if PeriodicSignal::take_due() => {
                process.look_for_others_if_due();
                Ok(process.recorder.flush()?)
            }
            _ => Ok(()),
        }
    }

    /// Lets the next thread go on. If none can, waits for a stop, or for a signal to the recorder.
    pub(super) fn turn(&mut self) -> Result<(), Error> {
        if self.threads.len() > 1 || !self.left.is_empty() {
            self.collect()?;
        }
        if self.finished.is_some() {
            return Ok(());
        }
        self.store_keyframe_if_due()?;
        let is_due = self.threads.len() > 1
            && (self.slice_began.elapsed() > SLICE_PERIOD
                || self.chaos.as_mut().is_some_and(Chaos::ends_slice));
        self.is_slice_over |= is_due && self.may_switch();
        match self.next_thread() {
            Some(tid) => {
                self.give_token(tid)?;
                self.advance(tid)
            }
            None => match wait_interruptibly()? {
                Some((tid, stop)) => self.note_stop(tid, stop),
                None => Ok(()),
            },
        }
    }

    /// Handles the noted stop of the thread with the token, or lets it step or run a slice.
    fn advance(&mut self, tid: Tid) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let runs = matches!(thread.doing, Doing::Runs);
        if runs && thread.running.is_none() && thread.stop.is_none() {
            self.take_back_foreign(tid)?;
            self.close_foreign(tid)?;
        }
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let steps = self.debugger.as_ref().is_some_and(|d| d.stepping == Some(tid));
        match thread.stop.take() {
            Some(stop) if stop.is_end() => self.ending(tid, stop),
            Some(stop) if !runs => self.go_on_in_call(tid, stop),
            Some(stop) if thread.running.is_none() => self.stopped_in_program(tid, stop),
            None if thread.debug.held.is_some() => {
                let held = thread.debug.held.take();
                held.map_or(Ok(()), |info| self.go_on_with_signal(tid, info))
            }
            None if steps => self.step(tid),
            seen => self.run_slice(tid, seen),
        }
    }

    /// Handles a stop of the thread with the token, which is in the program and in no call.
    fn stopped_in_program(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        let Stop::Signal(signal) = stop else { return self.interrupted(tid, stop) };
        let why = self.with(tid, |process, thread| {
            let why = process.engine.signal_stop(&thread.translated, Phase::Steps, signal)?;
            if why.is_tracers() {
                process.engine.restore_signal_state(&mut thread.translated, signal)?;
            }
            if matches!(why, SignalStop::HiddenFault) {
                thread.translated.fault_again()?;
            }
            Ok(why)
        })?;
        match why {
            Some(SignalStop::Program(info)) => self.signalled(tid, info),
            _ => Ok(()),
        }
    }

    /// Notes a stop of a thread, which is handled when the thread has the token. Ends, group stops
    /// and execs are handled at once.
    pub(super) fn note_stop(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        if self.stop_of_followed(tid, stop)? {
            return Ok(());
        }
        if stop == Stop::Event(PtraceEvent::Exec) {
            return self.executed(tid);
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
            return self.stop_of_stranger(tid, stop);
        };
        match stop {
            stop if stop.is_end() => self.ending(tid, stop),
            Stop::Group(signal) => {
                gone_is_fine(thread.tracee().listen())?;
                stop_with_program(signal);
                Ok(())
            }
            stop => {
                thread.stop = Some(stop);
                Ok(())
            }
        }
    }

    /// Handles a stop of a thread that is not in `threads`. An end of the process's first thread
    /// completes the recording. A first stop is kept in `early` until the birth is reported.
    pub(super) fn stop_of_stranger(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        match stop {
            Stop::Exited(_) | Stop::Killed { .. } if tid.0 == self.pid.0 => {
                self.finish(exit_of(stop))
            }
            Stop::Exited(_) | Stop::Killed { .. } => {
                self.left.remove(&tid);
                Ok(())
            }
            Stop::Event(PtraceEvent::Exit) => gone_is_fine(Tracee(tid).resume(0)),
            stop => {
                self.early.insert(tid, stop);
                Ok(())
            }
        }
    }

    /// Runs the program's code in the cache up to the next system call, signal, or the end of the
    /// slice, and handles that. `seen` is a stop of the run that was not handled yet.
    fn run_slice(&mut self, tid: Tid, seen: Option<Stop>) -> Result<(), Error> {
        if seen.is_none() {
            if self.stops_here(tid)? {
                return Ok(());
            }
            self.look_around(tid)?;
        }
        let is_alone = self.threads.len() == 1;
        let ticks = self.slice_ticks(is_alone);
        let run = self.with(tid, |process, thread| {
            let mut running = if let Some(running) = thread.running {
                running
            } else {
                let engine = &mut process.engine;
                let budget =
                    if is_alone { engine.sampled_budget(ticks) } else { engine.budget(ticks) };
                let budget = budget.unwrap_or(ticks);
                process.engine.begin_run(&mut thread.translated, Distance::Budget(budget))?
            };
            thread.running = Some(running);
            if seen.is_none() {
                thread.tracee().resume(0)?;
            }
            let mut run = process.engine.go_on(&mut thread.translated, &mut running, seen)?;
            let logged = process.take_calls(thread, &mut running)?;
            if let Run::Ran(ran) | Run::Signal(ran, _) = &mut run {
                ran.ticks = ran.ticks.wrapping_sub(logged);
            }
            thread.running = matches!(run, Run::Other(_) | Run::Called).then_some(running);
            Ok(run)
        })?;
        let Some(run) = run else { return Ok(()) };
        if let Run::Ran(ran) | Run::Signal(ran, _) = run
            && let Some(thread) = self.threads.get_mut(&tid)
        {
            thread.ticks += ran.ticks;
            if ran.ticks > 0 || !matches!(run, Run::Signal(..)) {
                thread.debug.passes = None;
            }
        }
        match run {
            Run::Ran(Ran { end: RunEnd::Native(Some(Hook::SystemCall)), .. }) => {
                self.enter_call(tid)
            }
            Run::Ran(Ran { end: RunEnd::Native(hook), .. }) => self.execute(tid, hook),
            Run::Ran(Ran { end: RunEnd::Stop, .. }) => {
                self.report(tid, Report::Breakpoint);
                Ok(())
            }
            Run::Ran(Ran { end: RunEnd::Watchpoint, .. }) => self.reports_watch(tid).map(|_| ()),
            Run::Ran(_) => {
                self.is_slice_over = true;
                self.wander(tid)
            }
            Run::Signal(_, info) => self.signalled(tid, info),
            Run::Other(stop) => self.interrupted(tid, stop),
            Run::Called | Run::Glance(_) => Ok(()),
        }
    }

    /// Handles a stop that is not for a signal: an end, a group stop or an exec.
    fn interrupted(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        match stop {
            stop if stop.is_end() => self.ending(tid, stop),
            Stop::Group(signal) => {
                gone_is_fine(Tracee(tid).listen())?;
                stop_with_program(signal);
                let stop = wait_for(tid)?;
                self.interrupted(tid, stop)
            }
            Stop::Event(PtraceEvent::Exec) => self.executed(tid),
            // The run goes on.
            _ => Ok(()),
        }
    }

    /// Steps a thread through an instruction that is not translated. Logs the instruction if it has
    /// a hook, or accessed foreign memory.
    fn execute(&mut self, tid: Tid, hook: Option<Hook>) -> Result<(), Error> {
        if let Some(why) = hook.and_then(|hook| self.reason_to_leave_at(tid, hook)) {
            return self.leave_for(&why);
        }
        let stepped = self.with(tid, |process, thread| {
            let before = thread.tracee().registers()?;
            if call_at(before.rip.into()).is_some() && process.call_vsyscall(thread, &before)? {
                return Ok(Stepped::Done);
            }
            let bytes = process.bytes_at(before.rip);
            let ticks = u64::from(is_tick(&bytes, before.rip));
            let memory = process.before_step(hook);
            let earlier = match hook {
                Some(_) => None,
                None => process.before_access(thread, &before, &bytes)?,
            };
            let stepped = process.engine.step_in_program(&mut thread.translated)?;
            let accessed = earlier.filter(|_| process.engine.has_open_foreign());
            match (stepped, hook) {
                (Stepped::Done, Some(hook)) => {
                    process.log_step(thread, hook, &before, &bytes, memory)?;
                }
                (Stepped::Done, None) => match accessed {
                    Some(earlier) => process.log_access(thread, &before, &bytes, earlier)?,
                    None => thread.ticks += ticks,
                },
                (_, None) => process.log_begun_access(thread, &before, &bytes, accessed)?,
                (_, Some(_)) => {}
            }
            Ok(stepped)
        })?;
        match stepped {
            Some(Stepped::Signal(info)) => self.signalled(tid, info),
            Some(Stepped::Other(stop)) => self.interrupted(tid, stop),
            Some(Stepped::Done) | None => Ok(()),
        }
    }

    /// Executes the next instruction of a thread, which is stopped in the program. Returns true if
    /// it is a system call: it is begun, and perhaps done.
    pub(super) fn execute_next(&mut self, tid: Tid) -> Result<bool, Error> {
        let hook = self.with(tid, |process, thread| {
            let registers = thread.tracee().registers()?;
            // There is no code in the vsyscall page.
            let is_call = call_at(registers.rip.into()).is_some();
            Ok(process.engine.hook_at(&registers).filter(|_| !is_call))
        })?;
        match hook {
            None => Ok(false),
            Some(Some(Hook::SystemCall)) => self.enter_call(tid).map(|()| true),
            Some(hook) => self.execute(tid, hook).map(|()| false),
        }
    }

    /// Waits up to `limit` for a stop of a thread in a system call, while no other thread runs, and
    /// handles it. Does not wait if no other thread can go on.
    pub(super) fn wait_at_most(&mut self, tid: Tid, limit: Duration) -> Result<(), Error> {
        if self.is_alone(tid) {
            return Ok(());
        }
        let begun = Instant::now();
        loop {
            if let Some(stop) = pending_stop(tid)? {
                return self.handle_stop_in_call(tid, stop);
            }
            if begun.elapsed() > limit {
                return Ok(());
            }
            std::thread::yield_now();
        }
    }

    /// Waits for a stop of a thread that keeps the token in its system call, and handles it.
    pub(super) fn wait_for_call(&mut self, tid: Tid) -> Result<(), Error> {
        let stop = wait_for(tid)?;
        self.handle_stop_in_call(tid, stop)
    }

    /// Handles a stop of a thread in a system call at once: what the call did is in the log before
    /// another thread sees it.
    fn handle_stop_in_call(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        self.note_stop(tid, stop)?;
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        match thread.stop.take_if(|_| matches!(thread.doing, Doing::Calls(_))) {
            Some(stop) => self.go_on_in_call(tid, stop),
            None => Ok(()),
        }
    }

    /// Completes the recording of the process, which is gone or left.
    pub(super) fn finish(&mut self, exit: Option<Exit>) -> Result<(), Error> {
        self.exit = exit;
        self.threads.clear();
        self.newborns.leave_unreported_of(self.pid);
        self.settle_keyframe()?;
        if let Some(mut process) = self.process.take() {
            if !self.is_finished {
                let tid = self.holder;
                process.log_beside(tid, Happening::Finish { place: None })?;
            }
            self.finished = Some(process.finish(exit)?);
        }
        Ok(())
    }

    /// Waits for the children's recorders. Returns all recordings; an error without the program's.
    pub(super) fn outcome(mut self) -> Result<Outcome, Error> {
        self.wait_for_followed()?;
        let Some((dir, manifest, trace_bytes, mut notes)) = self.finished else {
            return Err(tracee::Error::EndedEarly { program: self.request.program }.into());
        };
        let said = self.followed.map(|followed| followed.family.said()).unwrap_or_default();
        let recordings = std::iter::once(dir).chain(said.recordings).collect();
        notes.extend(said.notes);
        Ok(Outcome { recordings, manifest, trace_bytes, notes })
    }
}
