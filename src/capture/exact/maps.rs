//! Changes of the mappings by system calls, for the log.
//!
//! A change (`MapChange`) that maps something describes it with its content (`Mapped`). Content
//! that a replay cannot find elsewhere is *stored* now, as an image of the recording: copies of
//! memory, or of parts of large files. A mapped file that the recording has as a whole is only
//! named. *Foreign* memory is shared memory that processes outside the recording may write
//! (`foreign`).

use super::extents::{LARGEST_STORED_BYTES, PAGE_BYTES, extents, is_regular, read_up_to};
use super::process::Process;
use super::thread::Thread;
use crate::capture::Error;
use crate::capture::code_cache;
use crate::common::{Addr, AddrRange};
use crate::engine::PROGRAM_END;
use crate::recording::log::{Content, MapChange, Mapped, Shared};
use crate::sideband::{ImageId, Mapping, Protection};
use crate::syscalls::Call;
use crate::tracee::call_numbers::{
    BRK, MADVISE, MMAP, MPROTECT, MREMAP, MUNMAP, PKEY_MPROTECT, SHMAT, SHMDT,
};
use crate::tracee::{PageMap, PageState};
use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

const LAST_ERRNO: i64 = 4095;
const PROT_GROWSDOWN: u64 = libc::PROT_GROWSDOWN as u64;
const MAP_GROWSDOWN: u64 = libc::MAP_GROWSDOWN as u64;
const MREMAP_DONTUNMAP: u64 = libc::MREMAP_DONTUNMAP as u64;
/// Advice that lets the kernel discard the written contents of memory (madvise(2)).
const FORGETTING: [u64; 3] =
    [libc::MADV_DONTNEED as u64, libc::MADV_REMOVE as u64, libc::MADV_DONTNEED_LOCKED as u64];

/// The start of a note to the user about a shared mapping that the program can write. One such note
/// is enough, and it is dropped if the mapping becomes foreign.
pub(super) const MAPS_NOTE: &str = "the program maps ";

/// Returns true if a call of this number may change mappings. No other thread executes anything
/// until it is done: the log has the changes in the order in which the kernel made them.
pub(super) fn changes_mappings(number: u64) -> bool {
    matches!(
        number,
        BRK | MADVISE | MMAP | MPROTECT | MREMAP | MUNMAP | PKEY_MPROTECT | SHMAT | SHMDT
    )
}

impl Process {
    /// Returns the changes of mappings that a call made, or may have made before it failed, with
    /// their contents, as they are now: call it for failed calls, too. Returns none for calls that
    /// change none. Reads those mappings again, and drops translated code from them.
    pub(super) fn map_changes(
        &mut self,
        thread: &Thread,
        call: &Call,
        result: i64,
    ) -> Result<Vec<MapChange>, Error> {
        let [first, second, third, ..] = call.args;
        if (-LAST_ERRNO..0).contains(&result) {
            return self.changes_of_failed_call(thread, call, result);
        }
        let at = Addr(result.cast_unsigned());
        let pages = |start: Addr, size: u64| {
            AddrRange::sized(start, size.checked_next_multiple_of(PAGE_BYTES).unwrap_or(size))
        };
        let given = pages(Addr(first), second);
        Ok(match call.number {
            MMAP => {
                self.mappings.forget_changed_files();
                let range = pages(at, second);
                self.refresh_replaced(thread, &[range])?;
                let mapped = self.describe_mmap(range, call)?;
                self.find_foreign_in(range);
                mapped.into_iter().map(MapChange::Map).collect()
            }
            MUNMAP => {
                self.refresh_replaced(thread, &[given])?;
                vec![MapChange::Unmap(given)]
            }
            MPROTECT | PKEY_MPROTECT => {
                self.refresh_replaced(thread, &[given])?;
                let range =
                    if third & PROT_GROWSDOWN == 0 { given } else { self.extended_down(given) };
                let protection = self.with_implied_execute(range, protection(third));
                vec![MapChange::Protect { range, protection }]
            }
            MREMAP => self.changes_of_mremap(thread, call, at)?,
            BRK => self.changes_of_brk(thread, at)?,
            MADVISE if FORGETTING.contains(&third) => {
                self.engine.forget_code(given);
                self.discards(given)
            }
            SHMAT => {
                self.refresh_replaced(thread, &[AddrRange::sized(at, PAGE_BYTES)])?;
                let attached = self.engine.space.overlapping(AddrRange::sized(at, 1)).next();
                let Some(mapping) = attached.cloned() else { return Ok(Vec::new()) };
                self.find_foreign_in(mapping.range);
                vec![MapChange::Map(self.describe_shared_with_note(&mapping)?)]
            }
            SHMDT => {
                let before: Vec<Mapping> = self.engine.space.mappings().cloned().collect();
                self.mapping_changes_since(thread, &before)?
            }
            _ => Vec::new(),
        })
    }

