//! Threads, memory and mappings at the replay's position, as the program has them: without the
//! replay's own page, and with the memory that is lent to the debugger ([`super::lent`]).
//!
//! The functions may be called while the *loaded* thread, whose registers are in the process,
//! waits at a *glance*, a stop in the code cache ([`super::glances`]). Then only its general
//! registers and memory are known.

use super::error::Error;
use super::process::Replay;
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::image::core;
use crate::insn::xsave::forget_last_x87;
use crate::recording::log::{Bytes, LogEvent};
use crate::sideband::{ImageId, Mapping};
use crate::tracee::{PageMap, Tracee};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::Ordering;

const FXSAVE_BYTES: usize = 512;
/// The number of the extended state (XSAVE area) as a register set of ptrace(2).
const NT_X86_XSTATE: u32 = 0x202;

/// A thread at the replay's position.
pub type ThreadView = core::Thread;

impl Replay {
    /// Returns the threads that exist at the current position.
    pub fn threads(&self) -> Vec<Tid> {
        self.epoch.contexts.tids().collect()
    }

    /// Returns the thread that executes next, that of the log's next entry; `None` at the end, if
    /// this entry creates the thread, or if the log cannot be read.
    pub fn running(&mut self) -> Option<Tid> {
        let next = self.next_thread().ok().flatten();
        next.filter(|tid| self.epoch.contexts.get(*tid).is_some())
    }

    /// Returns true if the next instruction of the thread that executes next is at one of `addrs`;
    /// false if no thread executes next. Loads that thread.
    pub fn is_at(&mut self, addrs: &BTreeSet<Addr>) -> Result<bool, Error> {
        self.switch_to_next_thread()?;
        let Some(thread) = self.loaded() else { return Ok(false) };
        let executes = self.running() == Some(thread.tid);
        Ok(executes && addrs.contains(&Addr(thread.registers.rip)))
    }

    /// Returns the thread whose registers the process holds, with its general registers only;
    /// `None` if there is none. Also works while it waits at a glance.
    pub fn loaded(&self) -> Option<ThreadView> {
        let tid = self.epoch.contexts.loaded()?;
        if let Some(glanced) = &self.glancing {
            let registers = glanced.registers;
            return Some(core::Thread { tid, registers, ..core::Thread::default() });
        }
        let registers = self.epoch.thread.tracee.registers().ok()?;
        Some(core::Thread { tid, registers, ..core::Thread::default() })
    }

    /// Returns the event of the next entry of the log; `None` after the last entry.
    pub fn next_entry(&mut self) -> Result<Option<LogEvent>, Error> {
        Ok(self.cursor.current()?.map(|entry| entry.event.clone()))
    }

    /// Returns the present registers of the thread of an entry of the log, which need not be the
    /// next one; `None` as for [`Self::thread`], or if the log does not have the entry.
    pub fn thread_of_entry(&self, entry: u64) -> Result<Option<ThreadView>, Error> {
        match self.outline.thread_of(entry) {
            Some(tid) => self.thread(tid),
            None => Ok(None),
        }
    }

    /// Returns all registers of a thread, and the siginfo of its last signal; `None` if there is no
    /// such thread. `orig_rax` is the number of the system call that the thread is in, or all ones.
    /// While a thread waits at a glance, its stop not decided yet, returns `None` for all threads
    /// and requests a full stop ([`Self::needs_stop`]).
    pub fn thread(&self, tid: Tid) -> Result<Option<ThreadView>, Error> {
        if let Some(glanced) = &self.glancing {
            glanced.needs_stop.store(true, Ordering::Relaxed);
            return Ok(None);
        }
        let Some(context) = self.epoch.contexts.get(tid) else { return Ok(None) };
        let tracee: Tracee = self.epoch.thread.tracee;
        let is_loaded = self.epoch.contexts.loaded() == Some(tid);
        let (mut registers, mut extended) = if is_loaded {
            (tracee.registers()?, tracee.register_set(NT_X86_XSTATE)?)
        } else {
            (context.registers, context.extended.0.clone())
        };
        registers.orig_rax = context.call.unwrap_or(u64::MAX);
        forget_last_x87(&mut extended);
        // An XSAVE area begins with the FXSAVE area.
        let fpregs = extended.get(..FXSAVE_BYTES).map(<[u8]>::to_vec);
        Ok(Some(core::Thread {
            tid,
            registers,
            fpregs,
            xstate: Some(extended),
            siginfo: context.siginfo.as_ref().map(|Bytes(info)| info.clone()),
            ..core::Thread::default()
        }))
    }

