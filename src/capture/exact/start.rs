//! The start of a recorded program, also after execve(2): the vdso is hidden from the program, the
//! code cache is made, and the program's memory and registers go to the log (`log_start`).
//!
//! The *gate* is a page with the SYSCALL instruction for the recorder's own calls, in a process
//! that has filters of system calls (`filters`).

use super::effects::{contents, pieces_of};
use super::engine::ExactRecorder;
use super::foreign::FOREIGN_CHECK_PERIOD;
use super::process::{EVERYWHERE, Process, extended_of, state_of};
use super::reclaim_timer::ReclaimTimer;
use super::thread::Thread;
use super::vdso::{Clocks, KERNEL_MAPPINGS};
use crate::capture::begin::{finish_execve, runs_64_bit_code};
use crate::capture::code_cache;
use crate::capture::known_code::KnownCode;
use crate::capture::recorder::{Prepared, Recorder};
use crate::capture::space::MappingRecorder;
use crate::capture::{Error, Report};
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::engine::{CodeKind, Gate, Patch, Place, TranslatedProcess, TranslatedThread};
use crate::recording::log::{Bytes, Content, LogEvent, Mapped, Start, ThreadState};
use crate::sideband::{Event, Mapping};
use crate::tracee::call_numbers::{BRK, EXECVE, EXECVEAT, MUNMAP};
use crate::tracee::{
    AT_ENTRY, Memory, PageMap, PageState, Tracee, auxv, auxv_value, executable, mappings,
};
use crate::translate::Components;
use std::time::Instant;

/// The size of a thread's buffer for the system calls that it logs in the code cache. Calls that
/// stop use the buffer as well (`Scratch`): before these, the log was read and is empty.
const BUFFER_BYTES: u64 = 1 << 20;
/// Types of entries of the auxiliary vector (include/uapi/linux/auxvec.h).
const AT_IGNORE: u64 = 1;
const AT_SYSINFO_EHDR: u64 = 33;

impl ExactRecorder {
    /// Begins to record a program that was launched, and is stopped in its execve(2): leaves that
    /// call first.
    pub(super) fn start_launched(&mut self, prepared: Prepared) -> Result<(), Error> {
        finish_execve(Tracee(Tid(self.pid.0)))?;
        self.start_executed(prepared, None)
    }

    /// Begins to record a process that has executed a program, and is stopped after the execve(2),
    /// at the program's first instruction. `gate` is `None` if the process has no filters of system
    /// calls (seccomp); otherwise, it is mapped here.
    pub(super) fn start_executed(
        &mut self,
        prepared: Prepared,
        gate: Option<Gate>,
    ) -> Result<(), Error> {
        if let Some(gate) = gate {
            gate.make(Tracee(Tid(self.pid.0)), &Memory::open(self.pid)?)?;
        }
        let mut recorder = Recorder::start(prepared, self.pid)?;
        if let Some(shared_cpu) = &self.shared_cpu {
            recorder.move_log_thread(shared_cpu);
        }
        self.begin_program(recorder, MappingRecorder::of_all_files(), gate)
    }

    /// Begins to record a program whose only thread is stopped before its first instruction, by
    /// writing the start of a log, or of its part for a program that was executed. Hides the vdso
    /// from the program. `gate` exists in the process, if there is one.
    fn begin_program(
        &mut self,
        recorder: Recorder,
        files: MappingRecorder,
        gate: Option<Gate>,
    ) -> Result<(), Error> {
        let tid = Tid(self.pid.0);
        let tracee = Tracee(tid);
        let clocks = hide_vdso(tracee, self.pid, gate)?;
        let mut process = Process::open(recorder, tracee, files, gate)?;
        if let Some(Clocks { range, functions }) = clocks {
            process.engine.use_vdso(range, functions);
        }
        process.recorder.add_thread(tid)?;
        process.log_start(tracee, 1, without_vdso(auxv(self.pid)))?;
        if let Some(area) = process.engine.take_area() {
            let translated = TranslatedThread::new(tid, self.pid, area, Place::Program);
            self.threads.insert(tid, Thread::new(translated));
        }
        self.holder = tid;
        self.process = Some(process);
        Ok(())
    }

