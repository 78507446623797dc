//! The main loop of recording by translation, which waits for stops of threads, and the end of a
//! recording. `events` handles the stops.
//!
//! A thread that is about to end has an *exit stop*, where its registers can be read for the last
//! time. A *newborn* is a child that stays stopped at its birth until a debugger decides about it.

use super::process::{Finished, Process};
use super::thread::{Activity, Thread};
use crate::capture::debugged::Debugged;
use crate::capture::error::gone_is_fine;
use crate::capture::harm::harm_of;
use crate::capture::newborn::Newborns;
use crate::capture::periodic_signal::PeriodicSignal;
use crate::capture::recorder::Prepared;
use crate::capture::request::{Outcome, Request};
use crate::capture::shared_cpu::SharedCpu;
use crate::capture::signals::{Forwarding, Leaving, SnapshotSignal};
use crate::capture::start::run_to_function;
use crate::capture::written::ProgressReports;
use crate::capture::{Backend, Error, final_state};
use crate::common::{Pid, Tid};
use crate::engine::{Place, TranslatedThread};
use crate::recording::Exit;
use crate::tracee::{self, Stop, Tracee, wait_for, wait_interruptibly};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The backend that this folder implements, for manifests.
pub(super) const BACKEND: Backend = Backend::Soft;

/// The time between two saves while a program runs. A killed recorder loses up to two of these:
/// packets encoded at one save are written at the next.
pub(super) const SAVE_PERIOD: Duration = Duration::from_millis(500);

/// Launches a program and records it by translation, until it and all recorded children have ended,
/// or the recorder leaves them, since its front has ended. If the recording fails after the launch,
/// the program goes on natively, and this waits for its end before it returns the error.
pub(in crate::capture) fn record(request: &Request) -> Result<Outcome, Error> {
    // If the program cannot share a CPU with the recorder, recording is only slower.
    let shared_cpu =
        request.start_at.is_none().then(SharedCpu::pin_this_thread).and_then(Result::ok);
    let (prepared, pid) = Prepared::launch(request, BACKEND)?;
    let _forwarding = Forwarding::to(pid);
    let _snapshot_signal = SnapshotSignal::handle();
    let _periodic_signal = PeriodicSignal::start(SAVE_PERIOD);
    let leaving = Leaving::when_orphaned();
    let mut engine = Engine { shared_cpu, ..Engine::new(request, pid, leaving) };
    let started = match &request.start_at {
        None => engine.start(prepared),
        Some(code) => match run_to_function(pid, code) {
            Ok(tids) => engine.record_running(prepared, &tids),
            Err(error) => {
                prepared.give_up();
                Err(error)
            }
        },
    };
    let result = started.and_then(|()| engine.run());
    if let Err(error) = result {
        engine.detach_after_failure();
        return Err(error);
    }
    engine.outcome()
}

/// Attaches to a running process and records it by translation, until it and all recorded children
/// have ended, or a signal asks the recorder to leave them. After an error, the process goes on
/// natively.
pub(in crate::capture) fn attach(request: &Request, pid: Pid) -> Result<Outcome, Error> {
    let (prepared, tids) = Prepared::attach(request, BACKEND, pid)?;
    let _snapshot_signal = SnapshotSignal::handle();
    let _periodic_signal = PeriodicSignal::start(SAVE_PERIOD);
    let mut engine = Engine::new(request, pid, Some(Leaving::on_signals()));
    let result = engine.record_running(prepared, &tids).and_then(|()| engine.run());
    if let Err(error) = result {
        engine.detach_after_failure();
        return Err(error);
    }
    engine.outcome()
}

/// A recording by translation in progress: all its processes and threads.
#[derive(Debug)]
pub(in crate::capture) struct Engine {
    pub(super) request: Request,
    /// The program's process; after a debugger has changed to a child, that child.
    pub(super) program: Pid,
    pub(super) processes: BTreeMap<Pid, Process>,
    pub(super) threads: BTreeMap<Tid, Thread>,
    /// The first stops of threads whose parents have not reported their births yet.
    pub(super) early_stops: BTreeMap<Tid, Stop>,
    /// Threads that were killed before they ran, and were resumed from their exit stops: they are
    /// not in the recording, and their ends are ignored.
    pub(super) unrecorded_ending: BTreeSet<Tid>,
    /// Stops that were seen while another one was handled, to be handled next.
    pub(super) stop_queue: VecDeque<(Tid, Stop)>,
    /// Children that share their parent's memory and run natively until their execve(2), each with
    /// the parent's process.
    pub(super) borrowers: BTreeMap<Tid, Pid>,
    /// Children that stay stopped at their birth until a debugger follows or leaves them.
    pub(super) newborns: Newborns,
    /// A child of `newborns` that the debugger follows while the parent waits for it, as after
    /// vfork(2). The recorder leaves the parent when the child executes a program or ends.
    pub(super) followed_child: Option<Pid>,
    /// The completed recordings, of processes that have ended or were left.
    pub(super) finished: Vec<Finished>,
    /// Notes for the user on limits of the recordings.
    pub(super) notes: Vec<String>,
    /// Asks the recorder to leave the program, if a signal or the end of the front does; `None` if
    /// it records to the end.
    pub(super) leaving: Option<Leaving>,
    /// The CPUs to give back to the program; `None` if it never had to share a CPU with the
    /// recorder.
    pub(super) shared_cpu: Option<SharedCpu>,
    /// The program's exit status or signal; `None` while it runs, or if the recorder left it.
    pub(super) exit: Option<Exit>,
    pub(super) reports: ProgressReports,
}