    /// Returns the changes of mappings that a failed call may have made: the kernel changes one
    /// mapping after the other, so some may be changed before the error. Describes the state of the
    /// mappings now, so it does no harm if they are not changed.
    fn changes_of_failed_call(
        &mut self,
        thread: &Thread,
        call: &Call,
        result: i64,
    ) -> Result<Vec<MapChange>, Error> {
        let [first, size_bytes, third, fourth, ..] = call.args;
        let end = first.saturating_add(size_bytes);
        let is_aligned = first.is_multiple_of(PAGE_BYTES) && first < end;
        let is_changing = match call.number {
            MPROTECT | PKEY_MPROTECT => true,
            MADVISE => FORGETTING.contains(&third),
            MMAP => fourth & u64::from(libc::MAP_FIXED.cast_unsigned()) != 0,
            _ => false,
        };
        if !is_changing || !is_aligned || end > PROGRAM_END {
            return Ok(Vec::new());
        }
        let last = end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(end);
        let given = AddrRange::new(Addr(first), Addr(last));
        self.refresh_replaced(thread, &[given])?;
        let parts: Vec<Mapping> = self.engine.space.overlapping(given).cloned().collect();
        Ok(match call.number {
            // The kernel skips holes, and returns this at the end. Other errors end the call at
            // their mapping.
            MADVISE if result == -i64::from(libc::ENOMEM) => self.discards(given),
            MADVISE => {
                let own = parts.iter().filter(|m| !m.protection.shared);
                let discards = own.map(|m| self.possible_discards(m, given));
                discards.collect::<Result<Vec<_>, Error>>()?.concat()
            }
            MMAP => holes(given, parts.iter().map(|m| m.range))
                .into_iter()
                .map(MapChange::Unmap)
                .collect(),
            _ => {
                let protect = |m: &Mapping| MapChange::Protect {
                    range: intersection(m.range, given),
                    protection: m.protection,
                };
                parts.iter().map(protect).collect()
            }
        })
    }

    /// Returns the changes by which a private mapping may have lost contents in a range: discards
    /// the pages that are not the process's own now. If these are unknown, stores the content.
    fn possible_discards(
        &self,
        mapping: &Mapping,
        range: AddrRange,
    ) -> Result<Vec<MapChange>, Error> {
        let part = intersection(mapping.range, range);
        let pages = PageMap::open(self.pid());
        let Some(touched) = pages.and_then(|pages| pages.touched(part)) else {
            return Ok(vec![MapChange::Map(self.describe_with_content(mapping, range)?)]);
        };
        let own = touched.into_iter().filter(|(_, state)| *state == PageState::Private);
        let others = holes(part, own.map(|(range, _)| range));
        Ok(others.into_iter().map(MapChange::Discard).collect())
    }

