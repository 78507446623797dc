//! Foreign memory: shared with processes outside the recording, which may write it at any time. It
//! is *closed*: mapped without permissions, so that each of the program's accesses faults, and the
//! recorder sees it. For the access, the pages are *opened*, and closed again after it. This file
//! keeps the book; `closing` changes the mappings.

use super::masked::join;
use crate::common::{Addr, AddrRange};
use crate::sideband::{Mapping, Protection};

const PAGE_BYTES: u64 = 0x1000;
/// The maximum number of bytes that one instruction accesses at an address: a register of AVX-512.
const REACH_BYTES: u64 = 64;

/// The foreign memory of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Foreign {
    /// One mapping of each file that processes outside may write.
    files: Vec<Mapping>,
    /// The closed ranges, and the program's protection of each.
    closed: Vec<(AddrRange, Protection)>,
    /// The parts of closed ranges that are open for an access.
    open: Vec<AddrRange>,
    /// True if there may be foreign mappings that are not closed, as after a change of the
    /// mappings.
    is_stale: bool,
}

impl Foreign {
    /// Notes that processes outside write the file of a mapping: its mappings are foreign memory,
    /// which is not closed yet. Returns false if that was known.
    pub(super) fn add_file(&mut self, mapping: &Mapping) -> bool {
        let is_new = !self.has_file(mapping);
        if is_new {
            self.files.push(mapping.clone());
            self.is_stale = true;
        }
        is_new
    }

    /// Returns true if processes outside write the file of a mapping.
    pub(super) fn has_file(&self, mapping: &Mapping) -> bool {
        self.files.iter().any(|file| file.is_same_file(mapping))
    }

    /// Notes that only this process writes the file of a mapping, which is no longer foreign. Its
    /// closed ranges stay noted, so the caller opens them first.
    pub(super) fn remove_file(&mut self, mapping: &Mapping) {
        self.files.retain(|file| !file.is_same_file(mapping));
    }

    /// Returns a mapping of each file that processes outside write.
    pub(super) fn files(&self) -> &[Mapping] {
        &self.files
    }

    /// Returns true if processes outside write a file that this process mapped, perhaps no longer.
    pub(super) fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Returns true if a mapping is foreign memory that can be closed: it is shared, accessible and
    /// not executable.
    pub(super) fn can_close(&self, mapping: &Mapping) -> bool {
        let Protection { shared, execute, read, write } = mapping.protection;
        shared && !execute && (read || write) && self.has_file(mapping)
    }

    /// Returns true if all foreign memory is known to be closed; also if there is none.
    pub(super) fn is_all_closed(&self) -> bool {
        !self.is_stale && self.open.is_empty()
    }

    /// Notes that the mappings changed: if there are files of others, new mappings of them may be
    /// open.
    pub(super) fn note_mappings_changed(&mut self) {
        self.is_stale = self.has_files();
    }

    /// Notes a range that was closed, with the program's protection.
    pub(super) fn note_closed(&mut self, range: AddrRange, protection: Protection) {
        self.closed.push((range, protection));
    }

    /// Notes that the caller has looked at all mappings and closed each foreign one.
    pub(super) fn note_all_closed(&mut self) {
        self.is_stale = false;
    }

    /// Returns true if some of a range was closed, even if it is now open for an access.
    pub(super) fn is_closed(&self, range: AddrRange) -> bool {
        self.closed.iter().any(|(closed, _)| closed.overlaps(range))
    }

    /// Returns true if an access at an address faults because its memory is closed.
    pub(super) fn faults_at(&self, addr: Addr) -> bool {
        let is_open = self.open.iter().any(|open| open.contains(addr));
        !is_open && self.is_closed(AddrRange::sized(addr, 1))
    }

    /// Notes that the pages that one access at an address can touch are open. Returns them, with
    /// the program's protection, which the caller sets; `None` if the address is not in a closed
    /// range.
    pub(super) fn note_open_at(&mut self, addr: Addr) -> Option<(AddrRange, Protection)> {
        let (range, protection) = *self.closed.iter().find(|(range, _)| range.contains(addr))?;
        let last = addr.wrapping_add(REACH_BYTES - 1).page().wrapping_add(PAGE_BYTES);
        let pages = AddrRange::new(addr.page(), last.min(range.end));
        self.open.push(pages);
        Some((pages, protection))
    }

