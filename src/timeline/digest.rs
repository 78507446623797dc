//! What the index keeps of each segment, made on all cores and handed over in order. What is in
//! memory at once is bounded: a worker that is ahead waits.

use super::blocks::Bounds;
use super::effects::{Effect, Effects};
use super::images::Images;
use super::segment::{Segment, What};
use super::walk::{Caches, Walker};
use crate::common::Tsc;
use crate::flow::Gap;
use crate::pt::{PSB, find_psb};
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// A worker takes the segments that start in so many bytes of trace at a time.
const STRETCH_BYTES: usize = 128 << 10;
/// Stretches that a worker may be ahead.
const AHEAD: usize = 8;

/// A trace with what decoding it needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) trace: &'a [u8],
    pub(super) images: &'a Images,
    /// When another program began.
    pub(super) execs: &'a [Tsc],
}

/// What the index keeps of a segment. Instructions are counted from its start.
#[derive(Debug)]
pub(super) struct Digest {
    pub(super) start: usize,
    pub(super) end: Option<usize>,
    pub(super) insns: u64,
    pub(super) blocks: Vec<Bounds>,
    pub(super) times: Vec<(u64, Tsc)>,
    pub(super) gaps: Vec<(u64, Gap)>,
    pub(super) effects: Vec<Effect>,
}

impl Digest {
    fn new(bounds: (usize, Option<usize>), segment: &Segment, execs: &[Tsc]) -> Self {
        let mut blocks: Vec<Bounds> = segment.blocks.iter().map(|b| (b.ip, b.last)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        Self {
            start: bounds.0,
            end: bounds.1,
            insns: segment.insns,
            blocks,
            times: segment.times().collect(),
            gaps: segment.gaps().collect(),
            effects: Effects::of(segment, segment.insns, execs),
        }
    }
}

impl Segment {
    /// The holes, each with the number of the next instruction.
    pub(super) fn gaps(&self) -> impl Iterator<Item = (u64, Gap)> {
        self.marks.iter().filter_map(|mark| match mark.what {
            What::Gap(gap) => Some((mark.at, gap)),
            What::Event(_) => None,
        })
    }
}

impl Source<'_> {
    /// Gives the digests of the whole trace to `take`, in order. Told to `passed` now and then: the
    /// offset up to which the trace is done.
    pub(super) fn digest(
        self,
        workers: usize,
        take: &mut dyn FnMut(Digest),
        passed: &mut dyn FnMut(usize),
    ) {
        let stretches = self.trace.len().div_ceil(STRETCH_BYTES);
        let mut join = |stretch: usize, digests: Vec<Digest>| {
            digests.into_iter().for_each(&mut *take);
            passed(self.trace.len().min((stretch + 1) * STRETCH_BYTES));
        };
        let workers = workers.clamp(1, stretches.max(1));
        if workers == 1 {
            let mut caches = Caches::default();
            for stretch in 0..stretches {
                join(stretch, self.stretch(stretch, &mut caches));
            }
            return;
        }
        std::thread::scope(|scope| {
            let start = |worker| {
                let (sender, results) = sync_channel(AHEAD);
                scope.spawn(move || self.work((worker..stretches).step_by(workers), &sender));
                results
            };
            let results: Vec<Receiver<_>> = (0..workers).map(start).collect();
            for (stretch, results) in (0..stretches).zip(results.iter().cycle()) {
                // A worker that is gone panicked, which the scope passes on.
                let Ok(digests) = results.recv() else { break };
                join(stretch, digests);
            }
        });
    }

    fn work(self, stretches: impl Iterator<Item = usize>, results: &SyncSender<Vec<Digest>>) {
        let mut caches = Caches::default();
        for stretch in stretches {
            if results.send(self.stretch(stretch, &mut caches)).is_err() {
                return;
            }
        }
    }

    /// The segments that start in a stretch.
    fn stretch(self, number: usize, caches: &mut Caches) -> Vec<Digest> {
        let start = number * STRETCH_BYTES;
        let mut from = first_psb(self.trace, start..start + STRETCH_BYTES);
        let mut digests = Vec::new();
        while let Some(psb) = from.filter(|psb| *psb < start + STRETCH_BYTES) {
            let end = find_psb(self.trace, psb + 1);
            let mut walker = Walker::new(self.trace, psb, end, self.images, caches);
            let segment = Segment::decode(&mut walker);
            digests.push(Digest::new((psb, end), &segment, self.execs));
            from = end;
        }
        digests
    }
}

/// The first PSB that starts in a range. Looks no further, so that a trace with few of them is
/// not searched again and again.
fn first_psb(trace: &[u8], range: Range<usize>) -> Option<usize> {
    // Where the pattern goes on behind the cut, the last PSB before it is taken: not in range.
    let cut = trace.len().min(range.end + PSB.len() + 1);
    find_psb(trace.get(..cut)?, range.start).filter(|psb| *psb < range.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs of the pattern of all lengths, with other bytes between them.
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
            let mut found = Vec::new();
            for start in (0..trace.len()).step_by(size) {
                let mut at = first_psb(&trace, start..start + size);
                while let Some(psb) = at.filter(|psb| *psb < start + size) {
                    found.push(psb);
                    at = find_psb(&trace, psb + 1);
                }
            }
            prop_assert_eq!(found, all);
        }
    }
}
