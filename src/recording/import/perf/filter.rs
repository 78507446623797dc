//! perf's address filters (`perf record --filter`) as perf.data stores them:
//! `filter 0x1000/0x200@/file`, separated by commas. Offsets are file offsets.

use super::process::Process;
use crate::common::AddrRange;
use crate::sideband::perf_data::{PerfData, PerfEvent, PerfMap};
use std::collections::{HashMap, HashSet};

/// A part of a filter: a range of offsets in a file.
struct Part<'a> {
    start: u64,
    size: u64,
    file: &'a str,
}

/// Returns the parts of the kind `filter`, which limit the traced code. Leaves out those without a
/// file (code of the kernel) and malformed ones. Parts of other kinds only start or stop the trace,
/// which does not affect decoding.
fn parts(filter: &str) -> impl Iterator<Item = Part<'_>> {
    filter.split(',').filter_map(|part| {
        let rest = part.trim().strip_prefix("filter")?.trim_start();
        let (range, file) = rest.split_once('@')?;
        let (start, size) = range.split_once('/')?;
        Some(Part { start: number(start)?, size: number(size)?, file: file.trim() })
    })
}

fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Returns the names of the files whose code was traced, once for each part; empty if no part has a
/// file, which means all files.
pub(super) fn filtered_files(filter: &str) -> Vec<&str> {
    parts(filter).map(|part| part.file).collect()
}

/// Returns the addresses of the traced code of a process: of each part, at the first executable
/// mapping that has bytes of it. Leaves out parts of files that are not mapped so, and cuts each
/// range to that mapping, as the kernel does (`perf_addr_filter_vma_adjust`). Empty if there are no
/// parts, or if none is mapped; the caller takes either as all code.
pub(super) fn ranges(filter: &str, data: &PerfData, process: &Process) -> Vec<AddrRange> {
    let files: HashSet<&str> = filtered_files(filter).into_iter().collect();
    let mut maps: HashMap<&str, Vec<&PerfMap>> = HashMap::new();
    // The owner is the process that had the recording's memory at the time of the record.
    for (owner, record) in process.records(data) {
        if let PerfEvent::Map(map) = &record.event
            && map.pid == owner
            && map.executable
            && files.contains(map.name.as_str())
        {
            maps.entry(&map.name).or_default().push(map);
        }
    }
    let range = |part: Part<'_>| {
        maps.get(part.file)?.iter().find_map(|map| {
            let mapped_end = map.file_offset.saturating_add(map.range.size_bytes());
            let start = part.start.max(map.file_offset);
            let end = part.start.saturating_add(part.size).min(mapped_end);
            let size_bytes = end.checked_sub(start).filter(|size_bytes| *size_bytes > 0)?;
            let addr = map.range.start.wrapping_add(start - map.file_offset);
            Some(AddrRange::sized(addr, size_bytes))
        })
    };
    parts(filter).filter_map(range).collect()
}
