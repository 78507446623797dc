//! Brings the shared memory into a traced process, by system calls that one of its threads is made
//! to execute. The code cache and the tables are sealed against writes by the process, so no call
//! of the program makes them writable.
//!
//! All of the memory is mapped once, without access (at `base`): the *window*. Its parts are mapped
//! a second time where they are used: *zones* of the code cache near code, *areas* of threads and
//! the memory of budgets elsewhere, and the *gate*. `gadget` is always the address of a SYSCALL
//! instruction in the process, by which a stopped thread makes the calls.

use super::area::{Area, BUFFERS, BusyBuffers};
use super::error::{Error, checked, no_room, system};
use super::gate::{GATE_NEAR, Gate, page_words};
use super::patch::Patch;
use super::placement::{choose_address, is_eligible};
use super::seal::seal;
use super::shared::{LARGE_PAGE_BYTES, Shared};
use crate::common::{Addr, AddrRange, Pid};
use crate::tracee::call_numbers::{CLOSE, MADVISE, MEMFD_CREATE, MMAP, MPROTECT, MREMAP, MUNMAP};
use crate::tracee::{self, Memory, Tracee, mappings};
use crate::translate::{DESCRIPTORS, LARGEST_BUDGET, slots};
use std::fs::File;
use std::sync::Arc;

/// The size of the shared memory in bytes of address space; memory is used as it is touched.
const TOTAL_BYTES: u64 = CODE_BYTES + (8 << 30);
/// The size of the first part of the shared memory: the tables and the code cache, which the
/// process never writes.
const CODE_BYTES: u64 = 4 << 30;
/// Bytes of a zone of the code cache.
pub(super) const ZONE_BYTES: u64 = 64 << 20;
/// The limit, in bytes, of a zone's distance from the code that is translated into it.
const REACH_BYTES: u64 = 0x6800_0000;
/// The preferred address of the mapping of all shared memory: below everything that the kernel
/// places, in a range that `ThreadSanitizer` and `MemorySanitizer`, which use most of the address
/// space, leave to the program.
const WINDOW_NEAR: u64 = 0x7e90_0000_0000;
const PAGE_BYTES: u64 = 0x1000;
/// Bytes of the memory of budgets, with a page before it and one after it.
const BUDGET_BYTES: u64 = PAGE_BYTES + LARGEST_BUDGET + PAGE_BYTES;
/// Offset of the table of descriptors' classes, which threads write.
pub(super) const DESCRIPTORS_OFFSET: u64 = CODE_BYTES;
/// Offset of the first zone, after the tables.
const FIRST_ZONE: u64 = LARGE_PAGE_BYTES as u64;
/// Offset of the gate, in the last page before the first zone. No table is so large.
const GATE_OFFSET: u64 = FIRST_ZONE - PAGE_BYTES;

const NONE: u64 = 0;
const READ: u64 = 1;
const READ_WRITE: u64 = 3;
const READ_EXECUTE: u64 = 5;

/// The shared memory as the traced process sees it, and the allocation of its parts.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) shared: Arc<Shared>,
    pub(super) pid: Pid,
    /// The address in the process of all shared memory, mapped without access. Its parts are mapped
    /// a second time where they are used.
    base: u64,
    /// The offset in the shared memory of the next zone.
    next_zone: u64,
    /// The offset in the shared memory of the next area.
    next_area: u64,
    /// The page before the memory of budgets, where the check of a spent budget faults: a path
    /// overdraws a budget by less. Empty without budgets.
    pub(super) budget_guard: AddrRange,
    /// Ranges of the process's address space that are the recorder's.
    pub(super) ranges: Vec<AddrRange>,
    /// The zones of the code cache, with their offsets.
    zones: Vec<(AddrRange, u64)>,
    /// The areas that no thread uses.
    spare: Vec<(Area, Arc<BusyBuffers>)>,
    /// The number of threads that are about to be created, each of which needs an area.
    promised: usize,
    /// Bytes of each trace buffer of an area.
    pub(super) buffer_bytes: u64,
    /// Ranges where nothing may be placed, though nothing is mapped there yet.
    reserved: Vec<AddrRange>,
    /// The gate, if there is one. Its page is one of `ranges`.
    pub(super) gate: Option<Gate>,
}

