//! Changes of the mappings by system calls, for the log. Contents that a replay cannot find
//! elsewhere are stored in the recording, as images.

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
use nix::unistd::{Whence, lseek};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const PAGE_BYTES: u64 = 4096;
/// The maximum size of a part of a file that is stored at once: 64 MiB.
const LARGEST_STORED_BYTES: u64 = 64 << 20;
const LAST_ERRNO: i64 = 4095;
const PROT_GROWSDOWN: u64 = libc::PROT_GROWSDOWN as u64;
const MAP_GROWSDOWN: u64 = libc::MAP_GROWSDOWN as u64;
const MREMAP_DONTUNMAP: u64 = libc::MREMAP_DONTUNMAP as u64;
/// Advice that lets the kernel forget what was written (madvise(2)).
const FORGETTING: [u64; 3] =
    [libc::MADV_DONTNEED as u64, libc::MADV_REMOVE as u64, libc::MADV_DONTNEED_LOCKED as u64];

/// The start of a note to the user about a shared mapping that the program can write.
pub(super) const MAPS: &str = "the program maps ";

/// Returns true if a call may change mappings. No other thread executes anything until it is done:
/// the log has the changes in the order in which the kernel made them.
pub(super) fn changes_mappings(number: u64) -> bool {
    matches!(
        number,
        BRK | MADVISE | MMAP | MPROTECT | MREMAP | MUNMAP | PKEY_MPROTECT | SHMAT | SHMDT
    )
}