impl Engine {
    /// Returns the recorder of `program`, which does not record it yet, and touches no process.
    pub(super) fn new(request: &Request, program: Pid, leaving: Option<Leaving>) -> Self {
        Self {
            request: request.clone(),
            program,
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            early_stops: BTreeMap::new(),
            unrecorded_ending: BTreeSet::new(),
            stop_queue: VecDeque::new(),
            borrowers: BTreeMap::new(),
            newborns: Newborns::default(),
            followed_child: None,
            finished: Vec::new(),
            notes: Vec::new(),
            leaving,
            shared_cpu: None,
            exit: None,
            reports: ProgressReports::new(request.report),
        }
    }

    /// Begins to record the launched program, and resumes it in the cache. Marks its recording as
    /// the store's latest.
    fn start(&mut self, prepared: Prepared) -> Result<(), Error> {
        prepared.set_latest(&self.request.store)?;
        self.adopt(prepared, self.program)
    }

    /// Begins to record the process `pid`, whose only thread is stopped at the program's own code,
    /// in the recording `prepared`, and resumes the thread in the cache.
    pub(super) fn adopt(&mut self, prepared: Prepared, pid: Pid) -> Result<(), Error> {
        let shared_cpu = self.shared_cpu.as_ref().filter(|_| pid == self.program);
        let process = Process::start(prepared, &self.request, pid, Tracee(Tid(pid.0)), shared_cpu)?;
        self.processes.insert(pid, process);
        self.add_thread(Tid(pid.0), pid, Place::Program)?;
        self.with_thread(Tid(pid.0), |process, thread| {
            process.trace_and_enter(thread)?;
            Ok(thread.tracee().resume(0)?)
        })
    }

    /// Adds a thread to the recording and to `threads`, with the area of memory for its trace
    /// buffers that was prepared for it; without such an area, to the recording only. It counts as
    /// running, and the caller resumes it. Does nothing if its process is unknown.
    pub(super) fn add_thread(&mut self, tid: Tid, pid: Pid, place: Place) -> Result<(), Error> {
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        process.recorder.add_thread(tid)?;
        if let Some(area) = process.engine.take_area() {
            let translated = TranslatedThread::new(tid, pid, area, place);
            self.threads.insert(tid, Thread::new(translated));
        }
        Ok(())
    }

    /// Calls `act` with a thread and its process. Does nothing if either is unknown. Returns `Ok`
    /// for three errors of `act`: the thread was killed; another stop of it came first (the stop is
    /// added to `stop_queue`); or the process damaged the memory that it shares with the recorder
    /// (it is killed).
    pub(super) fn with_thread(
        &mut self,
        tid: Tid,
        act: impl FnOnce(&mut Process, &mut Thread) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let pid = thread.pid();
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let result = act(process, thread);
        if let Err(Some(what)) = result.as_ref().map_err(harm_of) {
            process.note_harm(what);
        }
        self.end_if_harmed(pid);
        match result {
            Err(error) if harm_of(&error).is_some() => Ok(()),
            Err(Error::Tracee(tracee::Error::Disturbed { tid, stop })) => {
                self.stop_queue.push_back((tid, stop));
                Ok(())
            }
            // The thread was killed: its end will be reported by a later stop.
            Err(Error::Tracee(error)) if error.is_gone() => Ok(()),
            result => result,
        }
    }

    /// Handles stops until all processes have ended or were detached from. Leaves them if
    /// [`Self::leaving`] asks for it, saves the records so far every [`SAVE_PERIOD`], and writes
    /// snapshots on request.
    fn run(&mut self) -> Result<(), Error> {
        let mut leaves = false;
        while !self.processes.is_empty() {
            if !leaves && self.leaving.as_ref().is_some_and(Leaving::is_asked) {
                leaves = true;
                self.interrupt_to_leave()?;
            }
            if PeriodicSignal::take_due() {
                self.save_so_far()?;
                self.end_without_first_threads()?;
            }
            if !leaves && SnapshotSignal::take_request() {
                self.snapshot()?;
            }
            let Some((tid, stop)) = self.wait()? else { continue };
            if !leaves || !self.handle_while_leaving(tid, stop)? {
                self.handle(tid, stop)?;
            }
        }
        Ok(())
    }

