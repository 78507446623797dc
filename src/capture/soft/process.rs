//! A process that is recorded by translation.

use super::debug_session::Debugger;
use super::stopping_calls::stopping_calls;
use super::thread::Thread;
use crate::capture::clock::now;
use crate::capture::culprit::Culprit;
use crate::capture::filter::Resolver;
use crate::capture::harm::Harm;
use crate::capture::known_code::KnownCode;
use crate::capture::limits::OLDER_IS_OVERWRITTEN;
use crate::capture::recorder::{Prepared, Recorder};
use crate::capture::request::{History, Request};
use crate::capture::shared_cpu::SharedCpu;
use crate::capture::space::MappingRecorder;
use crate::capture::{Catches, Error};
use crate::common::{Addr, Pid, Tid};
use crate::encode::{Sampler, TraceItem, Tracer};
use crate::engine::{BUFFERS, CodeChange, CodeKind, Place, TranslatedProcess, WantedCode};
use crate::recording::{Exit, Manifest};
use crate::sideband::Event;
use crate::tracee::{Tracee, comm, executable};
use std::path::PathBuf;

const PAGE_BYTES: u64 = 0x1000;
const LARGEST_BUFFER_BYTES: u64 = 256 << 20;

/// A completed recording: its directory, its manifest, and the bytes of all its traces.
pub(super) type Finished = (PathBuf, Manifest, u64);

/// A thread that ended, as its entry in the manifest will have it.
#[derive(Debug)]
struct Ended {
    tid: Tid,
    name: String,
    final_pc: Option<Addr>,
}

/// A process that is recorded by translation.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) recorder: Recorder,
    /// The code cache, and the memory that the recorder shares with the process.
    pub(super) engine: TranslatedProcess,
    /// Records the mappings, and stores mapped files.
    pub(super) mappings: MappingRecorder,
    /// The code that the process is likely to execute, as earlier runs of the same files did.
    known_code: KnownCode,
    /// The size of each trace buffer in bytes.
    buffer_bytes: u64,
    /// The encoder of all threads' records.
    pub(super) tracer: Tracer,
    /// Chooses the full trace buffers from which frequent paths are learned.
    pub(super) sampler: Sampler,
    /// The size of the recording in bytes from which on only the end of its history is kept; `None`
    /// for no limit.
    pub(super) limit_bytes: Option<u64>,
    /// The ranges of the filter that were found so far.
    pub(super) resolver: Resolver,
    /// The threads that ended. They are added to the manifest at the end, when their instructions
    /// are counted.
    ended: Vec<Ended>,
    /// True if the recorder attached to the running process, until its next execve(2).
    pub(super) was_running: bool,
    /// The CPUs to give back to the process, while it must share one with the recorder; `None`
    /// otherwise.
    pub(super) shared_cpu: Option<SharedCpu>,
    /// The reason, as a clause, to end the recording now and to let the process go on natively;
    /// `None` if there is none.
    pub(super) leave_reason: Option<&'static str>,
    /// The damage that the program did to memory which it shares with the recorder.
    pub(super) harm: Harm,
    /// The requests of the debugger; `None` without one.
    pub(super) debugger: Option<Debugger>,
    /// The thread that ended the process, with the signal by which it did, as far as known.
    pub(super) culprit: Culprit,
}

impl Process {
    /// Starts the recording of a process whose threads are stopped at the program's own code, and
    /// maps the area for the trace buffers of its first thread. Adds no threads
    /// (`Engine::add_thread`). Uses `tracee`, one of them, to make system calls in the process.
    /// `shared_cpu` is set if it has to share a CPU with the recorder. After an error, the
    /// recording's directory may stay.
    pub(super) fn start(
        prepared: Prepared,
        request: &Request,
        pid: Pid,
        tracee: Tracee,
        shared_cpu: Option<&SharedCpu>,
    ) -> Result<Self, Error> {
        let recorder = Recorder::start(prepared, pid)?;
        let resolver = Resolver::new(&request.filter);
        let buffer_bytes = buffer_bytes(request.history);
        let mut engine = TranslatedProcess::open(
            tracee,
            pid,
            CodeKind::Recording,
            buffer_bytes,
            stopping_calls(),
        )?;
        let (period, ranges) = (request.psb_period_bytes, resolver.ranges().clone());
        let is_ring = matches!(request.history, History::Ring { .. });
        let make_way = shared_cpu.copied();
        let prepare = move || make_way.into_iter().for_each(SharedCpu::move_off);
        let shared = engine.shared().clone();
        let encoding = Tracer::start(shared, period, ranges, is_ring, prepare);
        let known_code = KnownCode::start(&recorder.store, &mut engine);
        let mut process = Self {
            recorder,
            known_code,
            engine,
            mappings: MappingRecorder::default(),
            buffer_bytes,
            tracer: encoding,
            sampler: Sampler::default(),
            limit_bytes: match request.history {
                History::Limited { bytes, .. } => Some(bytes),
                History::Full | History::Ring { .. } => None,
            },
            resolver,
            ended: Vec::new(),
            was_running: false,
            shared_cpu: shared_cpu.copied(),
            leave_reason: None,
            harm: Harm::default(),
            debugger: None,
            culprit: Culprit::default(),
        };
        let begun = process.prepare_first_thread(tracee);
        if begun.as_ref().is_err_and(|error| !error.is_of_end()) {
            // If this fails, nothing else can be done.
            let _ = process.engine.unmap_unused(tracee);
        }
        begun.map(|()| process)
    }