impl Process {
    /// Reads the mappings again that a completed call changed, and returns their changes.
    pub(super) fn map_changes(
        &mut self,
        thread: &Thread,
        call: &Call,
        result: i64,
    ) -> Result<Vec<MapChange>, Error> {
        let [first, second, third, ..] = call.args;
        if (-LAST_ERRNO..0).contains(&result) {
            return self.changed_in_part(thread, call, result);
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
                self.changed(thread, range)?;
                let mapped = self.new_mappings(range, call)?;
                self.look_for_others(range);
                mapped.into_iter().map(MapChange::Map).collect()
            }
            MUNMAP => {
                self.changed(thread, given)?;
                vec![MapChange::Unmap(given)]
            }
            MPROTECT | PKEY_MPROTECT => {
                self.changed(thread, given)?;
                let range = if third & PROT_GROWSDOWN == 0 { given } else { self.whole(given) };
                let protection = self.with_implied(range, protection(third));
                vec![MapChange::Protect { range, protection }]
            }
            MREMAP => self.moved(thread, call, at)?,
            BRK => self.new_heap_end(thread, at)?,
            MADVISE if FORGETTING.contains(&third) => {
                self.engine.forget_code(given);
                self.discarded(given)
            }
            SHMAT => {
                self.changed(thread, AddrRange::sized(at, PAGE_BYTES))?;
                let attached =
                    self.engine.space.overlapping(AddrRange::sized(at, 1)).next().cloned();
                let attached = attached.map(|mapping| {
                    self.look_for_others(mapping.range);
                    self.shared_by_others(&mapping)
                });
                attached
                    .into_iter()
                    .map(|mapped| Ok(MapChange::Map(mapped?)))
                    .collect::<Result<_, Error>>()?
            }
            SHMDT => {
                let before: Vec<Mapping> = self.engine.space.mappings().cloned().collect();
                self.changed_since(thread, &before)?
            }
            _ => Vec::new(),
        })
    }

    /// Returns the changes of mappings that a failed call made: the kernel changes one mapping
    /// after the other, so some may be changed before the error.
    fn changed_in_part(
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
        self.changed(thread, given)?;
        let parts: Vec<Mapping> = self.engine.space.overlapping(given).cloned().collect();
        Ok(match call.number {
            // The kernel skips holes, and returns this at the end. Other errors end the call at
            // their mapping.
            MADVISE if result == -i64::from(libc::ENOMEM) => self.discarded(given),
            MADVISE => {
                let own = parts.iter().filter(|m| !m.protection.shared);
                let stored = own.map(|m| Ok(MapChange::Map(self.as_it_is(m, given)?)));
                stored.collect::<Result<_, Error>>()?
            }
            MMAP => holes(given, &parts).into_iter().map(MapChange::Unmap).collect(),
            _ => {
                let protect = |m: &Mapping| MapChange::Protect {
                    range: common(m.range, given),
                    protection: m.protection,
                };
                parts.iter().map(protect).collect()
            }
        })
    }

    /// Describes the part of a mapping in a range, and stores its content.
    fn as_it_is(&self, mapping: &Mapping, range: AddrRange) -> Result<Mapped, Error> {
        let range = common(mapping.range, range);
        let content = Content::File { image: self.store(range)?, offset: 0 };
        Ok(Mapped { shared: None, ..mapped_from(mapping, range, content) })
    }

    /// Returns the changes by which the private mappings in a range lose their contents.
    fn discarded(&self, range: AddrRange) -> Vec<MapChange> {
        let is_own = |m: &&Mapping| !m.protection.shared;
        let parts = self.engine.space.overlapping(range).filter(is_own);
        parts.map(|m| MapChange::Discard(common(m.range, range))).collect()
    }

    /// Returns `asked`, with the permission to execute if the kernel added that to the range
    /// (`READ_IMPLIES_EXEC`, personality(2)).
    fn with_implied(&self, range: AddrRange, asked: Protection) -> Protection {
        let first = AddrRange::sized(range.start, 1);
        let there = self.engine.space.overlapping(first).next().map(|m| m.protection);
        let executes = there.is_some_and(|there| there.execute);
        Protection { execute: asked.execute || executes, ..asked }
    }

    /// Reads the mappings in `range` again after the program replaced them, and drops their
    /// translated code. The recorder's protections there are gone.
    fn changed(&mut self, thread: &Thread, range: AddrRange) -> Result<(), Error> {
        self.engine.space.replaced(range);
        self.look_at_mappings_in(range, thread.tid())?;
        self.engine.forget_code(range);
        code_cache::use_unchanged_code(&mut self.engine, &self.mappings, &self.recorder, range);
        Ok(())
    }

    /// Returns a range, extended down to the start of the mapping that it is in.
    fn whole(&self, range: AddrRange) -> AddrRange {
        let around = self.engine.space.overlapping(range).next();
        around.map_or(range, |mapping| AddrRange::new(mapping.range.start, range.end))
    }

    /// Describes a range that mmap(2) has just mapped: in pieces if its file is too large to be
    /// stored at once.
    fn new_mappings(&mut self, range: AddrRange, call: &Call) -> Result<Vec<Mapped>, Error> {
        let [_, _, prot, flags, fd, _] = call.args;
        let there = self.engine.space.overlapping(AddrRange::sized(range.start, 1)).next().cloned();
        let Some(mapping) = there.filter(Mapping::is_file) else {
            return Ok(vec![self.new_mapping(range, prot, flags)?]);
        };
        let path = self.link_of(fd);
        let Some(file) = self.large_file(&mapping, range, Path::new(&path)) else {
            return Ok(vec![self.new_mapping(range, prot, flags)?]);
        };
        let shared = flags & u64::from(libc::MAP_TYPE.cast_unsigned()) != libc::MAP_PRIVATE as u64;
        if shared && prot & libc::PROT_WRITE as u64 != 0 {
            self.note_shared(&mapping);
        }
        let protection = Protection { shared, ..self.with_implied(range, protection(prot)) };
        self.pieces(&Mapping { protection, ..mapping }, range, &file)
    }

    /// Opens the file of a mapping, if it is not stored as a whole and a range of it is too large
    /// to be stored at once.
    fn large_file(&self, mapping: &Mapping, range: AddrRange, path: &Path) -> Option<File> {
        if range.size_bytes() <= LARGEST_STORED_BYTES || self.image_of(mapping).is_some() {
            return None;
        }
        File::open(path).ok().filter(is_regular)
    }

    /// Describes a part of a file's mapping in pieces: stores those with data, and describes the
    /// holes of the file as zeros.
    fn pieces(
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

    /// Describes pages that mremap(2) has added to a mapping of a file.
    fn added(&self, mapping: &Mapping, range: AddrRange) -> Result<Vec<Mapped>, Error> {
        let is_it = |file: &File| file.metadata().is_ok_and(|file| file.ino() == mapping.inode);
        let file = self.large_file(mapping, range, Path::new(&mapping.name));
        match file.filter(is_it) {
            Some(file) => self.pieces(mapping, range, &file),
            None => Ok(vec![mapped_from(mapping, range, self.content(mapping, range)?)]),
        }
    }

    /// Returns the content of a part of a file's mapping: in the stored file, or in a copy of the
    /// memory, which is stored now.
    pub(super) fn content(&self, mapping: &Mapping, range: AddrRange) -> Result<Content, Error> {
        Ok(match self.image_of(mapping) {
            Some(image) => Content::File { image, offset: part_at(mapping, range.start).offset },
            None => Content::File { image: self.store(range)?, offset: 0 },
        })
    }

    /// Returns the stored file of a mapping, if the file is as it was stored.
    fn image_of(&self, mapping: &Mapping) -> Option<ImageId> {
        self.mappings.image(mapping).filter(|_| !self.is_written(mapping)).cloned()
    }

    /// Describes a range that mmap(2) has just mapped, as one mapping, and stores its content.
    fn new_mapping(&mut self, range: AddrRange, prot: u64, flags: u64) -> Result<Mapped, Error> {
        let shared = flags & u64::from(libc::MAP_TYPE.cast_unsigned()) != libc::MAP_PRIVATE as u64;
        let grows_down = flags & MAP_GROWSDOWN != 0;
        if grows_down {
            self.engine.space.note_growing();
        }
        let plain = Mapped {
            range,
            protection: Protection { shared, ..self.with_implied(range, protection(prot)) },
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
        let content = self.content(&mapping, range)?;
        Ok(Mapped { content, name: mapping.name, ..plain })
    }

    /// Returns true if any mapping of the process can write to the file of `mapping`: it is shared
    /// and writable. Such a write leaves no mark on the file before the kernel writes it back.
    fn is_written(&self, mapping: &Mapping) -> bool {
        let writes = |m: &Mapping| m.protection.shared && m.protection.write;
        self.engine.space.mappings().any(|m| m.is_same_file(mapping) && writes(m))
    }

    /// Stores the bytes that a range of memory has now.
    fn store(&self, range: AddrRange) -> Result<ImageId, Error> {
        let mut bytes = vec![0; usize::try_from(range.size_bytes()).unwrap_or(0)];
        let known = self.engine.memory.read(range.start, &mut bytes);
        bytes.truncate(known);
        Ok(self.recorder.writer().image_from_bytes(&bytes)?)
    }

    /// Describes a mapping like `mapped_shared`, with a note for the user (`note_shared`).
    fn shared_by_others(&mut self, mapping: &Mapping) -> Result<Mapped, Error> {
        self.note_shared(mapping);
        self.mapped_shared(mapping)
    }

    /// Describes a mapping, and stores the content that it has now.
    pub(super) fn mapped_shared(&self, mapping: &Mapping) -> Result<Mapped, Error> {
        let content = Content::File { image: self.store(mapping.range)?, offset: 0 };
        Ok(mapped_from(mapping, mapping.range, content))
    }

    /// Notes for the user that another process may write to a mapping unseen, unless the mapping is
    /// foreign or there is such a note.
    pub(super) fn note_shared(&mut self, mapping: &Mapping) {
        if self.engine.is_foreign_file(mapping) || self.notes.iter().any(|n| n.starts_with(MAPS)) {
            return;
        }
        let name = plain_name(mapping);
        self.note(format!(
            "{MAPS}{name} to write to it: if another process writes there before the recorder sees that \
             it maps it, the replay ends at that place"
        ));
    }

    /// Returns the changes of mremap(2), which returned `at`.
    fn moved(&mut self, thread: &Thread, call: &Call, at: Addr) -> Result<Vec<MapChange>, Error> {
        let [first, old_size, new_size, flags, ..] = call.args;
        let pages = |start: Addr, size: u64| {
            AddrRange::sized(start, size.checked_next_multiple_of(PAGE_BYTES).unwrap_or(size))
        };
        let (from, to) = (pages(Addr(first), old_size), pages(at, new_size));
        self.changed(thread, from)?;
        self.changed(thread, to)?;
        if from.is_empty() || flags & MREMAP_DONTUNMAP != 0 {
            // Both places have something now.
            let both = [to, from].into_iter().filter(|range| !range.is_empty());
            let mut changes = Vec::new();
            for range in both {
                let there = self.engine.space.overlapping(range).next().cloned();
                let Some(mapping) = there else { continue };
                let offset = part_at(&mapping, range.start).offset;
                let whole = Mapping { range, offset, ..mapping };
                changes.push(MapChange::Map(self.shared_by_others(&whole)?));
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
        let added = self.added(&mapping, added)?.into_iter().map(MapChange::Map);
        Ok(std::iter::once(moved).chain(added).collect())
    }

    /// Returns the changes of brk(2), which returned `end`, and notes the new end of the heap.
    fn new_heap_end(&mut self, thread: &Thread, end: Addr) -> Result<Vec<MapChange>, Error> {
        let up = |end: u64| Addr(end.next_multiple_of(PAGE_BYTES));
        let (old, new) = (up(self.heap_end), up(end.0));
        self.heap_end = end.0;
        if old == new {
            return Ok(Vec::new());
        }
        let (range, is_larger) = (AddrRange::new(old.min(new), old.max(new)), old < new);
        self.changed(thread, range)?;
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

/// Describes `range`, a part of a mapping, which has `content`.
pub(super) fn mapped_from(mapping: &Mapping, range: AddrRange, content: Content) -> Mapped {
    let protection = mapping.protection;
    let shared = protection.shared.then(|| part_at(mapping, range.start));
    Mapped { range, protection, grows_down: false, content, name: mapping.name.clone(), shared }
}

/// Returns the part that two ranges have in common.
fn common(one: AddrRange, other: AddrRange) -> AddrRange {
    AddrRange::new(one.start.max(other.start), one.end.min(other.end))
}

/// Returns the parts of a range without a mapping.
fn holes(range: AddrRange, mappings: &[Mapping]) -> Vec<AddrRange> {
    let mut holes = Vec::new();
    let mut from = range.start;
    for mapping in mappings {
        holes.push(AddrRange::new(from, mapping.range.start.max(from)));
        from = from.max(mapping.range.end);
    }
    holes.push(AddrRange::new(from, range.end.max(from)));
    holes.retain(|hole| !hole.is_empty());
    holes
}

fn is_regular(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file())
}

/// Splits `size_bytes` of a file, from offset `first` on, into parts with data (true) and holes
/// (false), in whole pages. Parts with data have at most `LARGEST_STORED_BYTES`.
fn extents(file: &File, first: u64, size_bytes: u64) -> Vec<(Range<u64>, bool)> {
    let end = first.saturating_add(size_bytes);
    let mut parts = Vec::new();
    let mut at = first;
    while at < end {
        // lseek(2) fails where there is no more data.
        let data =
            seek(file, at, Whence::SeekData).unwrap_or(end).clamp(at, end) & !(PAGE_BYTES - 1);
        if data > at {
            parts.push((at..data, false));
            at = data;
            continue;
        }
        let hole = seek(file, at, Whence::SeekHole).unwrap_or(end);
        let hole = hole.checked_next_multiple_of(PAGE_BYTES).unwrap_or(end);
        let last = hole.clamp(at + PAGE_BYTES, at + LARGEST_STORED_BYTES).min(end);
        parts.push((at..last, true));
        at = last;
    }
    parts
}

fn seek(file: &File, from: u64, whence: Whence) -> Option<u64> {
    let found = lseek(file, i64::try_from(from).ok()?, whence).ok()?;
    u64::try_from(found).ok()
}

/// Reads a file from `offset` on until `bytes` is full or the file ends. Returns the number of
/// bytes read.
fn read_up_to(file: &File, bytes: &mut [u8], offset: u64) -> usize {
    let mut known = 0;
    while let Some(rest) = bytes.get_mut(known..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + known as u64) {
            Ok(0) | Err(_) => break,
            Ok(read) => known += read,
        }
    }
    known
}

/// Returns the name of a mapped file, without the kernel's mark of deleted files; "memory" if it
/// has no name.
pub(super) fn plain_name(mapping: &Mapping) -> &str {
    let name = mapping.name.strip_suffix(" (deleted)").unwrap_or(&mapping.name);
    if name.is_empty() { "memory" } else { name }
}

/// Returns which file a mapping shows, and the offset in it at an address. That need not be the
/// mapping's start: neighbours of the same file appear as one mapping.
fn part_at(mapping: &Mapping, addr: Addr) -> Shared {
    let skipped = addr.0.saturating_sub(mapping.range.start.0);
    // No inode number is so high that it overlaps the device.
    let file = mapping.device.rotate_right(16) ^ mapping.inode;
    Shared { file, offset: mapping.offset + skipped }
}

/// Returns a protection from the bits of mmap(2).
fn protection(bits: u64) -> Protection {
    Protection {
        read: bits & libc::PROT_READ as u64 != 0,
        write: bits & libc::PROT_WRITE as u64 != 0,
        execute: bits & libc::PROT_EXEC as u64 != 0,
        shared: false,
    }
}