    /// Handles the stop in an execve(2) that succeeded: the process has another program, and this
    /// thread only. Leaves the call, begins the program's part of the log, and reports the event to
    /// the debugger. If the program cannot be recorded, ends the log with a note, and lets the
    /// process go on natively; the kernel's report of its end completes the recording.
    pub(super) fn handle_exec(&mut self, tid: Tid) -> Result<(), Error> {
        let call = self.threads.values().find_map(|thread| {
            let current = thread.current_call().filter(|_| thread.debug.reports_return)?;
            matches!(current.call.number, EXECVE | EXECVEAT).then_some(current.call.number)
        });
        self.threads.clear();
        self.unlogged_threads.clear();
        let Some(process) = self.process.take() else { return Ok(()) };
        process.keep_executed_code();
        let gate = process.gate_if_filtered();
        let Process { mut recorder, notes, .. } = process;
        let why_not = if runs_64_bit_code(Tracee(tid))? {
            finish_execve(Tracee(tid))?;
            let made = gate.map(|gate| gate.make(Tracee(tid), &Memory::open(self.pid)?));
            match made.transpose() {
                Ok(_) => None,
                Err(error) if error.is_of_end() => return Err(error.into()),
                Err(_) => Some("filters its system calls (seccomp)"),
            }
        } else {
            Some("runs a 32-bit program")
        };
        if let Some(clause) = why_not {
            let mut process = Process { recorder, notes, ..process };
            process.add_user_note(format!("process {tid} {clause}, and is recorded up to there"));
            process.log_without_ticks(tid, LogEvent::Finish { place: None })?;
            self.process = Some(process);
            self.has_program_ended = true;
            self.unrecorded.insert(tid);
            return crate::capture::error::gone_is_fine(Tracee(tid).detach(0));
        }
        let path = executable(self.pid)?.to_string_lossy().into_owned();
        recorder.record_event(tid, Event::Exec { path })?;
        self.begin_program(recorder, MappingRecorder::of_all_files(), gate)?;
        if let Some(process) = &mut self.process {
            process.notes = notes;
        }
        self.apply_debugger_stops();
        self.report_event(tid, Report::Executed);
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.debug.pending.report_on_resume = call.map(Report::CallReturn);
        }
        Ok(())
    }
}

impl Process {
    /// Makes the code cache of a process whose threads are all stopped in the program; `tracee` is
    /// one of them. Logs nothing: [`Self::log_start`] does, and finds the mappings.
    pub(super) fn open(
        recorder: Recorder,
        tracee: Tracee,
        mappings: MappingRecorder,
        gate: Option<Gate>,
    ) -> Result<Self, Error> {
        let (pid, code, seen) = (recorder.pid(), CodeKind::Logging, std::iter::empty());
        let near = TranslatedProcess::usual_cache_address(&auxv(pid));
        let mut engine =
            TranslatedProcess::open_at_gate(tracee, pid, code, BUFFER_BYTES, seen, gate, near)?;
        if gate.is_some() {
            engine.stop_at_calls();
        }
        let components = Components::of(&extended_of(tracee)?.0);
        engine.complete_saves(components, components);
        let known_code = KnownCode::start(&recorder.store, &mut engine);
        let mut process = Self {
            recorder,
            engine,
            mappings,
            heap_end: 0,
            has_memory_file: false,
            is_filtered: gate.is_some(),
            was_running: false,
            vdso: None,
            changed_memory: Vec::new(),
            next_foreign_check: Instant::now() + FOREIGN_CHECK_PERIOD,
            foreign_check_not_before: Instant::now(),
            reclaim_timer: ReclaimTimer::default(),
            foreign_accesses: 0,
            logged_foreign: Vec::new(),
            known_code,
            code_cache: None,
            notes: Vec::new(),
        };
        process.has_memory_file = process.has_memory_file_open();
        Ok(process)
    }

