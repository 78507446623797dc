//! The index of a thread's trace: for each segment where it starts, which instructions and blocks
//! it holds, and the call stack at its start. Built once, on all cores; seeking and searching use
//! it and decode one segment at a time.

use super::calls::{Calls, Kept};
use super::images::Images;
use super::segment::{Segment, What};
use super::walk::{Caches, Walker};
use crate::common::{Addr, Tsc};
use crate::flow::Gap;
use crate::pt::find_psb;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Segments that are decoded before their results are joined: bounds what is in memory.
const BATCH: usize = 64;

/// What is known of a segment without decoding it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Offset of its PSB.
    pub(super) start: usize,
    /// Offset of the next one; none for the last.
    pub(super) end: Option<usize>,
    /// Instructions of the thread before it.
    pub(super) first: u64,
    pub(super) insns: u64,
    /// The call stack at its start.
    pub(super) calls: Kept,
    blocks: BlockSet,
}

/// The index of one thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    pub(super) entries: Vec<Entry>,
    pub(super) insns: u64,
    /// The time, at each instruction before which the trace told a new one.
    pub(super) times: Vec<(u64, Tsc)>,
    pub(super) gaps: Vec<(u64, Gap)>,
    dictionary: Dictionary,
}

impl Index {
    /// Decodes the whole trace. `execs` are the times at which another program began.
    pub(super) fn build(trace: &[u8], images: &Images, execs: &[Tsc], workers: usize) -> Self {
        let starts = boundaries(trace);
        let mut index = Self::default();
        let mut calls = Calls::new(execs);
        for batch in starts.chunks(BATCH) {
            let segments = decode_all(trace, batch, images, workers);
            for ((start, end), segment) in batch.iter().zip(segments) {
                index.add(*start, *end, &segment, &mut calls);
            }
        }
        index
    }

    fn add(&mut self, start: usize, end: Option<usize>, segment: &Segment, calls: &mut Calls) {
        let first = self.insns;
        let blocks =
            segment.blocks.iter().map(|block| self.dictionary.number(block.ip, block.last));
        let blocks = BlockSet::new(blocks.collect());
        let before = calls.keep();
        calls.walk(segment, segment.insns);
        self.entries.push(Entry { start, end, first, insns: segment.insns, calls: before, blocks });
        for (at, tsc) in segment.times() {
            self.note_time(first + at, tsc);
        }
        for mark in &segment.marks {
            if let What::Gap(gap) = mark.what {
                self.gaps.push((first + mark.at, gap));
            }
        }
        self.insns += segment.insns;
    }

    /// Of several times at one instruction the last holds; a repeated one is no news; and time
    /// never goes back.
    fn note_time(&mut self, at: u64, tsc: Tsc) {
        let Some((last_at, last)) = self.times.last_mut() else {
            self.times.push((at, tsc));
            return;
        };
        if tsc <= *last {
            return;
        }
        if *last_at == at {
            *last = tsc;
        } else {
            self.times.push((at, tsc));
        }
    }

    /// The number of the segment that holds instruction `index`.
    pub(super) fn entry_of(&self, index: u64) -> Option<usize> {
        if index >= self.insns {
            return None;
        }
        self.entries.partition_point(|entry| entry.first <= index).checked_sub(1)
    }

    /// The blocks that hold one of these addresses, for [`Entry::may_hold`].
    pub(super) fn blocks_with(&self, addrs: &BTreeSet<Addr>) -> BTreeSet<u32> {
        self.dictionary.with(addrs)
    }
}

impl Entry {
    /// Whether one of these blocks was executed in the segment.
    pub(super) fn holds(&self, blocks: &BTreeSet<u32>) -> bool {
        self.blocks.numbers().any(|number| blocks.contains(&number))
    }
}

/// Where segments start, and where the next one does.
fn boundaries(trace: &[u8]) -> Vec<(usize, Option<usize>)> {
    let psb = |from: usize| find_psb(trace, from);
    let first = psb(0);
    std::iter::successors(first.map(|start| (start, psb(start + 1))), |(_, end)| {
        end.map(|start| (start, psb(start + 1)))
    })
    .collect()
}

fn decode_all(
    trace: &[u8],
    batch: &[(usize, Option<usize>)],
    images: &Images,
    workers: usize,
) -> Vec<Segment> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut caches = Caches::default();
        let mut done = Vec::new();
        while let Some((start, end)) = batch.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut walker = Walker::new(trace, *start, *end, images, &mut caches);
            done.push((*start, Segment::decode(&mut walker)));
        }
        done
    };
    let workers = workers.clamp(1, batch.len().max(1));
    let mut all: Vec<_> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        // A worker that panicked would be a fault of ours; its segments are decoded by nobody.
        all.extend(others.into_iter().filter_map(|worker| worker.join().ok()).flatten());
        all
    });
    all.sort_by_key(|(start, _)| *start);
    all.into_iter().map(|(_, segment)| segment).collect()
}

/// Numbers for the blocks of a thread.
#[derive(Clone, Debug, Default)]
struct Dictionary {
    numbers: HashMap<(Addr, Addr), u32>,
}

impl Dictionary {
    fn number(&mut self, ip: Addr, last: Addr) -> u32 {
        let fresh = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        *self.numbers.entry((ip, last)).or_insert(fresh)
    }

    fn with(&self, addrs: &BTreeSet<Addr>) -> BTreeSet<u32> {
        let holds = |ip: Addr, last: Addr| addrs.range(ip..=last.max(ip)).next().is_some();
        let blocks = self.numbers.iter().filter(|((ip, last), _)| holds(*ip, *last));
        blocks.map(|(_, number)| *number).collect()
    }
}

/// The numbers of the blocks of a segment: sorted, each as the difference to the one before, in
/// LEB128.
#[derive(Clone, Debug)]
struct BlockSet(Box<[u8]>);

impl BlockSet {
    fn new(numbers: BTreeSet<u32>) -> Self {
        let mut bytes = Vec::new();
        let mut before = 0;
        for number in numbers {
            push_leb128(&mut bytes, number - before);
            before = number;
        }
        Self(bytes.into())
    }

    fn numbers(&self) -> impl Iterator<Item = u32> {
        let mut rest = self.0.iter();
        let mut number = 0_u32;
        std::iter::from_fn(move || {
            let mut value = 0_u32;
            for shift in (0..32).step_by(7) {
                let byte = *rest.next()?;
                value |= u32::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
            }
            number = number.wrapping_add(value);
            Some(number)
        })
    }
}

fn push_leb128(bytes: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        bytes.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_block_set_gives_its_numbers_back(numbers: BTreeSet<u32>) {
            let set = BlockSet::new(numbers.clone());
            prop_assert_eq!(set.numbers().collect::<BTreeSet<_>>(), numbers);
        }
    }
}
