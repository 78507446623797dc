//! The main loop of recording with the CPU: threads run natively, and stop only for events that
//! concern the recording. `events` handles the stops. An *exit stop* is the last stop of a thread,
//! before it is gone: its registers can be read there.
//!
//! A snapshot of the rings takes several stops: `begin_snapshot` writes the rings of stopped
//! threads, and interrupts the others (`awaits_snapshot`); each ring is written at its thread's
//! next stop (`write_awaited_ring`), and after the last one the snapshot is complete
//! (`end_snapshot_if_written`). To leave the processes takes as many: all threads are interrupted,
//! and once all are stopped, they are detached from.

use super::clock::PerfTime;
use super::config::Settings;
use super::debug_session::Debugger;
use super::pmu::{AuxArea, CpuPmu, Pmu};
use super::process::{Finished, Process};
use super::sideband::SidebandAttr;
use super::sysfs::{DEVICES, PtPmu};
use super::thread::{Activity, Thread};
use crate::capture::debugged::Debugged;
use crate::capture::error::gone_is_fine;
use crate::capture::limits::SMALL_BUFFER;
use crate::capture::recorder::Prepared;
use crate::capture::request::{History, Outcome, Request};
use crate::capture::signals::{Forwarding, Leaving, SnapshotSignal};
use crate::capture::start::run_to_function;
use crate::capture::{Backend, Error, final_state};
use crate::common::{Pid, Tid};
use crate::insn::Registers;
use crate::recording::Exit;
use crate::tracee::{self, Signo, Stop, Tracee, wait_for, wait_interruptibly};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The backend's name in a manifest.
pub(super) const BACKEND: Backend = Backend::Perf;
/// The size of the AUX area of a thread whose whole trace is kept.
const FULL_BYTES: u64 = 4 << 20;

/// The size of a ring, which is requested in bytes of the soft backend's records, per byte of
/// trace: for as much history, this backend needs an eighth of the memory.
const RECORDS_PER_TRACE: u64 = 8;

/// Returns the CPU's PMU, configured for the request, or an error if it cannot be used.
pub(super) fn open_cpu_pmu(request: &Request) -> Result<CpuPmu, Error> {
    let pmu = PtPmu::read(Path::new(DEVICES))?;
    let settings = Settings::new(&pmu, &request.pt_config, request.psb_period_bytes)?;
    let cpu = CpuPmu::new(pmu, settings);
    cpu.probe()?;
    Ok(cpu)
}

/// Returns an error if this machine's CPU cannot trace as requested.
pub(in crate::capture) fn probe(request: &Request) -> Result<(), Error> {
    let ranges = open_cpu_pmu(request)?.filter_ranges();
    let count = request.filter.only.len() + request.filter.stop.len();
    if count > ranges {
        return Err(crate::capture::PerfError::TooManyRanges { count, ranges }.into());
    }
    Ok(())
}

/// Launches a program, and records it with the CPU until it ends.
pub(in crate::capture) fn record(request: &Request) -> Result<Outcome, Error> {
    record_with(request, &mut open_cpu_pmu(request)?)
}

/// Attaches to a running process, and records it with the CPU until it ends or a signal asks to
/// leave it.
pub(in crate::capture) fn attach(request: &Request, pid: Pid) -> Result<Outcome, Error> {
    attach_with(request, pid, &mut open_cpu_pmu(request)?)
}

