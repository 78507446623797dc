//! The content that the index keeps of each segment, its *digest*, computed on all cores and
//! delivered in order. The work is divided into *stretches* of the trace. Each worker numbers the
//! blocks that it meets, so a digest names blocks by numbers; the first digest with a block has its
//! addresses, too.

use super::blocks::BlockSet;
use super::effects::{Effect, Effects};
use super::parallel::Workers;
use super::piece::{DecodeContext, Piece};
use super::segment::{MarkContent, Segment};
use super::walk::{BlockCaches, Walker};
use crate::common::Tsc;
use crate::flow::{Bounds, EventKind, ExecutedCode, FlowItem, Gap};
use crate::pt::{PSB, find_psb};
use std::convert::Infallible;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of trace bytes whose segments a worker takes at a time.
const STRETCH_BYTES: usize = 128 << 10;
/// The number of finished stretches per worker that may wait for delivery.
const WAITING_STRETCHES: usize = 8;

/// The pieces of a thread and the inputs of their decoding.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadSource<'a> {
    /// The bytes of all traces.
    pub(super) traces: &'a [&'a [u8]],
    pub(super) pieces: &'a [Piece],
    pub(super) context: DecodeContext<'a>,
    /// The times of the thread's exec(2) calls, in ascending order.
    pub(super) execs: &'a [Tsc],
}

/// A unit of work for a worker: the segments of a piece whose PSBs are in a range of the trace.
#[derive(Debug)]
struct Stretch {
    piece: usize,
    range: Range<usize>,
}

/// The data that the index keeps of a segment.
#[derive(Debug)]
pub(super) struct Digest {
    /// The index of the segment's piece among the thread's pieces.
    pub(super) piece: usize,
    /// The trace offset of the segment's PSB.
    pub(super) start: usize,
    /// The offset of the next PSB; `None` for the last segment of the piece.
    pub(super) end: Option<usize>,
    pub(super) content: Content,
    /// The number of the worker that made the digest.
    pub(super) worker: usize,
    /// The blocks that the segment executed, by the worker's numbers.
    pub(super) blocks: BlockSet,
    /// The blocks that the worker met for the first time in this segment, in order of their
    /// numbers.
    pub(super) fresh: Vec<Bounds>,
}

/// The facts of a decoded segment without its blocks: instruction count, times, gaps and changes of
/// the call stack. Times and gaps have the number of the next instruction, counted from the
/// segment's start.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) insns: u64,
    pub(super) times: Vec<(u64, Tsc)>,
    pub(super) gaps: Vec<(u64, Gap)>,
    pub(super) effects: Vec<Effect>,
}

impl Content {
    /// Returns the content of a decoded segment. Restarts `tally`, and counts the segment's blocks
    /// in it. `execs` are the times of the thread's exec(2) calls, which end its call stack.
    pub(super) fn from_segment(segment: &Segment, tally: &mut ExecutedCode, execs: &[Tsc]) -> Self {
        tally.restart();
        segment.blocks.iter().for_each(|block| tally.add((block.ip, block.last)));
        Self {
            insns: segment.insns,
            times: segment.times().collect(),
            gaps: segment.gaps().collect(),
            effects: Effects::of(segment, segment.insns, execs),
        }
    }

    /// Decodes a whole segment, and returns the same content as [`Self::from_segment`] would, without
    /// a list of the block executions. Restarts `tally`, and counts the segment's blocks in it.
    pub(super) fn from_tally(
        walker: &mut Walker<'_>,
        tally: &mut ExecutedCode,
        execs: &[Tsc],
    ) -> Self {
        tally.restart();
        let mut content = Self::default();
        let mut effects = Effects::new(execs);
        while let Some(item) = walker.tally_until_mark(tally, &mut effects) {
            let at = tally.insns;
            match item {
                FlowItem::Block(_) => {}
                FlowItem::Event(event) => {
                    if let EventKind::Tsc(tsc) = event.kind {
                        content.times.push((at, tsc));
                    }
                    effects.mark_at(at, &MarkContent::Event(event.kind));
                }
                FlowItem::Gap(gap) => {
                    content.gaps.push((at, gap));
                    effects.mark_at(at, &MarkContent::Gap(gap));
                }
            }
        }
        Self { insns: tally.insns, effects: effects.finish(), ..content }
    }
}

/// The state that a worker keeps from one digest to the next.
#[derive(Debug)]
struct Worker {
    number: usize,
    caches: BlockCaches,
    tally: ExecutedCode,
    /// The number of the worker's blocks that its earlier digests contain.
    reported_blocks: usize,
}

impl Worker {
    fn new(number: usize) -> Self {
        Self {
            number,
            caches: BlockCaches::default(),
            tally: ExecutedCode::new(),
            reported_blocks: 0,
        }
    }

    /// Returns the digest of the segment that the tally has counted.
    fn digest(&mut self, piece: usize, bounds: (usize, Option<usize>), content: Content) -> Digest {
        let blocks = self.tally.numbered();
        let fresh = blocks.get(self.reported_blocks..).unwrap_or_default().to_vec();
        self.reported_blocks = blocks.len();
        let executed = BlockSet::new(self.tally.words());
        let (start, end) = bounds;
        Digest { piece, start, end, content, worker: self.number, blocks: executed, fresh }
    }
}

impl Segment {
    /// Returns the segment's gaps, each with the number of the next instruction, counted from the
    /// segment's start.
    pub(super) fn gaps(&self) -> impl Iterator<Item = (u64, Gap)> {
        self.marks.iter().filter_map(|mark| match mark.content {
            MarkContent::Gap(gap) => Some((mark.at, gap)),
            MarkContent::Event(_) => None,
        })
    }
}