    /// Describes the part of a private mapping that is in a range, and stores its content.
    fn describe_with_content(&self, mapping: &Mapping, range: AddrRange) -> Result<Mapped, Error> {
        let range = intersection(mapping.range, range);
        let content = Content::File { image: self.store_memory(range)?, offset: 0 };
        Ok(Mapped { shared: None, ..mapped_from(mapping, range, content) })
    }

    /// Returns the changes by which the parts of private mappings in a range lose their contents.
    fn discards(&self, range: AddrRange) -> Vec<MapChange> {
        let is_own = |m: &&Mapping| !m.protection.shared;
        let parts = self.engine.space.overlapping(range).filter(is_own);
        parts.map(|m| MapChange::Discard(intersection(m.range, range))).collect()
    }

    /// Returns the protection `asked` for, and the permission to execute if the mapping at the
    /// start of a range has it now: the kernel may add it (`READ_IMPLIES_EXEC`, personality(2)).
    fn with_implied_execute(&self, range: AddrRange, asked: Protection) -> Protection {
        let first = AddrRange::sized(range.start, 1);
        let there = self.engine.space.overlapping(first).next().map(|m| m.protection);
        let executes = there.is_some_and(|there| there.execute);
        Protection { execute: asked.execute || executes, ..asked }
    }

    /// Reads the mappings in `ranges` again after the program replaced them, drops their code, and
    /// uses stored code of newly mapped files. The recorder's protections there are gone.
    fn refresh_replaced(&mut self, thread: &Thread, ranges: &[AddrRange]) -> Result<(), Error> {
        for range in ranges {
            self.engine.space.note_replaced(*range);
        }
        self.refresh_mappings_in(ranges, thread.tid())?;
        for range in ranges {
            self.engine.forget_code(*range);
            code_cache::use_unchanged_code(
                &mut self.engine,
                &self.mappings,
                &self.recorder,
                *range,
            );
        }
        Ok(())
    }

    /// Returns a range from the start of the first mapping in it; unchanged if there is none.
    fn extended_down(&self, range: AddrRange) -> AddrRange {
        let around = self.engine.space.overlapping(range).next();
        around.map_or(range, |mapping| AddrRange::new(mapping.range.start, range.end))
    }

    /// Describes a range that mmap(2) has just mapped, and stores its content: in pieces if it maps
    /// a file, not stored as a whole, that is too large to be stored at once.
    fn describe_mmap(&mut self, range: AddrRange, call: &Call) -> Result<Vec<Mapped>, Error> {
        let [_, _, prot, flags, fd, _] = call.args;
        let there = self.engine.space.overlapping(AddrRange::sized(range.start, 1)).next().cloned();
        let Some(mapping) = there.filter(Mapping::is_file) else {
            return Ok(vec![self.describe_mmap_as_one(range, prot, flags)?]);
        };
        let path = self.link_of(fd);
        let Some(file) = self.large_file(&mapping, range, Path::new(&path)) else {
            return Ok(vec![self.describe_mmap_as_one(range, prot, flags)?]);
        };
        let shared = flags & u64::from(libc::MAP_TYPE.cast_unsigned()) != libc::MAP_PRIVATE as u64;
        if shared && prot & libc::PROT_WRITE as u64 != 0 {
            self.note_shared(&mapping);
        }
        let protection =
            Protection { shared, ..self.with_implied_execute(range, protection(prot)) };
        self.describe_in_pieces(&Mapping { protection, ..mapping }, range, &file)
    }

    /// Opens the regular file at `path`, which `mapping` maps, if it is not stored as a whole and
    /// `range` is too large to be stored at once; `None` otherwise, or if it cannot be opened.
    fn large_file(&self, mapping: &Mapping, range: AddrRange, path: &Path) -> Option<File> {
        if range.size_bytes() <= LARGEST_STORED_BYTES || self.stored_image_of(mapping).is_some() {
            return None;
        }
        // A FIFO of this name must not make the recorder wait for a writer.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        file.ok().filter(is_regular)
    }

