//! Watches a process's mappings, tells the sideband what changed, and stores the files that code
//! came from. Says which code can change under the decoder's feet.

use super::code_files::{CodeFiles, same_file};
use super::error::Error;
use super::masked::unmask;
use super::recorder::Recorder;
use crate::common::{Addr, AddrRange, Tid};
use crate::sideband::{Backing, Event, ImageId, Mapping, MappingSet, Protection};
use crate::tracee::{Memory, PageMap, PageState, mappings};
use std::collections::BTreeSet;

const PAGE_BYTES: u64 = 4096;

/// The mappings of one process.
#[derive(Debug, Default)]
pub(super) struct Space {
    set: MappingSet,
    files: CodeFiles,
    /// Code whose bytes are those of a stored image, as far as the mappings say.
    stored: Vec<AddrRange>,
    /// What was writable once, or was seen to differ from its file: its bytes need not be the
    /// file's. With the mapping that it is in.
    altered: Vec<(AddrRange, Mapping)>,
    /// The recorder's own mappings, which are no part of the program.
    hidden: Vec<AddrRange>,
    /// Pages whose write permission the recorder took away.
    masked: BTreeSet<u64>,
}

/// What is new in the mappings.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Code may be other than it was.
    pub(super) code: bool,
    /// New mappings of code, or those whose extent or protection changed.
    pub(super) mapped: Vec<AddrRange>,
}

impl Space {
    /// Reads the mappings again and records what changed.
    pub(super) fn refresh(
        &mut self,
        recorder: &mut Recorder,
        memory: &Memory,
        tid: Tid,
    ) -> Result<Changes, Error> {
        let maps = unmask(visible(mappings(recorder.pid())?, &self.hidden), &self.masked);
        let (gone, new) = self.set.update(maps);
        self.note_altered(&gone, &new);
        let mut changes = Changes::default();
        for mapping in gone.iter().filter(|m| concerns(m)) {
            changes.code |= mapping.protection.execute;
            recorder.event(tid, Event::Unmap { range: mapping.range })?;
        }
        for mapping in new.iter().filter(|m| concerns(m)) {
            if mapping.protection.execute {
                changes.code = true;
                changes.mapped.push(mapping.range);
            }
            let backing = self.backing(mapping, recorder, memory, tid)?;
            let (range, protection) = (mapping.range, mapping.protection);
            recorder.event(tid, Event::Map { range, protection, backing })?;
        }
        self.note_stored();
        Ok(changes)
    }

    /// Looks for code that changed though its mapping did not, and records it: somebody wrote to
    /// its file, or past its protection, as a debugger does. Gives whether there was such code.
    pub(super) fn look_for_changes(
        &mut self,
        recorder: &mut Recorder,
        memory: &Memory,
        tid: Tid,
    ) -> Result<bool, Error> {
        let files = self.forget_overwritten(recorder, tid)?;
        let patched = self.patched(recorder);
        for (page, _) in &patched {
            let mut bytes = vec![0; usize::try_from(page.size_bytes()).unwrap_or(0)];
            let known = memory.read(page.start, &mut bytes);
            bytes.truncate(known);
            recorder.event(tid, Event::Code { addr: page.start, bytes })?;
        }
        let changed = files || !patched.is_empty();
        self.altered.extend(patched);
        Ok(changed)
    }

    /// Forgets everything: another program runs.
    pub(super) fn exec(&mut self) {
        (self.set, self.stored, self.altered) = Default::default();
        self.hidden.clear();
        self.masked.clear();
    }

    /// The recorder takes the write permission of the page away.
    pub(super) fn mask(&mut self, page: u64) {
        self.masked.insert(page);
    }

    /// The page has the program's permissions again. Gives whether it had not.
    pub(super) fn unmask(&mut self, page: u64) -> bool {
        self.masked.remove(&page)
    }

    /// Whether the recorder took the write permission of the page away.
    pub(super) fn is_masked(&self, page: u64) -> bool {
        self.masked.contains(&page)
    }

    /// The pages in `range` whose write permission the recorder took away.
    pub(super) fn masked_in(&self, range: AddrRange) -> Vec<u64> {
        self.masked
            .range(range.start.page().0..range.end.0.max(range.start.page().0))
            .copied()
            .collect()
    }

    /// A range holds the recorder's own memory from now on.
    pub(super) fn hide(&mut self, range: AddrRange) {
        self.hidden.push(range);
    }

    /// The mappings as last seen.
    pub(super) fn mappings(&self) -> impl Iterator<Item = &Mapping> {
        self.set.iter()
    }

    /// The recorder's own ranges.
    pub(super) fn hidden(&self) -> &[AddrRange] {
        &self.hidden
    }

    /// Whether the program can execute what is at `addr`, as far as the mappings say.
    pub(super) fn is_executable(&self, addr: Addr) -> bool {
        self.set.at(addr).is_some_and(|mapping| mapping.protection.execute)
    }

    /// What the program may do with the memory at `addr`, as last seen.
    pub(super) fn protection(&self, addr: Addr) -> Option<Protection> {
        self.set.at(addr).map(|mapping| mapping.protection)
    }

    /// Whether `range` holds mappings that the recording tells of.
    pub(super) fn concerns(&self, range: AddrRange) -> bool {
        self.set.overlapping(range).any(concerns)
    }

    /// Whether the bytes at `addr` are those of a stored image as long as the mapping stands.
    pub(super) fn is_stable(&self, addr: Addr) -> bool {
        let behind = self.stored.partition_point(|range| range.end <= addr);
        let stored = self.stored.get(behind).is_some_and(|range| range.contains(addr));
        stored && !self.is_altered(addr)
    }