    /// Reads and records the mappings of a new program, and maps the area of memory for its first
    /// thread's trace buffers.
    fn prepare_first_thread(&mut self, tracee: Tracee) -> Result<(), Error> {
        self.refresh_mappings(tracee.0)?;
        self.engine.prepare_area(tracee)?;
        self.engine.settle_prepared_area();
        Ok(())
    }

    /// Begins to record the program that the process has just executed, with a new code cache. Its
    /// only thread is stopped at the first instruction, and stays so; the caller adds it again
    /// (`Engine::add_thread`).
    pub(super) fn start_new_program(&mut self, tid: Tid) -> Result<(), Error> {
        let pid = self.recorder.pid();
        let path = executable(pid)?.to_string_lossy().into_owned();
        self.recorder.record_event(tid, Event::Exec { path })?;
        self.known_code.add_executed(&self.engine, &self.mappings);
        self.engine = TranslatedProcess::open(
            Tracee(tid),
            pid,
            CodeKind::Recording,
            self.buffer_bytes,
            stopping_calls(),
        )?;
        self.known_code = KnownCode::start(&self.recorder.store, &mut self.engine);
        self.tracer.new_program(tid, self.engine.shared().clone());
        self.harm = Harm::default();
        self.resolver.start_over();
        self.tracer.set_ranges(tid, self.resolver.ranges());
        self.was_running = false;
        if let Some(debugger) = &mut self.debugger {
            // The new cache does not stop at calls yet.
            debugger.catches = Catches::None;
        }
        self.engine.set_stops(&self.debugger.as_ref().map(Debugger::stops).unwrap_or_default());
        self.prepare_first_thread(Tracee(tid))
    }

    /// Reads the mappings again after a possible change, records changes, drops translations of
    /// code that is gone, translates known code of new mappings, and searches these for functions
    /// that the filter names. Fails if it finds too many of them.
    pub(super) fn refresh_mappings(&mut self, tid: Tid) -> Result<(), Error> {
        let changes = self.mappings.refresh(
            &mut self.engine.space,
            &mut self.recorder,
            &self.engine.memory,
            tid,
        )?;
        if changes.code {
            self.engine.forget_stable_code(&changes.changed);
            if self.resolver.search(self.engine.space.mappings()) {
                self.resolver.check_count()?;
                self.tracer.set_ranges(tid, self.resolver.ranges());
            }
        }
        self.known_code.translate_early(&mut self.engine, &self.mappings, &changes.mapped);
        // The record of a new mapping lacks the code that the process has already written there.
        for CodeChange { addr, bytes } in self.engine.changing_code_in(&changes.mapped) {
            self.recorder.record_event(tid, Event::Code { addr, bytes })?;
        }
        Ok(())
    }

    /// Translates code that a stopped thread is about to execute, if that was not done before, and
    /// write-protects its pages. Starts again if one of these was written in between. Records the
    /// code if it differs from the recorded code. Returns the address in the cache to enter. Does
    /// not move the thread.
    fn translate(&mut self, thread: &mut Thread, wanted: WantedCode) -> Result<u64, Error> {
        loop {
            let translation = self.engine.translate(thread.tracee(), wanted)?;
            if !translation.changes.is_empty() {
                let ip = self.engine.address_of(wanted);
                self.record_changes(thread, ip, translation.changes)?;
            }
            if !translation.pages.is_empty() {
                self.tracer.set_code_time(translation.first_edge, now().0);
            }
            // From here on the thread may be killed: all bytes that were read are recorded.
            if self.engine.write_protect(thread.tracee(), &translation.pages)? {
                return Ok(translation.address);
            }
        }
    }

