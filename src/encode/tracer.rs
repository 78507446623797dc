//! Sends the encoder items about each thread, in each thread's order: its records as its buffers
//! fill up, and before them the edges that they name. A ring keeps the items until the thread's
//! end.

use super::dictionary::{NewEdges, Paths};
use super::feed::{Feed, Item, Packets, Tally};
use super::lane::Lane;
use super::ranges::Ranges;
use super::ring::Ring;
use super::stopping::has_stop;
use crate::common::Tid;
use crate::engine::{BUFFERS, Busy, Shared};
use crate::translate::Translator;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// The translator of the code that writes the records.
type Code = Translator<Arc<Shared>>;

/// A trace pointer that is not in its thread's buffer: the program overwrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPointer;

/// The tracer of a process: makes packets of the records of its threads.
#[derive(Debug)]
pub struct Tracer {
    feed: Feed,
    shared: Arc<Shared>,
    /// The items that wait for the end of each thread, if only the end of its history is encoded.
    ring: Option<Ring>,
    ranges: Ranges,
    sent: Sent,
    /// The ages of code that the program changed, as pairs of an edge's number and a time, in
    /// order: the code of the edges from this number up to the next pair's is unchanged since that
    /// time. Cleared once the encoder has the edges.
    young: Vec<(usize, u64)>,
}

/// The counts of the translator's items that the encoder was sent so far.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    edges: usize,
    pushes: usize,
    quiet_jumps: usize,
    paths: usize,
}

impl Tracer {
    /// Starts an encoder on a new thread, which calls `prepare` first. If `is_ring` is set, only
    /// the end of each thread's records is encoded, when the thread ends.
    pub fn start(
        shared: Arc<Shared>,
        psb_period_bytes: u32,
        ranges: Ranges,
        is_ring: bool,
        prepare: impl FnOnce() + Send + 'static,
    ) -> Self {
        let feed = Feed::start(Arc::clone(&shared), psb_period_bytes, ranges.clone(), prepare);
        let ring = is_ring.then(Ring::default);
        Self { feed, shared, ring, ranges, sent: Sent::default(), young: Vec::new() }
    }

    /// Starts over after an execve(2): the process has a new program, with one thread, `tid`.
    pub fn new_program(&mut self, tid: Tid, shared: Arc<Shared>) {
        self.shared = Arc::clone(&shared);
        self.feed.send(tid, Item::Program(shared));
        self.sent = Sent::default();
        self.young.clear();
    }

    /// Changes the ranges of traced code, for all threads. `tid` may be any thread: each item names
    /// one.
    pub fn set_ranges(&mut self, tid: Tid, ranges: &Ranges) {
        self.ranges = ranges.clone();
        self.feed.send(tid, Item::Ranges(ranges.clone()));
    }

    /// Notes that the code of the edges from number `first_edge` on is unchanged since `tsc`.
    pub fn code_is_since(&mut self, first_edge: usize, tsc: u64) {
        self.young.push((first_edge, tsc));
    }

    /// Returns true if only the end of each thread's records is kept.
    pub fn is_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Becomes a ring, which keeps only the end of each thread's later records. Returns when the
    /// encoder has read all buffers, so that any may be overwritten.
    pub fn become_ring(&mut self, tid: Tid) {
        self.ring = Some(Ring::default());
        self.feed.settle(tid);
    }

    /// Waits until all items that were sent are encoded, and their packets are ready.
    pub fn settle(&self, tid: Tid) {
        self.feed.settle(tid);
    }

