//! The mappings of a process that runs translated, as the program made them: without those of its
//! tracer, and with the permissions that its tracer took away.
//!
//! Code is *stable* if its bytes cannot change while it is mapped. A page is *masked* while the
//! tracer keeps the program from writing it. Memory that other processes may write is *foreign*
//! ([`Foreign`]).

use super::error::Error;
use super::foreign::Foreign;
use super::masked::restore_writes;
use crate::common::{Addr, AddrRange, Pid};
use crate::sideband::{Mapping, MappingSet, Protection};
use crate::tracee::{MapQuery, mappings};
use std::collections::BTreeSet;
use std::sync::Arc;

const PAGE_BYTES: u64 = 0x1000;

/// The mappings of one process.
#[derive(Clone, Debug, Default)]
pub struct AddressSpace {
    /// The mappings as last read, with the program's permissions.
    set: MappingSet,
    /// Ranges of code in mappings of files that the tracer keeps. Except for `altered` ranges, the
    /// bytes are those of the file.
    stable: Vec<AddrRange>,
    /// Ranges that were writable once, or were seen to differ from their file, with the mappings
    /// that they are in: their bytes may not be the file's.
    altered: Vec<(AddrRange, Mapping)>,
    /// The tracer's own mappings, which are no part of the program.
    hidden: Vec<AddrRange>,
    /// The addresses of the masked pages, whose write permission the tracer took away.
    masked: BTreeSet<u64>,
    /// Memory shared with processes outside the recording, which may write it at any time.
    pub(super) foreign: Foreign,
    /// True if there are mappings, beside the stack, that grow as they are used (`MAP_GROWSDOWN`).
    grows: bool,
    /// The means to ask the kernel for single mappings, opened at the first use, and the process
    /// that they are for.
    query: Option<(Pid, Arc<MapQuery>)>,
}

/// The mappings that changed between two reads of them.
#[derive(Debug)]
pub struct MappingChanges {
    /// Mappings that were removed or changed, as they were.
    pub gone: Vec<Mapping>,
    /// Mappings that are new or changed, as they are now.
    pub new: Vec<Mapping>,
}

impl AddressSpace {
    /// Reads the mappings of the process again, with the program's permissions and without the
    /// tracer's mappings, and returns what changed since the last read. Foreign memory may be open
    /// afterwards, as new mappings are not closed ([`Foreign`]).
    pub fn refresh(&mut self, pid: Pid) -> Result<MappingChanges, Error> {
        let maps = restore_writes(visible(mappings(pid)?, &self.hidden), &self.masked);
        let maps = self.foreign.with_program_protection(maps);
        self.foreign.note_mappings_changed();
        let (gone, new) = self.set.update(maps);
        self.update_altered(&gone, &new);
        Ok(MappingChanges { gone, new })
    }

    /// Reads the mappings again after a change in `ranges`, and returns what changed. Reads only
    /// those in and beside them, and the stack, which grows as it is used. Reads all, as
    /// [`refresh`](Self::refresh) does, if a range is empty, other mappings grow
    /// ([`Self::note_growing`]), or the kernel does not answer for a range.
    pub fn refresh_in(&mut self, pid: Pid, ranges: &[AddrRange]) -> Result<MappingChanges, Error> {
        if self.grows || ranges.iter().any(|range| range.is_empty()) {
            return self.refresh(pid);
        }
        let stack = self.set.iter().find(|mapping| mapping.name == "[stack]");
        let stack = stack.map(|stack| stack.range);
        let ranges = ranges.iter().copied().chain(stack);
        let reads = ranges.map(|range| self.read_around(pid, range)).collect::<Option<Vec<_>>>();
        let Some(reads) = reads else {
            return self.refresh(pid);
        };
        let (mut gone, mut new) = (Vec::new(), Vec::new());
        for (range, maps) in reads {
            let maps = restore_writes(visible(maps, &self.hidden), &self.masked);
            let (was, is) = self.set.update_in(range, &self.foreign.with_program_protection(maps));
            gone.extend(was);
            new.extend(is);
        }
        self.foreign.note_mappings_changed();
        self.update_altered(&gone, &new);
        Ok(MappingChanges { gone, new })
    }

