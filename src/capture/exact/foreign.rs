//! Foreign memory: memory that processes outside the recording may write. These are shared mappings
//! that a child or another process has, too.
//!
//! While the program executes, the memory is *closed*: the program's accesses to it fault. Each
//! access is executed alone with the memory open, and logged with what it read. For a system call,
//! the memory that it uses is opened until the program executes again.

use super::effects::{Before, contents};
use super::engine::Engine;
use super::look_back::REST_AFTER_LOOK;
use super::maps::{MAPS, plain_name};
use super::others::written_by_others;
use super::process::{EVERYWHERE, Process, extended_of, place_of};
use super::thread::{Doing, Thread};
use super::writers::{Writers, writers_of};
use crate::capture::Error;
use crate::capture::restart::{registers_outside_call, will_restart_call};
use crate::common::{AddrRange, Tid};
use crate::insn::{Registers, may_write, reads, writes};
use crate::recording::log::{Bytes, Happening};
use crate::sideband::Mapping;
use crate::syscalls::Call;
use crate::tracee::call_numbers::FUTEX;
use std::time::{Duration, Instant};

/// The time between two looks at what other processes map, unless looks take long.
pub(super) const LOOK_PERIOD: Duration = Duration::from_secs(1);
const EFAULT: i64 = -libc::EFAULT as i64;
/// The number of logged accesses at which the user gets a note: they are slow.
const MANY_ACCESSES: u64 = 100;

/// The state of a thread before an instruction that may access foreign memory.
#[derive(Debug)]
pub(super) struct BeforeAccess {
    extended: Bytes,
    /// All writable memory, if it is not known where the instruction writes.
    memory: Option<Before>,
}

impl Engine {
    /// Closes foreign memory before a thread executes the program. If the kernel uses it for
    /// another thread, leaves it open, and notes for the user that the replay may fail.
    pub(super) fn close_foreign(&mut self, tid: Tid) -> Result<(), Error> {
        if !self.process.as_ref().is_some_and(|process| process.engine.has_open_foreign()) {
            return Ok(());
        }
        let uses = |thread: &Thread| thread.calling().is_some_and(|calling| calling.uses_foreign);
        let is_used = self.threads.values().any(|thread| thread.tid() != tid && uses(thread));
        self.with(tid, |process, thread| {
            if is_used {
                process.note(
                    "a system call used memory that other processes can write while other threads \
                     ran: if they used it too, the replay ends at that place"
                        .to_owned(),
                );
                return Ok(());
            }
            process.close_foreign(thread)
        })?;
        for thread in self.threads.values_mut() {
            if let Doing::Calls(calling) = &mut thread.doing {
                calling.was_closed = true;
            }
        }
        Ok(())
    }
}

impl Process {
    /// Makes shared memory foreign for a new child with copies of the mappings and of the
    /// descriptors, by which it may write there.
    pub(super) fn share_with_child(&mut self) {
        let is_open = |m: &Mapping| matches!(writers_of(m), Writers::Unknown);
        let writable = |m: &&Mapping| m.protection.shared && (m.protection.write || is_open(m));
        let shared: Vec<Mapping> = self.engine.space.mappings().filter(writable).cloned().collect();
        for mapping in &shared {
            self.share(mapping);
        }
    }

    /// Makes the file of a mapping foreign memory, since another process may write it.
    fn share(&mut self, mapping: &Mapping) {
        if self.engine.make_foreign(mapping) {
            let moot = format!("{MAPS}{} ", plain_name(mapping));
            self.notes.retain(|note| !note.starts_with(&moot));
            self.look_back.note_shared();
        }
    }

    /// Counts an access to foreign memory, and notes for the user when there are many.
    fn note_access(&mut self) {
        self.accesses += 1;
        if self.accesses == MANY_ACCESSES {
            self.note(
                "the program shares memory with other processes: its accesses there are recorded one \
                 by one, which is slow"
                    .to_owned(),
            );
        }
    }

    /// Makes shared mappings in a range foreign if other processes can write them, or are meant to.
    /// Postpones the look at other processes if the last one was costly (`rests_until`).
    pub(super) fn look_for_others(&mut self, range: AddrRange) {
        let shared = |m: &&Mapping| m.protection.shared && !self.engine.is_foreign_file(m);
        let at = self.engine.space.overlapping(range).filter(shared);
        let (meant, shared): (Vec<Mapping>, Vec<Mapping>) =
            at.cloned().partition(is_meant_for_others);
        for mapping in &meant {
            self.share(mapping);
        }
        let may_be_written = |mapping: &Mapping| match writers_of(mapping) {
            Writers::None => false,
            // The next look at all mappings finds these.
            Writers::Foreign => range == EVERYWHERE,
            Writers::Unknown => true,
        };
        let shared: Vec<Mapping> = shared.into_iter().filter(may_be_written).collect();
        if shared.is_empty() {
            return;
        }
        let begun = Instant::now();
        if begun < self.rests_until {
            self.next_look = self.rests_until;
            return;
        }
        self.share_what_others_map(&shared);
        self.rests_until = begun + REST_AFTER_LOOK * begun.elapsed();
    }

    /// Makes those of some mappings foreign that other processes can write.
    fn share_what_others_map(&mut self, mappings: &[Mapping]) {
        for mapping in &written_by_others(self.pid(), mappings).mappings {
            self.share(mapping);
        }
    }

    /// Looks now and then for processes that have mapped what the program maps.
    pub(super) fn look_for_others_if_due(&mut self) {
        let now = Instant::now();
        if now >= self.next_look.max(self.rests_until) {
            self.look_for_others(EVERYWHERE);
            self.next_look = now + LOOK_PERIOD;
        }
    }