    /// Returns the packets that are ready, without waiting.
    pub fn packets(&self) -> impl Iterator<Item = Packets> + '_ {
        self.feed.packets()
    }

    /// Waits until all is encoded. Returns the last packets, the result of each thread, and whether
    /// records were overwritten.
    pub fn finish(self) -> (Vec<Packets>, HashMap<Tid, Tally>, bool) {
        let (packets, tallies) = self.feed.finish();
        (packets, tallies, self.ring.is_some_and(|ring| ring.overwritten))
    }

    /// Sends the encoder an item about a thread: at once, or if this is a ring, when the thread
    /// ends.
    pub fn send(&mut self, code: &Code, tid: Tid, item: Item) {
        match &mut self.ring {
            Some(ring) => ring.keep(tid, item),
            None => self.send_now(code, tid, item),
        }
    }

    /// Sends a thread's records up to `pointer`, which the program can damage. If it is invalid,
    /// nothing more of the thread is encoded.
    pub fn records(
        &mut self,
        code: &Code,
        lane: &mut Lane,
        pointer: u64,
    ) -> Result<(), BadPointer> {
        self.records_of(code, lane, pointer, None)
    }

    /// Does the same as [`Self::records`], and lets the encoder free a buffer after it.
    fn records_of(
        &mut self,
        code: &Code,
        lane: &mut Lane,
        pointer: u64,
        frees: Option<(Arc<Busy>, usize)>,
    ) -> Result<(), BadPointer> {
        let is_good = lane.holds(pointer);
        if !is_good {
            self.send(code, lane.tid, Item::Damage);
        }
        let pointer = if is_good { pointer } else { lane.unsent };
        let len = usize::try_from(pointer.saturating_sub(lane.unsent)).unwrap_or(0);
        let offset = lane.area.offset_of(lane.unsent);
        lane.unsent = lane.unsent.max(pointer);
        if len > 0 || frees.is_some() {
            self.send(code, lane.tid, Item::Records { offset, len, frees });
        }
        if is_good { Ok(()) } else { Err(BadPointer) }
    }

    /// Sends the records of a full buffer, up to `pointer`, and moves the lane to the next one, as
    /// soon as the encoder has read that; a ring overwrites the oldest records instead. If the
    /// thread's trace has ended in a ring, drops the records and reuses the buffer. `tsc` is the
    /// time now.
    pub fn next_buffer(
        &mut self,
        code: &Code,
        lane: &mut Lane,
        pointer: u64,
        tsc: u64,
    ) -> Result<(), BadPointer> {
        let next = self.next_index(lane);
        if next == lane.buffer {
            lane.unsent = lane.area.buffer(next);
            return Ok(());
        }
        let frees = self.ring.is_none().then(|| (lane.busy.clone(), lane.buffer));
        let stops =
            self.ring.is_some() && has_stop(code, &self.ranges, &self.shared, lane, pointer);
        let sent = self.records_of(code, lane, pointer, frees);
        if let Some(ring) = &mut self.ring
            && lane.busy.taken()[next]
        {
            let after = lane.began[(next + 1) % BUFFERS];
            ring.overwrite(lane.tid, lane.area, next, after);
            lane.busy.free(next);
        }
        lane.busy.take(next);
        lane.began[next] = tsc;
        lane.buffer = next;
        lane.unsent = lane.area.buffer(next);
        // Not earlier: a trace that has ended keeps no items, and these records are part of it.
        if let Some(ring) = self.ring.as_mut().filter(|_| stops) {
            ring.stop(lane.tid);
        }
        sent
    }

    /// Returns the address of a thread's next buffer.
    pub fn next_start(&self, lane: &Lane) -> u64 {
        lane.area.buffer(self.next_index(lane))
    }

    /// Returns the index of the buffer after the one in use; the same one if the thread's trace has
    /// ended.
    fn next_index(&self, lane: &Lane) -> usize {
        let has_stopped = self.ring.as_ref().is_some_and(|ring| ring.has_stopped(lane.tid));
        if has_stopped { lane.buffer } else { (lane.buffer + 1) % BUFFERS }
    }

    /// Sends a running thread's records up to `pointer`, except for the last one, which may yet be
    /// removed. `pointer` is the one that the thread last stored, at its last system call or later.
    /// Returns false if it shows no record that was not sent, or is invalid.
    pub fn records_so_far(
        &mut self,
        code: &Code,
        lane: &mut Lane,
        pointer: u64,
    ) -> Result<bool, BadPointer> {
        if pointer <= lane.unsent || pointer > lane.end() {
            return Ok(false);
        }
        match self.last_record(code, lane, pointer) {
            Some(last) => self.records(code, lane, last).map(|()| true),
            None => Ok(true),
        }
    }

    /// Returns the address of the last record before `pointer`; `None` if no record ends there.
    fn last_record(&self, code: &Code, lane: &Lane, pointer: u64) -> Option<u64> {
        let (mut at, mut last) = (lane.unsent, None);
        while at < pointer {
            let mut number = [0; 4];
            self.shared.read(lane.area.offset_of(at), &mut number);
            let edges = code.edges_from(u32::from_le_bytes(number) as usize);
            last = Some(at);
            at += edges.first()?.kind.record_bytes() as u64;
        }
        last.filter(|_| at == pointer)
    }

    /// Sends the kept items of a thread that ended, and frees its buffers once the encoder has read
    /// them.
    pub fn close(&mut self, code: &Code, lane: &Lane) {
        self.send_kept(code, lane.tid);
        for (index, taken) in lane.busy.taken().into_iter().enumerate() {
            if taken && (self.ring.is_some() || index == lane.buffer) {
                self.send_now(code, lane.tid, Item::Free(lane.busy.clone(), index));
            }
        }
    }

    /// Sends the items that a ring kept of a thread that ended.
    pub fn send_kept(&mut self, code: &Code, tid: Tid) {
        let kept = self.ring.as_mut().map(|ring| ring.take(tid)).unwrap_or_default();
        self.send_all(code, tid, kept);
    }

    /// Sends the items that a ring kept so far of a thread that goes on.
    pub fn send_kept_so_far(&mut self, code: &Code, tid: Tid) {
        let kept = self.ring.as_mut().map(|ring| ring.hand_over(tid)).unwrap_or_default();
        self.send_all(code, tid, kept);
    }

    fn send_all(&mut self, code: &Code, tid: Tid, items: VecDeque<Item>) {
        for item in items {
            self.send_now(code, tid, item);
        }
        self.send_now(code, tid, Item::Flush);
    }

    /// Sends an item about a thread, after all edges that it may refer to.
    fn send_now(&mut self, code: &Code, tid: Tid, item: Item) {
        let edges = code.edges_from(self.sent.edges);
        if !edges.is_empty() {
            let mut edges = edges.to_vec();
            for (changed, tsc) in since(&self.young, self.sent.edges, edges.len()) {
                for edge in edges.get_mut(changed).unwrap_or_default() {
                    edge.since = tsc;
                }
            }
            self.young.clear();
            let pushes = code.return_addresses(self.sent.pushes).to_vec();
            let quiet_jumps = code.quiet_jumps(self.sent.quiet_jumps).to_vec();
            self.sent.edges += edges.len();
            self.sent.pushes += pushes.len();
            self.sent.quiet_jumps += quiet_jumps.len();
            let news = NewEdges { edges, pushes, quiet_jumps, paths: self.new_paths(code) };
            self.feed.send(tid, Item::Edges(news));
        }
        self.feed.send(tid, item);
    }

    /// Returns the paths of superblocks that the encoder was not sent; empty if it needs none.
    fn new_paths(&mut self, code: &Code) -> Vec<Paths> {
        if self.ranges.trace_everything() {
            return Vec::new();
        }
        let sent = std::mem::replace(&mut self.sent.paths, code.superblock_count());
        let new = (sent..self.sent.paths).filter_map(|number| {
            let number = u32::try_from(number).ok()?;
            Some(Paths::new(&code.path(number)))
        });
        new.collect()
    }
}

