//! Mappings and memory of the replay's process, changed by system calls that it is made to execute
//! and by writes from outside.

use super::epoch::Epoch;
use super::error::Error;
use super::loader::{STACK_BYTES, STACK_GAP_BYTES};
use crate::common::{Addr, AddrRange};
use crate::engine::MappingChanges;
use crate::recording::log::{Content, MapChange, Mapped, Write};
use crate::recording::{KnownCode, Reader, addresses_in};
use crate::sideband::Protection;
use crate::tracee::call_numbers::{CLOSE, MADVISE, MMAP, MPROTECT, MREMAP, MUNMAP, OPEN};
use crate::tracee::{self, PageMap, Tracee, mappings};
use std::os::unix::ffi::OsStrExt;

/// Offset of the room for a path in the page of the SYSCALL instruction.
pub(super) const ROOM: u64 = 0x100;
const ROOM_BYTES: usize = 0x1000 - 0x100;
const PAGE_BYTES: u64 = 4096;
const PRIVATE_FIXED: u64 = 0x12;
const ANONYMOUS: u64 = 0x20;
const NORESERVE: u64 = 0x4000;
const READ_ONLY_CLOEXEC: u64 = 0x8_0000;
const MAYMOVE_FIXED: u64 = 3;
const DONTNEED: u64 = 4;

impl Epoch {
    /// Repeats the changes of mappings that a recorded system call made.
    pub(super) fn apply_maps(
        &mut self,
        changes: &[MapChange],
        reader: &Reader,
    ) -> Result<(), Error> {
        for change in changes {
            self.apply_map(change, reader)?;
            match change {
                MapChange::Map(mapped) => {
                    self.look_at_mappings_in(mapped.range)?;
                    self.wake_code(mapped, reader);
                }
                MapChange::Unmap(range)
                | MapChange::Protect { range, .. }
                | MapChange::Discard(range) => self.look_at_mappings_in(*range)?,
                MapChange::Move { from, to } => {
                    self.look_at_mappings_in(*from)?;
                    self.look_at_mappings_in(*to)?;
                }
            }
        }
        Ok(())
    }

    /// Repeats one change of mappings. The caller reads the mappings again.
    fn apply_map(&mut self, change: &MapChange, reader: &Reader) -> Result<(), Error> {
        match change {
            MapChange::Map(mapped) => {
                self.forget(mapped.range)?;
                self.map(mapped, reader)?;
                if mapped.grows_down {
                    let start = mapped.range.start;
                    self.below_stacks.push(AddrRange::new(start, start));
                }
                Ok(())
            }
            MapChange::Unmap(range) => {
                self.forget(*range)?;
                self.call("munmap", MUNMAP, [range.start.0, range.size_bytes(), 0, 0, 0, 0])?;
                Ok(())
            }
            MapChange::Protect { range, protection } => {
                let range = self.with_room_to_grow(*range);
                self.forget(range)?;
                let args = [range.start.0, range.size_bytes(), bits(*protection), 0, 0, 0];
                self.call("mprotect", MPROTECT, args)?;
                Ok(())
            }
            MapChange::Move { from, to } => {
                self.forget(*from)?;
                self.forget(*to)?;
                self.move_mappings(*from, *to)
            }
            MapChange::Discard(range) => {
                self.forget(*range)?;
                let args = [range.start.0, range.size_bytes(), DONTNEED, 0, 0, 0];
                self.call("madvise", MADVISE, args)?;
                Ok(())
            }
        }
    }

    /// Returns a range, extended by the unused room below a stack if the stack's lowest page is in
    /// the range: a stack grows with the protection of its lowest page, and here it has all its
    /// room already.
    fn with_room_to_grow(&self, range: AddrRange) -> AddrRange {
        let has_bottom = |room: &&AddrRange| {
            room.start < range.start && range.start <= room.end && room.end < range.end
        };
        let Some(room) = self.below_stacks.iter().find(has_bottom) else { return range };
        let below = AddrRange::new(room.start, range.start);
        let touched = PageMap::open(self.pid()).and_then(|map| map.touched(below));
        if touched.is_some_and(|touched| touched.is_empty()) {
            AddrRange::new(room.start, range.end)
        } else {
            range
        }
    }

    /// Moves the pages of `from` to `to`, and adds pages at their end or removes some. Several
    /// mappings here may be one in the recorded process, where the kernel joined them: they are
    /// moved one by one.
    fn move_mappings(&mut self, from: AddrRange, to: AddrRange) -> Result<(), Error> {
        let (old, new) = (from.size_bytes(), to.size_bytes());
        let kept = AddrRange::sized(from.start, old.min(new));
        let mut last = to;
        for mapping in mappings(self.pid())?.iter().filter(|m| m.range.overlaps(kept)) {
            let (start, end) =
                (mapping.range.start.max(kept.start), mapping.range.end.min(kept.end));
            let piece = AddrRange::new(start, end);
            last =
                AddrRange::sized(to.start.wrapping_add(start.0 - from.start.0), piece.size_bytes());
            if from.start != to.start {
                self.remap(piece, last, MAYMOVE_FIXED)?;
            }
        }
        if new > old {
            self.remap(last, AddrRange::new(last.start, to.end), 0)?;
        } else if new < old {
            self.call("munmap", MUNMAP, [kept.end.0, old - new, 0, 0, 0, 0])?;
        }
        Ok(())
    }

