//! All writable private memory of a stopped process, and where two of them differ.

use contraflow::common::{Addr, AddrRange, Pid};
use contraflow::sideband::Mapping;
use contraflow::tracee::{Memory, PageMap, PageState, mappings};
use std::collections::BTreeMap;

const PAGE_BYTES: u64 = 4096;
const PAGE: usize = 4096;
static ZEROS: [u8; PAGE] = [0; PAGE];

/// Pages by address. Anonymous ones that were never touched are not kept: they are zeros.
#[derive(Default)]
pub(super) struct Snapshot {
    mappings: Vec<Mapping>,
    runs: BTreeMap<u64, Vec<u8>>,
}

impl Snapshot {
    pub(super) fn take(pid: Pid, memory: &Memory) -> Self {
        let mappings = mappings(pid).unwrap_or_default();
        // A process that was killed has none.
        let Some(pages) = PageMap::open(pid) else { return Self::default() };
        let mut snapshot = Self { mappings, runs: BTreeMap::new() };
        let compared = snapshot.mappings.iter().filter(|mapping| is_compared(mapping));
        for mapping in compared {
            let touched = pages.touched(mapping.range).unwrap_or_default();
            let private = touched.iter().filter(|(_, state)| *state == PageState::Private);
            let private = private.map(|(range, _)| *range);
            // All of a file's: what is untouched has its bytes.
            let kept: Vec<AddrRange> =
                if mapping.inode == 0 { private.collect() } else { vec![mapping.range] };
            for range in kept {
                let mut bytes = vec![0; usize::try_from(range.size_bytes()).unwrap()];
                memory.read(range.start, &mut bytes);
                snapshot.runs.insert(range.start.0, bytes);
            }
        }
        snapshot
    }

    /// The page at an address; none if it is not memory that is compared.
    fn page(&self, at: u64) -> Option<&[u8]> {
        let run = self.runs.range(..=at).next_back();
        let kept = run.and_then(|(start, bytes)| {
            let offset = usize::try_from(at - start).ok()?;
            bytes.get(offset..offset + PAGE)
        });
        kept.or_else(|| self.is_compared_at(at).then_some(&ZEROS[..]))
    }

    fn is_compared_at(&self, at: u64) -> bool {
        let found = self.mapping_at(at);
        found.is_some_and(is_compared)
    }

    fn mapping_at(&self, at: u64) -> Option<&Mapping> {
        let after = self.mappings.partition_point(|mapping| mapping.range.end.0 <= at);
        self.mappings.get(after).filter(|mapping| mapping.range.contains(Addr(at)))
    }

    /// Whether all bytes of a range can be written.
    pub(super) fn is_writable(&self, range: AddrRange) -> bool {
        let mut at = range.start.0;
        while at < range.end.0 {
            match self.mapping_at(at) {
                Some(mapping) if mapping.protection.write => at = mapping.range.end.0,
                _ => return false,
            }
        }
        true
    }

    /// The bytes that are not what they were in `self`, where both have memory.
    pub(super) fn changes(&self, after: &Self) -> Vec<Addr> {
        let pages = |snapshot: &Self| {
            let of_run = |(start, bytes): (&u64, &Vec<u8>)| {
                let start = *start;
                (0..(bytes.len() / PAGE) as u64).map(move |page| start + page * PAGE_BYTES)
            };
            snapshot.runs.iter().flat_map(of_run).collect::<Vec<_>>()
        };
        let mut all = pages(self);
        all.extend(pages(after));
        all.sort_unstable();
        all.dedup();
        let mut changes = Vec::new();
        for at in all {
            let (Some(old), Some(new)) = (self.page(at), after.page(at)) else { continue };
            if old != new {
                let offsets = (0..PAGE).filter(|offset| old[*offset] != new[*offset]);
                changes.extend(offsets.map(|offset| Addr(at + offset as u64)));
            }
        }
        changes
    }
}

fn is_compared(mapping: &Mapping) -> bool {
    let protection = mapping.protection;
    protection.write && !protection.shared && !mapping.name.starts_with("[v")
}