    /// Reads the mappings that overlap a range or the page on either side of it. Returns that
    /// range, widened to whole mappings, old and new, and the new mappings there. `None` if the
    /// kernel does not answer such queries.
    fn read_around(&mut self, pid: Pid, range: AddrRange) -> Option<(AddrRange, Vec<Mapping>)> {
        let query = self.map_query(pid)?;
        let start = Addr(range.start.0.saturating_sub(PAGE_BYTES));
        let mut all = AddrRange::new(start, Addr(range.end.0.saturating_add(PAGE_BYTES)));
        loop {
            let maps = query.mappings_in(all)?;
            let ranges = maps.iter().chain(self.set.overlapping(all)).map(|mapping| mapping.range);
            let wide = ranges.fold(all, |all, range| {
                AddrRange::new(all.start.min(range.start), all.end.max(range.end))
            });
            if wide == all {
                return Some((all, maps));
            }
            all = wide;
        }
    }

    /// Returns the means to ask the kernel for mappings of a process, opened at the first use;
    /// `None` if it cannot be opened.
    fn map_query(&mut self, pid: Pid) -> Option<Arc<MapQuery>> {
        let known = self.query.take().filter(|(of, _)| *of == pid);
        let (_, query) = self.query.insert(match known {
            Some(known) => known,
            None => (pid, Arc::new(MapQuery::open(pid)?)),
        });
        Some(query.clone())
    }

    /// Finds out which code is stable ([`Self::is_stable`]), after the mappings changed: private,
    /// executable mappings without write permission for which `is_kept` returns true (the tracer
    /// keeps their file), if no shared mapping of the process can write their file. Returns true if
    /// these ranges are others than before.
    pub fn update_stable(&mut self, is_kept: impl Fn(&Mapping) -> bool) -> bool {
        let shared_writable = |m: &&Mapping| m.protection.shared && m.protection.write;
        let written: Vec<_> = self.set.iter().filter(shared_writable).collect();
        let stable = |m: &&Mapping| {
            let p = m.protection;
            let is_fixed = p.execute && !p.write && !p.shared;
            // A write to a file through another mapping shows in this one.
            is_fixed && is_kept(m) && !written.iter().any(|w| w.is_same_file(m))
        };
        let now: Vec<_> = self.set.iter().filter(stable).map(|m| m.range).collect();
        now != std::mem::replace(&mut self.stable, now.clone())
    }

    /// Forgets everything, also the tracer's ranges: the process executes another program.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Notes that the tracer took the write permission of the page at this address away: the page
    /// is *masked*.
    pub fn mask(&mut self, page: u64) {
        self.masked.insert(page);
    }

    /// Notes that the page at this address has the program's permissions again. Returns true if it
    /// was masked.
    pub fn unmask(&mut self, page: u64) -> bool {
        self.masked.remove(&page)
    }

    /// Returns true if the tracer took the write permission of the page at this address away.
    pub fn is_masked(&self, page: u64) -> bool {
        self.masked.contains(&page)
    }

    /// Returns the addresses of the masked pages that overlap `range`, in order.
    pub fn masked_in(&self, range: AddrRange) -> Vec<u64> {
        let start = range.start.page().0;
        self.masked.range(start..range.end.0.max(start)).copied().collect()
    }

    /// Notes that the mappings of a range were replaced: forgets which of its pages are masked, and
    /// which parts of it are closed foreign memory.
    pub fn note_replaced(&mut self, range: AddrRange) {
        self.masked.retain(|page| !range.contains(Addr(*page)));
        self.foreign.note_replaced(range);
    }

    /// Notes that a mapping was made that grows downwards (`MAP_GROWSDOWN`). From now on, each
    /// refresh reads all mappings.
    pub fn note_growing(&mut self) {
        self.grows = true;
    }

    /// Notes that a range holds the tracer's own memory. Later reads leave out the mappings that
    /// overlap it.
    pub fn hide(&mut self, range: AddrRange) {
        self.hidden.push(range);
    }

    /// Returns the tracer's own ranges, in the order in which they were noted.
    pub fn hidden(&self) -> &[AddrRange] {
        &self.hidden
    }

    /// Returns the mappings as last seen.
    pub fn mappings(&self) -> impl Iterator<Item = &Mapping> {
        self.set.iter()
    }

    /// Returns the mappings that overlap `range`, as last seen.
    pub fn overlapping(&self, range: AddrRange) -> impl Iterator<Item = &Mapping> {
        self.set.overlapping(range)
    }