    /// Returns the siginfo of the signal that is about to be delivered to a handler of a thread, or
    /// else of the last one that the thread got; `None` without any.
    pub fn siginfo(&mut self, tid: Tid) -> Result<Option<Vec<u8>>, Error> {
        if let Some(entry) = self.cursor.current()?
            && entry.tid == tid
            && let LogEvent::Signal { siginfo: Bytes(info), handler: Some(_), .. } = &entry.event
            && self.is_at_site(&entry)?
        {
            return Ok(Some(info.clone()));
        }
        let context = self.epoch.contexts.get(tid);
        Ok(context.and_then(|c| c.siginfo.as_ref()).map(|Bytes(info)| info.clone()))
    }

    /// Reads the program's memory, up to the first byte that it does not have, or, where it has
    /// none, memory that is lent to the debugger. Returns the number of bytes that were read: 0 for
    /// a range with a part of the replay's own page.
    pub fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        let page = self.epoch.page;
        let own = crate::common::AddrRange::sized(page, 4096);
        let wanted = crate::common::AddrRange::sized(addr, buf.len() as u64);
        if own.overlaps(wanted) {
            return 0;
        }
        match self.epoch.engine.read_visible(addr, buf) {
            0 => self.read_lent(addr, buf),
            known => known,
        }
    }

    /// Returns the program's mappings with their recorded file names, and those of memory that is
    /// lent to the debugger, by address. Leaves out the parts into which stacks have not grown.
    /// Adjacent anonymous mappings with the same protection are one.
    pub fn mappings(&self) -> Vec<Mapping> {
        let page = self.epoch.page;
        let swap = |(path, image): (&String, &ImageId)| (image.0.clone(), path.clone());
        let names: BTreeMap<String, String> = self.files().iter().map(swap).collect();
        let with_name = |mapping: &Mapping| {
            let range = self.without_unused_stack(mapping.range);
            let protection = mapping.protection;
            if self.epoch.is_mapped_from_core(range) {
                return Mapping { range, protection, ..Mapping::default() };
            }
            let name = self.recorded_name(mapping, &names).to_owned();
            Mapping { range, name, ..mapping.clone() }
        };
        let mappings = self.epoch.engine.space.mappings();
        let visible = mappings.filter(|mapping| !mapping.range.contains(page)).map(with_name);
        let mut all: Vec<Mapping> = visible.chain(self.lent_mappings()).collect();
        all.sort_by_key(|mapping| mapping.range.start);
        // Anonymous memory is one mapping, of which the core file has a part.
        let is_anonymous = |mapping: &Mapping| mapping.name.is_empty() && mapping.inode == 0;
        all.dedup_by(|next, last| {
            let is_one = is_anonymous(last) && is_anonymous(next);
            let is_one = is_one && last.protection == next.protection;
            let continues = is_one && last.range.end == next.range.start;
            if continues {
                last.range.end = next.range.end;
            }
            continues
        });
        all
    }

    /// Returns the name that a mapping of the replay's process has in the program. `names` are the
    /// paths of the stored files, by their file names in the recording.
    fn recorded_name<'a>(
        &self,
        mapping: &'a Mapping,
        names: &'a BTreeMap<String, String>,
    ) -> &'a str {
        let is_own = matches!(mapping.name.as_str(), "[stack]" | "[heap]");
        if is_own || mapping.name.is_empty() {
            // The kernel names what is at the places of the replay's own stack and heap.
            let stack = self.epoch.stack_room.first();
            let is_stack = stack.is_some_and(|room| mapping.range.contains(room.end));
            return if is_stack { "[stack]" } else { "" };
        }
        let stored = Path::new(&mapping.name).file_name().and_then(|name| name.to_str());
        stored.and_then(|stored| names.get(stored)).unwrap_or(&mapping.name)
    }

    /// Returns a mapping's range without the part into which a stack has not grown: the pages of
    /// its room ([`super::maps`]) below the first one that was touched. Returns all of it if these
    /// are unknown, or if it is no stack's.
    fn without_unused_stack(&self, range: AddrRange) -> AddrRange {
        let below = &self.epoch.stack_room;
        let Some(below) = below.iter().find(|below| below.contains(range.start)) else {
            return range;
        };
        let unused = AddrRange::new(range.start, below.end.min(range.end));
        let touched = PageMap::open(self.epoch.pid()).and_then(|map| map.touched(unused));
        let first = touched
            .as_ref()
            .map_or(Some(range.start), |touched| touched.first().map(|(range, _)| range.start));
        AddrRange::new(first.unwrap_or(unused.end), range.end)
    }

    /// Returns the PID that the program had in the recorded run.
    pub fn pid(&self) -> Pid {
        self.reader.manifest().pid
    }
}