    /// Where else in the process the bytes of `range` are that files are shared from. What is
    /// written at one of these places is there in all.
    pub(super) fn aliases(&self, range: AddrRange) -> Vec<AddrRange> {
        let at: Vec<_> = self.set.overlapping(range).filter(|m| m.inode != 0).collect();
        let mut aliases = Vec::new();
        for mapping in at {
            let start = range.start.max(mapping.range.start);
            let end = range.end.min(mapping.range.end);
            let (first, last) = (file_offset(mapping, start), file_offset(mapping, end));
            let is_other = |m: &&Mapping| {
                let shared = m.protection.shared || mapping.protection.shared;
                shared && m.range != mapping.range && same_file(m, mapping)
            };
            for other in self.set.iter().filter(is_other) {
                let from = first.max(other.offset);
                let to = last.min(other.offset + other.range.size_bytes());
                if from < to {
                    let start = other.range.start.wrapping_add(from - other.offset);
                    aliases.push(AddrRange::sized(start, to - from));
                }
            }
        }
        aliases
    }

    fn is_altered(&self, addr: Addr) -> bool {
        self.altered.iter().any(|(range, _)| range.contains(addr))
    }

    /// What stands where something writable was may hold what was written there.
    fn note_altered(&mut self, gone: &[Mapping], new: &[Mapping]) {
        let was_written = |m: &&Mapping| {
            let written = |g: &Mapping| g.protection.write && g.range.overlaps(m.range);
            gone.iter().any(|g| written(g) && same_file(g, m))
        };
        let written = new.iter().filter(|m| !m.protection.write).filter(was_written);
        self.altered.extend(written.map(|m| (m.range, m.clone())));
        let still_there = |(range, was): &(AddrRange, Mapping)| {
            self.set.iter().any(|m| m.range.overlaps(*range) && same_file(m, was))
        };
        self.altered.retain(still_there);
    }

    fn note_stored(&mut self) {
        let shared_writable = |m: &&Mapping| m.protection.shared && m.protection.write;
        let written: Vec<_> = self.set.iter().filter(shared_writable).collect();
        let stored = |m: &&Mapping| {
            let p = m.protection;
            let is_fixed = p.execute && !p.write && !p.shared;
            let is_stored = m.name == "[vdso]" || self.files.stored(m);
            // What is written to a file through another mapping is in this one, too.
            is_fixed && is_stored && !written.iter().any(|w| same_file(w, m))
        };
        self.stored = self.set.iter().filter(stored).map(|m| m.range).collect();
    }

    /// Whose file holds other bytes than were stored is no longer backed by it.
    fn forget_overwritten(&mut self, recorder: &mut Recorder, tid: Tid) -> Result<bool, Error> {
        let mut changed = false;
        for file in self.files.take_overwritten() {
            for mapping in self.set.iter().filter(|m| file.is_of(m)) {
                let (range, protection) = (mapping.range, mapping.protection);
                let backing = Backing::Anonymous;
                recorder.event(tid, Event::Unmap { range })?;
                recorder.event(tid, Event::Map { range, protection, backing })?;
                self.altered.push((range, mapping.clone()));
                changed |= protection.execute;
            }
        }
        if changed {
            self.note_stored();
        }
        Ok(changed)
    }

    /// Pages of stored files that are the process's own copies, though it could not write there.
    fn patched(&self, recorder: &Recorder) -> Vec<(AddrRange, Mapping)> {
        // A kernel that does not tell has no such pages as far as anybody can know.
        let Some(pages) = PageMap::open(recorder.pid()) else { return Vec::new() };
        let fixed = |m: &&Mapping| {
            let p = m.protection;
            p.read && !p.write && !p.shared && m.is_file() && self.files.stored(m)
        };
        let mut patched = Vec::new();
        for mapping in self.set.iter().filter(fixed) {
            let states = pages.states(mapping.range).unwrap_or_default();
            for (number, _) in (0..).zip(states).filter(|(_, s)| *s == PageState::Private) {
                let start = mapping.range.start.wrapping_add(number * PAGE_BYTES);
                if !self.is_altered(start) {
                    patched.push((AddrRange::sized(start, PAGE_BYTES), mapping.clone()));
                }
            }
        }
        patched
    }

    fn backing(
        &mut self,
        mapping: &Mapping,
        recorder: &mut Recorder,
        memory: &Memory,
        tid: Tid,
    ) -> Result<Backing, Error> {
        if mapping.is_file() {
            let file = self.files.number(mapping, recorder, tid)?;
            return Ok(Backing::File { file, offset: mapping.offset });
        }
        if mapping.name.starts_with('[') {
            let image = if mapping.name == "[vdso]" {
                Some(store_memory(mapping.range, recorder, memory)?)
            } else {
                None
            };
            return Ok(Backing::Special { name: mapping.name.clone(), image });
        }
        Ok(Backing::Anonymous)
    }
}

/// The program's own mappings.
pub(super) fn visible(mut maps: Vec<Mapping>, hidden: &[AddrRange]) -> Vec<Mapping> {
    maps.retain(|mapping| !hidden.iter().any(|range| range.overlaps(mapping.range)));
    maps
}

fn file_offset(mapping: &Mapping, addr: Addr) -> u64 {
    mapping.offset + (addr.0 - mapping.range.start.0)
}

/// Code, and what may become known as data of a file with code, is recorded; heaps are not.
fn concerns(mapping: &Mapping) -> bool {
    mapping.protection.execute || mapping.is_file()
}

fn store_memory(range: AddrRange, recorder: &Recorder, memory: &Memory) -> Result<ImageId, Error> {
    let mut bytes = vec![0; usize::try_from(range.size_bytes()).unwrap_or(0)];
    let known = memory.read(range.start, &mut bytes);
    bytes.truncate(known);
    Ok(recorder.writer().image_from_bytes(&bytes)?)
}
