//! Foreign memory: memory that processes outside the recording may write. These are shared mappings
//! that a child or another process has, too.
//!
//! While the program executes, the memory is *closed*: the program's accesses to it fault. Each
//! access is executed alone with the memory *open* (it has the program's permissions then), and
//! logged with the bytes that it read. For a system call, the memory that it uses is opened until
//! the program executes again. Memory is foreign by file: all mappings of that file are. From time
//! to time, the recorder looks at the mappings of all processes for more such files; `reclaim`
//! takes files back that are foreign no more.

use super::effects::{MemoryBefore, contents};
use super::engine::ExactRecorder;
use super::maps::{MAPS_NOTE, plain_name};
use super::other_processes::written_by_others;
use super::process::{EVERYWHERE, Process, extended_of, log_place_of};
use super::reclaim_timer::REST_AFTER_CHECK;
use super::thread::{Activity, Thread};
use super::writers::{Writers, writers_of};
use crate::capture::Error;
use crate::capture::restart::{registers_outside_call, will_restart_call};
use crate::common::{AddrRange, Tid};
use crate::insn::{Registers, may_write, reads, writes};
use crate::recording::log::{Bytes, LogEvent};
use crate::sideband::Mapping;
use crate::syscalls::Call;
use crate::tracee::call_numbers::FUTEX;
use std::time::{Duration, Instant};

/// The time between two looks at the mappings of other processes, unless looks take long.
pub(super) const FOREIGN_CHECK_PERIOD: Duration = Duration::from_secs(1);
const EFAULT: i64 = -libc::EFAULT as i64;
/// The number of logged accesses at which the user gets a note: they are slow.
const MANY_ACCESSES: u64 = 100;

/// The state of a thread before an instruction that may access foreign memory.
#[derive(Debug)]
pub(super) struct StateBeforeAccess {
    extended: Bytes,
    /// All writable memory, if it is not known where the instruction writes.
    memory: Option<MemoryBefore>,
}

impl ExactRecorder {
    /// Closes foreign memory, if any is open, before a thread executes the program. If the kernel
    /// may be using it in another thread's call, leaves it open, and notes for the user that the
    /// replay may fail. In both cases, marks the calls of all threads as ones in which memory may
    /// have been closed.
    pub(super) fn close_foreign(&mut self, tid: Tid) -> Result<(), Error> {
        if !self.process.as_ref().is_some_and(|process| process.engine.has_open_foreign()) {
            return Ok(());
        }
        let uses =
            |thread: &Thread| thread.current_call().is_some_and(|current| current.uses_foreign);
        let is_used = self.threads.values().any(|thread| thread.tid() != tid && uses(thread));
        self.with_thread(tid, |process, thread| {
            if is_used {
                process.add_user_note(
                    "a system call used memory that other processes can write while other threads \
                     ran: if they used it too, the replay ends at that place"
                        .to_owned(),
                );
                return Ok(());
            }
            process.close_foreign(thread)
        })?;
        for thread in self.threads.values_mut() {
            if let Activity::InCall(current) = &mut thread.activity {
                current.was_foreign_closed = true;
            }
        }
        Ok(())
    }
}

impl Process {
    /// Makes shared memory foreign because of a new child with copies of the mappings and of the
    /// descriptors, by which it may write there: writable mappings, and those of files that are
    /// open for writing.
    pub(super) fn make_shared_memory_foreign(&mut self) {
        let is_open = |m: &Mapping| matches!(writers_of(m), Writers::Unknown);
        let writable = |m: &&Mapping| m.protection.shared && (m.protection.write || is_open(m));
        let shared: Vec<Mapping> = self.engine.space.mappings().filter(writable).cloned().collect();
        for mapping in &shared {
            self.make_file_foreign(mapping);
        }
    }

    /// Makes the file of a mapping foreign memory, since another process may write it, and drops
    /// the note that the user would get otherwise. Does nothing if it is foreign already.
    fn make_file_foreign(&mut self, mapping: &Mapping) {
        if self.engine.note_foreign_file(mapping) {
            let moot = format!("{MAPS_NOTE}{} ", plain_name(mapping));
            self.notes.retain(|note| !note.starts_with(&moot));
            self.reclaim_timer.note_new_foreign();
        }
    }