    /// Describes `range`, a part of a file's mapping, in pieces, which are read from the file:
    /// stores those with data, and describes the holes of the file as zeros.
    fn describe_in_pieces(
        &self,
        mapping: &Mapping,
        range: AddrRange,
        file: &File,
    ) -> Result<Vec<Mapped>, Error> {
        let first = part_at(mapping, range.start).offset;
        let mut mapped = Vec::new();
        for (part, has_data) in extents(file, first, range.size_bytes()) {
            let range = AddrRange::sized(
                range.start.wrapping_add(part.start - first),
                part.end - part.start,
            );
            let content = if has_data {
                let mut bytes = vec![0; usize::try_from(range.size_bytes()).unwrap_or(0)];
                let known = read_up_to(file, &mut bytes, part.start);
                let image = self.recorder.writer().image_from_bytes(&bytes[..known])?;
                Content::File { image, offset: 0 }
            } else {
                Content::Zeros
            };
            mapped.push(mapped_from(mapping, range, content));
        }
        Ok(mapped)
    }

    /// Describes pages that mremap(2) has added to a mapping of a file, and stores their content:
    /// in pieces if they are too large to be stored at once.
    fn describe_added(&self, mapping: &Mapping, range: AddrRange) -> Result<Vec<Mapped>, Error> {
        let is_it = |file: &File| file.metadata().is_ok_and(|file| file.ino() == mapping.inode);
        let file = self.large_file(mapping, range, Path::new(&mapping.name));
        match file.filter(is_it) {
            Some(file) => self.describe_in_pieces(mapping, range, &file),
            None => Ok(vec![mapped_from(mapping, range, self.content_of(mapping, range)?)]),
        }
    }

    /// Returns the content of a part of a file's mapping: in the stored file, or in a copy of the
    /// memory, which is stored now.
    pub(super) fn content_of(&self, mapping: &Mapping, range: AddrRange) -> Result<Content, Error> {
        Ok(match self.stored_image_of(mapping) {
            Some(image) => Content::File { image, offset: part_at(mapping, range.start).offset },
            None => Content::File { image: self.store_memory(range)?, offset: 0 },
        })
    }

    /// Returns the stored copy of a mapping's file, if there is one and no mapping of the process
    /// can write to the file; `None` otherwise.
    fn stored_image_of(&self, mapping: &Mapping) -> Option<ImageId> {
        self.mappings.image(mapping).filter(|_| !self.may_be_written(mapping)).cloned()
    }

    /// Describes a range that mmap(2) has just mapped with `prot` and `flags`, as one mapping, and
    /// stores its content unless that is zeros or in a stored file. Adds a note for the user if the
    /// range maps a file shared and writable; shared anonymous memory gets none.
    fn describe_mmap_as_one(
        &mut self,
        range: AddrRange,
        prot: u64,
        flags: u64,
    ) -> Result<Mapped, Error> {
        let shared = flags & u64::from(libc::MAP_TYPE.cast_unsigned()) != libc::MAP_PRIVATE as u64;
        let grows_down = flags & MAP_GROWSDOWN != 0;
        if grows_down {
            self.engine.space.note_growing();
        }
        let plain = Mapped {
            range,
            protection: Protection { shared, ..self.with_implied_execute(range, protection(prot)) },
            grows_down,
            content: Content::Zeros,
            name: String::new(),
            shared: None,
        };
        let there = self.engine.space.overlapping(AddrRange::sized(range.start, 1)).next().cloned();
        let Some(mapping) = there.filter(|mapping| mapping.inode != 0) else { return Ok(plain) };
        let part = part_at(&mapping, range.start);
        let plain = Mapped { shared: shared.then_some(part), ..plain };
        if flags & libc::MAP_ANONYMOUS as u64 != 0 {
            return Ok(plain);
        }
        if shared && prot & libc::PROT_WRITE as u64 != 0 {
            self.note_shared(&mapping);
        }
        let content = self.content_of(&mapping, range)?;
        Ok(Mapped { content, name: mapping.name, ..plain })
    }

