//! The index of a thread's path: for each segment its offset, its instructions and blocks, and the
//! call stack at its start. It is built once, on all cores: each worker, a decoding thread, numbers
//! the blocks that it meets. Seeks and searches use the index and decode one segment at a time.

use super::blocks::{BlockSet, Dictionary};
use super::call_stack::Calls;
use super::digest::{Digest, ThreadSource};
use super::images::Images;
use crate::common::{Addr, Tsc};
use crate::flow::{Bounds, Gap};
use std::collections::BTreeSet;

/// The properties of a segment that are known without decoding it.
#[derive(Clone, Debug)]
pub(super) struct SegmentEntry {
    /// The index of the segment's piece among the thread's pieces.
    pub(super) piece: usize,
    /// The trace offset of the segment's PSB.
    pub(super) start: usize,
    /// The offset of the next PSB; `None` for the last segment of the piece.
    pub(super) end: Option<usize>,
    /// The number of the thread's instructions before the segment.
    pub(super) first: u64,
    pub(super) insns: u64,
    /// The call stack at the segment's start.
    pub(super) calls: Calls,
    /// The worker that numbered the blocks: an index into [`Index::dictionaries`].
    pub(super) worker: usize,
    pub(super) blocks: BlockSet,
    /// True if the path has gaps in this segment, as decoding shows.
    pub(super) has_gaps: bool,
}

/// The index of one thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    pub(super) entries: Vec<SegmentEntry>,
    pub(super) insns: u64,
    /// The times in the trace, each with the number of the next instruction.
    pub(super) times: Vec<(u64, Tsc)>,
    /// For each worker that built the index, the blocks that it met.
    pub(super) dictionaries: Vec<Dictionary>,
}

/// A set of blocks: for each worker, the numbers of the blocks in its dictionary.
pub(super) type BlockNumbers = Vec<BTreeSet<u32>>;

impl Index {
    /// Decodes all pieces. Returns the index, and the gaps with the number of the next instruction.
    /// Calls `report_bytes` regularly with the number of bytes done.
    pub(super) fn build(
        source: ThreadSource<'_>,
        workers: usize,
        report_bytes: &mut dyn FnMut(usize),
    ) -> (Self, Vec<(u64, Gap)>) {
        let mut index = Self::default();
        let mut calls = Calls::default();
        let images = source.context.images;
        let mut gaps = Vec::new();
        let mut take = |digest: Digest| {
            let first = index.insns;
            gaps.extend(digest.content.gaps.iter().map(|(at, gap)| (first + at, *gap)));
            index.add(digest, &mut calls, images);
        };
        source.digest(workers, &mut take, report_bytes);
        (index, gaps)
    }

    /// Appends the entry of the next segment, its times and its new blocks. Moves `calls` from the
    /// call stack at the segment's start to that at its end.
    fn add(&mut self, digest: Digest, calls: &mut Calls, images: &Images) {
        let first = self.insns;
        if self.dictionaries.len() <= digest.worker {
            self.dictionaries.resize(digest.worker + 1, Dictionary::default());
        }
        self.dictionaries[digest.worker].blocks.extend(digest.fresh);
        let content = digest.content;
        let entry = SegmentEntry {
            piece: digest.piece,
            start: digest.start,
            end: digest.end,
            first,
            insns: content.insns,
            calls: calls.clone(),
            worker: digest.worker,
            blocks: digest.blocks,
            has_gaps: !content.gaps.is_empty(),
        };
        self.entries.push(entry);
        calls.apply(&content.effects, first, &|addr| images.function_at(addr));
        for (at, tsc) in content.times {
            self.note_time(first + at, tsc);
        }
        self.insns += content.insns;
    }

    /// Adds a time before instruction `at`. Of several times at one instruction the last counts; a
    /// time that is not later than the last one is dropped.
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

    /// Returns the index in `entries` of the segment that contains the thread's instruction
    /// `index`; `None` after the last instruction.
    pub(super) fn entry_with(&self, index: u64) -> Option<usize> {
        if index >= self.insns {
            return None;
        }
        self.entries.partition_point(|entry| entry.first <= index).checked_sub(1)
    }

    /// Returns the blocks that contain at least one of these addresses, for
    /// [`SegmentEntry::executed_any`]. An address amid an instruction counts, too.
    pub(super) fn blocks_with(&self, addrs: &BTreeSet<Addr>) -> BlockNumbers {
        self.dictionaries.iter().map(|dictionary| dictionary.numbers_with(addrs)).collect()
    }

    /// Returns all executed blocks; those that several workers met, more than once.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Bounds> {
        self.dictionaries.iter().flat_map(|dictionary| dictionary.blocks.iter().copied())
    }
}

impl SegmentEntry {
    /// Returns true if the segment executed at least one of these blocks.
    pub(super) fn executed_any(&self, blocks: &BlockNumbers) -> bool {
        let wanted = blocks.get(self.worker).filter(|wanted| !wanted.is_empty());
        wanted.is_some_and(|wanted| self.blocks.numbers().any(|number| wanted.contains(&number)))
    }
}