impl Window {
    /// Makes the shared memory and maps it, still without zones and areas. `tracee` is stopped in
    /// the program, and no other thread runs. The process makes the system calls at the gate, if it
    /// has one; else its code is patched for a moment.
    pub(super) fn open(
        tracee: Tracee,
        pid: Pid,
        memory: &Memory,
        buffer_bytes: u64,
        reserved: Vec<AddrRange>,
        gate: Option<Gate>,
    ) -> Result<Self, Error> {
        if let Some(gate) = gate {
            let (entry, name) = (gate.entry(), gate.name());
            let mut window = Self::make(tracee, pid, entry, name, buffer_bytes, reserved)?;
            window.put_gate(tracee, entry, gate)?;
            return Ok(window);
        }
        let registers = tracee.registers()?;
        let gadget = Addr(registers.rip);
        // The name is in the same page, which is mapped whatever the stack pointer is. The first
        // 0x100 bytes of its half stay free: the SYSCALL may reach into them.
        let offset = if registers.rip & 0x800 == 0 { 0x900 } else { 0x100 };
        let name_at = Addr(gadget.page().0 + offset);
        let text = Patch::syscall(memory, gadget)?;
        let name = Patch::write(memory, name_at, b"contraflow\0")?;
        let result = Self::make(tracee, pid, gadget, name_at, buffer_bytes, reserved);
        let restored = name.restore(memory).and(text.restore(memory));
        result.and_then(|window| restored.map(|()| window))
    }

    /// Makes the shared memory, by system calls of `tracee` at `gadget`, and maps it, without
    /// zones, areas and gate. `name_at` is the address of its name in the process.
    fn make(
        tracee: Tracee,
        pid: Pid,
        gadget: Addr,
        name_at: Addr,
        buffer_bytes: u64,
        reserved: Vec<AddrRange>,
    ) -> Result<Self, Error> {
        const CLOEXEC_ALLOW_SEALING: u64 = 3;
        const SHARED: u64 = 0x1;
        const NORESERVE: u64 = 0x4000;
        const FIXED_NOREPLACE: u64 = 0x10_0000;
        const DONTDUMP: u64 = libc::MADV_DONTDUMP as u64;
        let call = |name, number, args| checked(name, tracee.inject(gadget, number, args)?);
        let fd =
            call("memfd_create", MEMFD_CREATE, [name_at.0, CLOEXEC_ALLOW_SEALING, 0, 0, 0, 0])?;
        let path = format!("/proc/{pid}/fd/{fd}");
        let file = File::options().read(true).write(true).open(&path);
        let file = file.map_err(|error| tracee::Error::Proc { path: path.into(), error })?;
        file.set_len(TOTAL_BYTES).map_err(|error| system("ftruncate", &error))?;
        let shared = Shared::map(&file, TOTAL_BYTES)?;
        let occupied = occupied_ranges(pid, &reserved)?;
        let wanted = choose_address(&occupied, WINDOW_NEAR, TOTAL_BYTES, u64::MAX).unwrap_or(0);
        let flags = SHARED | NORESERVE | FIXED_NOREPLACE;
        let map =
            |start, end| call("mmap", MMAP, [wanted + start, end - start, NONE, flags, fd, start]);
        // Mappings from before the seal, here that of the areas, stay writable; later ones never
        // become so. The code is mapped at the base of the whole.
        let map_parts = || {
            map(CODE_BYTES, TOTAL_BYTES)?;
            seal(&file)?;
            map(0, CODE_BYTES)
        };
        let base = match map_parts() {
            Err(error) if error.is_of_end() => return Err(error),
            result => result,
        };
        call("close", CLOSE, [fd, 0, 0, 0, 0, 0])?;
        let base = base?;
        // Keeps the memory out of core dumps of the kernel and of gcore. A second mapping of it has
        // the same flags.
        call("madvise", MADVISE, [base, TOTAL_BYTES, DONTDUMP, 0, 0, 0])?;
        let ranges = vec![AddrRange::sized(Addr(base), TOTAL_BYTES)];
        Ok(Self {
            shared,
            pid,
            base,
            next_zone: FIRST_ZONE,
            next_area: DESCRIPTORS_OFFSET + PAGE_BYTES,
            budget_guard: AddrRange::default(),
            ranges,
            zones: Vec::new(),
            spare: Vec::new(),
            promised: 0,
            buffer_bytes,
            reserved,
            gate: None,
        })
    }