    /// Closes all foreign memory, and logs the ranges that are not in the log yet.
    fn close_foreign(&mut self, thread: &Thread) -> Result<(), Error> {
        for range in self.engine.close_foreign(thread.tracee())? {
            if self.foreign.contains(&range) {
                continue;
            }
            self.foreign.push(range);
            self.log_beside(thread.tid(), Happening::Foreign { range })?;
        }
        Ok(())
    }

    /// Opens the foreign memory that the kernel uses in a thread's call, for the rest of the call.
    pub(super) fn open_again(&mut self, thread: &mut Thread) -> Result<(), Error> {
        if !self.engine.has_foreign() {
            return Ok(());
        }
        let tracee = thread.tracee();
        let Doing::Calls(calling) = &mut thread.doing else { return Ok(()) };
        let now = tracee.registers()?;
        let restarts = will_restart_call(&now);
        if !restarts && now.rip != calling.registers.rip {
            return Ok(());
        }
        if calling.is_repeated {
            self.engine.give_back_foreign(tracee, EVERYWHERE)?;
        } else {
            self.engine.open_foreign_for_call(tracee, &calling.call)?;
        }
        if restarts {
            // The kernel would have done this, but for the recorder's calls that opened the memory.
            tracee.set_registers(&registers_outside_call(&now))?;
        }
        calling.was_closed = false;
        let goes_to_program = calling.scratch.is_empty() || calling.is_repeated;
        calling.uses_foreign = self.uses_foreign(&calling.call) && goes_to_program;
        Ok(())
    }

    /// Returns true if the kernel may use foreign memory until a call returns.
    pub(super) fn uses_foreign(&self, call: &Call) -> bool {
        // The kernel reads the word of a futex as the wait begins.
        call.number != FUTEX && self.engine.has_open_foreign()
    }

    /// Reads the state of a thread before an instruction that may access foreign memory; `None` if
    /// there is no such memory.
    pub(super) fn before_access(
        &self,
        thread: &Thread,
        before: &Registers,
        bytes: &[u8],
    ) -> Result<Option<BeforeAccess>, Error> {
        if !self.engine.has_foreign() {
            return Ok(None);
        }
        let extended = extended_of(thread.tracee())?;
        let is_known = may_write(bytes, before).is_some();
        let memory = (!is_known).then(|| Before::read(&self.engine, self.pid()));
        Ok(Some(BeforeAccess { extended, memory }))
    }

    /// Lets a thread repeat a call that failed with EFAULT because foreign memory was closed during
    /// the call, or was not opened, since no argument points there. Returns false if the call did
    /// not fail so.
    pub(super) fn repeats(&self, thread: &mut Thread) -> Result<bool, Error> {
        let Doing::Calls(calling) = &mut thread.doing else { return Ok(false) };
        let has_closed = self.engine.has_closed_foreign() && !calling.is_repeated;
        if !calling.was_closed && !has_closed {
            return Ok(false);
        }
        let (was_closed, r) = (calling.was_closed, calling.registers);
        let after = thread.translated.tracee.registers()?;
        if after.rax.cast_signed() != EFAULT {
            return Ok(false);
        }
        calling.is_repeated |= !was_closed;
        let (rip, rax, rcx, r11) = (r.rip, r.rax, r.rcx, r.r11);
        let again = Registers { rip, rax, rcx, r11, orig_rax: u64::MAX, ..after };
        thread.tracee().set_registers(&again)?;
        Ok(true)
    }

    /// Logs the iterations of a REP instruction that accessed foreign memory before a signal
    /// stopped it.
    pub(super) fn log_begun_access(
        &mut self,
        thread: &mut Thread,
        before: &Registers,
        bytes: &[u8],
        earlier: Option<BeforeAccess>,
    ) -> Result<(), Error> {
        let after = thread.tracee().registers().ok();
        let has_begun = after.is_some_and(|r| r.rip == before.rip && r.rcx != before.rcx);
        match earlier.filter(|_| has_begun) {
            Some(earlier) => self.log_access(thread, before, bytes, earlier),
            None => Ok(()),
        }
    }

    /// Logs an instruction that accessed foreign memory.
    pub(super) fn log_access(
        &mut self,
        thread: &mut Thread,
        before: &Registers,
        bytes: &[u8],
        earlier: BeforeAccess,
    ) -> Result<(), Error> {
        let after = thread.tracee().registers()?;
        let extended = extended_of(thread.tracee())?;
        let extended = (extended != earlier.extended).then_some(extended);
        // The log needs the foreign memory only as far as the program read it.
        let read = reads(bytes, before, &after);
        let read = read.into_iter().filter(|range| self.engine.is_foreign(*range));
        let ranges = read.chain(writes(bytes, before, &after));
        let mut writes = contents(&self.engine, ranges.collect::<Vec<_>>());
        if let Some(memory) = earlier.memory {
            writes.extend(memory.changes(&self.engine, self.pid()));
        }
        let (place, registers) = (place_of(before), Box::new(after.into()));
        self.note_access();
        self.log(thread, before, Happening::Accesses { place, registers, extended, writes })
    }
}

/// Returns true if a mapping's purpose is to share memory: it is of `shm_open(3)` or shmget(2), or
/// of a device, a socket or another object of the kernel (rings of packets, maps of BPF, buffers of
/// a GPU).
pub(super) fn is_meant_for_others(mapping: &Mapping) -> bool {
    const NAMES: [&str; 4] = ["/dev/", "/SYSV", "socket:[", "anon_inode:"];
    let is_named = NAMES.iter().any(|name| mapping.name.starts_with(name));
    // The kernel's name of memory that is shared with children.
    let is_plain = mapping.name.starts_with("/dev/zero");
    mapping.protection.shared && is_named && !is_plain
}