/// Launches a program, and records it with `pmu` until it ends: from its beginning, or from
/// `request.start_at` on, up to which it runs natively. After an error, the program goes on
/// natively, and this function returns at its end, so that it keeps its terminal.
pub(super) fn record_with(request: &Request, pmu: &mut dyn Pmu) -> Result<Outcome, Error> {
    let (sideband_attr, time) = SidebandAttr::probe()?;
    let (mut prepared, pid) = Prepared::launch(request, BACKEND)?;
    note_hardware(&mut prepared, pmu);
    let _forwarding = Forwarding::to(pid);
    let _snapshot_signal = SnapshotSignal::handle();
    let tids = match &request.start_at {
        None => vec![Tid(pid.0)],
        Some(code) => match run_to_function(pid, code) {
            Ok(tids) => tids,
            Err(error) => {
                prepared.give_up();
                tracee::detach_process(pid);
                // Keep the terminal for the program until its end.
                wait_for_end(pid);
                return Err(error);
            }
        },
    };
    let mut engine = Engine::new(request, pid, Box::new(pmu), sideband_attr, time);
    let begun = engine.begin(prepared, &tids);
    engine.outcome(begun, None)
}

/// Attaches to a running process, and records it with `pmu` until it ends or a signal asks to leave
/// it.
pub(super) fn attach_with(
    request: &Request,
    pid: Pid,
    pmu: &mut dyn Pmu,
) -> Result<Outcome, Error> {
    let (sideband_attr, time) = SidebandAttr::probe()?;
    let leaving = Leaving::on_signals();
    let _snapshot_signal = SnapshotSignal::handle();
    let (mut prepared, tids) = Prepared::attach(request, BACKEND, pid)?;
    note_hardware(&mut prepared, pmu);
    let mut engine = Engine::new(request, pid, Box::new(pmu), sideband_attr, time);
    let begun = engine.begin(prepared, &tids);
    engine.outcome(begun, Some(&leaving))
}

/// Notes in a recording that starts which CPU traces it, and how.
pub(super) fn note_hardware(prepared: &mut Prepared, pmu: &dyn Pmu) {
    let (hardware, psb_period_bytes) = pmu.hardware();
    prepared.set_hardware(hardware, psb_period_bytes);
}

/// A recording with the CPU in progress: all its processes and threads.
#[derive(Debug)]
pub(in crate::capture) struct Engine<'a> {
    pub(super) request: Request,
    pub(super) program: Pid,
    pub(super) pmu: Box<dyn Pmu + 'a>,
    /// The attributes of the threads' sideband events.
    sideband_attr: SidebandAttr,
    /// The clock of the times in the kernel's records.
    time: PerfTime,
    pub(super) processes: BTreeMap<Pid, Process>,
    pub(super) threads: BTreeMap<Tid, Thread>,
    /// The first stops of threads whose parents have not reported their births yet.
    pub(super) early_stops: BTreeMap<Tid, Stop>,
    finished: Vec<Finished>,
    pub(super) notes: Vec<String>,
    /// True while a snapshot of the rings is being taken.
    is_taking_snapshot: bool,
    /// True once all processes are to be detached.
    pub(super) is_leaving: bool,
    /// The size in bytes of the smallest AUX area for which the kernel had less room than
    /// requested; `None` if all have their size.
    smallest_area: Option<u64>,
    /// The exit of the program; `None` while it runs, or if the recorder left it.
    pub(super) exit: Option<Exit>,
    /// The state of the debugger's session; `None` without a debugger.
    pub(super) debugger: Option<Debugger>,
}

impl<'a> Engine<'a> {
    /// Returns the recorder of `program`, which does not record it yet, and touches no process.
    pub(super) fn new(
        request: &Request,
        program: Pid,
        pmu: Box<dyn Pmu + 'a>,
        sideband_attr: SidebandAttr,
        time: PerfTime,
    ) -> Self {
        Self {
            request: request.clone(),
            program,
            pmu,
            sideband_attr,
            time,
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            early_stops: BTreeMap::new(),
            finished: Vec::new(),
            notes: Vec::new(),
            is_taking_snapshot: false,
            is_leaving: false,
            smallest_area: None,
            exit: None,
            debugger: None,
        }
    }

    /// Traces stopped threads of the program, then resumes them.
    fn begin(&mut self, prepared: Prepared, tids: &[Tid]) -> Result<(), Error> {
        self.record_stopped(prepared, tids)?;
        // Trace all threads before any runs: they may create threads, or map code.
        tids.iter().try_for_each(|&tid| self.resume_thread(tid, 0))
    }