impl ThreadSource<'_> {
    /// Computes the digests of all pieces on `workers` threads, and passes them to `deliver`, in
    /// order. Calls `report_bytes` regularly with the number of bytes done. Blocks until all is
    /// done.
    pub(super) fn digest(
        self,
        workers: usize,
        deliver: &mut dyn FnMut(Digest),
        report_bytes: &mut dyn FnMut(usize),
    ) {
        let stretches = self.stretches();
        let mut done = 0;
        let deliver_stretch = |stretch: &Stretch, digests: Vec<Digest>| {
            digests.into_iter().for_each(&mut *deliver);
            done += stretch.range.len();
            report_bytes(done);
            ControlFlow::<Infallible>::Continue(())
        };
        let digest = |stretch: &Stretch, worker: &mut Worker| self.digest_stretch(stretch, worker);
        let number = AtomicUsize::new(0);
        let worker = || Worker::new(number.fetch_add(1, Ordering::Relaxed));
        let workers = Workers { count: workers, waiting: WAITING_STRETCHES };
        let ControlFlow::Continue(()) =
            workers.in_order(&stretches, worker, digest, deliver_stretch);
    }

    /// Returns the work for all pieces, in order; a lost piece is one stretch.
    fn stretches(&self) -> Vec<Stretch> {
        let of_piece = |(number, piece): (usize, &Piece)| {
            let all = piece.psb..self.bytes(piece).len().min(piece.to);
            let step = if piece.lost { usize::MAX } else { STRETCH_BYTES };
            Stretches { all, step }.map(move |range| Stretch { piece: number, range })
        };
        self.pieces.iter().enumerate().flat_map(of_piece).collect()
    }

    fn bytes(&self, piece: &Piece) -> &[u8] {
        self.traces.get(piece.trace).copied().unwrap_or_default()
    }

    /// Returns the digests of the segments that start in a stretch.
    fn digest_stretch(self, stretch: &Stretch, worker: &mut Worker) -> Vec<Digest> {
        let Some(piece) = self.pieces.get(stretch.piece) else { return Vec::new() };
        let trace = self.bytes(piece);
        if piece.lost {
            let segment = Segment::of_gap(piece.gap());
            let content = Content::from_segment(&segment, &mut worker.tally, self.execs);
            return vec![worker.digest(stretch.piece, (piece.psb, None), content)];
        }
        let mut digests = Vec::new();
        for (psb, end) in segments_in(trace, stretch.range.clone()) {
            let end = end.filter(|end| *end < piece.to);
            let part = piece.part(trace, psb, end);
            let mut walker = Walker::new(&part, self.context, &mut worker.caches);
            // `from_tally` counts blocks before it knows the offset of the next item, so it cannot
            // leave out those before or after a part of a segment.
            let mut content = if part.is_partial {
                Content::from_segment(&Segment::decode(&mut walker), &mut worker.tally, self.execs)
            } else {
                Content::from_tally(&mut walker, &mut worker.tally, self.execs)
            };
            drop(walker);
            // A piece of a shared trace begins at a context switch, whose time is not in the trace.
            if psb == piece.psb && piece.since > Tsc(0) {
                content.times.insert(0, (0, piece.since));
            }
            digests.push(worker.digest(stretch.piece, (psb, end), content));
        }
        digests
    }
}

/// An iterator that divides a range of bytes into ranges of `step` bytes.
#[derive(Clone, Debug)]
pub(super) struct Stretches {
    /// The remaining range.
    pub(super) all: Range<usize>,
    pub(super) step: usize,
}

impl Iterator for Stretches {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.all.start;
        let end = start.saturating_add(self.step).min(self.all.end);
        self.all.start = end.max(start);
        (start < end).then_some(start..end)
    }
}

/// Returns the segments that start in a range of the trace: the offset of each PSB, and that of the
/// PSB after it, which may lie beyond the range.
pub(super) fn segments_in(
    trace: &[u8],
    range: Range<usize>,
) -> impl Iterator<Item = (usize, Option<usize>)> {
    let range_end = range.end;
    let mut from = first_psb(trace, range);
    std::iter::from_fn(move || {
        let psb = from.filter(|psb| *psb < range_end)?;
        from = find_psb(trace, psb + 1);
        Some((psb, from))
    })
}

/// Returns the offset of the first PSB that starts in a range. Stops at the range's end, so that a
/// trace with few PSBs is not searched repeatedly.
fn first_psb(trace: &[u8], range: Range<usize>) -> Option<usize> {
    // If the pattern continues beyond the cut, the PSB found there is not in the range.
    let cut = trace.len().min(range.end + PSB.len() + 1);
    find_psb(trace.get(..cut)?, range.start).filter(|psb| *psb < range.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns traces in which the PSB pattern repeats any number of times, with other bytes in
    /// between.
    fn any_trace() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            (1_usize..30).prop_map(|count| [0x02, 0x82].repeat(count)),
            prop::collection::vec(prop::sample::select(vec![0x02_u8, 0x82, 0]), 1..8),
        ];
        prop::collection::vec(piece, 1..20).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn stretches_find_each_psb_once(trace in any_trace(), size in 1_usize..50) {
            let next = |from: &usize| find_psb(&trace, from + 1);
            let all: Vec<_> = std::iter::successors(find_psb(&trace, 0), next).collect();
            let stretches = Stretches { all: 0..trace.len(), step: size };
            let found: Vec<_> = stretches.flat_map(|range| segments_in(&trace, range)).collect();
            let ends = all.iter().skip(1).copied().map(Some).chain([None]);
            prop_assert_eq!(found, all.iter().copied().zip(ends).collect::<Vec<_>>());
        }
    }
}
