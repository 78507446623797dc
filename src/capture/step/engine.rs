//! The main loop of recording by single-stepping, which schedules threads and waits for stops, and
//! the end of a recording. `events` handles the stops.
//!
//! A thread that is about to end has an *exit stop*, where its registers can be read for the last
//! time. It is kept there until all threads of its process are, if the process ends.

use super::debug_session::Debugger;
use super::process::Process;
use super::thread::{Activity, Call, Thread};
use crate::capture::clock::now;
use crate::capture::debugged::Debugged;
use crate::capture::error::gone_is_fine;
use crate::capture::newborn::Newborns;
use crate::capture::recorder::Prepared;
use crate::capture::request::{Outcome, Request};
use crate::capture::signals::{Forwarding, Leaving};
use crate::capture::{Backend, Error, final_state};
use crate::common::{Pid, Tid};
use crate::encode::{Path, Ranges};
use crate::recording::{Exit, Manifest};
use crate::tracee::{self, Cpus, Stop, Tracee, wait_any, wait_for, wait_interruptibly};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

/// The backend's name in a manifest.
pub(super) const BACKEND: Backend = Backend::Step;
/// The number of steps after which another thread is stepped, if one is ready.
pub(super) const TURN_STEPS: u32 = 1000;
/// The number of stops between two checks for a due flush.
const STOPS_PER_FLUSH: u32 = 1024;
/// The number of pending bytes at which a thread's packets are written to the recording.
const PATH_CHUNK_BYTES: usize = 4096;

/// Restricts this thread, and the program that it launches, to the current CPU. They run
/// alternately, and would have to wake another CPU each time. Does nothing if that CPU is unknown.
/// The restriction is never lifted.
pub(super) fn stay_on_this_cpu() -> Result<(), tracee::Error> {
    match Cpus::current() {
        Ok(here) => here.pin_this_thread(),
        Err(_) => Ok(()),
    }
}

/// Launches a program, and records it and its recorded children by single-stepping, until all have
/// ended or the recorder leaves them. After an error, the program goes on natively, and this
/// function returns at its end.
pub(in crate::capture) fn record(request: &Request) -> Result<Outcome, Error> {
    stay_on_this_cpu()?;
    let (prepared, pid) = Prepared::launch(request, BACKEND)?;
    let _forwarding = Forwarding::to(pid);
    let mut engine = Engine { leaving: Leaving::when_orphaned(), ..Engine::new(request, pid) };
    let result = engine.start(prepared).and_then(|()| engine.run());
    if let Err(error) = result {
        engine.detach_after_failure();
        return Err(error);
    }
    engine.outcome()
}

/// A recording by single-stepping in progress: all its processes and threads.
#[derive(Debug)]
pub(in crate::capture) struct Engine {
    pub(super) request: Request,
    pub(super) program: Pid,
    pub(super) processes: BTreeMap<Pid, Process>,
    pub(super) threads: BTreeMap<Tid, Thread>,
    /// The first stops of threads whose parents have not reported their births yet.
    pub(super) early_stops: BTreeMap<Tid, Stop>,
    /// Children that stay stopped at their birth until a debugger follows or leaves them.
    pub(super) newborns: Newborns,
    pub(super) finished: Vec<(PathBuf, Manifest, u64)>,
    pub(super) notes: Vec<String>,
    /// Reports when the recorder is to leave the program; `None` if it records to the end.
    leaving: Option<Leaving>,
    /// The exit of the program; `None` while it runs, or if the recorder left it.
    pub(super) exit: Option<Exit>,
    /// The state of the debugger's session; `None` without a debugger.
    pub(super) debugger: Option<Debugger>,
    /// The thread whose turn it is.
    pub(super) current: Tid,
    /// The number of steps until another thread's turn.
    pub(super) steps_left: u32,
}

impl Engine {
    /// Returns the recorder of `program`, which does not record it yet, and touches no process.
    pub(super) fn new(request: &Request, program: Pid) -> Self {
        Self {
            request: request.clone(),
            program,
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            early_stops: BTreeMap::new(),
            newborns: Newborns::default(),
            finished: Vec::new(),
            notes: Vec::new(),
            leaving: None,
            exit: None,
            debugger: None,
            current: Tid(program.0),
            steps_left: TURN_STEPS,
        }
    }

