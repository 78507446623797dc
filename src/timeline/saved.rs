//! The index as bytes, to be kept with the recording. A pure function of bytes in both
//! directions: what is stale, foreign or damaged is no index, and hostile bytes give at worst a
//! wrong answer, as a hostile trace does.

use super::blocks::{BlockSet, Bounds, Dictionary};
use super::calls::Calls;
use super::effects::Left;
use super::index::{Entry, Index};
use super::stack::{Forest, Frame};
use crate::common::{Tid, Tsc};
use serde::{Deserialize, Serialize};

/// Changed the layout, or what decoding gives? Bump the version: older indexes are rebuilt.
const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"CFINDEX\n";
/// Magic, version, key, CRC-32 of the rest.
const HEADER_BYTES: usize = 8 + 4 + KEY_BYTES + 4;
const KEY_BYTES: usize = 32;

/// What an index belongs to: a hash over all that decoding reads.
pub(super) type Key = [u8; KEY_BYTES];

#[derive(Serialize, Deserialize)]
struct Thread {
    tid: Tid,
    trace_bytes: u64,
    dictionary: Vec<Bounds>,
    /// Frames of call stacks, each with the number of the one outside of it.
    frames: Vec<(Frame, u32)>,
    entries: Vec<Segment>,
    /// Instructions and ticks, each from the one before.
    times: Vec<(u64, u64)>,
}

#[derive(Serialize, Deserialize)]
struct Segment {
    /// Bytes from the segment before to this one.
    distance: u64,
    insns: u64,
    stack: u32,
    left: Option<Left>,
    execs: u32,
    has_gaps: bool,
    blocks: BlockSet,
}

/// Writes the indexes of all threads, each with the size of its trace.
pub(super) fn encode<'a>(
    key: &Key,
    threads: impl Iterator<Item = (Tid, usize, &'a Index)>,
) -> Vec<u8> {
    let threads: Vec<_> = threads.map(|(tid, size, index)| thread(tid, size, index)).collect();
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(key);
    // Plain data without maps of unknown size; writing it to memory cannot fail.
    let payload = postcard::to_stdvec(&threads).unwrap_or_default();
    bytes.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
    bytes.extend_from_slice(&payload);
    bytes
}

fn thread(tid: Tid, trace_bytes: usize, index: &Index) -> Thread {
    let mut forest = Forest::default();
    let mut before = 0;
    let segment = |entry: &Entry| {
        let distance = (entry.start - before) as u64;
        before = entry.start;
        Segment {
            distance,
            insns: entry.insns,
            stack: forest.add(&entry.calls.stack),
            left: entry.calls.left,
            execs: u32::try_from(entry.calls.execs).unwrap_or(u32::MAX),
            has_gaps: entry.has_gaps,
            blocks: entry.blocks.clone(),
        }
    };
    let entries = index.entries.iter().map(segment).collect();
    let mut last = (0, 0);
    let time = |(at, tsc): &(u64, Tsc)| {
        let step = (at - last.0, tsc.0 - last.1);
        last = (*at, tsc.0);
        step
    };
    Thread {
        tid,
        trace_bytes: trace_bytes as u64,
        dictionary: index.dictionary.in_order(),
        times: index.times.iter().map(time).collect(),
        frames: forest.frames,
        entries,
    }
}

/// The indexes of the threads of these sizes of trace, if the bytes are theirs.
pub(super) fn decode(bytes: &[u8], key: &Key, threads: &[(Tid, usize)]) -> Option<Vec<Index>> {
    let (header, payload) = bytes.split_at_checked(HEADER_BYTES)?;
    let expected =
        [&MAGIC[..], &VERSION.to_le_bytes(), key, &crc32fast::hash(payload).to_le_bytes()];
    if header != expected.concat() {
        return None;
    }
    let (saved, rest): (Vec<Thread>, _) = postcard::take_from_bytes(payload).ok()?;
    if !rest.is_empty() || saved.len() != threads.len() {
        return None;
    }
    let pairs = saved.into_iter().zip(threads);
    let indexes: Vec<_> =
        pairs.map(|(saved, (tid, size))| index(saved, *tid, *size)).collect::<Option<_>>()?;
    // All instructions together must have numbers, too.
    indexes.iter().try_fold(0_u64, |total, index: &Index| total.checked_add(index.insns))?;
    Some(indexes)
}

fn index(saved: Thread, tid: Tid, trace_bytes: usize) -> Option<Index> {
    if (saved.tid, saved.trace_bytes) != (tid, trace_bytes as u64) {
        return None;
    }
    let stacks = Forest::stacks(&saved.frames)?;
    let mut entries: Vec<Entry> = Vec::with_capacity(saved.entries.len());
    let (mut start, mut insns) = (0_usize, 0_u64);
    for segment in saved.entries {
        start = start.checked_add(usize::try_from(segment.distance).ok()?)?;
        if start >= trace_bytes || (segment.distance == 0 && !entries.is_empty()) {
            return None;
        }
        if let Some(before) = entries.last_mut() {
            before.end = Some(start);
        }
        let calls = Calls {
            stack: stacks.get(segment.stack as usize)?.clone(),
            left: segment.left,
            execs: segment.execs as usize,
        };
        let first = insns;
        insns = insns.checked_add(segment.insns)?;
        let Segment { insns, blocks, has_gaps, .. } = segment;
        entries.push(Entry { start, end: None, first, insns, calls, blocks, has_gaps });
    }
    let times = times(&saved.times, insns)?;
    let dictionary: Dictionary = saved.dictionary.into_iter().collect();
    Some(Index { entries, insns, times, dictionary })
}

/// Times rise, and so do the instructions that they stand at.
fn times(steps: &[(u64, u64)], insns: u64) -> Option<Vec<(u64, Tsc)>> {
    let mut times = Vec::with_capacity(steps.len());
    let (mut at, mut tsc) = (0_u64, 0_u64);
    for (number, (insns_later, ticks)) in steps.iter().enumerate() {
        if number > 0 && (*insns_later == 0 || *ticks == 0) {
            return None;
        }
        (at, tsc) = (at.checked_add(*insns_later)?, tsc.checked_add(*ticks)?);
        times.push((at, Tsc(tsc)));
    }
    (at <= insns).then_some(times)
}