    /// Counts a logged access to foreign memory, and adds a note for the user when there are many.
    fn note_access(&mut self) {
        self.foreign_accesses += 1;
        if self.foreign_accesses == MANY_ACCESSES {
            self.add_user_note(
                "the program shares memory with other processes: its accesses there are recorded one \
                 by one, which is slow"
                    .to_owned(),
            );
        }
    }

    /// Makes shared mappings in a range foreign if other processes can write them, or are meant to.
    /// Leaves those that only other users' processes may write to the next look at all mappings
    /// (`EVERYWHERE`). Postpones the look at the mappings of other processes to
    /// `foreign_check_not_before`, if that is later: the last look was costly.
    pub(super) fn find_foreign_in(&mut self, range: AddrRange) {
        let shared = |m: &&Mapping| m.protection.shared && !self.engine.is_foreign_file(m);
        let at = self.engine.space.overlapping(range).filter(shared);
        let (meant, shared): (Vec<Mapping>, Vec<Mapping>) =
            at.cloned().partition(is_meant_for_others);
        for mapping in &meant {
            self.make_file_foreign(mapping);
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
        if begun < self.foreign_check_not_before {
            self.next_foreign_check = self.foreign_check_not_before;
            return;
        }
        self.make_foreign_if_written_elsewhere(&shared);
        self.foreign_check_not_before = begun + REST_AFTER_CHECK * begun.elapsed();
    }

    /// Makes those of some mappings foreign that another process can write, by its own mappings.
    fn make_foreign_if_written_elsewhere(&mut self, mappings: &[Mapping]) {
        for mapping in &written_by_others(self.pid(), mappings).mappings {
            self.make_file_foreign(mapping);
        }
    }

    /// Makes memory foreign that other processes can write by now, if a look is due: once in
    /// `FOREIGN_CHECK_PERIOD`, unless looks take long.
    pub(super) fn find_foreign_if_due(&mut self) {
        let now = Instant::now();
        if now >= self.next_foreign_check.max(self.foreign_check_not_before) {
            self.find_foreign_in(EVERYWHERE);
            self.next_foreign_check = now + FOREIGN_CHECK_PERIOD;
        }
    }

    /// Closes all foreign memory, and logs the ranges of it that the log does not have yet
    /// (`logged_foreign`).
    fn close_foreign(&mut self, thread: &Thread) -> Result<(), Error> {
        for range in self.engine.close_foreign(thread.tracee())? {
            if self.logged_foreign.contains(&range) {
                continue;
            }
            self.logged_foreign.push(range);
            self.log_without_ticks(thread.tid(), LogEvent::Foreign { range })?;
        }
        Ok(())
    }

    /// Opens the foreign memory that the kernel uses in a thread's call, for the rest of the call,
    /// before the thread is resumed there. Sets a thread whose call the kernel would make again
    /// back to before the call. Does nothing if the thread is past its call.
    pub(super) fn reopen_foreign_for_call(&mut self, thread: &mut Thread) -> Result<(), Error> {
        if !self.engine.has_foreign() {
            return Ok(());
        }
        let tracee = thread.tracee();
        let Activity::InCall(current) = &mut thread.activity else { return Ok(()) };
        let now = tracee.registers()?;
        let restarts = will_restart_call(&now);
        if !restarts && now.rip != current.registers.rip {
            return Ok(());
        }
        if current.is_repeated {
            self.engine.open_foreign_range(tracee, EVERYWHERE)?;
        } else {
            self.engine.open_foreign_for_call(tracee, &current.call)?;
        }
        if restarts {
            // The kernel would have done this, but for the recorder's calls that opened the memory.
            tracee.set_registers(&registers_outside_call(&now))?;
        }
        current.was_foreign_closed = false;
        let goes_to_program = current.scratch.is_empty() || current.is_repeated;
        current.uses_foreign = self.uses_foreign(&current.call) && goes_to_program;
        Ok(())
    }

    /// Returns true if the kernel may use foreign memory until a call returns: some is open, and
    /// the call is not one on a futex.
    pub(super) fn uses_foreign(&self, call: &Call) -> bool {
        // The kernel reads the word of a futex as the wait begins.
        call.number != FUTEX && self.engine.has_open_foreign()
    }

    /// Reads the state of a thread before an instruction that may access foreign memory, for
    /// [`Self::log_access`]; returns `None` if there is no such memory.
    pub(super) fn state_before_access(
        &self,
        thread: &Thread,
        before: &Registers,
        bytes: &[u8],
    ) -> Result<Option<StateBeforeAccess>, Error> {
        if !self.engine.has_foreign() {
            return Ok(None);
        }
        let extended = extended_of(thread.tracee())?;
        let is_known = may_write(bytes, before).is_some();
        let memory = (!is_known).then(|| MemoryBefore::read(&self.engine, self.pid()));
        Ok(Some(StateBeforeAccess { extended, memory }))
    }

    /// Sets a thread back to before its call, and returns true, if the call failed with EFAULT
    /// because foreign memory was closed during the call, or was not opened, since no argument
    /// points there: the caller resumes it. Returns false, and changes nothing, if the call did not
    /// fail so, or failed so again.
    pub(super) fn repeat_faulted_call(&self, thread: &mut Thread) -> Result<bool, Error> {
        let Activity::InCall(current) = &mut thread.activity else { return Ok(false) };
        let has_closed = self.engine.has_closed_foreign() && !current.is_repeated;
        if !current.was_foreign_closed && !has_closed {
            return Ok(false);
        }
        let (was_closed, r) = (current.was_foreign_closed, current.registers);
        let after = thread.translated.tracee.registers()?;
        if after.rax.cast_signed() != EFAULT {
            return Ok(false);
        }
        current.is_repeated |= !was_closed;
        let (rip, rax, rcx, r11) = (r.rip, r.rax, r.rcx, r.r11);
        let again = Registers { rip, rax, rcx, r11, orig_rax: u64::MAX, ..after };
        thread.tracee().set_registers(&again)?;
        Ok(true)
    }

    /// Logs the iterations of a REP instruction that accessed foreign memory before a signal
    /// stopped it. Does nothing if `state` is `None`, or no iteration was executed. The arguments
    /// are those of [`Self::log_access`].
    pub(super) fn log_begun_access(
        &mut self,
        thread: &mut Thread,
        before: &Registers,
        bytes: &[u8],
        state: Option<StateBeforeAccess>,
    ) -> Result<(), Error> {
        let after = thread.tracee().registers().ok();
        let has_begun = after.is_some_and(|r| r.rip == before.rip && r.rcx != before.rcx);
        match state.filter(|_| has_begun) {
            Some(state) => self.log_access(thread, before, bytes, state),
            None => Ok(()),
        }
    }

    /// Logs an instruction that accessed foreign memory: the memory that it read or wrote, and the
    /// registers after it. `before` are the registers before it, `bytes` its bytes, and `state` is
    /// from [`Self::state_before_access`].
    pub(super) fn log_access(
        &mut self,
        thread: &mut Thread,
        before: &Registers,
        bytes: &[u8],
        state: StateBeforeAccess,
    ) -> Result<(), Error> {
        let after = thread.tracee().registers()?;
        let extended = extended_of(thread.tracee())?;
        let extended = (extended != state.extended).then_some(extended);
        // The log needs the foreign memory only as far as the program read it.
        let read = reads(bytes, before, &after);
        let read = read.into_iter().filter(|range| self.engine.is_foreign(*range));
        let ranges = read.chain(writes(bytes, before, &after));
        let mut writes = contents(&self.engine, ranges.collect::<Vec<_>>());
        if let Some(memory) = state.memory {
            writes.extend(memory.changes(&self.engine, self.pid()));
        }
        let (place, registers) = (log_place_of(before), Box::new(after.into()));
        self.note_access();
        self.log(thread, before, LogEvent::Accesses { place, registers, extended, writes })
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