    /// Maps the gate, with its SYSCALL instruction, at a free address. Fails if there is none.
    pub(super) fn make_gate(&mut self, tracee: Tracee, gadget: Addr) -> Result<Gate, Error> {
        let occupied = occupied_ranges(self.pid, &self.reserved)?;
        let at = choose_address(&occupied, GATE_NEAR, PAGE_BYTES, u64::MAX).ok_or_else(no_room)?;
        let gate = Gate(Addr(at));
        self.put_gate(tracee, gadget, gate)?;
        Ok(gate)
    }

    /// Fills the page of the gate, and maps it at the gate, in place of what is mapped there.
    fn put_gate(&mut self, tracee: Tracee, gadget: Addr, gate: Gate) -> Result<(), Error> {
        for (offset, word) in page_words() {
            self.shared.store(GATE_OFFSET + offset, word);
        }
        // `gadget` may be in the page: it is executable all the time.
        let from = AddrRange::sized(Addr(self.base + GATE_OFFSET), PAGE_BYTES);
        protect(tracee, gadget, from, READ_EXECUTE)?;
        self.map_again(tracee, gadget, GATE_OFFSET, gate.page())?;
        self.ranges.push(gate.page());
        self.gate = Some(gate);
        Ok(())
    }

    /// Keeps these ranges free of further mappings of the tracer. Those that exist stay.
    pub(super) fn reserve(&mut self, ranges: Vec<AddrRange>) {
        self.reserved.extend(ranges);
        self.reserved.sort_by_key(|range| (range.start, range.end));
        self.reserved.dedup();
    }

    /// Maps the memory of budgets. Its first page cannot be accessed ([`Self::budget_guard`]).
    pub(super) fn make_budgets(&mut self, tracee: Tracee, gadget: Addr) -> Result<(), Error> {
        let occupied = occupied_ranges(self.pid, &self.reserved)?;
        let at =
            choose_address(&occupied, WINDOW_NEAR, BUDGET_BYTES, u64::MAX).ok_or_else(no_room)?;
        let offset = allocate(&mut self.next_area, BUDGET_BYTES, TOTAL_BYTES)?;
        let whole = AddrRange::sized(Addr(at), BUDGET_BYTES);
        self.map_again(tracee, gadget, offset, whole)?;
        let first = AddrRange::sized(whole.start, PAGE_BYTES);
        protect(tracee, gadget, AddrRange::new(first.end, whole.end), READ_WRITE)?;
        self.ranges.push(whole);
        self.budget_guard = first;
        Ok(())
    }

    /// Maps a zone of the code cache in reach of `near`. Returns its address, and its offset in the
    /// shared memory. Fails if there is no free place.
    pub(super) fn map_zone_near(
        &mut self,
        tracee: Tracee,
        gadget: Addr,
        near: u64,
    ) -> Result<(u64, u64), Error> {
        let occupied = occupied_ranges(self.pid, &self.reserved)?;
        let base = choose_address(&occupied, near, ZONE_BYTES, REACH_BYTES).ok_or_else(no_room)?;
        let offset =
            self.map_next_zone(tracee, gadget, AddrRange::sized(Addr(base), ZONE_BYTES))?;
        Ok((base, offset))
    }

    /// Maps a zone of the code cache at an address. Returns its offset in the shared memory. Fails
    /// if the place is not free, or may not be used.
    pub(super) fn map_zone_at(
        &mut self,
        tracee: Tracee,
        gadget: Addr,
        base: u64,
    ) -> Result<u64, Error> {
        let range = AddrRange::sized(Addr(base), ZONE_BYTES);
        if !is_eligible(range)
            || occupied_ranges(self.pid, &self.reserved)?.iter().any(|of| of.overlaps(range))
        {
            return Err(no_room());
        }
        self.map_next_zone(tracee, gadget, range)
    }