    /// Returns true if any mapping of the process can write to the file of `mapping`: it is shared
    /// and writable. Such a write leaves no mark on the file before the kernel writes it back.
    fn may_be_written(&self, mapping: &Mapping) -> bool {
        let writes = |m: &Mapping| m.protection.shared && m.protection.write;
        self.engine.space.mappings().any(|m| m.is_same_file(mapping) && writes(m))
    }

    /// Stores the bytes that a range of memory has now, up to where memory ends, as an image.
    fn store_memory(&self, range: AddrRange) -> Result<ImageId, Error> {
        let mut bytes = vec![0; usize::try_from(range.size_bytes()).unwrap_or(0)];
        let known = self.engine.memory.read(range.start, &mut bytes);
        bytes.truncate(known);
        Ok(self.recorder.writer().image_from_bytes(&bytes)?)
    }

    /// Describes a mapping like `describe_stored`, and adds the note of `note_shared`.
    fn describe_shared_with_note(&mut self, mapping: &Mapping) -> Result<Mapped, Error> {
        self.note_shared(mapping);
        self.describe_stored(mapping)
    }

    /// Describes a whole mapping, and stores the content that it has in memory now.
    pub(super) fn describe_stored(&self, mapping: &Mapping) -> Result<Mapped, Error> {
        let content = Content::File { image: self.store_memory(mapping.range)?, offset: 0 };
        Ok(mapped_from(mapping, mapping.range, content))
    }

    /// Adds a note for the user that another process may write to a mapping unseen, unless the
    /// mapping is foreign or there is such a note, also for another mapping.
    pub(super) fn note_shared(&mut self, mapping: &Mapping) {
        if self.engine.is_foreign_file(mapping)
            || self.notes.iter().any(|n| n.starts_with(MAPS_NOTE))
        {
            return;
        }
        let name = plain_name(mapping);
        self.add_user_note(format!(
            "{MAPS_NOTE}{name} to write to it: if another process writes there before the recorder \
             sees that it maps it, the replay ends at that place"
        ));
    }

    /// Returns the changes of a mremap(2) that returned `at`.
    fn changes_of_mremap(
        &mut self,
        thread: &Thread,
        call: &Call,
        at: Addr,
    ) -> Result<Vec<MapChange>, Error> {
        let [first, old_size, new_size, flags, ..] = call.args;
        let pages = |start: Addr, size: u64| {
            AddrRange::sized(start, size.checked_next_multiple_of(PAGE_BYTES).unwrap_or(size))
        };
        let (from, to) = (pages(Addr(first), old_size), pages(at, new_size));
        self.refresh_replaced(thread, &[from, to])?;
        let there = self.engine.space.overlapping(from).next().cloned();
        if let Some(old) = there.filter(|m| flags & MREMAP_DONTUNMAP != 0 && !m.protection.shared) {
            // The old place has its first contents again.
            let content = if old.is_file() { self.content_of(&old, from)? } else { Content::Zeros };
            let old = MapChange::Map(mapped_from(&old, from, content));
            return Ok(vec![MapChange::Move { from, to }, old]);
        }
        if from.is_empty() || flags & MREMAP_DONTUNMAP != 0 {
            // Both places have something now.
            let both = [to, from].into_iter().filter(|range| !range.is_empty());
            let mut changes = Vec::new();
            for range in both {
                let there = self.engine.space.overlapping(range).next().cloned();
                let Some(mapping) = there else { continue };
                let offset = part_at(&mapping, range.start).offset;
                let whole = Mapping { range, offset, ..mapping };
                changes.push(MapChange::Map(self.describe_shared_with_note(&whole)?));
            }
            return Ok(changes);
        }
        let added = AddrRange::new(to.start.wrapping_add(from.size_bytes()).min(to.end), to.end);
        let there = self.engine.space.overlapping(AddrRange::sized(to.start, 1)).next().cloned();
        let Some(mapping) = there.filter(|m| m.is_file() && !added.is_empty()) else {
            return Ok(vec![MapChange::Move { from, to }]);
        };
        // The added pages may lie beyond the stored part of the file.
        let moved = MapChange::Move { from, to: AddrRange::new(to.start, added.start) };
        let added = self.describe_added(&mapping, added)?.into_iter().map(MapChange::Map);
        Ok(std::iter::once(moved).chain(added).collect())
    }