    fn remap(&mut self, from: AddrRange, to: AddrRange, flags: u64) -> Result<(), Error> {
        let target = if flags == 0 { 0 } else { to.start.0 };
        let args = [from.start.0, from.size_bytes(), to.size_bytes(), flags, target, 0];
        self.call("mremap", MREMAP, args)?;
        Ok(())
    }

    /// Fails if a range has a part of the replay's own memory, which a damaged or hostile log may
    /// name.
    pub(super) fn must_be_of_program(&self, range: AddrRange) -> Result<(), Error> {
        let page = AddrRange::sized(self.page, 4096);
        let own = self.engine.space.hidden().iter().chain([&page]);
        let is_own = own.into_iter().any(|own| own.overlaps(range));
        if is_own { Err(Error::NotOfProgram { range }) } else { Ok(()) }
    }

    /// Returns true if the program itself could write to a range without a stop, and none of its
    /// code is there.
    pub(super) fn is_plain(&self, range: AddrRange) -> bool {
        let Some(last) = range.end.0.checked_sub(1).filter(|_| range.start < range.end) else {
            return false;
        };
        let space = &self.engine.space;
        let mut pages = (range.start.page().0..=last).step_by(4096);
        let is_writable = |page: u64| {
            let protection = space.protection(Addr(page));
            protection.is_some_and(|p| p.write && !p.execute) && !space.is_masked(page)
        };
        self.must_be_of_program(range).is_ok() && pages.all(is_writable)
    }

    /// Maps a recorded mapping at its address. The caller reads the mappings again.
    pub(super) fn map(&mut self, mapped: &Mapped, reader: &Reader) -> Result<(), Error> {
        self.must_be_of_program(mapped.range)?;
        if let Some(part) = mapped.shared {
            return self.map_shared(mapped, part, reader);
        }
        let (start, size) = (mapped.range.start.0, mapped.range.size_bytes());
        let prot = bits(mapped.protection);
        match &mapped.content {
            Content::Zeros => {
                let flags = PRIVATE_FIXED | ANONYMOUS | NORESERVE;
                self.call("mmap", MMAP, [start, size, prot, flags, u64::MAX, 0])?;
            }
            Content::File { image, offset } => {
                let path = reader.image_path(image)?;
                let mut text = path.as_os_str().as_bytes().to_vec();
                text.push(0);
                if text.len() > ROOM_BYTES {
                    return Err(system("open", libc::ENAMETOOLONG));
                }
                let room = self.page.wrapping_add(ROOM);
                let stored = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
                let stored = stored.saturating_sub(*offset).next_multiple_of(PAGE_BYTES);
                if stored < size {
                    // The file may grow later: by zeros, or by writes that are in the log.
                    let flags = PRIVATE_FIXED | ANONYMOUS | NORESERVE;
                    self.call("mmap", MMAP, [start, size, prot, flags, u64::MAX, 0])?;
                }
                if stored > 0 {
                    self.write(room, &text)?;
                    let fd = self.call("open", OPEN, [room.0, READ_ONLY_CLOEXEC, 0, 0, 0, 0])?;
                    let flags = PRIVATE_FIXED | NORESERVE;
                    let args = [start, size.min(stored), prot, flags, fd, *offset];
                    let done = self.call("mmap", MMAP, args);
                    self.call("close", CLOSE, [fd, 0, 0, 0, 0, 0])?;
                    done?;
                }
                if mapped.protection.execute {
                    let offsets = KnownCode::of_user().load(image);
                    self.engine.expect_code(addresses_in(mapped.range, *offset, &offsets));
                }
            }
        }
        Ok(())
    }

    /// Repeats recorded writes of the kernel or of an instruction.
    pub(super) fn apply_writes(&mut self, writes: &[Write]) -> Result<(), Error> {
        writes.iter().try_for_each(|Write { addr, bytes }| self.overwrite(*addr, &bytes.0))
    }

    /// Writes memory of the program, whatever its protection: drops code that was translated from
    /// there, and extends a stack if the memory is below one. Fails for the replay's own memory.
    pub(super) fn overwrite(&mut self, addr: Addr, bytes: &[u8]) -> Result<(), Error> {
        let range = AddrRange::sized(addr, bytes.len() as u64);
        self.must_be_of_program(range)?;
        if self.engine.space.is_executable(addr) {
            // The recorder wrote to a page of code and put its bytes back: they are the same here.
            if self.has_bytes(addr, bytes) {
                return Ok(());
            }
            self.engine.forget_code(range);
        }
        self.engine.give_back_protection(self.thread.tracee, range)?;
        if self.write(addr, bytes).is_err() && !self.write_shared(addr, bytes)? {
            self.grow_stack(addr)?;
            self.write(addr, bytes)?;
        }
        Ok(())
    }