    /// Records `changes`, code that differs from the recorded code, at a point of the trace of
    /// `thread`, which is about to execute the code at `ip`.
    fn record_changes(
        &mut self,
        thread: &mut Thread,
        ip: u64,
        changes: Vec<CodeChange>,
    ) -> Result<(), Error> {
        if thread.translated.place == Place::Cache {
            let pointer = thread.tracee().registers()?.r11;
            self.take_records(thread, pointer);
        }
        // Interrupt the trace here: it gets a point with a time, from which on the new bytes hold.
        self.send(thread.tid(), TraceItem::EnterKernel { ip });
        for CodeChange { addr, bytes } in changes {
            self.recorder.record_event(thread.tid(), Event::Code { addr, bytes })?;
        }
        self.send(thread.tid(), TraceItem::ReturnFromKernel { ip, tsc: now().0 });
        Ok(())
    }

    /// Translates the code that a thread in the cache has requested, and writes the address of the
    /// translation to the thread's memory. Does nothing without a request. The caller resumes the
    /// thread.
    pub(super) fn translate_requested(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let Some(request) = self.engine.request(&thread.translated) else { return Ok(()) };
        let address = self.translate(thread, WantedCode::Requested(request))?;
        self.engine.answer_request(&thread.translated, address);
        Ok(())
    }

    /// Sets a thread that is stopped outside the cache up to enter the cache at its IP. The caller
    /// resumes it.
    pub(super) fn dispatch(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let ip = thread.tracee().registers()?.rip;
        self.enter_cache(thread, WantedCode::At(ip))
    }

    /// Does the same as [`Self::dispatch`], but the thread does not stop at its IP, even if the
    /// debugger stops threads there.
    pub(super) fn dispatch_passing(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let ip = thread.tracee().registers()?.rip;
        self.enter_cache(thread, WantedCode::PastStop(ip))
    }

    /// Sets a stopped thread up to enter the cache. Notes harm if the program overwrote the
    /// thread's trace pointer.
    fn enter_cache(&mut self, thread: &mut Thread, wanted: WantedCode) -> Result<(), Error> {
        let address = self.translate(thread, wanted)?;
        if !thread.buffers.holds(thread.translated.trace_pointer(self.engine.shared())) {
            self.note_harm("overwrote its trace pointer");
        }
        Ok(self.engine.enter_cache(&mut thread.translated, address)?)
    }

    /// Returns the name of a thread; for one that ended, the name it had then.
    pub(super) fn name_of(&self, tid: Tid) -> String {
        let ended = self.ended.iter().rfind(|ended| ended.tid == tid);
        ended.map_or_else(|| comm(self.recorder.pid(), tid), |ended| ended.name.clone())
    }

    /// Ends the trace of a thread, all of whose records were sent, and requests its last packets,
    /// in a ring those of all records that are kept. Notes the thread for the manifest, with its
    /// name and `final_pc`, the address where it ended, if known.
    pub(super) fn thread_ended(&mut self, tid: Tid, final_pc: Option<Addr>) {
        let name = comm(self.recorder.pid(), tid);
        self.send(tid, TraceItem::EndHistory);
        self.send_kept(tid);
        self.ended.push(Ended { tid, name, final_pc });
    }

    /// Completes the recording of a process that has ended (with `exit`) or was detached from
    /// (`None`): waits until all its records are encoded, and writes them and the manifest, but no
    /// final state. Its threads must have ended ([`Self::thread_ended`]). Returns notes for the
    /// user as well.
    pub(super) fn finish(mut self, exit: Option<Exit>) -> Result<(Finished, Vec<String>), Error> {
        self.known_code.add_executed(&self.engine, &self.mappings);
        let became_ring = self.has_become_ring();
        let (packets, mut results, overwritten) = self.tracer.finish();
        for (tid, bytes) in packets {
            self.recorder.append_trace(tid, &bytes)?;
        }
        let mut notes = self.resolver.notes();
        if overwritten {
            let note = if became_ring {
                "the history has a gap between where it reached its largest size and its end"
            } else {
                OLDER_IS_OVERWRITTEN
            };
            notes.push(note.to_owned());
        }
        for Ended { tid, name, final_pc } in self.ended {
            // A thread number that an execve(2) gave to another thread ends twice, but has one
            // result.
            let result = results.remove(&tid).unwrap_or_default();
            if result.damaged {
                notes.push(format!(
                    "the program overwrote the trace buffer of thread {tid}, whose history ends there"
                ));
            }
            self.recorder.thread_ended(tid, name, result.instructions, final_pc)?;
        }
        Ok((self.recorder.finish(exit)?, notes))
    }
}

/// Returns the size of each trace buffer in bytes.
fn buffer_bytes(history: History) -> u64 {
    const FULL: u64 = 1 << 20;
    const SMALLEST: u64 = 64 << 10;
    match history {
        History::Full => FULL,
        History::Ring { bytes } | History::Limited { ring_bytes: bytes, .. } => {
            (bytes / BUFFERS as u64).clamp(SMALLEST, LARGEST_BUFFER_BYTES) & !(PAGE_BYTES - 1)
        }
    }
}