    /// Maps a new zone at `range`. Returns its offset in the shared memory.
    fn map_next_zone(
        &mut self,
        tracee: Tracee,
        gadget: Addr,
        range: AddrRange,
    ) -> Result<u64, Error> {
        let offset = allocate(&mut self.next_zone, ZONE_BYTES, CODE_BYTES)?;
        self.alias(tracee, gadget, offset, range, READ_EXECUTE)?;
        self.ranges.push(range);
        self.zones.push((range, offset));
        Ok(offset)
    }

    /// Uses `pid`, a copy of the process made by fork, from now on, and maps there the zones that
    /// the copy lacks: those from number `first` on. `tracee` is its thread.
    pub(super) fn switch_to_copy(
        &mut self,
        tracee: Tracee,
        pid: Pid,
        gadget: Addr,
        first: usize,
    ) -> Result<(), Error> {
        self.pid = pid;
        for (range, offset) in self.zones.iter().skip(first) {
            self.alias(tracee, gadget, *offset, *range, READ_EXECUTE)?;
        }
        Ok(())
    }

    /// Returns the number of zones of the code cache.
    pub(super) fn zone_count(&self) -> usize {
        self.zones.len()
    }

    /// Maps the first zone of the code cache near an address, or near the instruction at which
    /// `tracee` is stopped if that is `None`. Without a gate, patches that instruction for a
    /// moment. Returns the zone's address and its offset.
    pub(super) fn first_zone(
        &mut self,
        tracee: Tracee,
        memory: &Memory,
        near: Option<u64>,
    ) -> Result<(u64, u64), Error> {
        let at = Addr(tracee.registers()?.rip);
        let near = near.unwrap_or(at.0);
        if let Some(gate) = self.gate {
            return self.map_zone_near(tracee, gate.entry(), near);
        }
        let text = Patch::syscall(memory, at)?;
        let zone = self.map_zone_near(tracee, at, near);
        let restored = text.restore(memory);
        zone.and_then(|zone| restored.map(|()| zone))
    }

    /// Makes sure that there is a spare area for one more thread, which is about to be created: one
    /// for each call that was not settled. Call [`Self::settle_prepared_area`] when the thread
    /// exists, or when there will be none.
    pub(super) fn prepare_area(&mut self, tracee: Tracee, gadget: Addr) -> Result<(), Error> {
        self.promised += 1;
        if self.spare.len() >= self.promised {
            return Ok(());
        }
        let buffer_bytes = self.buffer_bytes;
        let size = Area { base: 0, offset: 0, buffer_bytes }.size_bytes();
        // Not near the code: addresses in its reach are for zones.
        let occupied = occupied_ranges(self.pid, &self.reserved)?;
        let base = choose_address(&occupied, WINDOW_NEAR, size, u64::MAX).ok_or_else(no_room)?;
        let offset = allocate(&mut self.next_area, size, TOTAL_BYTES)?;
        let area = Area { base, offset, buffer_bytes };
        let range = AddrRange::sized(Addr(base), size);
        self.alias(tracee, gadget, offset, range, READ_WRITE)?;
        self.alias(tracee, gadget, 0, area.tables(), READ)?;
        let descriptors = area.tables().start.wrapping_add(DESCRIPTORS.into());
        let page = AddrRange::sized(descriptors, PAGE_BYTES);
        self.alias(tracee, gadget, DESCRIPTORS_OFFSET, page, READ_WRITE)?;
        for index in 0..BUFFERS {
            let guard = area.guard(index);
            protect(tracee, gadget, guard, NONE)?;
        }
        self.ranges.push(range);
        self.spare.push((area, Arc::default()));
        Ok(())
    }

    /// Removes and returns a spare area; `None` if there is none.
    pub(super) fn take_area(&mut self) -> Option<(Area, Arc<BusyBuffers>)> {
        self.spare.pop()
    }

    /// Returns the spare area that [`Self::take_area`] would return, without removing it.
    pub(super) fn spare_area(&self) -> Option<&(Area, Arc<BusyBuffers>)> {
        self.spare.last()
    }

