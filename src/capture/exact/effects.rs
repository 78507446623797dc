//! Contents of memory for the log, such as those that the kernel wrote. *Visible* memory is that of
//! the program, without the recorder's.

use crate::common::{Addr, AddrRange, Pid};
use crate::engine::TranslatedProcess;
use crate::recording::log::{Bytes, Write};
use crate::sideband::Mapping;
use crate::syscalls::Effects;
use crate::tracee::PageMap;
use std::collections::BTreeMap;

const PAGE_BYTES: usize = 4096;
/// The maximum number of bytes of one write in the log.
const LARGEST_WRITE_BYTES: u64 = 1 << 20;

/// The bytes of pages, by the pages' addresses.
pub(super) type Pages = BTreeMap<u64, Box<[u8; PAGE_BYTES]>>;

/// The mappings of a process, and its pages that can be written, before a call or an instruction.
#[derive(Debug)]
pub(super) struct MemoryBefore {
    pub(super) mappings: Vec<Mapping>,
    pages: Pages,
}

impl MemoryBefore {
    /// Reads the mappings, and all memory that the process can write.
    pub(super) fn read(process: &TranslatedProcess, pid: Pid) -> Self {
        let mappings = process.space.mappings().cloned().collect();
        Self { mappings, pages: writable_pages(process, pid) }
    }

    /// Returns the memory that differs now: for each page, the bytes from the first difference to
    /// the last. A page that was not read before counts as zeros then. Leaves out pages that are
    /// gone.
    pub(super) fn changes(&self, process: &TranslatedProcess, pid: Pid) -> Vec<Write> {
        let mut now = writable_pages(process, pid);
        for page in self.pages.keys() {
            let mut bytes = Box::new([0; PAGE_BYTES]);
            // The page may have been discarded.
            if !now.contains_key(page)
                && process.memory.read(Addr(*page), &mut bytes[..]) == PAGE_BYTES
            {
                now.insert(*page, bytes);
            }
        }
        let mut writes = Vec::new();
        for (page, bytes) in now {
            let before = self.pages.get(&page);
            let differs = |at: &usize| before.map_or(0, |before| before[*at]) != bytes[*at];
            let Some(first) = (0..PAGE_BYTES).find(differs) else { continue };
            let last = (0..PAGE_BYTES).rev().find(differs).unwrap_or(first);
            let bytes = Bytes(bytes[first..=last].to_vec());
            writes.push(Write { addr: Addr(page + first as u64), bytes });
        }
        writes
    }
}

/// Reads the pages that the process can write; of private mappings only those that were touched.
pub(super) fn writable_pages(process: &TranslatedProcess, pid: Pid) -> Pages {
    let mut pages = BTreeMap::new();
    let map = PageMap::open(pid);
    let writable = process.space.mappings().filter(|mapping| mapping.protection.write);
    for mapping in writable {
        let whole = vec![mapping.range];
        let touched = map.as_ref().filter(|_| !mapping.protection.shared);
        let touched = touched.and_then(|map| map.touched(mapping.range));
        let touched = touched.map(|touched| touched.into_iter().map(|(range, _)| range).collect());
        for range in touched.unwrap_or(whole) {
            for page in (range.start.0..range.end.0).step_by(PAGE_BYTES) {
                let mut bytes = Box::new([0; PAGE_BYTES]);
                if process.memory.read(Addr(page), &mut bytes[..]) == PAGE_BYTES {
                    pages.insert(page, bytes);
                }
            }
        }
    }
    pages
}

/// Returns the ranges of memory in a call's effects, whether known or assumed; none if they are
/// unknown.
pub(super) fn ranges_of(effects: Effects) -> Vec<AddrRange> {
    match effects {
        Effects::Known(ranges) | Effects::Assumed(ranges) => ranges,
        Effects::Unknown => Vec::new(),
    }
}

/// Splits a range into pieces of at most `LARGEST_WRITE_BYTES`, in order.
pub(super) fn pieces_of(range: AddrRange) -> impl Iterator<Item = AddrRange> {
    let step = usize::try_from(LARGEST_WRITE_BYTES).unwrap_or(usize::MAX);
    let starts = (range.start.0..range.end.0).step_by(step);
    starts.map(move |start| {
        let end = start.saturating_add(LARGEST_WRITE_BYTES).min(range.end.0);
        AddrRange::new(Addr(start), Addr(end))
    })
}

/// Reads ranges of the program's visible memory, each up to where memory ends, as writes for the
/// log. Large ranges are split; empty ones are left out.
pub(super) fn contents(
    process: &TranslatedProcess,
    ranges: impl IntoIterator<Item = AddrRange>,
) -> Vec<Write> {
    let mut writes = Vec::new();
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            let size = (range.end.0 - start.0).min(LARGEST_WRITE_BYTES);
            let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
            let known = process.read_visible(start, &mut bytes);
            bytes.truncate(known);
            if !bytes.is_empty() {
                writes.push(Write { addr: start, bytes: Bytes(bytes) });
            }
            if (known as u64) < size {
                break;
            }
            start = start.wrapping_add(size);
        }
    }
    writes
}