    /// Removes and returns the parts that are open for an access: they are closed again, by the
    /// caller.
    pub(super) fn take_open(&mut self) -> Vec<AddrRange> {
        std::mem::take(&mut self.open)
    }

    /// Removes and returns the closed ranges that overlap `range`, each as a whole and with the
    /// program's protection, which the caller sets. Parts of them that were open for an access are
    /// forgotten, too.
    pub(super) fn take_closed(&mut self, range: AddrRange) -> Vec<(AddrRange, Protection)> {
        let gone = self.closed.extract_if(.., |(closed, _)| closed.overlaps(range));
        let gone: Vec<_> = gone.collect();
        self.open.retain(|open| !gone.iter().any(|(range, _)| range.overlaps(*open)));
        self.is_stale |= !gone.is_empty();
        gone
    }

    /// Returns the closed ranges, each with the program's protection.
    pub(super) fn closed(&self) -> &[(AddrRange, Protection)] {
        &self.closed
    }

    /// Forgets the closed and open parts of a range whose mappings were replaced. The new mappings
    /// may be foreign and open, so all count as not closed until the next look.
    pub(super) fn note_replaced(&mut self, range: AddrRange) {
        let outside = |(closed, protection): (AddrRange, Protection)| {
            let before = AddrRange::new(closed.start, closed.end.min(range.start));
            let after = AddrRange::new(closed.start.max(range.end), closed.end);
            let parts = [before, after].into_iter().filter(|part| part.start < part.end);
            parts.map(move |part| (part, protection))
        };
        self.closed = std::mem::take(&mut self.closed).into_iter().flat_map(outside).collect();
        self.open.retain(|open| !open.overlaps(range));
        self.note_mappings_changed();
    }

    /// Returns these mappings, read from the kernel, with the program's protection in place of that
    /// of closed ranges. Joins those again that were split by closing or opening a part.
    pub(super) fn with_program_protection(&self, maps: Vec<Mapping>) -> Vec<Mapping> {
        if self.closed.is_empty() {
            return maps;
        }
        let mut joined = Vec::with_capacity(maps.len());
        for mapping in maps {
            let mut start = mapping.range.start;
            while start < mapping.range.end {
                let (end, protection) = self.first_part(AddrRange::new(start, mapping.range.end));
                let mut part = mapping.clone();
                part.range = AddrRange::new(start, end);
                part.offset += start.0 - mapping.range.start.0;
                let is_closed = protection.is_some();
                part.protection = protection.unwrap_or(part.protection);
                join(&mut joined, part, is_closed);
                start = end;
            }
        }
        joined.into_iter().map(|(mapping, _)| mapping).collect()
    }

    /// Returns the parts of a range that are not closed. A mapping has some if the program mapped
    /// more of a file right beside a closed part.
    pub(super) fn open_parts(&self, range: AddrRange) -> Vec<AddrRange> {
        let mut parts = Vec::new();
        let mut start = range.start;
        while start < range.end {
            let (end, protection) = self.first_part(AddrRange::new(start, range.end));
            if protection.is_none() {
                parts.push(AddrRange::new(start, end));
            }
            start = end;
        }
        parts
    }

