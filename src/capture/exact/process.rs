//! The process of an exact recording: its translated code, its mappings, its log. *Foreign* memory
//! is shared memory that processes outside the recording may write (`foreign`).

use super::reclaim_timer::ReclaimTimer;
use super::thread::Thread;
use super::vdso::Vdso;
use crate::capture::Error;
use crate::capture::code_cache;
use crate::capture::known_code::KnownCode;
use crate::capture::recorder::Recorder;
use crate::capture::space::{Changes, MappingRecorder};
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::engine::TranslatedProcess;
use crate::insn::Registers;
use crate::recording::log::{Bytes, Entry, LogEvent, PlaceInTick, ThreadState, check_of};
use crate::recording::{CodeCache, Exit, Manifest};
use crate::tracee::Tracee;
use std::path::PathBuf;
use std::time::Instant;

const NT_X86_XSTATE: u32 = 0x202;
pub(super) const EVERYWHERE: AddrRange = AddrRange::new(Addr(0), Addr(u64::MAX));

/// A recording that is complete: its directory, its manifest, the bytes of its traces, and
/// sentences for the user.
pub(super) type CompleteRecording = (PathBuf, Manifest, u64, Vec<String>);

/// A recorded process.
#[derive(Debug)]
pub(super) struct Process {
    /// The recording that is being written, with its log.
    pub(super) recorder: Recorder,
    /// Its code cache and its address space.
    pub(super) engine: TranslatedProcess,
    /// Its mappings as the recording has them, with the stored files.
    pub(super) mappings: MappingRecorder,
    /// The end of its heap, as brk(2) last returned it.
    pub(super) heap_end: u64,
    /// True if it may have its own memory open as a file (/proc/PID/mem).
    pub(super) has_memory_file: bool,
    /// True if it has installed or inherited a filter of its system calls (seccomp).
    pub(super) is_filtered: bool,
    /// True if the program ran before its recorder attached; inherited by forked children.
    pub(super) was_running: bool,
    /// Its vdso, if the program may use it: it ran before it was recorded.
    pub(super) vdso: Option<Vdso>,
    /// The memory that a debugger changed since the last entry of the log.
    pub(super) changed_memory: Vec<AddrRange>,
    /// When to look next at the mappings of other processes, for foreign memory.
    pub(super) next_foreign_check: Instant,
    /// The earliest time of that look, whatever asks for it: looks may take long.
    pub(super) foreign_check_not_before: Instant,
    /// The ranges that the log says are foreign memory (`LogEvent::Foreign`).
    pub(super) logged_foreign: Vec<AddrRange>,
    /// When to check if foreign memory can be taken back.
    pub(super) reclaim_timer: ReclaimTimer,
    /// The number of accesses to foreign memory that were logged.
    pub(super) foreign_accesses: u64,
    /// The lists of code that earlier runs of its files executed.
    pub(super) known_code: KnownCode,
    /// The place of its code cache, which is kept for later runs of its program.
    pub(super) code_cache: Option<CodeCache>,
    /// Sentences for the user.
    pub(super) notes: Vec<String>,
}

impl Process {
    /// Returns the number of the process.
    pub(super) fn pid(&self) -> Pid {
        self.recorder.pid()
    }

    /// Logs an event of a thread that has these registers, with the thread's ticks since its last
    /// entry, which are 0 afterwards.
    pub(super) fn log(
        &mut self,
        thread: &mut Thread,
        registers: &Registers,
        event: LogEvent,
    ) -> Result<(), Error> {
        let ticks = std::mem::take(&mut thread.ticks);
        let check = check_of(registers);
        let entry = Entry { tid: thread.tid(), ticks, check, event };
        Ok(self.recorder.log(&entry)?)
    }

    /// Logs an event without ticks or a check of registers: of no thread in particular, or of one
    /// that has not executed anything. The ticks of the thread stay for its next entry.
    pub(super) fn log_without_ticks(&mut self, tid: Tid, event: LogEvent) -> Result<(), Error> {
        Ok(self.recorder.log(&Entry { tid, ticks: 0, check: 0, event })?)
    }

    /// Reads all mappings again, and records their changes in the sideband, as events of the thread
    /// `tid`. Updates the address space of `engine`, and its pages of code that changed.
    pub(super) fn refresh_mappings(&mut self, tid: Tid) -> Result<(), Error> {
        let Self { mappings, recorder, engine, .. } = self;
        let changes = mappings.refresh(&mut engine.space, recorder, &engine.memory, tid)?;
        self.note_changes(&changes);
        Ok(())
    }

    /// Does the work of [`Self::refresh_mappings`] for the mappings in some ranges only.
    pub(super) fn refresh_mappings_in(
        &mut self,
        ranges: &[AddrRange],
        tid: Tid,
    ) -> Result<(), Error> {
        let Self { mappings, recorder, engine, .. } = self;
        let (space, memory) = (&mut engine.space, &engine.memory);
        let changes = mappings.refresh_in(ranges, space, recorder, memory, tid)?;
        self.note_changes(&changes);
        Ok(())
    }

    /// Applies changes of mappings to the code cache: forgets pages of code that may have changed,
    /// and lets the code of newly mapped files that earlier runs executed be translated early.
    fn note_changes(&mut self, changes: &Changes) {
        if changes.code {
            self.engine.forget_stable_code(&changes.changed);
        }
        self.known_code.translate_early(&mut self.engine, &self.mappings, &changes.mapped);
    }

    /// Stores the list of the code that was executed, and the code cache, for later runs.
    pub(super) fn keep_executed_code(&self) {
        self.known_code.add_executed(&self.engine, &self.mappings);
        if let Some(cache) = &self.code_cache {
            code_cache::store(&self.engine, cache);
        }
    }

    /// Completes the recording of a process that ended with `exit`; `None` if it is left, or its
    /// exit is unknown. Also stores lists of the executed code for later runs.
    pub(super) fn complete(self, exit: Option<Exit>) -> Result<CompleteRecording, Error> {
        self.keep_executed_code();
        let Self { recorder, notes, .. } = self;
        let (dir, manifest, trace_bytes) = recorder.finish(exit)?;
        Ok((dir, manifest, trace_bytes, notes))
    }

    /// Adds a sentence for the user to the notes, unless it is there already.
    pub(super) fn add_user_note(&mut self, sentence: String) {
        if !self.notes.contains(&sentence) {
            self.notes.push(sentence);
        }
    }
}

/// Returns the state of a thread, which is stopped in the program, for the log: these registers,
/// and its extended state, which is read now.
pub(super) fn state_of(tracee: Tracee, registers: &Registers) -> Result<ThreadState, Error> {
    Ok(ThreadState { registers: (*registers).into(), extended: extended_of(tracee)? })
}

/// Reads the extended state of a thread that is stopped.
pub(super) fn extended_of(tracee: Tracee) -> Result<Bytes, Error> {
    Ok(Bytes(tracee.register_set(NT_X86_XSTATE)?))
}

/// Returns the place of a thread with these registers, as entries of the log have it.
pub(super) fn log_place_of(registers: &Registers) -> PlaceInTick {
    PlaceInTick { ip: registers.rip.into(), rcx: registers.rcx }
}
