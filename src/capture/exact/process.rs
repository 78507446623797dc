//! The process of an exact recording: its translated code, its mappings, its log.

use super::thread::Thread;
use super::vdso::Vdso;
use crate::capture::Error;
use crate::capture::recorder::Recorder;
use crate::capture::space::MappingRecorder;
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::engine::TranslatedProcess;
use crate::insn::Registers;
use crate::recording::log::{Bytes, Entry, Happening, Place, ThreadState, check_of};
use crate::tracee::Tracee;
use std::time::Instant;

const NT_X86_XSTATE: u32 = 0x202;
pub(super) const EVERYWHERE: AddrRange = AddrRange::new(Addr(0), Addr(u64::MAX));

/// A recorded process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) recorder: Recorder,
    pub(super) engine: TranslatedProcess,
    pub(super) mappings: MappingRecorder,
    /// The end of its heap, as brk(2) last returned it.
    pub(super) heap_end: u64,
    /// True if it may have its own memory open as a file.
    pub(super) has_memory_file: bool,
    /// True if it has installed a filter of its system calls.
    pub(super) is_filtered: bool,
    /// True if it ran before it was recorded.
    pub(super) was_running: bool,
    /// Its vdso, if the program uses it.
    pub(super) vdso: Option<Vdso>,
    /// The memory that a debugger changed since the last entry of the log.
    pub(super) changed_memory: Vec<AddrRange>,
    /// When to look next at what other processes map.
    pub(super) next_look: Instant,
    /// The time before which it is not done again.
    pub(super) rests_until: Instant,
    /// The foreign memory that is in the log.
    pub(super) foreign: Vec<AddrRange>,
    /// Sentences for the user.
    pub(super) notes: Vec<String>,
}

impl Process {
    pub(super) fn pid(&self) -> Pid {
        self.recorder.pid()
    }

    /// Logs what happened to a thread that is where its registers say.
    pub(super) fn log(
        &mut self,
        thread: &mut Thread,
        registers: &Registers,
        happening: Happening,
    ) -> Result<(), Error> {
        let ticks = std::mem::take(&mut thread.ticks);
        let check = check_of(registers);
        let entry = Entry { tid: thread.tid(), ticks, check, happening };
        Ok(self.recorder.log(&entry)?)
    }

    /// Logs what happened to no thread in particular, or to one that has not executed anything.
    pub(super) fn log_beside(&mut self, tid: Tid, happening: Happening) -> Result<(), Error> {
        Ok(self.recorder.log(&Entry { tid, ticks: 0, check: 0, happening })?)
    }

    /// Reads the mappings again.
    pub(super) fn look_at_mappings(&mut self, tid: Tid) -> Result<(), Error> {
        let changes = self.mappings.refresh(
            &mut self.engine.space,
            &mut self.recorder,
            &self.engine.memory,
            tid,
        )?;
        if changes.code {
            self.engine.forget_stable_code();
        }
        Ok(())
    }

    /// Adds a sentence for the user, unless it was said before.
    pub(super) fn note(&mut self, sentence: String) {
        if !self.notes.contains(&sentence) {
            self.notes.push(sentence);
        }
    }
}

/// Reads the state of a thread that is stopped in the program.
pub(super) fn state_of(tracee: Tracee, registers: &Registers) -> Result<ThreadState, Error> {
    Ok(ThreadState { registers: (*registers).into(), extended: extended_of(tracee)? })
}

/// Reads the extended state of a thread that is stopped.
pub(super) fn extended_of(tracee: Tracee) -> Result<Bytes, Error> {
    Ok(Bytes(tracee.register_set(NT_X86_XSTATE)?))
}

/// Returns the place of a thread with these registers.
pub(super) fn place_of(registers: &Registers) -> Place {
    Place { ip: registers.rip.into(), rcx: registers.rcx }
}