    /// Returns the end of the first part of a range that is closed, or not closed, as a whole, and
    /// the program's protection if it is closed.
    fn first_part(&self, range: AddrRange) -> (Addr, Option<Protection>) {
        let at = self.closed.iter().find(|(closed, _)| closed.contains(range.start));
        if let Some((closed, protection)) = at {
            return (closed.end.min(range.end), Some(*protection));
        }
        let starts = self.closed.iter().map(|(closed, _)| closed.start);
        (starts.filter(|start| range.contains(*start)).min().unwrap_or(range.end), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sideband::parse_maps;

    fn foreign(text: &str) -> Foreign {
        let mut foreign = Foreign::default();
        for mapping in parse_maps(text).unwrap() {
            assert!(foreign.add_file(&mapping) || foreign.can_close(&mapping));
            foreign.note_closed(mapping.range, mapping.protection);
        }
        foreign
    }

    #[test]
    fn closed_mappings_are_what_the_program_made_them() {
        let before = "10000-14000 rw-s 1000 00:01 7 /dev/zero (deleted)\n\
                      14000-15000 r--s 5000 00:01 7 /dev/zero (deleted)\n";
        let mut foreign = foreign(before);
        let seen = "0f000-10000 rw-p 0 00:00 0 \n\
                    10000-15000 ---s 1000 00:01 7 /dev/zero (deleted)\n";
        let whole = format!("0f000-10000 rw-p 0 00:00 0 \n{before}");
        assert_eq!(
            foreign.with_program_protection(parse_maps(seen).unwrap()),
            parse_maps(&whole).unwrap()
        );
        // Also while a page is open.
        assert_eq!(foreign.note_open_at(Addr(0x12ffe)).unwrap().0.size_bytes(), 0x2000);
        let open = "10000-12000 ---s 1000 00:01 7 /dev/zero (deleted)\n\
                    12000-14000 rw-s 3000 00:01 7 /dev/zero (deleted)\n\
                    14000-15000 ---s 5000 00:01 7 /dev/zero (deleted)\n";
        assert_eq!(
            foreign.with_program_protection(parse_maps(open).unwrap()),
            parse_maps(before).unwrap()
        );
    }

    #[test]
    fn accesses_fault_until_their_pages_are_open() {
        let mut foreign = foreign("10000-14000 rw-s 0 00:01 7 /x\n");
        assert!(foreign.faults_at(Addr(0x13fff)) && !foreign.faults_at(Addr(0x14000)));
        let (pages, protection) = foreign.note_open_at(Addr(0x13fff)).unwrap();
        assert_eq!(pages, AddrRange::new(Addr(0x13000), Addr(0x14000)));
        assert!(protection.write && !foreign.faults_at(Addr(0x13000)) && !foreign.is_all_closed());
        assert_eq!(foreign.take_open(), [pages]);
        assert!(foreign.faults_at(Addr(0x13000)));
    }

    #[test]
    fn a_new_part_of_a_mapping_is_open() {
        let foreign = foreign("11000-12000 rw-s 1000 00:01 7 /x\n");
        let seen = "10000-11000 rw-s 0 00:01 7 /x\n\
                    11000-12000 ---s 1000 00:01 7 /x\n\
                    12000-14000 rw-s 2000 00:01 7 /x\n";
        let mappings = foreign.with_program_protection(parse_maps(seen).unwrap());
        assert_eq!(mappings, parse_maps("10000-14000 rw-s 0 00:01 7 /x\n").unwrap());
        let expected = [(0x10000, 0x11000), (0x12000, 0x14000)];
        let expected = expected.map(|(a, b)| AddrRange::new(Addr(a), Addr(b)));
        assert_eq!(foreign.open_parts(mappings[0].range), expected);
        assert!(foreign.open_parts(AddrRange::new(Addr(0x11000), Addr(0x12000))).is_empty());
    }

    #[test]
    fn what_is_mapped_in_its_place_is_not_closed() {
        let mut foreign = foreign("10000-14000 rw-s 0 00:01 7 /x\n");
        foreign.note_replaced(AddrRange::new(Addr(0x11000), Addr(0x12000)));
        let closed: Vec<_> = foreign.closed().iter().map(|(range, _)| *range).collect();
        let expected = [(0x10000, 0x11000), (0x12000, 0x14000)];
        assert_eq!(closed, expected.map(|(a, b)| AddrRange::new(Addr(a), Addr(b))));
        assert_eq!(foreign.take_closed(AddrRange::new(Addr(0x13000), Addr(0x13001))).len(), 1);
        assert!(!foreign.faults_at(Addr(0x12000)) && foreign.faults_at(Addr(0x10000)));
    }
}