    /// Returns the changes of a brk(2) that returned `end`, and notes that as the end of the heap.
    fn changes_of_brk(&mut self, thread: &Thread, end: Addr) -> Result<Vec<MapChange>, Error> {
        let up = |end: u64| Addr(end.next_multiple_of(PAGE_BYTES));
        let (old, new) = (up(self.heap_end), up(end.0));
        self.heap_end = end.0;
        if old == new {
            return Ok(Vec::new());
        }
        let (range, is_larger) = (AddrRange::new(old.min(new), old.max(new)), old < new);
        self.refresh_replaced(thread, &[range])?;
        if !is_larger {
            return Ok(vec![MapChange::Unmap(range)]);
        }
        let there = self.engine.space.overlapping(range).next();
        let protection = there.map(|mapping| mapping.protection).unwrap_or_default();
        let (content, name) = (Content::Zeros, "[heap]".to_owned());
        let shared = None;
        let heap = Mapped { range, protection, grows_down: false, content, name, shared };
        Ok(vec![MapChange::Map(heap)])
    }
}

/// Describes `range`, a part of a mapping, as one that does not grow. Stores nothing.
pub(super) fn mapped_from(mapping: &Mapping, range: AddrRange, content: Content) -> Mapped {
    let protection = mapping.protection;
    let shared = protection.shared.then(|| part_at(mapping, range.start));
    Mapped { range, protection, grows_down: false, content, name: mapping.name.clone(), shared }
}

/// Returns the part that two ranges have in common; an empty range if there is none.
fn intersection(one: AddrRange, other: AddrRange) -> AddrRange {
    AddrRange::new(one.start.max(other.start), one.end.min(other.end))
}

/// Returns the parts of a range in none of `used`, ranges in order that overlap `range`.
fn holes(range: AddrRange, used: impl Iterator<Item = AddrRange>) -> Vec<AddrRange> {
    let mut holes = Vec::new();
    let mut from = range.start;
    for used in used {
        holes.push(AddrRange::new(from, used.start.max(from)));
        from = from.max(used.end);
    }
    holes.push(AddrRange::new(from, range.end.max(from)));
    holes.retain(|hole| !hole.is_empty());
    holes
}

/// Returns the name of a mapped file, without the kernel's mark of deleted files; "memory" if it
/// has no name.
pub(super) fn plain_name(mapping: &Mapping) -> &str {
    let name = mapping.name.strip_suffix(" (deleted)").unwrap_or(&mapping.name);
    if name.is_empty() { "memory" } else { name }
}

/// Returns an identification of the file that a mapping shows, and the offset in it at an address.
/// That need not be the mapping's start: neighbours of the same file appear as one mapping.
fn part_at(mapping: &Mapping, addr: Addr) -> Shared {
    let skipped = addr.0.saturating_sub(mapping.range.start.0);
    // No inode number is so high that it overlaps the device.
    let file = mapping.device.rotate_right(16) ^ mapping.inode;
    Shared { file, offset: mapping.offset + skipped }
}

/// Returns the protection of a private mapping from the `prot` bits of mmap(2).
fn protection(bits: u64) -> Protection {
    Protection {
        read: bits & libc::PROT_READ as u64 != 0,
        write: bits & libc::PROT_WRITE as u64 != 0,
        execute: bits & libc::PROT_EXEC as u64 != 0,
        shared: false,
    }
}