    /// Starts the recording of a launched program, which is still in its execve(2), and marks it as
    /// the store's latest. After an error, the caller must detach
    /// ([`Self::detach_after_failure`]).
    pub(super) fn start(&mut self, prepared: Prepared) -> Result<(), Error> {
        let tid = Tid(self.program.0);
        // If anything fails from here on, the program is detached.
        let path = self.new_path(tid, self.program);
        let thread = Thread::new(tid, self.program, crate::common::Addr(0), path);
        self.threads.insert(tid, thread);
        prepared.set_latest(&self.request.store)?;
        let process = Process::start(prepared, &self.request.filter, self.program)?;
        self.processes.insert(self.program, process);
        self.add_thread(tid, self.program, Activity::Ready)?;
        let ip = Tracee(tid).instruction_pointer()?;
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.ip = ip;
            // The program is still in the execve(2) that started it: its first step only ends that
            // call.
            thread.current_call = Some(Call::executing());
        }
        Ok(())
    }

    /// Creates the path of a thread that has not run yet, with a log of its steps if the request
    /// wants one and its file can be opened.
    pub(super) fn new_path(&self, tid: Tid, pid: Pid) -> Path {
        let log = self.request.step_log.as_ref().map(|dir| dir.join(format!("{tid}.log")));
        let open = |path| File::options().append(true).create(true).open(path).ok();
        let none = Ranges::default();
        let ranges = self.processes.get(&pid).map_or(&none, |process| process.resolver.ranges());
        Path::new(self.request.psb_period_bytes, ranges, now, log.and_then(open))
    }

    /// Passes newly found ranges of the filter to the paths of all threads.
    pub(super) fn pass_ranges_to_paths(&mut self) {
        for (pid, process) in self.processes.iter_mut().filter(|(_, p)| p.has_new_ranges) {
            process.has_new_ranges = false;
            for thread in self.threads.values_mut().filter(|thread| thread.pid == *pid) {
                thread.path.set_ranges(process.resolver.ranges());
            }
        }
    }

    /// Adds a new thread to the recording. Its first stop sets its address. Does nothing if its
    /// process is not recorded.
    pub(super) fn add_thread(
        &mut self,
        tid: Tid,
        pid: Pid,
        activity: Activity,
    ) -> Result<(), Error> {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.recorder.add_thread(tid)?;
            let ip = crate::common::Addr(0);
            let mut thread = Thread::new(tid, pid, ip, self.new_path(tid, pid));
            thread.activity = activity;
            self.threads.insert(tid, thread);
        }
        Ok(())
    }

    /// Schedules threads and handles stops until all processes have ended, or the recorder is to
    /// leave them.
    fn run(&mut self) -> Result<(), Error> {
        let mut stops = 0_u32;
        while !self.processes.is_empty() {
            self.schedule()?;
            let next_stop = self.wait()?;
            if let Some((tid, stop)) = next_stop {
                self.handle(tid, stop)?;
            }
            if self.leaving.as_ref().is_some_and(Leaving::is_asked) {
                return self.leave_all();
            }
            self.pass_ranges_to_paths();
            stops = stops.wrapping_add(1);
            if stops.is_multiple_of(STOPS_PER_FLUSH) {
                self.processes.values_mut().try_for_each(|p| p.recorder.flush_if_due())?;
            }
        }
        Ok(())
    }

    /// Detaches from all processes, and completes their recordings. Fails with the first error,
    /// after trying all.
    fn leave_all(&mut self) -> Result<(), Error> {
        let pids: Vec<Pid> = self.processes.keys().copied().collect();
        let mut result = Ok(());
        for pid in pids {
            result = result.and(self.detach_process(pid));
        }
        result
    }

    /// Waits for the next stop of any thread, even if the recorder gets signals.
    pub(super) fn wait_ignoring_signals(&mut self) -> Result<(Tid, Stop), Error> {
        loop {
            if let Some(next_stop) = self.wait()? {
                return Ok(next_stop);
            }
        }
    }

    /// Waits for the next stop of any thread. Writes out pending data first if no thread is being
    /// stepped. Returns `None` if a signal to the recorder interrupted the waiting.
    fn wait(&mut self) -> Result<Option<(Tid, Stop)>, Error> {
        if !self.is_stepping() {
            for _ in 0..2 {
                if let Some(next_stop) = wait_any(false)? {
                    return Ok(Some(next_stop));
                }
                std::thread::yield_now();
            }
            self.write_all()?;
        }
        Ok(wait_interruptibly()?)
    }

    /// Returns true if a thread is being stepped.
    pub(super) fn is_stepping(&self) -> bool {
        self.threads.values().any(|thread| thread.activity == Activity::Stepping)
    }

    /// Writes out all pending packets and files.
    pub(super) fn write_all(&mut self) -> Result<(), Error> {
        for thread in self.threads.values_mut() {
            if let Some(process) = self.processes.get_mut(&thread.pid) {
                thread.path.flush();
                process.write_path(thread)?;
            }
        }
        Ok(self.processes.values_mut().try_for_each(|p| p.recorder.flush())?)
    }

    /// Resumes ready threads until one is being stepped, none is ready, or one must stop for the
    /// debugger; any number may be in system calls.
    pub(super) fn schedule(&mut self) -> Result<(), Error> {
        while !self.is_stepping() {
            let Some(tid) = self.next_thread() else { return Ok(()) };
            if self.must_stop_before(tid) {
                return Ok(());
            }
            if tid != self.current {
                self.switch_out()?;
                self.current = tid;
                self.steps_left = TURN_STEPS;
            }
            self.steps_left = self.steps_left.saturating_sub(1);
            self.resume_thread(tid)?;
        }
        Ok(())
    }

    /// Returns the thread to resume next: the current one until its turn ends, then the next ready
    /// one by number, whose turn begins. Returns `None` if none is ready.
    fn next_thread(&mut self) -> Option<Tid> {
        let ready = |tid: &Tid| self.threads.get(tid).is_some_and(|thread| self.may_resume(thread));
        if self.steps_left > 0 && ready(&self.current) {
            return Some(self.current);
        }
        let following = self.threads.keys().filter(|tid| **tid > self.current);
        let before = self.threads.keys().filter(|tid| **tid <= self.current);
        let next = following.chain(before).copied().find(|tid| ready(tid));
        self.steps_left = TURN_STEPS;
        next
    }

    /// Ends the turn of the current thread: if it is stopped, adds an interrupt to its path, and
    /// writes its packets.
    fn switch_out(&mut self) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&self.current) else { return Ok(()) };
        if thread.activity == Activity::Ready {
            thread.path.interrupt(thread.ip);
            if let Some(process) = self.processes.get_mut(&thread.pid) {
                process.write_path(thread)?;
            }
        }
        Ok(())
    }

    /// Resumes a ready thread: delivers its signal, or executes its next instruction. Does not
    /// wait, but a vsyscall is made at once.
    fn resume_thread(&mut self, tid: Tid) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let Some(process) = self.processes.get_mut(&thread.pid) else { return Ok(()) };
        if thread.path.pending_bytes() >= PATH_CHUNK_BYTES {
            process.write_path(thread)?;
        }
        if thread.signal_to_deliver != 0 {
            let resumed = step_with_signal(thread);
            return await_exit_if_gone(thread, resumed);
        }
        // Between a call and its return there is no instruction to decode.
        let is_inside = thread.current_call.is_some() || thread.restarting_call.is_some();
        if !is_inside && let Some(next) = process.make_vsyscall(thread)? {
            thread.divert(next);
            return Ok(());
        }
        if !is_inside {
            process.decode_next(thread)?;
            let is_far = thread.insn.is_some_and(|insn| insn.class.is_far());
            if is_far && super::calls::is_system_call(process, thread.ip) {
                super::calls::note_call(process, thread)?;
            }
        }
        let resumed = step_or_continue_call(thread);
        await_exit_if_gone(thread, resumed)
    }

    /// Forgets a process's first thread if it is gone while others are at their exit stops: the
    /// kernel does not report its end then.
    fn forget_first_thread(&mut self, pid: Pid) -> Result<(), Error> {
        let first = Tid(pid.0);
        if self.has_lost_first_thread(pid)
            && let Some(mut thread) = self.threads.remove(&first)
            && let Some(process) = self.processes.get_mut(&pid)
        {
            process.end_path(&mut thread, None)?;
        }
        Ok(())
    }

    /// Writes the final state once all threads of a process are at their exit stops, and resumes
    /// them. Does neither for the program while it has a debugger, which looks at it first. Does
    /// nothing before.
    pub(super) fn end_if_all_at_exit(&mut self, pid: Pid) -> Result<(), Error> {
        self.forget_first_thread(pid)?;
        let of_process = |thread: &&mut Thread| thread.pid == pid;
        let mut threads: Vec<_> = self.threads.values_mut().filter(of_process).collect();
        if threads.iter().any(|thread| thread.activity != Activity::AtExitStop)
            || self.debugger.is_some() && pid == self.program
        {
            return Ok(());
        }
        let ending: Vec<_> =
            threads.iter_mut().filter_map(|thread| thread.exit_state.take()).collect();
        if let Some(process) = self.processes.get(&pid)
            && !ending.is_empty()
        {
            let (culprit, signal) = process.culprit.known().unwrap_or((Tid(pid.0), 0));
            let ending = final_state::sort_threads(ending, culprit);
            final_state::write_core(&process.recorder, &process.memory, ending, signal, &[])?;
        }
        threads.into_iter().try_for_each(|thread| gone_is_fine(thread.tracee.resume(0)))
    }

    /// Forgets a process that has ended (with `exit`) or was detached from (`None`), with its
    /// threads, and completes its recording. Detaches from its children that were not reported.
    pub(super) fn finish(&mut self, pid: Pid, exit: Option<Exit>) -> Result<(), Error> {
        self.threads.retain(|_, thread| thread.pid != pid);
        if pid == self.program {
            self.exit = exit;
        }
        self.newborns.leave_unreported_of(pid);
        if let Some(process) = self.processes.remove(&pid) {
            self.notes.extend(process.resolver.notes());
            self.finished.push(process.recorder.finish(exit)?);
        }
        Ok(())
    }

    /// Detaches from all threads after a failure. Waits for the end of a launched program, so that
    /// it keeps its terminal.
    pub(super) fn detach_after_failure(&mut self) {
        for thread in self.threads.values_mut() {
            thread.detach();
        }
        let program = Tid(self.program.0);
        while self.threads.contains_key(&program) {
            if !matches!(wait_for(program), Ok(Stop::Signal(_) | Stop::Event(_) | Stop::Group(_))) {
                break;
            }
        }
    }

    /// Returns the outcome, whose first recording is that of the program. Fails if no recording was
    /// completed.
    fn outcome(mut self) -> Result<Outcome, Error> {
        // List the program's own recording first.
        self.finished.sort_by_key(|(_, manifest, _)| manifest.pid != self.program);
        let recordings = self.finished.iter().map(|(dir, ..)| dir.clone()).collect();
        let Some((_, manifest, trace_bytes)) = self.finished.into_iter().next() else {
            return Err(tracee::Error::EndedEarly { program: self.request.program.clone() }.into());
        };
        Ok(Outcome { recordings, manifest, trace_bytes, notes: self.notes })
    }
}