    /// Logs the memory of the process as it is now, and the registers of `tracee`, and flushes the
    /// log. `auxv` is the auxiliary vector as the program sees it. Before that, makes the engine's
    /// areas for `count` threads, reads signal actions and the heap's end, takes over a stored code
    /// cache, and makes memory foreign that other processes can write.
    pub(super) fn log_start(
        &mut self,
        tracee: Tracee,
        count: usize,
        auxv: Vec<u8>,
    ) -> Result<(), Error> {
        let tid = tracee.0;
        self.refresh_mappings(tid)?;
        let entry = Addr(auxv_value(&auxv, AT_ENTRY).unwrap_or(0));
        let Self { engine, mappings, recorder, .. } = self;
        self.code_cache = code_cache::load(engine, mappings, tracee, recorder, entry)?;
        for _ in 0..count {
            self.engine.prepare_area(tracee)?;
        }
        for _ in 0..count {
            self.engine.settle_prepared_area();
        }
        self.engine.read_actions(tracee)?;
        self.engine.update_logged_calls();
        self.learn_mapped_files();
        self.find_foreign_in(EVERYWHERE);
        let gadget = self.engine.gadget();
        self.heap_end = tracee.inject(gadget, BRK, [0; 6])?.cast_unsigned();
        let state = state_of(tracee, &tracee.registers()?)?;
        self.write_state(state, auxv, &|_| true, &mut |process, event| {
            process.log_without_ticks(tid, event)
        })?;
        // From now on, the log can be replayed even if the recorder is killed.
        Ok(self.recorder.flush()?)
    }