    /// Returns the next stop of any thread: the first of `stop_queue`, or else one that this waits
    /// for; `None` if a signal to the recorder interrupted the waiting.
    pub(super) fn wait(&mut self) -> Result<Option<(Tid, Stop)>, Error> {
        match self.stop_queue.pop_front() {
            Some(next_stop) => Ok(Some(next_stop)),
            None => Ok(wait_interruptibly()?),
        }
    }

    /// Calls [`Self::end_if_all_at_exit`] for processes whose first thread is gone, while others
    /// are at their exit stops: the kernel does not report the end of a first thread while others
    /// exist, so no stop would lead to that call.
    pub(super) fn end_without_first_threads(&mut self) -> Result<(), Error> {
        let pids = self.processes.keys().copied();
        let waiting: Vec<Pid> = pids.filter(|&pid| self.has_lost_first_thread(pid)).collect();
        waiting.into_iter().try_for_each(|pid| self.end_if_all_at_exit(pid))
    }

    /// Writes the final state of a process if all its threads are at their exit stops, and resumes
    /// them, so that they end, unless a debugger is to look at them first. Does nothing if a thread
    /// is not there yet.
    pub(super) fn end_if_all_at_exit(&mut self, pid: Pid) -> Result<(), Error> {
        if self.has_lost_first_thread(pid) {
            self.forget_lost_thread(Tid(pid.0));
        }
        let of_process = |thread: &&mut Thread| thread.pid() == pid;
        let threads: Vec<_> = self.threads.values_mut().filter(of_process).collect();
        if threads.iter().any(|thread| thread.activity != Activity::AtExitStop) {
            return Ok(());
        }
        let ending: Vec<_> =
            threads.iter().filter_map(|thread| thread.exit_state.clone()).collect();
        let Some(process) = self.processes.get(&pid) else { return Ok(()) };
        if !ending.is_empty() {
            let (culprit, signal) = process.culprit.known().unwrap_or((Tid(pid.0), 0));
            let ending = final_state::sort_threads(ending, culprit);
            let hidden = process.engine.space.hidden();
            final_state::write_core(
                &process.recorder,
                &process.engine.memory,
                ending,
                signal,
                hidden,
            )?;
        }
        if process.debugger.is_some() {
            // The threads stay at their exit stops until the debugger has looked at them.
            return Ok(());
        }
        threads.into_iter().try_for_each(|thread| gone_is_fine(thread.tracee().resume(0)))
    }

    /// Completes the recording of a process that has ended (with `exit`) or was detached from
    /// (`None`), and forgets the process and its threads. Detaches from its newborn children that
    /// no debugger has seen.
    pub(super) fn finish(&mut self, pid: Pid, exit: Option<Exit>) -> Result<(), Error> {
        if pid == self.program {
            self.exit = exit;
        }
        self.newborns.leave_unreported_of(pid);
        self.threads.retain(|_, thread| thread.pid() != pid);
        if let Some(process) = self.processes.remove(&pid) {
            let (finished, notes) = process.finish(exit)?;
            self.finished.push(finished);
            self.notes.extend(notes);
        }
        Ok(())
    }

    /// Detaches from all threads after a failure. Waits for the end of a launched program, so that
    /// it keeps its terminal.
    pub(super) fn detach_after_failure(&mut self) {
        let pids: Vec<Pid> = self.processes.keys().copied().collect();
        for &pid in &pids {
            self.detach_ignoring_errors(pid);
        }
        // This reaches threads that never entered the cache.
        tracee::detach_process(self.program);
        tracee::detach_all_traced();
        let program = Tid(self.program.0);
        if let Some(shared_cpu) = self.shared_cpu {
            shared_cpu.unpin(program);
        }
        while let Ok(stop) = wait_for(program) {
            if matches!(stop, Stop::Exited(_) | Stop::Killed { .. }) {
                break;
            }
            let signal = if let Stop::Signal(signal) = stop { signal } else { 0 };
            // A thread that was running could not be detached from before.
            let _ = Tracee(program).detach(signal);
        }
    }

    /// Returns the result of the recording. Returns an error if no recording was completed, since
    /// the program ended too early.
    pub(super) fn outcome(mut self) -> Result<Outcome, Error> {
        // The program's own recording comes first.
        self.finished.sort_by_key(|(_, manifest, _)| manifest.pid != self.program);
        let recordings = self.finished.iter().map(|(dir, ..)| dir.clone()).collect();
        let Some((_, manifest, trace_bytes)) = self.finished.into_iter().next() else {
            return Err(tracee::Error::EndedEarly { program: self.request.program.clone() }.into());
        };
        Ok(Outcome { recordings, manifest, trace_bytes, notes: self.notes })
    }
}
