//! The recorder's loop: it lets one thread go on at a time, and handles the thread's next stop.
//!
//! A stop that the kernel reports is kept in the thread's `noted_stop` until the thread gets the
//! token ([`ExactRecorder::note_stop`]). Then `advance_thread` handles the stop, or runs the
//! thread's code in the cache for a time slice. Methods of [`ExactRecorder`] for the kinds of stops
//! are in the files `calls`, `signals`, `births`, `ends`, `hooks` and `start`. The *token* is the
//! right to execute the program's code; one thread has it, for a *slice* of time.

use super::chaos::Chaos;
use super::debug_session::Debugger;
use super::followed::Followed;
use super::keyframe_plan::KeyframePlan;
use super::process::{CompleteRecording, Process};
use super::program_end::ProgramEnd;
use super::thread::{Activity, Thread};
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
use crate::engine::{EndedRun, Phase, RunEnd, RunLimit, RunOutcome, SignalStop};
use crate::recording::Exit;
use crate::recording::log::LogEvent;
use crate::tracee::{self, PtraceEvent, Stop, Tracee, pending_stop, wait_for, wait_interruptibly};
use crate::translate::Hook;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The longest time that a thread keeps the token while others can go on.
const SLICE_PERIOD: Duration = Duration::from_millis(2);

/// The maximum time until a log entry is on disk.
pub(super) const FLUSH_PERIOD: Duration = Duration::from_millis(200);

/// Launches a program, and records it to its end, from `request.start_at` on if that is set. Then
/// waits for the recorders of its children. After an error, the program goes on natively; returns
/// the error once the program has ended.
pub(in crate::capture) fn record(request: &Request) -> Result<Outcome, Error> {
    // If recorder and program cannot share one CPU, recording is only slower.
    let shared_cpu = SharedCpu::pin_this_thread().ok();
    let witness = request.witness.as_deref().map(Witness::create).transpose()?;
    let followed = Followed::if_requested(request)?;
    let (prepared, pid) = Prepared::launch(request, Backend::Exact)?;
    let forwarding = Forwarding::to(pid);
    let periodic_signal = PeriodicSignal::start(FLUSH_PERIOD);
    let mut recorder = ExactRecorder::new(request, pid, shared_cpu.as_ref());
    (recorder.witness, recorder.followed) = (witness, followed);
    prepared.set_latest(&request.store)?;
    let started = match &request.start_at {
        None => recorder.start_launched(prepared),
        Some(code) => match run_to_function(pid, code) {
            Ok(tids) => recorder.take_over(prepared, &tids, None),
            Err(error) => {
                prepared.give_up();
                Err(error)
            }
        },
    };
    let result = started
        .and_then(|()| recorder.record_to_end())
        .or_else(|error| recorder.kill_if_harmed(error));
    if let Some(shared_cpu) = shared_cpu {
        let _ = shared_cpu.all.pin_this_thread();
    }
    if let Err(error) = result {
        recorder.detach_and_wait();
        return Err(error);
    }
    // From here on, a signal is not forwarded: it ends the wait for the children's recorders.
    drop(periodic_signal);
    drop(forwarding);
    recorder.outcome()
}

/// The recorder of one process: its threads, and the order in which they run.
#[derive(Debug)]
pub(in crate::capture) struct ExactRecorder {
    pub(super) request: Request,
    pub(super) pid: Pid,
    /// The process and its log; `None` before the recording begins, and once it is complete.
    pub(super) process: Option<Process>,
    /// The threads that are recorded. One that is gone is removed.
    pub(super) threads: BTreeMap<Tid, Thread>,
    /// The thread that has the token.
    pub(super) holder: Tid,
    /// True if the holder's slice is over: another thread may get the token.
    pub(super) is_slice_over: bool,
    /// When the holder's slice began.
    pub(super) slice_began: Instant,
    /// The scheduler's random choices; `None` if threads run in the usual order.
    pub(super) chaos: Option<Chaos>,
    /// The file of states at random moments, if a test asked for one.
    pub(super) witness: Option<Witness>,
    pub(super) keyframes: KeyframePlan,
    /// First stops of new threads and processes that the kernel reported before their parents'
    /// calls (`births`).
    pub(super) early_stops: BTreeMap<Tid, Stop>,
    /// Threads and children that are not recorded any more, or never were, until the kernel reports
    /// their ends.
    pub(super) unrecorded: BTreeSet<Tid>,
    /// The recorders of children; `None` if children are not followed.
    pub(super) followed: Option<Followed>,
    /// The children that are stopped until the debugger decides about them.
    pub(super) newborns: Newborns,
    /// New threads whose birth is not logged yet, by the threads that created them: the log has the
    /// call of the creator first.
    pub(super) unlogged_threads: BTreeMap<Tid, Thread>,
    /// The CPU on which recorder and program take turns; `None` if they share none.
    pub(super) shared_cpu: Option<SharedCpu>,
    /// The state of the debugger session; `None` without a debugger.
    pub(super) debugger: Option<Debugger>,
    /// The names of threads that ended, for the debugger.
    pub(super) names: BTreeMap<Tid, String>,
    /// The requests to leave the program: a signal, or the end of the recorder's front. `None` if
    /// none is followed.
    pub(super) leaving: Option<Leaving>,
    /// The exit of the process, once it is known.
    pub(super) exit: Option<Exit>,
    /// True once the recorded part of the program has its end (`program_end`): nothing that threads
    /// execute from then on is recorded.
    pub(super) has_program_ended: bool,
    /// The end of the program, until it is logged.
    pub(super) program_end: ProgramEnd,
    /// True once the final state is written, and the threads go on to their ends.
    pub(super) is_final_state_written: bool,
    /// The recording once it is complete, which ends the recorder's loop.
    pub(super) completed: Option<CompleteRecording>,
}