/// Returns ranges of the `count` edges from number `first` on, each with the time since which its
/// code is unchanged. An entry of `young` holds from its number up to the next entry's; entries are
/// in order. A program that generates code may have as many entries as edges.
fn since(
    young: &[(usize, u64)],
    first: usize,
    count: usize,
) -> impl Iterator<Item = (Range<usize>, u64)> {
    let inside = move |number: usize| number.saturating_sub(first).min(count);
    let ends = young.iter().skip(1).map(|(number, _)| *number).chain([usize::MAX]);
    young.iter().zip(ends).map(move |((number, tsc), end)| (inside(*number)..inside(end), *tsc))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_edge_is_as_old_as_the_last_change_before_it(
            mut young in prop::collection::vec((0_usize..60, 1_u64..99), 0..20),
            reported in 0_usize..40,
            count in 0_usize..40,
        ) {
            young.sort_by_key(|(first, _)| *first);
            let mut found = vec![0; count];
            for (edges, tsc) in since(&young, reported, count) {
                found[edges].fill(tsc);
            }
            let last = |number: usize| young.iter().rev().find(|(first, _)| *first <= number);
            let expected = (reported..reported + count).map(|number| last(number).map_or(0, |(_, tsc)| *tsc));
            prop_assert_eq!(found, expected.collect::<Vec<_>>());
        }
    }
}