/// Single-steps a thread, or resumes it in its system call up to the call's next stop. Does not
/// wait.
fn step_or_continue_call(thread: &mut Thread) -> Result<(), tracee::Error> {
    if thread.current_call.is_some() || thread.restarting_call.is_some() {
        let again = thread.restore_trap_mask()?;
        thread.activity = Activity::InCall;
        return thread.tracee.resume_to_call(again);
    }
    // An INT3 kills a program that blocks SIGTRAP, and must do so here.
    let is_far = thread.insn.is_some_and(|insn| insn.class.is_far());
    let again = if is_far {
        thread.restore_trap_mask()?
    } else {
        thread.trap.unblock_for_step(thread.pid, thread.tracee).map(|()| 0)?
    };
    thread.activity = Activity::Stepping;
    thread.tracee.step(again)
}

/// Resumes a thread for one step with its signal, and does not wait. The thread will stop before
/// its next instruction, in the handler if there is one.
fn step_with_signal(thread: &mut Thread) -> Result<(), tracee::Error> {
    thread.restore_trap_mask()?;
    thread.tracee.interrupt()?;
    thread.activity = Activity::Stepping;
    thread.tracee.step(std::mem::take(&mut thread.signal_to_deliver))
}

/// Marks a thread as stepping if `resumed` is the error that it is gone: its exit will be reported.
/// Returns other errors.
fn await_exit_if_gone(
    thread: &mut Thread,
    resumed: Result<(), tracee::Error>,
) -> Result<(), Error> {
    if resumed.as_ref().is_err_and(tracee::Error::is_gone) {
        thread.activity = Activity::Stepping;
    }
    gone_is_fine(resumed)
}
