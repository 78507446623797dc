//! Mappings and memory of the replay's process. Mappings change by system calls that the process
//! is made to execute, at the SYSCALL instruction in the replay's own page, which the program does
//! not see; memory changes by writes from outside. Translated code there is dropped first
//! ([`Epoch::drop_code_in`]). After a change of mappings, they are read again
//! ([`Epoch::refresh_mappings`]).
//!
//! The kernel lets a stack grow downwards as it is used. Here it grows into its *room*: a range
//! that ends at the lowest page which the stack had when it was mapped. All of it is mapped
//! already, with the stack's protection. The room of a stack of the program's start is large from
//! the beginning, that of a later one is empty. An access below the room extends it downwards
//! ([`Epoch::grow_stack`]).

use super::epoch::Epoch;
use super::error::Error;
use super::loader::{STACK_BYTES, STACK_GAP_BYTES};
use crate::common::{Addr, AddrRange};
use crate::engine::MappingChanges;
use crate::recording::log::{Content, MapChange, Mapped, Write};
use crate::recording::{KnownCode, Reader, mapped_addresses};
use crate::sideband::Protection;
use crate::tracee::call_numbers::{CLOSE, MADVISE, MMAP, MPROTECT, MREMAP, MUNMAP, OPEN};
use crate::tracee::{self, PageMap, Tracee, mappings};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Offset in the replay's own page of the scratch space for paths.
pub(super) const SCRATCH_OFFSET: u64 = 0x100;
const SCRATCH_BYTES: usize = 0x1000 - 0x100;
const PAGE_BYTES: u64 = 4096;
// Flags of mmap(2), open(2), mremap(2) and madvise(2).
const PRIVATE_FIXED: u64 = 0x12;
const ANONYMOUS: u64 = 0x20;
const NORESERVE: u64 = 0x4000;
const READ_ONLY_CLOEXEC: u64 = 0x8_0000;
const MAYMOVE_FIXED: u64 = 3;
const DONTNEED: u64 = 4;

impl Epoch {
    /// Repeats the changes of mappings that a recorded system call made, and reads the mappings
    /// there again. Enables the code that the loaded code cache has of newly mapped files.
    pub(super) fn apply_map_changes(
        &mut self,
        changes: &[MapChange],
        reader: &Reader,
    ) -> Result<(), Error> {
        for change in changes {
            self.apply_map_change(change, reader)?;
            match change {
                MapChange::Map(mapped) => {
                    self.refresh_mappings_in(&[mapped.range])?;
                    self.enable_cached_code(mapped, reader);
                }
                MapChange::Unmap(range)
                | MapChange::Protect { range, .. }
                | MapChange::Discard(range) => self.refresh_mappings_in(&[*range])?,
                MapChange::Move { from, to } => self.refresh_mappings_in(&[*from, *to])?,
            }
        }
        Ok(())
    }

    /// Repeats one change of mappings. Drops translated code there. The caller reads the mappings
    /// again ([`Self::refresh_mappings_in`]).
    fn apply_map_change(&mut self, change: &MapChange, reader: &Reader) -> Result<(), Error> {
        match change {
            MapChange::Map(mapped) => {
                self.drop_code_in(mapped.range)?;
                self.map(mapped, reader)?;
                if mapped.grows_down {
                    // It has no room yet: `grow_stack` makes some when it is needed.
                    let start = mapped.range.start;
                    self.stack_room.push(AddrRange::new(start, start));
                }
                Ok(())
            }
            MapChange::Unmap(range) => {
                self.drop_code_in(*range)?;
                self.syscall("munmap", MUNMAP, [range.start.0, range.size_bytes(), 0, 0, 0, 0])?;
                Ok(())
            }
            MapChange::Protect { range, protection } => {
                let range = self.with_room_to_grow(*range);
                self.drop_code_in(range)?;
                let args = [range.start.0, range.size_bytes(), bits(*protection), 0, 0, 0];
                self.syscall("mprotect", MPROTECT, args)?;
                Ok(())
            }
            MapChange::Move { from, to } => {
                self.drop_code_in(*from)?;
                self.drop_code_in(*to)?;
                self.move_mappings(*from, *to)
            }
            MapChange::Discard(range) => {
                self.drop_code_in(*range)?;
                let args = [range.start.0, range.size_bytes(), DONTNEED, 0, 0, 0];
                self.syscall("madvise", MADVISE, args)?;
                Ok(())
            }
        }
    }