    /// Writes the start of a log or keyframe, by `write`, which gets one event at a time: the
    /// mappings with a thread's `state` first, then the private memory that no stored file has,
    /// except in mappings for which `is_stored` is false. The contents of shared mappings are
    /// stored as images.
    pub(super) fn write_state(
        &mut self,
        state: ThreadState,
        auxv: Vec<u8>,
        is_stored: &dyn Fn(&Mapping) -> bool,
        write: &mut dyn FnMut(&mut Self, LogEvent) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mapped: Vec<Mapping> = self.engine.space.mappings().cloned().collect();
        let is_kernels = |m: &Mapping| m.name == "[vsyscall]" || m.name.starts_with("[vvar");
        let mapped: Vec<&Mapping> = mapped.iter().filter(|m| !is_kernels(m)).collect();
        let mappings: Result<_, _> =
            mapped.iter().map(|mapping| self.describe_mapping(mapping)).collect();
        let start = Start {
            pid: self.pid(),
            program: executable(self.pid())?.to_string_lossy().into_owned(),
            auxv: Bytes(auxv),
            state,
            mappings: mappings?,
        };
        write(self, LogEvent::Start(Box::new(start)))?;
        let pages = PageMap::open(self.pid());
        // The contents of shared mappings are stored with `Start`.
        let private = mapped.into_iter().filter(|mapping| !mapping.protection.shared);
        for mapping in private.filter(|mapping| is_stored(mapping)) {
            for range in self.pages_to_store(mapping, pages.as_ref()) {
                for piece in pieces_of(range) {
                    for content in contents(&self.engine, [piece]) {
                        write(self, LogEvent::Memory(content))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Describes a mapping for the log. Stores the content of a shared one as an image, and notes
    /// for the user if it can be written. The content of a private one is its stored file's, or
    /// zeros: the caller writes the pages that differ.
    fn describe_mapping(&mut self, mapping: &Mapping) -> Result<Mapped, Error> {
        if mapping.protection.shared {
            if mapping.protection.write {
                self.note_shared(mapping);
            }
            return self.describe_stored(mapping);
        }
        let content = match self.mappings.image(mapping) {
            Some(image) => Content::File { image: image.clone(), offset: mapping.offset },
            None => Content::Zeros,
        };
        Ok(Mapped {
            range: mapping.range,
            protection: mapping.protection,
            grows_down: mapping.name == "[stack]",
            content,
            name: mapping.name.clone(),
            shared: None,
        })
    }

    /// Returns the pages of a private mapping whose bytes a replay can take neither from a stored
    /// file nor as zeros; the whole mapping if these pages cannot be found.
    pub(super) fn pages_to_store(
        &self,
        mapping: &Mapping,
        pages: Option<&PageMap>,
    ) -> Vec<AddrRange> {
        let is_stored = self.mappings.image(mapping).is_some();
        let is_all_own = mapping.name == "[vdso]" || mapping.is_file() && !is_stored;
        let touched = pages.filter(|_| !is_all_own).and_then(|pages| pages.touched(mapping.range));
        let Some(touched) = touched else { return vec![mapping.range] };
        let is_own = |state| !is_stored || state == PageState::Private;
        let mut ranges: Vec<AddrRange> = Vec::new();
        for (range, _) in touched.into_iter().filter(|(_, state)| is_own(*state)) {
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        ranges
    }
}

/// Hides the kernel's vdso from a program that has not begun, by the auxiliary vector on its stack:
/// the results of the vdso's functions do not follow from the program's state, and they make no
/// system calls that could be logged. Leaves the vdso mapped and returns its clocks if the code
/// cache can use them; otherwise unmaps it and returns `None`.
fn hide_vdso(tracee: Tracee, pid: Pid, gate: Option<Gate>) -> Result<Option<Clocks>, Error> {
    let memory = Memory::open(pid)?;
    let registers = tracee.registers()?;
    let vector = auxv(pid);
    if let Some(at) = auxv_on_stack(&memory, Addr(registers.rsp), &vector) {
        for (index, entry) in vector.chunks_exact(16).enumerate() {
            let kind = u64::from_le_bytes(entry[..8].try_into().unwrap_or_default());
            if kind == AT_SYSINFO_EHDR {
                let addr = at.wrapping_add(index as u64 * 16);
                // The stack of a program that has not begun can be written.
                let _ = memory.write(addr, &AT_IGNORE.to_le_bytes());
            }
        }
    }
    let all = mappings(pid)?;
    let clocks = Clocks::find(&all, &memory);
    let gone = |mapping: &&Mapping| {
        KERNEL_MAPPINGS.iter().any(|name| mapping.name.starts_with(name))
            && !clocks.is_some_and(|clocks| clocks.range.overlaps(mapping.range))
    };
    for mapping in all.iter().filter(gone) {
        unmap(tracee, &memory, gate, mapping.range)?;
    }
    Ok(clocks)
}

/// Returns an auxiliary vector as a program without the vdso sees it: the entry with the vdso's
/// address has a type that programs ignore.
pub(super) fn without_vdso(mut vector: Vec<u8>) -> Vec<u8> {
    for kind in vector.chunks_exact_mut(16).filter_map(|entry| entry.get_mut(..8)) {
        if *kind == AT_SYSINFO_EHDR.to_le_bytes() {
            kind.copy_from_slice(&AT_IGNORE.to_le_bytes());
        }
    }
    vector
}

/// Finds the auxiliary vector on a new program's stack, after the arguments and the environment.
/// Returns its address, or `None` if `vector` is not there.
fn auxv_on_stack(memory: &Memory, rsp: Addr, vector: &[u8]) -> Option<Addr> {
    const LARGEST_BYTES: u64 = 16 << 20;
    let word = |addr: Addr| {
        let mut bytes = [0; 8];
        (memory.read(addr, &mut bytes) == 8).then(|| u64::from_le_bytes(bytes))
    };
    let count = word(rsp)?;
    let mut at = rsp.wrapping_add((count.checked_add(2)?).checked_mul(8)?);
    while word(at)? != 0 {
        at = at.wrapping_add(8);
        if at.0 - rsp.0 > LARGEST_BYTES {
            return None;
        }
    }
    at = at.wrapping_add(8);
    let mut there = vec![0; vector.len()];
    (memory.read(at, &mut there) == vector.len() && there == vector).then_some(at)
}

/// Unmaps a range of a program that has not begun, by a munmap(2) that its thread makes at the
/// gate, or at a SYSCALL instruction that takes the place of its first instruction for the call.
fn unmap(
    tracee: Tracee,
    memory: &Memory,
    gate: Option<Gate>,
    range: AddrRange,
) -> Result<(), Error> {
    let args = [range.start.0, range.size_bytes(), 0, 0, 0, 0];
    if let Some(gate) = gate {
        tracee.inject(gate.entry(), MUNMAP, args)?;
        return Ok(());
    }
    let at = tracee.instruction_pointer()?;
    let text = Patch::syscall(memory, at)?;
    let unmapped = tracee.inject(at, MUNMAP, args);
    text.restore(memory)?;
    unmapped?;
    Ok(())
}
