//! Changes of the mappings by system calls.

use super::process::Process;
use super::thread::Thread;
use crate::capture::Error;
use crate::common::{Addr, AddrRange};
use crate::recording::log::{Content, MapChange, Mapped, Shared};
use crate::sideband::{Mapping, Protection};
use crate::syscalls::Call;
use crate::tracee::call_numbers::{
    BRK, MADVISE, MMAP, MPROTECT, MREMAP, MUNMAP, PKEY_MPROTECT, SHMAT, SHMDT,
};

const PAGE_BYTES: u64 = 4096;
const LAST_ERRNO: i64 = 4095;
const PROT_GROWSDOWN: u64 = libc::PROT_GROWSDOWN as u64;
const MAP_GROWSDOWN: u64 = libc::MAP_GROWSDOWN as u64;
const MREMAP_DONTUNMAP: u64 = libc::MREMAP_DONTUNMAP as u64;
/// Advice that lets the kernel forget what was written (madvise(2)).
const FORGETTING: [u64; 3] =
    [libc::MADV_DONTNEED as u64, libc::MADV_REMOVE as u64, libc::MADV_DONTNEED_LOCKED as u64];

/// The start of a sentence about a file that is mapped to be written.
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
    /// Returns the changes that a call made, which is done.
    pub(super) fn map_changes(
        &mut self,
        thread: &Thread,
        call: &Call,
        result: i64,
    ) -> Result<Vec<MapChange>, Error> {
        let [first, second, third, fourth, ..] = call.args;
        if (-LAST_ERRNO..0).contains(&result) {
            return Ok(Vec::new());
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
                let mapped = self.new_mapping(range, third, fourth)?;
                self.look_for_others(range);
                vec![MapChange::Map(mapped)]
            }
            MUNMAP => {
                self.changed(thread, given)?;
                vec![MapChange::Unmap(given)]
            }
            MPROTECT | PKEY_MPROTECT => {
                self.changed(thread, given)?;
                let range = if third & PROT_GROWSDOWN == 0 { given } else { self.whole(given) };
                vec![MapChange::Protect { range, protection: protection(third) }]
            }
            MREMAP => self.moved(thread, call, at)?,
            BRK => self.new_heap_end(thread, at)?,
            MADVISE if FORGETTING.contains(&third) => {
                self.engine.forget_code(given);
                let parts = self.engine.space.overlapping(given);
                let is_own = |m: &&Mapping| !m.protection.shared;
                let part = |m: &Mapping| {
                    AddrRange::new(m.range.start.max(given.start), m.range.end.min(given.end))
                };
                parts.filter(is_own).map(|m| MapChange::Discard(part(m))).collect()
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
                let attached = self.engine.space.overlapping(AddrRange::sized(Addr(first), 1));
                let range = attached.map(|mapping| mapping.range).next();
                self.changed(thread, range.unwrap_or_default())?;
                range.map(MapChange::Unmap).into_iter().collect()
            }
            _ => Vec::new(),
        })
    }

    /// Reads the mappings again after a change in `range`, where nothing is protected by the
    /// recorder any more.
    fn changed(&mut self, thread: &Thread, range: AddrRange) -> Result<(), Error> {
        self.engine.space.replaced(range);
        self.look_at_mappings(thread.tid())?;
        self.engine.forget_code(range);
        Ok(())
    }

    /// Returns the extent of the mapping that a range is in.
    fn whole(&self, range: AddrRange) -> AddrRange {
        let around = self.engine.space.overlapping(range).next();
        around.map_or(range, |mapping| AddrRange::new(mapping.range.start, range.end))
    }

    /// Describes what mmap(2) has just made.
    fn new_mapping(&mut self, range: AddrRange, prot: u64, flags: u64) -> Result<Mapped, Error> {
        let shared = flags & u64::from(libc::MAP_TYPE.cast_unsigned()) != libc::MAP_PRIVATE as u64;
        let grows_down = flags & MAP_GROWSDOWN != 0;
        let plain = Mapped {
            range,
            protection: Protection { shared, ..protection(prot) },
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
        let image = self.mappings.image(&mapping).filter(|_| !self.is_written(&mapping));
        let content = match image {
            Some(image) => Content::File { image: image.clone(), offset: part.offset },
            None => Content::File { image: self.store(range)?, offset: 0 },
        };
        Ok(Mapped { content, name: mapping.name, ..plain })
    }

    /// Returns true if the program may write to a mapping's file by a mapping, which leaves no mark on
    /// the file before the kernel writes it back.
    fn is_written(&self, mapping: &Mapping) -> bool {
        let writes = |m: &Mapping| m.protection.shared && m.protection.write;
        self.engine.space.mappings().any(|m| m.inode == mapping.inode && writes(m))
    }

    /// Stores memory that no file can be stored for.
    fn store(&self, range: AddrRange) -> Result<crate::sideband::ImageId, Error> {
        let mut bytes = vec![0; usize::try_from(range.size_bytes()).unwrap_or(0)];
        let known = self.engine.memory.read(range.start, &mut bytes);
        bytes.truncate(known);
        Ok(self.recorder.writer().image_from_bytes(&bytes)?)
    }

    fn shared_by_others(&mut self, mapping: &Mapping) -> Result<Mapped, Error> {
        self.note_shared(mapping);
        self.mapped_shared(mapping)
    }

    /// Describes a mapping whose content other processes may write, and stores that.
    pub(super) fn mapped_shared(&self, mapping: &Mapping) -> Result<Mapped, Error> {
        let content = Content::File { image: self.store(mapping.range)?, offset: 0 };
        let (range, name) = (mapping.range, mapping.name.clone());
        let protection = mapping.protection;
        let shared = protection.shared.then(|| part_at(mapping, range.start));
        Ok(Mapped { range, protection, grows_down: false, content, name, shared })
    }

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
        Ok(vec![MapChange::Move { from, to }])
    }

    /// Returns the changes of brk(2).
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

/// Returns the name of a mapped file, as it was before it was deleted.
pub(super) fn plain_name(mapping: &Mapping) -> &str {
    let name = mapping.name.strip_suffix(" (deleted)").unwrap_or(&mapping.name);
    if name.is_empty() { "memory" } else { name }
}

/// Returns which part of its file a mapping shows at an address. Neighbours of the same file appear
/// as one mapping.
fn part_at(mapping: &Mapping, addr: Addr) -> Shared {
    let skipped = addr.0.saturating_sub(mapping.range.start.0);
    Shared { inode: mapping.inode, offset: mapping.offset + skipped }
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