    /// Returns a range, extended to the start of a stack's room if the range has the stack's lowest
    /// page, and no page of the room below the range was touched: a stack grows with the protection
    /// of its lowest page, and here it has all its room already. Returns other ranges as they are,
    /// also if it is unknown which pages were touched.
    fn with_room_to_grow(&self, range: AddrRange) -> AddrRange {
        let has_bottom = |room: &&AddrRange| {
            room.start < range.start && range.start <= room.end && room.end < range.end
        };
        let Some(room) = self.stack_room.iter().find(has_bottom) else { return range };
        let below = AddrRange::new(room.start, range.start);
        let touched = PageMap::open(self.pid()).and_then(|map| map.touched(below));
        if touched.is_some_and(|touched| touched.is_empty()) {
            AddrRange::new(room.start, range.end)
        } else {
            range
        }
    }

    /// Repeats an mremap(2): moves the pages of `from` to `to`, and adds pages at their end or
    /// removes some if the sizes differ. Several mappings here may be one in the recorded process,
    /// where the kernel joined them: they are moved one by one.
    fn move_mappings(&mut self, from: AddrRange, to: AddrRange) -> Result<(), Error> {
        let (old, new) = (from.size_bytes(), to.size_bytes());
        let kept = AddrRange::sized(from.start, old.min(new));
        if new > old && from.start != to.start {
            // The last piece grows in place, after the moves. The kernel unmaps all of `to`.
            let added = to.start.wrapping_add(old);
            self.syscall("munmap", MUNMAP, [added.0, new - old, 0, 0, 0, 0])?;
        }
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
            self.syscall("munmap", MUNMAP, [kept.end.0, old - new, 0, 0, 0, 0])?;
        }
        Ok(())
    }

    /// Moves pages from `from` to `to` by mremap(2), instead of whatever is there; with `flags` 0,
    /// only changes their size in place.
    fn remap(&mut self, from: AddrRange, to: AddrRange, flags: u64) -> Result<(), Error> {
        let target = if flags == 0 { 0 } else { to.start.0 };
        let args = [from.start.0, from.size_bytes(), to.size_bytes(), flags, target, 0];
        self.syscall("mremap", MREMAP, args)?;
        Ok(())
    }

    /// Fails with [`Error::NotOfProgram`] if a range overlaps the replay's own memory, which a
    /// damaged or hostile log may name.
    pub(super) fn check_is_programs(&self, range: AddrRange) -> Result<(), Error> {
        let page = AddrRange::sized(self.page, 4096);
        let own = self.engine.space.hidden().iter().chain([&page]);
        let is_own = own.into_iter().any(|own| own.overlaps(range));
        if is_own { Err(Error::NotOfProgram { range }) } else { Ok(()) }
    }

    /// Returns true if the program itself could write to all of a range without a fault, and the
    /// range is neither executable, nor write-protected for a watch or code, nor the replay's own.
    /// Returns false for an empty range.
    pub(super) fn is_plain_data(&self, range: AddrRange) -> bool {
        let Some(last) = range.end.0.checked_sub(1).filter(|_| range.start < range.end) else {
            return false;
        };
        let space = &self.engine.space;
        let mut pages = (range.start.page().0..=last).step_by(4096);
        let is_writable = |page: u64| {
            let protection = space.protection(Addr(page));
            protection.is_some_and(|p| p.write && !p.execute) && !space.is_masked(page)
        };
        self.check_is_programs(range).is_ok() && pages.all(is_writable)
    }

    /// Maps a recorded mapping at its address, instead of whatever is there, with its recorded
    /// contents: zeros, or a stored file and zeros after its end; a shared one by
    /// [`Self::map_shared`]. Announces code of a private file that earlier runs executed there to
    /// the engine. The caller reads the mappings again ([`Self::refresh_mappings`]). Fails for the
    /// replay's own memory.
    pub(super) fn map(&mut self, mapped: &Mapped, reader: &Reader) -> Result<(), Error> {
        self.check_is_programs(mapped.range)?;
        if let Some(part) = mapped.shared {
            return self.map_shared(mapped, part, reader);
        }
        let (start, size) = (mapped.range.start.0, mapped.range.size_bytes());
        let prot = bits(mapped.protection);
        match &mapped.content {
            Content::Zeros => {
                let flags = PRIVATE_FIXED | ANONYMOUS | NORESERVE;
                self.syscall("mmap", MMAP, [start, size, prot, flags, u64::MAX, 0])?;
            }
            Content::File { image, offset } => {
                let path = reader.image_path(image)?;
                let stored = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
                let stored = stored.saturating_sub(*offset).next_multiple_of(PAGE_BYTES);
                if stored < size {
                    // The file may grow later: by zeros, or by writes that are in the log.
                    let flags = PRIVATE_FIXED | ANONYMOUS | NORESERVE;
                    self.syscall("mmap", MMAP, [start, size, prot, flags, u64::MAX, 0])?;
                }
                if stored > 0 {
                    let part = AddrRange::sized(mapped.range.start, size.min(stored));
                    self.with_open_file(&path, |epoch, file| {
                        epoch.map_file(part, mapped.protection, file, *offset)
                    })?;
                }
                if mapped.protection.execute {
                    let offsets = KnownCode::of_user().load(image);
                    self.engine.expect_code(mapped_addresses(mapped.range, *offset, &offsets));
                }
            }
        }
        Ok(())
    }

    /// Opens a file in the process, calls `action` with its descriptor there, and closes it, also
    /// if `action` fails. Fails for a path that the scratch space has no room for.
    pub(super) fn with_open_file(
        &mut self,
        path: &Path,
        action: impl FnOnce(&mut Self, u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut text = path.as_os_str().as_bytes().to_vec();
        text.push(0);
        if text.len() > SCRATCH_BYTES {
            return Err(failed_call("open", libc::ENAMETOOLONG));
        }
        let scratch = self.page.wrapping_add(SCRATCH_OFFSET);
        self.write(scratch, &text)?;
        let file = self.syscall("open", OPEN, [scratch.0, READ_ONLY_CLOEXEC, 0, 0, 0, 0])?;
        let done = action(self, file);
        self.syscall("close", CLOSE, [file, 0, 0, 0, 0, 0])?;
        done
    }

    /// Maps a part of an open file privately at an address, instead of whatever is there. Does not
    /// check that this is the program's memory. The caller reads the mappings again
    /// ([`Self::refresh_mappings`]).
    pub(super) fn map_file(
        &mut self,
        range: AddrRange,
        protection: Protection,
        file: u64,
        offset: u64,
    ) -> Result<(), Error> {
        let flags = PRIVATE_FIXED | NORESERVE;
        let args = [range.start.0, range.size_bytes(), bits(protection), flags, file, offset];
        self.syscall("mmap", MMAP, args)?;
        Ok(())
    }

    /// Repeats recorded writes of the kernel or of an instruction.
    pub(super) fn apply_writes(&mut self, writes: &[Write]) -> Result<(), Error> {
        writes.iter().try_for_each(|Write { addr, bytes }| self.overwrite(*addr, &bytes.0))
    }

    /// Writes memory of the program, whatever its protection: drops code that was translated from
    /// there, and extends a stack if the memory is below one. Memory whose first byte is executable
    /// counts as code: if it has these bytes already, nothing is done. Fails for the replay's own
    /// memory and for unmapped memory.
    pub(super) fn overwrite(&mut self, addr: Addr, bytes: &[u8]) -> Result<(), Error> {
        let range = AddrRange::sized(addr, bytes.len() as u64);
        self.check_is_programs(range)?;
        if self.engine.space.is_executable(addr) {
            // The recorder wrote to a page of code and put its bytes back: they are the same here.
            if self.has_bytes(addr, bytes) {
                return Ok(());
            }
            self.engine.forget_code(range);
        }
        self.engine.unprotect_and_forget(self.thread.tracee, range)?;
        if self.write(addr, bytes).is_err() && !self.write_shared(addr, bytes)? {
            self.grow_stack(addr)?;
            self.write(addr, bytes)?;
        }
        Ok(())
    }

    /// Returns true if memory has these bytes at `addr`.
    fn has_bytes(&self, addr: Addr, bytes: &[u8]) -> bool {
        let mut there = vec![0; bytes.len()];
        self.engine.memory.read(addr, &mut there) == bytes.len() && there == bytes
    }

    /// Extends the room of the stack above `addr` down to `addr`, and up to 64 MiB further if that
    /// is free, as the kernel does for an access below a stack. Returns false, and changes nothing,
    /// if the next mapping above is no stack's, something is mapped at `addr`, or it is too close
    /// to the mapping below.
    pub(super) fn grow_stack(&mut self, addr: Addr) -> Result<bool, Error> {
        let mappings: Vec<_> = self.engine.space.mappings().cloned().collect();
        // The kernel keeps no distance from inaccessible mappings.
        let gap =
            |protection| if protection == Protection::default() { 0 } else { STACK_GAP_BYTES };
        let hidden = self.engine.space.hidden().iter().map(|range| (range.end, STACK_GAP_BYTES));
        let ends = mappings.iter().map(|m| (m.range.end, gap(m.protection))).chain(hidden);
        let below = ends.filter(|(end, _)| *end <= addr).max();
        // The lowest address that a stack above may take.
        let lowest_free = below.map_or(Addr(0), |(end, gap)| Addr(end.0.saturating_add(gap)));
        let Some(stack) = mappings.iter().find(|m| m.range.start > addr) else { return Ok(false) };
        // The new part of the room ends at the start of the present mapping.
        let (top, is_mapped) = (stack.range.start, mappings.iter().any(|m| m.range.contains(addr)));
        let is_of_stack = |room: &&mut AddrRange| room.start <= top && top <= room.end;
        let Some(room) = self.stack_room.iter_mut().find(is_of_stack).filter(|_| !is_mapped) else {
            return Ok(false);
        };
        let start = Addr(addr.page().0.saturating_sub(STACK_BYTES)).max(lowest_free);
        if start > addr {
            return Ok(false);
        }
        room.start = room.start.min(start);
        let (start, size, prot) = (start.0, top.0 - start.0, bits(stack.protection));
        let flags = PRIVATE_FIXED | ANONYMOUS | NORESERVE;
        self.syscall("mmap", MMAP, [start, size, prot, flags, u64::MAX, 0])?;
        self.refresh_mappings()?;
        Ok(true)
    }

    /// Writes mapped memory of the process directly, also if its pages are not writable.
    /// [`Self::overwrite`] also handles translated code, shared files and stacks.
    pub(super) fn write(&self, addr: Addr, bytes: &[u8]) -> Result<(), Error> {
        let written = self.engine.memory.write(addr, bytes);
        written.map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(0);
            failed_call("write", errno)
        })
    }

    /// Drops the translated code of a range whose mapping is about to change, and restores the
    /// program's permissions of its pages, which the engine has changed to see writes. Fails for
    /// the replay's own memory.
    pub(super) fn drop_code_in(&mut self, range: AddrRange) -> Result<(), Error> {
        self.check_is_programs(range)?;
        self.engine.unprotect_and_forget(self.thread.tracee, range)?;
        self.engine.forget_code(range);
        Ok(())
    }

    /// Makes the process execute a system call for the replay itself, and returns its result.
    /// Blocks until it returns. Fails if the call does; `name` is for the error.
    pub(super) fn syscall(
        &mut self,
        name: &'static str,
        number: u64,
        args: [u64; 6],
    ) -> Result<u64, Error> {
        let _turn = self.one_cpu.begin_turn(self.thread.tid());
        syscall_in(self.thread.tracee, self.page, name, number, args)
    }

    /// Reads the process's mappings again, into the engine's address space. Makes the engine forget
    /// which code is *stable*, known not to change, in executable mappings that did.
    pub(super) fn refresh_mappings(&mut self) -> Result<(), Error> {
        let seen = self.engine.space.refresh(self.thread.pid)?;
        self.forget_changed_code(&seen);
        Ok(())
    }

    /// Does what [`Self::refresh_mappings`] does, for the mappings in some ranges.
    fn refresh_mappings_in(&mut self, ranges: &[AddrRange]) -> Result<(), Error> {
        let seen = self.engine.space.refresh_in(self.thread.pid, ranges)?;
        self.forget_changed_code(&seen);
        Ok(())
    }

    /// Makes the engine find out again which code is stable, and forget the pages of stable code
    /// whose executable mappings changed. Does nothing if none of `seen` is executable.
    fn forget_changed_code(&mut self, seen: &MappingChanges) {
        let changed = seen.gone.iter().chain(&seen.new).filter(|m| m.protection.execute);
        let changed: Vec<_> = changed.map(|m| m.range).collect();
        if changed.is_empty() {
            return;
        }
        // The mapped files are the recording's, which never change.
        self.engine.space.update_stable(crate::sideband::Mapping::is_file);
        self.engine.forget_stable_code(&changed);
    }
}

/// Makes a process execute a system call, by the SYSCALL instruction in `page`. Returns its result.
/// Fails if the call does.
pub(super) fn syscall_in(
    tracee: Tracee,
    page: Addr,
    name: &'static str,
    number: u64,
    args: [u64; 6],
) -> Result<u64, Error> {
    let result = tracee.inject(page, number, args)?;
    if (-4095..0).contains(&result) {
        return Err(failed_call(name, i32::try_from(-result).unwrap_or(0)));
    }
    Ok(result.cast_unsigned())
}

/// Returns the error of a system call that failed with `errno`.
pub(super) fn failed_call(call: &'static str, errno: i32) -> Error {
    tracee::Error::of_call(call, errno).into()
}

/// Returns a protection as bits of mmap(2) (`PROT_*`).
pub(super) fn bits(protection: Protection) -> u64 {
    crate::engine::prot_bits(protection)
}