impl ExactRecorder {
    /// Returns the recorder of `pid`, which does not record it yet, and touches no process.
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
            keyframes: KeyframePlan::new(request.keyframe_period, request.keep),
            early_stops: BTreeMap::new(),
            unrecorded: BTreeSet::new(),
            followed: None,
            newborns: Newborns::default(),
            unlogged_threads: BTreeMap::new(),
            shared_cpu: shared_cpu.copied(),
            debugger: None,
            names: BTreeMap::new(),
            leaving: Leaving::when_orphaned(),
            exit: None,
            has_program_ended: false,
            program_end: ProgramEnd::default(),
            is_final_state_written: false,
            completed: None,
        }
    }

    /// Calls `act` with the process and a thread. Returns `None` if one of them is unknown, or if
    /// `act` failed since another stop or the thread's end came: waits for that stop if need be,
    /// and passes it to [`Self::note_stop`]. Returns all other errors of `act`.
    pub(super) fn with_thread<T>(
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

    /// Records the process until its end, or until the recorder is asked to leave it: then asks the
    /// children's recorders for the same, and ends the recording. It is in `completed` afterwards.
    pub(super) fn record_to_end(&mut self) -> Result<(), Error> {
        while self.completed.is_none() {
            self.flush_if_due()?;
            if self.leaving.as_ref().is_some_and(Leaving::is_asked) {
                self.followed.iter().for_each(Followed::ask_to_leave);
                return self.stop_recording();
            }
            self.advance_next_thread()?;
        }
        Ok(())
    }

    /// Flushes the log if a period of the [`PeriodicSignal`] is over. Then also makes shared memory
    /// foreign that other processes can write by now, if a look at them is due.
    pub(super) fn flush_if_due(&mut self) -> Result<(), Error> {
        match &mut self.process {
            Some(process) if PeriodicSignal::take_due() => {
                process.find_foreign_if_due();
                Ok(process.recorder.flush()?)
            }
            _ => Ok(()),
        }
    }

    /// Chooses the next thread, gives it the token, and lets it go on until its next stop or the
    /// end of its slice. If no thread can go on, waits for a stop and notes it; a signal to the
    /// recorder ends that wait, too. Notes stops that have happened before, and stores a keyframe
    /// if one is due.
    pub(super) fn advance_next_thread(&mut self) -> Result<(), Error> {
        if self.threads.len() > 1 || !self.unrecorded.is_empty() {
            self.note_pending_stops()?;
        }
        if self.completed.is_some() {
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
                self.advance_thread(tid)
            }
            None => match wait_interruptibly()? {
                Some((tid, stop)) => self.note_stop(tid, stop),
                None => Ok(()),
            },
        }
    }

    /// Handles the noted stop of the thread with the token, or delivers the signal that the
    /// debugger held, or lets the thread execute one instruction (if the debugger steps it) or a
    /// slice.
    fn advance_thread(&mut self, tid: Tid) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let runs = matches!(thread.activity, Activity::Runs);
        if runs && thread.paused_run.is_none() && thread.noted_stop.is_none() {
            self.reclaim_foreign(tid)?;
            self.close_foreign(tid)?;
        }
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let steps = self.debugger.as_ref().is_some_and(|d| d.stepping == Some(tid));
        match thread.noted_stop.take() {
            Some(stop) if stop.is_end() => self.handle_end(tid, stop),
            Some(stop) if !runs => self.handle_call_stop(tid, stop),
            Some(stop) if thread.paused_run.is_none() => self.handle_stop_in_program(tid, stop),
            None if thread.debug.held_signal.is_some() => {
                let held = thread.debug.held_signal.take();
                held.map_or(Ok(()), |info| self.go_on_with_signal(tid, info))
            }
            None if steps => self.step(tid),
            noted_stop => self.run_slice(tid, noted_stop),
        }
    }

    /// Handles a stop of the thread with the token, which is in the program and in no call. A
    /// signal of the program is delivered. One of the recorder does nothing to the program.
    fn handle_stop_in_program(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        let Stop::Signal(signal) = stop else { return self.handle_other_stop(tid, stop) };
        let why = self.with_thread(tid, |process, thread| {
            let why = process.engine.classify_stop(&thread.translated, Phase::Steps, signal)?;
            if why.is_tracers() {
                process.engine.restore_signal_state(&mut thread.translated, signal)?;
            }
            if matches!(why, SignalStop::HiddenFault) {
                thread.translated.repeat_fault()?;
            }
            Ok(why)
        })?;
        match why {
            Some(SignalStop::Program(info)) => self.handle_signal(tid, info),
            _ => Ok(()),
        }
    }

    /// Notes a stop of a thread, which is handled when the thread has the token. Ends, group stops
    /// (job control, which may stop the recorder, too) and execs are handled at once, and so are
    /// the stops of processes and threads that are not recorded here (`handle_stop_of_followed`,
    /// `handle_stop_of_unknown`).
    pub(super) fn note_stop(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        if self.handle_stop_of_followed(tid, stop)? {
            return Ok(());
        }
        if stop == Stop::Event(PtraceEvent::Exec) {
            return self.handle_exec(tid);
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
            return self.handle_stop_of_unknown(tid, stop);
        };
        match stop {
            stop if stop.is_end() => self.handle_end(tid, stop),
            Stop::Group(signal) => {
                gone_is_fine(thread.tracee().listen())?;
                stop_with_program(signal);
                Ok(())
            }
            stop => {
                thread.noted_stop = Some(stop);
                Ok(())
            }
        }
    }

    /// Handles a stop of a thread that is not in `threads`. If the process's first thread is gone,
    /// completes the recording. Resumes threads from their exit stops. Any other stop is taken for
    /// the first one of a new thread or process, and is kept in `early_stops` until its birth is
    /// reported.
    pub(super) fn handle_stop_of_unknown(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        match stop {
            Stop::Exited(_) | Stop::Killed { .. } if tid.0 == self.pid.0 => {
                self.complete_recording(exit_of(stop))
            }
            Stop::Exited(_) | Stop::Killed { .. } => {
                self.unrecorded.remove(&tid);
                Ok(())
            }
            Stop::Event(PtraceEvent::Exit) => gone_is_fine(Tracee(tid).resume(0)),
            stop => {
                self.early_stops.insert(tid, stop);
                Ok(())
            }
        }
    }

    /// Runs a thread's code in the cache up to the next hook (such as a system call), signal or
    /// debugger's stop, or to the end of the slice, and handles that. Goes on with the thread's
    /// `paused_run` if there is one. `noted_stop` is a stop that came during that run: the thread
    /// is not resumed then. Reports a debugger's stop at the current address without a run.
    fn run_slice(&mut self, tid: Tid, noted_stop: Option<Stop>) -> Result<(), Error> {
        if noted_stop.is_none() {
            if self.report_stop_here(tid)? {
                return Ok(());
            }
            self.witness_sometimes(tid)?;
        }
        let is_alone = self.threads.len() == 1;
        let ticks = self.slice_ticks(is_alone);
        let run = self.with_thread(tid, |process, thread| {
            let mut running = if let Some(running) = thread.paused_run {
                running
            } else {
                let engine = &mut process.engine;
                let budget =
                    if is_alone { engine.sampled_budget(ticks) } else { engine.budget(ticks) };
                let budget = budget.unwrap_or(ticks);
                process.engine.begin_run(&mut thread.translated, RunLimit::Budget(budget))?
            };
            thread.paused_run = Some(running);
            if noted_stop.is_none() {
                thread.tracee().resume(0)?;
            }
            let mut run =
                process.engine.serve_run(&mut thread.translated, &mut running, noted_stop)?;
            let logged = process.log_run_calls(thread, &mut running)?;
            if let RunOutcome::Ended(ran) | RunOutcome::Signal(ran, _) = &mut run {
                ran.ticks = ran.ticks.wrapping_sub(logged);
            }
            thread.paused_run =
                matches!(run, RunOutcome::Other(_) | RunOutcome::IncompleteCall).then_some(running);
            Ok(run)
        })?;
        let Some(run) = run else { return Ok(()) };
        if let RunOutcome::Ended(ran) | RunOutcome::Signal(ran, _) = run
            && let Some(thread) = self.threads.get_mut(&tid)
        {
            thread.ticks += ran.ticks;
            if ran.ticks > 0 || !matches!(run, RunOutcome::Signal(..)) {
                thread.debug.skipped_stop = None;
            }
        }
        match run {
            RunOutcome::Ended(EndedRun { end: RunEnd::Native(Some(Hook::SystemCall)), .. }) => {
                self.enter_call(tid)
            }
            RunOutcome::Ended(EndedRun { end: RunEnd::Native(hook), .. }) => {
                self.execute_untranslated(tid, hook)
            }
            RunOutcome::Ended(EndedRun { end: RunEnd::Stop, .. }) => {
                self.report_event(tid, Report::Breakpoint);
                Ok(())
            }
            RunOutcome::Ended(EndedRun { end: RunEnd::Watchpoint, .. }) => {
                self.report_watch(tid).map(|_| ())
            }
            RunOutcome::Ended(_) => {
                self.is_slice_over = true;
                self.step_and_witness(tid)
            }
            RunOutcome::Signal(_, info) => self.handle_signal(tid, info),
            RunOutcome::Other(stop) => self.handle_other_stop(tid, stop),
            RunOutcome::IncompleteCall | RunOutcome::Glance(_) => Ok(()),
        }
    }

    /// Handles a stop that is not for a signal: an end or an exec. In a group stop, waits for the
    /// thread's next stop and handles that. Ignores other stops.
    pub(super) fn handle_other_stop(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        match stop {
            stop if stop.is_end() => self.handle_end(tid, stop),
            Stop::Group(signal) => {
                gone_is_fine(Tracee(tid).listen())?;
                stop_with_program(signal);
                let stop = wait_for(tid)?;
                self.handle_other_stop(tid, stop)
            }
            Stop::Event(PtraceEvent::Exec) => self.handle_exec(tid),
            // The run goes on.
            _ => Ok(()),
        }
    }

    /// Waits up to `limit` for a stop of a thread in a system call, while no other thread runs, and
    /// handles it. Without a stop in that time, the thread stays in the call, and others can go on.
    /// Does not wait if no other thread can go on: the recorder's loop waits then.
    pub(super) fn wait_in_call_at_most(&mut self, tid: Tid, limit: Duration) -> Result<(), Error> {
        if self.no_other_can_go(tid) {
            return Ok(());
        }
        let begun = Instant::now();
        loop {
            if let Some(stop) = pending_stop(tid)? {
                return self.note_and_handle_call_stop(tid, stop);
            }
            if begun.elapsed() > limit {
                return Ok(());
            }
            std::thread::yield_now();
        }
    }

    /// Waits without a limit for the next stop of a thread that keeps the token in its system call,
    /// and handles it.
    pub(super) fn wait_for_call_stop(&mut self, tid: Tid) -> Result<(), Error> {
        let stop = wait_for(tid)?;
        self.note_and_handle_call_stop(tid, stop)
    }

    /// Notes a stop of a thread in a system call, and handles it at once: the effects of the call
    /// are in the log before another thread sees them.
    fn note_and_handle_call_stop(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        self.note_stop(tid, stop)?;
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        match thread.noted_stop.take_if(|_| matches!(thread.activity, Activity::InCall(_))) {
            Some(stop) => self.handle_call_stop(tid, stop),
            None => Ok(()),
        }
    }

    /// Completes the recording of the process, which is gone or left, into `completed`. Logs an end
    /// without a place if none was noted. Forgets all threads, and lets newborn children that were
    /// not reported to the debugger go on natively.
    pub(super) fn complete_recording(&mut self, exit: Option<Exit>) -> Result<(), Error> {
        self.exit = exit;
        self.threads.clear();
        self.newborns.leave_unreported_of(self.pid);
        self.wait_for_keyframe()?;
        if let Some(mut process) = self.process.take() {
            if !self.has_program_ended {
                let tid = self.holder;
                process.log_without_ticks(tid, LogEvent::Finish { place: None })?;
            }
            self.completed = Some(process.complete(exit)?);
        }
        Ok(())
    }

    /// Waits for the children's recorders. Returns the program's recording first, then those of the
    /// children, with all notes. Fails if the program has no recording, as it ended too early.
    pub(super) fn outcome(mut self) -> Result<Outcome, Error> {
        self.wait_for_followed()?;
        let Some((dir, manifest, trace_bytes, mut notes)) = self.completed else {
            return Err(tracee::Error::EndedEarly { program: self.request.program }.into());
        };
        let report =
            self.followed.map(|followed| followed.family.read_report()).unwrap_or_default();
        let recordings = std::iter::once(dir).chain(report.recordings).collect();
        notes.extend(report.notes);
        Ok(Outcome { recordings, manifest, trace_bytes, notes })
    }
}