    /// Notes that a thread whose area was prepared exists and has taken it, or that there will be
    /// none.
    pub(super) fn settle_prepared_area(&mut self) {
        self.promised = self.promised.saturating_sub(1);
    }

    /// Keeps the area of an ended thread for a later one, without its last request. It is taken
    /// after the other spare areas.
    pub(super) fn recycle_area(&mut self, area: Area, busy: Arc<BusyBuffers>) {
        self.shared.store(area.slot(slots::REQUEST), 0);
        self.spare.insert(0, (area, busy));
    }

    /// Unmaps all of the tracer's memory but the gate in a process that is stopped in the program,
    /// by the SYSCALL instruction at `gadget`.
    pub(super) fn unmap_all_but_gate(&self, tracee: Tracee, gadget: Addr) -> Result<(), Error> {
        let gate = self.gate.map(Gate::page);
        for range in self.ranges.iter().filter(|range| Some(**range) != gate) {
            let args = [range.start.0, range.size_bytes(), 0, 0, 0, 0];
            checked("munmap", tracee.inject(gadget, MUNMAP, args)?)?;
        }
        Ok(())
    }

    /// Unmaps all of the tracer's memory in a process that continues natively. Without a gate,
    /// patches the code where `tracee` is stopped in the program for a moment.
    pub(super) fn unmap_all(&self, tracee: Tracee, memory: &Memory) -> Result<(), Error> {
        if let Some(gate) = self.gate {
            self.unmap_all_but_gate(tracee, gate.entry())?;
            return gate.unmap(tracee);
        }
        let at = Addr(tracee.registers()?.rip);
        let text = Patch::syscall(memory, at)?;
        let removed = self.unmap_all_but_gate(tracee, at);
        removed.and(text.restore(memory))
    }

    /// Maps the shared pages at `offset` a second time, at `range`, in place of what is mapped
    /// there, with this protection.
    fn alias(
        &self,
        tracee: Tracee,
        gadget: Addr,
        offset: u64,
        range: AddrRange,
        protection: u64,
    ) -> Result<(), Error> {
        self.map_again(tracee, gadget, offset, range)?;
        protect(tracee, gadget, range, protection)
    }

    /// Maps the shared pages at `offset` a second time, at `range`, in place of what is mapped
    /// there, without access.
    fn map_again(
        &self,
        tracee: Tracee,
        gadget: Addr,
        offset: u64,
        range: AddrRange,
    ) -> Result<(), Error> {
        const MAYMOVE_FIXED: u64 = 3;
        let (start, size) = (range.start.0, range.size_bytes());
        // An old size of 0 maps shared pages a second time (mremap(2)).
        let args = [self.base + offset, 0, size, MAYMOVE_FIXED, start, 0];
        checked("mremap", tracee.inject(gadget, MREMAP, args)?)?;
        Ok(())
    }
}

/// Sets the protection of a range to `bits` (`PROT_*` of mprotect(2)), by a call at `gadget`.
fn protect(tracee: Tracee, gadget: Addr, range: AddrRange, bits: u64) -> Result<(), Error> {
    let args = [range.start.0, range.size_bytes(), bits, 0, 0, 0];
    checked("mprotect", tracee.inject(gadget, MPROTECT, args)?)?;
    Ok(())
}

/// Returns the ranges of a process's address space that are mapped or reserved.
fn occupied_ranges(pid: Pid, reserved: &[AddrRange]) -> Result<Vec<AddrRange>, Error> {
    let mapped = mappings(pid)?.into_iter().map(|mapping| mapping.range);
    Ok(mapped.chain(reserved.iter().copied()).collect())
}

/// Returns the offset of `size` free bytes of the shared memory, which is `next`, and moves `next`
/// after them, to a whole page. Fails if they end after `end`.
fn allocate(next: &mut u64, size: u64, end: u64) -> Result<u64, Error> {
    let offset = *next;
    *next = offset.saturating_add(size.next_multiple_of(0x1000));
    if *next > end { Err(no_room()) } else { Ok(offset) }
}