    /// Returns true if something is mapped at `addr`, as last seen, and is executable.
    pub fn is_executable(&self, addr: Addr) -> bool {
        self.set.at(addr).is_some_and(|mapping| mapping.protection.execute)
    }

    /// Returns the protection of the memory at `addr`, as last seen; `None` if nothing is mapped
    /// there.
    pub fn protection(&self, addr: Addr) -> Option<Protection> {
        self.set.at(addr).map(|mapping| mapping.protection)
    }

    /// Returns true if the bytes at `addr` are those of a file that the tracer keeps, as long as
    /// the mapping exists. False for altered ranges ([`Self::is_altered`]).
    pub fn is_stable(&self, addr: Addr) -> bool {
        let next = self.stable.partition_point(|range| range.end <= addr);
        let is_kept = self.stable.get(next).is_some_and(|range| range.contains(addr));
        is_kept && !self.is_altered(addr)
    }

    /// Returns the other ranges of the process that map the same parts of files as `range` does, as
    /// far as that mapping or the other is shared: a write to one of the two may show in the other.
    /// Empty for memory without a file.
    pub fn aliases(&self, range: AddrRange) -> Vec<AddrRange> {
        let at: Vec<_> = self.set.overlapping(range).filter(|m| m.inode != 0).collect();
        let mut aliases = Vec::new();
        for mapping in at {
            let start = range.start.max(mapping.range.start);
            let end = range.end.min(mapping.range.end);
            let (first, last) = (file_offset(mapping, start), file_offset(mapping, end));
            let is_other = |m: &&Mapping| {
                let shared = m.protection.shared || mapping.protection.shared;
                shared && m.range != mapping.range && m.is_same_file(mapping)
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

    /// Returns true if the bytes at `addr` were noted as possibly different from those of the
    /// mapped file.
    pub fn is_altered(&self, addr: Addr) -> bool {
        self.altered.iter().any(|(range, _)| range.contains(addr))
    }

    /// Notes ranges whose bytes may differ from their mapping's file, each with its mapping.
    pub fn add_altered(&mut self, ranges: impl IntoIterator<Item = (AddrRange, Mapping)>) {
        self.altered.extend(ranges);
    }

    /// Notes as altered each new mapping of a part of a file that is altered, or was writable until
    /// now: it may hold what was written there, as mremap(2) moves pages with their contents.
    /// Forgets altered ranges where that file is no longer mapped.
    fn update_altered(&mut self, gone: &[Mapping], new: &[Mapping]) {
        let is_written = |part: &FilePart<'_>| {
            let writable = gone.iter().filter(|of| of.protection.write);
            let writable = writable.map(|of| FilePart::new(of, of.range));
            let altered = self.altered.iter().map(|(range, of)| FilePart::new(of, *range));
            writable.chain(altered).any(|written| written.overlaps(part))
        };
        let of_file = new.iter().filter(|m| m.inode != 0 && !m.protection.write);
        let written = of_file.filter(|m| is_written(&FilePart::new(m, m.range)));
        let written: Vec<_> = written.map(|m| (m.range, m.clone())).collect();
        self.altered.extend(written);
        let still_there = |(range, was): &(AddrRange, Mapping)| {
            self.set.overlapping(*range).any(|m| m.is_same_file(was))
        };
        self.altered.retain(still_there);
    }
}

/// A part of a mapped file.
struct FilePart<'a> {
    mapping: &'a Mapping,
    start: u64,
    end: u64,
}

impl<'a> FilePart<'a> {
    /// Returns the part of the file of `mapping` that it maps at `range`, a part of it.
    fn new(mapping: &'a Mapping, range: AddrRange) -> Self {
        let start = file_offset(mapping, range.start);
        Self { mapping, start, end: start + range.size_bytes() }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.mapping.is_same_file(other.mapping) && self.start < other.end && other.start < self.end
    }
}

/// Returns the mappings that do not overlap `hidden`, the tracer's own ranges.
pub fn visible(mut maps: Vec<Mapping>, hidden: &[AddrRange]) -> Vec<Mapping> {
    maps.retain(|mapping| !hidden.iter().any(|range| range.overlaps(mapping.range)));
    maps
}

/// Returns the offset in the mapped file of an address in the mapping.
fn file_offset(mapping: &Mapping, addr: Addr) -> u64 {
    mapping.offset + (addr.0 - mapping.range.start.0)
}