    fn has_bytes(&self, addr: Addr, bytes: &[u8]) -> bool {
        let mut there = vec![0; bytes.len()];
        self.engine.memory.read(addr, &mut there) == bytes.len() && there == bytes
    }

    /// Extends a stack down to `addr`, as the kernel does. Returns false if `addr` is not below a
    /// stack.
    pub(super) fn grow_stack(&mut self, addr: Addr) -> Result<bool, Error> {
        let mappings: Vec<_> = self.engine.space.mappings().cloned().collect();
        // The kernel keeps no distance from inaccessible mappings.
        let gap =
            |protection| if protection == Protection::default() { 0 } else { STACK_GAP_BYTES };
        let hidden = self.engine.space.hidden().iter().map(|range| (range.end, STACK_GAP_BYTES));
        let ends = mappings.iter().map(|m| (m.range.end, gap(m.protection))).chain(hidden);
        let below = ends.filter(|(end, _)| *end <= addr).max();
        let room = below.map_or(Addr(0), |(end, gap)| Addr(end.0.saturating_add(gap)));
        let Some(stack) = mappings.iter().find(|m| m.range.start > addr) else { return Ok(false) };
        let (top, is_used) = (stack.range.start, mappings.iter().any(|m| m.range.contains(addr)));
        let is_of = |below: &&mut AddrRange| below.start <= top && top <= below.end;
        let Some(below) = self.below_stacks.iter_mut().find(is_of).filter(|_| !is_used) else {
            return Ok(false);
        };
        let start = Addr(addr.page().0.saturating_sub(STACK_BYTES)).max(room);
        if start > addr {
            return Ok(false);
        }
        below.start = below.start.min(start);
        let (start, size, prot) = (start.0, top.0 - start.0, bits(stack.protection));
        let flags = PRIVATE_FIXED | ANONYMOUS | NORESERVE;
        self.call("mmap", MMAP, [start, size, prot, flags, u64::MAX, 0])?;
        self.look_at_mappings()?;
        Ok(true)
    }

    /// Writes mapped memory of the process directly. [`Self::overwrite`] also handles code,
    /// protections and stacks.
    pub(super) fn write(&self, addr: Addr, bytes: &[u8]) -> Result<(), Error> {
        let written = self.engine.memory.write(addr, bytes);
        written.map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(0);
            system("write", errno)
        })
    }

    /// Drops the translated code of a range whose mapping is about to change, and restores the
    /// permissions of its pages. Fails for the replay's own memory.
    pub(super) fn forget(&mut self, range: AddrRange) -> Result<(), Error> {
        self.must_be_of_program(range)?;
        self.engine.give_back_protection(self.thread.tracee, range)?;
        self.engine.forget_code(range);
        Ok(())
    }

    /// Makes the process execute a system call for the replay itself, and returns its result. Fails
    /// if the call does; `name` is for the error.
    pub(super) fn call(
        &mut self,
        name: &'static str,
        number: u64,
        args: [u64; 6],
    ) -> Result<u64, Error> {
        let _turn = self.one_cpu.begin_turn(self.thread.tid());
        call_in(self.thread.tracee, self.page, name, number, args)
    }

    /// Reads the mappings again, and forgets which code was stable in executable ones that changed.
    pub(super) fn look_at_mappings(&mut self) -> Result<(), Error> {
        let seen = self.engine.space.refresh(self.thread.pid)?;
        self.note_changes(&seen);
        Ok(())
    }

    /// Does what [`Self::look_at_mappings`] does, for the mappings in a range.
    fn look_at_mappings_in(&mut self, range: AddrRange) -> Result<(), Error> {
        let seen = self.engine.space.refresh_in(self.thread.pid, range)?;
        self.note_changes(&seen);
        Ok(())
    }

    /// Makes the engine forget which code is stable where executable mappings changed.
    fn note_changes(&mut self, seen: &MappingChanges) {
        let changed = seen.gone.iter().chain(&seen.new).filter(|m| m.protection.execute);
        let changed: Vec<_> = changed.map(|m| m.range).collect();
        if changed.is_empty() {
            return;
        }
        // The mapped files are the recording's, which never change.
        self.engine.space.set_kept(crate::sideband::Mapping::is_file);
        self.engine.forget_stable_code(&changed);
    }
}

/// Makes a process execute a system call, by the SYSCALL instruction in `page`. Returns its result.
/// Fails if the call does.
pub(super) fn call_in(
    tracee: Tracee,
    page: Addr,
    name: &'static str,
    number: u64,
    args: [u64; 6],
) -> Result<u64, Error> {
    let result = tracee.inject(page, number, args)?;
    if (-4095..0).contains(&result) {
        return Err(system(name, i32::try_from(-result).unwrap_or(0)));
    }
    Ok(result.cast_unsigned())
}

pub(super) fn system(call: &'static str, errno: i32) -> Error {
    tracee::Error::of_call(call, errno).into()
}

/// Returns a protection as bits of mmap(2) (`PROT_*`).
pub(super) fn bits(protection: Protection) -> u64 {
    crate::engine::bits_of(protection)
}