    /// Starts the recording of the program, and the traces of its stopped threads. They stay
    /// stopped.
    pub(super) fn record_stopped(&mut self, prepared: Prepared, tids: &[Tid]) -> Result<(), Error> {
        let pid = self.program;
        // If anything fails from here on, the threads are detached.
        self.threads.extend(tids.iter().map(|&tid| (tid, Thread::new(tid, pid))));
        prepared.set_latest(&self.request.store)?;
        self.add_process(prepared, pid)?;
        tids.iter().try_for_each(|&tid| self.start_tracing(tid))
    }

    /// Starts the recording of a stopped process, and finds the code that its filter names. Its
    /// threads are not traced yet.
    pub(super) fn add_process(&mut self, prepared: Prepared, pid: Pid) -> Result<(), Error> {
        let mut process = Process::start(prepared, &self.request, pid, self.time.clone())?;
        process.update_filter(self.pmu.filter_ranges())?;
        self.processes.insert(pid, process);
        Ok(())
    }

    /// Starts to trace a stopped thread: opens its sideband and its tap ([`super::tap::Tap`]), and
    /// adds it to the recording. Does nothing if the thread is gone.
    pub(super) fn start_tracing(&mut self, tid: Tid) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let Some(process) = self.processes.get_mut(&thread.pid) else { return Ok(()) };
        let sideband = match self.sideband_attr.open(tid) {
            // The thread was killed: its exit will be reported.
            Err(error) if is_gone(&error) => return Ok(()),
            result => result?,
        };
        let area = match self.request.history {
            // A limit applies to records only: `cli` rejects it for this backend.
            History::Full | History::Limited { .. } => {
                AuxArea { size_bytes: FULL_BYTES, overwrites: false }
            }
            History::Ring { bytes } => {
                let wanted = (bytes / RECORDS_PER_TRACE).next_power_of_two();
                let size_bytes = wanted.max(super::pmu::SMALLEST_AREA_BYTES);
                AuxArea { size_bytes, overwrites: true }
            }
        };
        let source = match self.pmu.open(tid, area) {
            Err(error) if is_gone(&error) => return Ok(()),
            result => result?,
        };
        if source.area.size_bytes < area.size_bytes {
            let smallest = self.smallest_area.get_or_insert(u64::MAX);
            *smallest = source.area.size_bytes.min(*smallest);
        }
        process.apply_filter(source.control.as_ref())?;
        {
            let mut recording = super::tap::lock(&process.recording);
            recording.recorder.add_thread(tid)?;
            recording.add_sideband(tid, sideband);
        }
        let has_int3s = self.debugger.is_some();
        let tap = super::tap::Tap::open(
            tid,
            source,
            &process.recording,
            &process.has_code_to_trace,
            has_int3s,
        );
        thread.tap = Some(tap);
        Ok(())
    }

    /// Resumes a thread with `signal` (0: none), up to its next system call if the filter names
    /// code that is not mapped yet.
    pub(super) fn resume_thread(&mut self, tid: Tid, signal: Signo) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let process = self.processes.get(&thread.pid);
        let to_call = process.is_some_and(Process::seeks_code);
        thread.activity = Activity::Running;
        gone_is_fine(self.pmu.resume(thread.tracee, signal, to_call))
    }

    /// Handles stops until all processes have ended or were detached from.
    fn run(&mut self, leaving: Option<&Leaving>) -> Result<(), Error> {
        while !self.processes.is_empty() {
            if !self.is_leaving && leaving.is_some_and(Leaving::is_asked) {
                self.is_leaving = true;
                let tracees = self.threads.values().map(|thread| thread.tracee);
                tracees.into_iter().try_for_each(|tracee| gone_is_fine(tracee.interrupt()))?;
                self.detach_if_all_stopped()?;
                continue;
            }
            if SnapshotSignal::take_request() {
                self.begin_snapshot()?;
                self.end_snapshot_if_written()?;
            }
            let Some((tid, stop)) = wait_interruptibly()? else { continue };
            if self.pmu.is_internal_stop(tid, stop)? {
                self.write_awaited_ring(tid)?;
                gone_is_fine(self.pmu.resume(Tracee(tid), 0, false))?;
            } else {
                self.handle(tid, stop)?;
            }
            self.end_snapshot_if_written()?;
            for process in self.processes.values() {
                super::tap::lock(&process.recording).take_failure()?;
            }
        }
        Ok(())
    }

    /// Starts a snapshot of the rings: writes those of stopped threads, and interrupts the others.
    /// Does not wait for their stops.
    fn begin_snapshot(&mut self) -> Result<(), Error> {
        self.is_taking_snapshot = true;
        for process in self.processes.values() {
            super::tap::lock(&process.recording).recorder.begin_snapshot();
        }
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        for tid in tids {
            let Some(thread) = self.threads.get_mut(&tid) else { continue };
            thread.awaits_snapshot = true;
            if thread.activity == Activity::Running {
                gone_is_fine(thread.tracee.interrupt())?;
            } else {
                self.write_awaited_ring(tid)?;
            }
        }
        Ok(())
    }

    /// Completes the snapshot, if one is being taken and all rings are written.
    fn end_snapshot_if_written(&mut self) -> Result<(), Error> {
        if self.is_taking_snapshot && !self.threads.values().any(|thread| thread.awaits_snapshot) {
            self.is_taking_snapshot = false;
            for process in self.processes.values() {
                super::tap::lock(&process.recording).recorder.end_snapshot()?;
            }
        }
        Ok(())
    }

    /// Writes the ring of a stopped thread, if a snapshot waits for it.
    pub(super) fn write_awaited_ring(&mut self, tid: Tid) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        if !std::mem::take(&mut thread.awaits_snapshot) {
            return Ok(());
        }
        let process = self.processes.get(&thread.pid);
        if let Some((process, tap)) = process.zip(thread.tap.as_mut()) {
            tap.save(&process.recording)?;
        }
        Ok(())
    }

    /// Ends the trace of a process's first thread and forgets it, if it is gone while others are at
    /// their exit stops: the kernel does not report its end then.
    fn forget_first_thread(&mut self, pid: Pid) -> Result<(), Error> {
        let first = Tid(pid.0);
        if self.has_lost_first_thread(pid) {
            self.stop_tracing(first)?;
            if let Some(thread) = self.threads.remove(&first) {
                self.record_thread_end(first, &thread, None)?;
            }
        }
        Ok(())
    }

    /// Writes the final state once all threads of a process are at their exit stops. Then resumes
    /// them, unless a debugger is to look at them first; detaches from a thread that is recorded
    /// alone instead. Does nothing before.
    pub(super) fn end_if_all_at_exit(&mut self, pid: Pid) -> Result<(), Error> {
        self.forget_first_thread(pid)?;
        let of_process = |thread: &&mut Thread| thread.pid == pid;
        let threads: Vec<_> = self.threads.values_mut().filter(of_process).collect();
        if threads.iter().any(|thread| thread.activity != Activity::AtExitStop) {
            return Ok(());
        }
        let ending: Vec<_> =
            threads.iter().filter_map(|thread| thread.exit_state.clone()).collect();
        if let Some(process) = self.processes.get(&pid)
            && !ending.is_empty()
        {
            let (culprit, signal) = process.culprit.known().unwrap_or((Tid(pid.0), 0));
            let ending = final_state::sort_threads(ending, culprit);
            let recording = super::tap::lock(&process.recording);
            final_state::write_core(&recording.recorder, &process.memory, ending, signal, &[])?;
        }
        if self.debugger.is_some() {
            // The debugger inspects the exit stops first.
            return Ok(());
        }
        let is_alone = self.request.only_thread.is_some();
        threads.into_iter().map(|thread| thread.tracee).try_for_each(|tracee| {
            gone_is_fine(if is_alone { tracee.detach(0) } else { tracee.resume(0) })
        })
    }

    /// Stops tracing the threads of a process that has ended (with `exit`) or was detached from
    /// (`None`), completes its recording, and forgets it and its threads.
    pub(super) fn finish(&mut self, pid: Pid, exit: Option<Exit>) -> Result<(), Error> {
        let of_process = |thread: &Thread| thread.pid == pid;
        let tids: Vec<_> =
            self.threads.iter().filter(|(_, t)| of_process(t)).map(|(tid, _)| *tid).collect();
        for tid in tids {
            self.stop_tracing(tid)?;
            self.threads.remove(&tid);
        }
        if pid == self.program {
            self.exit = exit;
        }
        if let Some(process) = self.processes.remove(&pid) {
            let (finished, notes) = process.finish(exit)?;
            self.finished.push(finished);
            self.notes.extend(notes);
        }
        Ok(())
    }

    /// Stops tracing a thread, and writes the end of its trace and its sideband. The thread must be
    /// stopped or gone, and stays in `threads`. Does nothing if it is unknown.
    pub(super) fn stop_tracing(&mut self, tid: Tid) -> Result<(), Error> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let Some(process) = self.processes.get_mut(&thread.pid) else { return Ok(()) };
        if let Some(tap) = thread.tap.take() {
            process.workers.extend(tap.close(&process.recording)?);
            process.workers.retain(|worker| !worker.is_finished());
        }
        super::tap::lock(&process.recording).remove_sideband(tid)
    }

    /// Runs the main loop to the end, unless `begun` is an error, and returns the result. Detaches
    /// if something fails. Fails if no recording was completed. `leaving` asks to leave the
    /// program; `None` for one that was launched.
    fn outcome(
        mut self,
        begun: Result<(), Error>,
        leaving: Option<&Leaving>,
    ) -> Result<Outcome, Error> {
        if let Err(error) = begun.and_then(|()| self.run(leaving)) {
            self.detach_after_failure(leaving.is_none());
            return Err(error);
        }
        if let Some(bytes) = self.smallest_area {
            self.notes.push(format!("{SMALL_BUFFER} {} KiB a thread only", bytes >> 10));
        }
        // List the program's own recording first.
        self.finished.sort_by_key(|(_, manifest, _)| manifest.pid != self.program);
        let recordings = self.finished.iter().map(|(dir, ..)| dir.clone()).collect();
        let Some((_, manifest, trace_bytes)) = self.finished.into_iter().next() else {
            return Err(tracee::Error::EndedEarly { program: self.request.program.clone() }.into());
        };
        Ok(Outcome { recordings, manifest, trace_bytes, notes: self.notes })
    }

    /// Detaches from all threads after a failure. Waits for the end of a launched program, so that
    /// it keeps its terminal.
    pub(super) fn detach_after_failure(&mut self, is_launched: bool) {
        // Includes processes whose threads are not traced yet.
        let pids = self.threads.values().map(|thread| thread.pid).chain([self.program]);
        pids.collect::<BTreeSet<Pid>>().into_iter().for_each(tracee::detach_process);
        if is_launched {
            wait_for_end(self.program);
        }
    }
}

/// Waits for the end of a detached program.
fn wait_for_end(pid: Pid) {
    while matches!(wait_for(Tid(pid.0)), Ok(Stop::Signal(_) | Stop::Event(_) | Stop::Group(_))) {}
}

/// Returns true if an event could not be opened since its thread is gone.
fn is_gone(error: &crate::capture::PerfError) -> bool {
    matches!(error, crate::capture::PerfError::Open { errno: nix::errno::Errno::ESRCH, .. })
}

/// Returns the registers of a stopped thread; `None` if it is gone.
pub(super) fn registers_of(tracee: Tracee) -> Option<Registers> {
    tracee.registers().ok()
}
