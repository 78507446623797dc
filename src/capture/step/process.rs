//! A process that is recorded by single-stepping: its recording, memory, mappings and code.

use super::code::DecodedCode;
use super::thread::Thread;
use super::trap::Ignored;
use crate::capture::Error;
use crate::capture::culprit::Culprit;
use crate::capture::filter::{Filter, Resolver};
use crate::capture::recorder::{Prepared, Recorder};
use crate::capture::space::MappingRecorder;
use crate::capture::step::code::Change;
use crate::common::{Addr, Pid, Tid};
use crate::engine::{AddressSpace, make_vsyscall, vsyscall_at};
use crate::sideband::Event;
use crate::tracee::{Memory, comm, executable};

/// A process that is recorded by single-stepping.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) recorder: Recorder,
    pub(super) memory: Memory,
    space: AddressSpace,
    mappings: MappingRecorder,
    code: DecodedCode,
    pub(super) resolver: Resolver,
    /// True if the threads' paths lack the newest ranges of the filter.
    pub(super) has_new_ranges: bool,
    pub(super) trap_ignored: Ignored,
    /// The thread that ended the process, with the signal by which it did, as far as known.
    pub(super) culprit: Culprit,
}

impl Process {
    /// Starts the recording of a stopped process, and records its mappings.
    pub(super) fn start(prepared: Prepared, filter: &Filter, pid: Pid) -> Result<Self, Error> {
        let mut process = Self {
            recorder: Recorder::start(prepared, pid)?,
            memory: Memory::open(pid)?,
            space: AddressSpace::default(),
            mappings: MappingRecorder::default(),
            code: DecodedCode::default(),
            resolver: Resolver::new(filter),
            has_new_ranges: false,
            trap_ignored: Ignored::of(pid),
            culprit: Culprit::default(),
        };
        process.refresh_mappings(Tid(pid.0))?;
        Ok(process)
    }

    /// Handles an execve(2): records it, and the mappings of the new program.
    pub(super) fn exec(&mut self, tid: Tid) -> Result<(), Error> {
        let pid = self.recorder.pid();
        let path = executable(pid)?.to_string_lossy().into_owned();
        self.recorder.record_event(tid, Event::Exec { path })?;
        self.memory = Memory::open(pid)?;
        self.space.clear();
        self.code.clear();
        self.resolver.start_over();
        self.has_new_ranges = true;
        self.refresh_mappings(tid)
    }

    /// Reads the mappings again after a possible change, and records changes. Looks in new code for
    /// the functions of the filter; fails if there are too many ranges.
    pub(super) fn refresh_mappings(&mut self, tid: Tid) -> Result<(), Error> {
        if self.mappings.refresh(&mut self.space, &mut self.recorder, &self.memory, tid)?.code {
            self.code.clear();
            if self.resolver.search(self.space.mappings()) {
                self.resolver.check_count()?;
                self.has_new_ranges = true;
            }
        }
        Ok(())
    }

    /// Looks for code that changed though its mapping did not, and records it.
    pub(super) fn record_changed_code(&mut self, tid: Tid) -> Result<(), Error> {
        if self.mappings.record_changed_code(
            &mut self.space,
            &mut self.recorder,
            &self.memory,
            tid,
        )? {
            self.code.clear();
        }
        Ok(())
    }

    /// Decodes the next instruction of `thread` into `thread.insn`: `None` if it is invalid. If its
    /// code changed, records that, at a point of the trace that has a time.
    pub(super) fn decode_next(&mut self, thread: &mut Thread) -> Result<(), Error> {
        if self.space.is_stable(thread.ip) {
            thread.insn = self.code.stable(thread.ip, &self.memory);
            return Ok(());
        }
        let (insn, changes) = self.code.changing(thread.ip, &self.memory);
        thread.insn = insn;
        if changes.is_empty() {
            return Ok(());
        }
        thread.path.interrupt(thread.ip);
        for Change { addr, bytes } in changes {
            self.recorder.record_event(thread.tid(), Event::Code { addr, bytes })?;
        }
        Ok(())
    }

    /// Makes the vsyscall that a thread is about to make by a call to the vsyscall page. Returns
    /// the address where the thread continues; `None` if it is not there, or if the process has no
    /// vdso, whose SYSCALL instruction makes the call.
    pub(super) fn make_vsyscall(&self, thread: &Thread) -> Result<Option<Addr>, Error> {
        if vsyscall_at(thread.ip).is_none() {
            return Ok(None);
        }
        match self.gadget() {
            Some(gadget) => Ok(make_vsyscall(thread.tracee, &self.memory, &self.space, gadget)?),
            None => Ok(None),
        }
    }

    /// Returns the address of a SYSCALL instruction in the vdso; `None` if there is none.
    fn gadget(&self) -> Option<Addr> {
        const SYSCALL: [u8; 2] = [0x0f, 0x05];
        let range = self.space.mappings().find(|mapping| mapping.name == "[vdso]")?.range;
        let mut code = vec![0; usize::try_from(range.size_bytes()).ok()?];
        let known = self.memory.read(range.start, &mut code);
        let at = code[..known].windows(SYSCALL.len()).position(|bytes| bytes == SYSCALL)?;
        Some(range.start.wrapping_add(at as u64))
    }

    /// Returns true if `addr` is in code that the program itself cannot change.
    pub(super) fn has_fixed_code(&self, addr: Addr) -> bool {
        self.space.protection(addr).is_some_and(|p| p.execute && !p.write)
    }

    /// Writes the pending packets of a thread's path to its trace.
    pub(super) fn write_path(&mut self, thread: &mut Thread) -> Result<(), Error> {
        Ok(self.recorder.append_trace(thread.tid(), &thread.path.drain())?)
    }

    /// Ends the path of a thread, writes all of it, and records the thread's end. `final_pc` is the
    /// address where it ended, if known.
    pub(super) fn end_path(
        &mut self,
        thread: &mut Thread,
        final_pc: Option<Addr>,
    ) -> Result<(), Error> {
        thread.path.interrupt(thread.ip);
        thread.path.flush();
        self.write_path(thread)?;
        let name = comm(thread.pid, thread.tid());
        let instructions = thread.path.instructions();
        Ok(self.recorder.thread_ended(thread.tid(), name, instructions, final_pc)?)
    }
}
