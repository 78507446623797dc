//! Sends the encoder items about each thread, in each thread's order: its records as its buffers
//! fill up, and before them the edges that they name. If the tracer is a *ring*, which records only
//! the end of each thread's history, it keeps the items until the thread's end, or until a
//! snapshot, instead. A *trace pointer* is the address in its buffer at which a thread writes its
//! next record.
//!
//! A program may change its code. The edges that are translated afterwards hold since a known time
//! only ([`Tracer::set_code_time`]). Edges are sent late, right before the next item, and get their
//! time then (`Edge::since`); `code_times` keeps the times until that.

use super::dictionary::{NewEdges, Paths};
use super::feed::{Feed, Packets, TraceItem, TraceResult};
use super::ranges::Ranges;
use super::ring::Ring;
use super::stopping::leads_to_trace_stop;
use super::thread_buffers::ThreadBuffers;
use crate::common::Tid;
use crate::engine::{BUFFERS, BusyBuffers, Shared};
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
    /// The items that wait for the end of each thread; `None` if this is not a ring.
    ring: Option<Ring>,
    ranges: Ranges,
    sent: Sent,
    /// The times since which changed code is unchanged: pairs of an edge's number and a time, in
    /// order. The time holds for the edges from that number up to the next pair's. Cleared when
    /// the next edges are sent.
    code_times: Vec<(usize, u64)>,
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
    /// Starts an encoder on a new thread of the recorder, which calls `prepare` first. If `is_ring`
    /// is set, only the end of each thread's records is encoded, when the thread ends or its items
    /// are sent for a snapshot.
    pub fn start(
        shared: Arc<Shared>,
        psb_period_bytes: u32,
        ranges: Ranges,
        is_ring: bool,
        prepare: impl FnOnce() + Send + 'static,
    ) -> Self {
        let feed = Feed::start(Arc::clone(&shared), psb_period_bytes, ranges.clone(), prepare);
        let ring = is_ring.then(Ring::default);
        Self { feed, shared, ring, ranges, sent: Sent::default(), code_times: Vec::new() }
    }

    /// Starts over after an execve(2): the process has a new program, with one thread, `tid`, and
    /// another shared memory and translator. Takes effect at once, also in a ring: send the items
    /// that it keeps before ([`Self::send_kept`]), or they are encoded with the new program's edges
    /// and memory.
    pub fn new_program(&mut self, tid: Tid, shared: Arc<Shared>) {
        self.shared = Arc::clone(&shared);
        self.feed.send(tid, TraceItem::NewProgram(shared));
        self.sent = Sent::default();
        self.code_times.clear();
    }

    /// Changes the ranges of traced code, for all threads. `tid` may be any thread: each item names
    /// one. Takes effect at once: it also holds for items that a ring keeps and sends later.
    pub fn set_ranges(&mut self, tid: Tid, ranges: &Ranges) {
        self.ranges = ranges.clone();
        self.feed.send(tid, TraceItem::Ranges(ranges.clone()));
    }

    /// Sets the time since which the code of the edges from number `first_edge` on is unchanged.
    /// Must be called before an item that may refer to these edges is sent, and with numbers that
    /// ascend from call to call.
    pub fn set_code_time(&mut self, first_edge: usize, tsc: u64) {
        self.code_times.push((first_edge, tsc));
    }

    /// Returns true if only the end of each thread's records is kept.
    pub fn is_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Becomes a ring, which keeps only the end of each thread's later records. Waits until the
    /// encoder has read all buffers, so that any may be overwritten. `tid` may be any thread. Must
    /// not be a ring already: its items would be lost.
    pub fn become_ring(&mut self, tid: Tid) {
        self.ring = Some(Ring::default());
        self.feed.wait_until_encoded(tid);
    }

    /// Waits until all items that were sent are encoded, and their packets are ready. Items that a
    /// ring keeps are not sent yet. `tid` may be any thread.
    pub fn wait_until_encoded(&self, tid: Tid) {
        self.feed.wait_until_encoded(tid);
    }

    /// Removes and returns the packets that are ready, without waiting.
    pub fn packets(&self) -> impl Iterator<Item = Packets> + '_ {
        self.feed.packets()
    }

    /// Waits until all sent items are encoded, and ends the encoder. Returns the last packets, the
    /// result of each thread, and true if a ring overwrote records. Items that a ring still keeps
    /// are lost. Without results, the encoder panicked, or had no thread.
    pub fn finish(self) -> (Vec<Packets>, HashMap<Tid, TraceResult>, bool) {
        let (packets, results) = self.feed.finish();
        (packets, results, self.ring.is_some_and(|ring| ring.overwritten))
    }

    /// Sends the encoder an item about a thread at once. A ring keeps it instead, until the thread
    /// ends or [`Self::send_kept_so_far`]. It drops the item together with later records that are
    /// overwritten, and at once if the thread's trace has ended.
    pub fn send(&mut self, code: &Code, tid: Tid, item: TraceItem) {
        match &mut self.ring {
            Some(ring) => ring.keep(tid, item),
            None => self.send_now(code, tid, item),
        }
    }

    /// Sends a thread's records that were not sent yet, up to its trace pointer `pointer`, which
    /// the program can damage. If it is outside the buffer in use, sends none and fails, and
    /// nothing more of the thread is encoded. If it is in the buffer, but before the unsent
    /// records, sends none and succeeds.
    pub fn send_records(
        &mut self,
        code: &Code,
        buffers: &mut ThreadBuffers,
        pointer: u64,
    ) -> Result<(), BadPointer> {
        self.send_records_freeing(code, buffers, pointer, None)
    }

    /// Does the same as [`Self::send_records`], and lets the encoder free a buffer, if `frees` has
    /// one, once it has read the records.
    fn send_records_freeing(
        &mut self,
        code: &Code,
        buffers: &mut ThreadBuffers,
        pointer: u64,
        frees: Option<(Arc<BusyBuffers>, usize)>,
    ) -> Result<(), BadPointer> {
        let is_good = buffers.holds(pointer);
        if !is_good {
            self.send(code, buffers.tid, TraceItem::BadPointer);
        }
        let pointer = if is_good { pointer } else { buffers.unsent };
        let len = usize::try_from(pointer.saturating_sub(buffers.unsent)).unwrap_or(0);
        let offset = buffers.area.offset_of(buffers.unsent);
        buffers.unsent = buffers.unsent.max(pointer);
        if len > 0 || frees.is_some() {
            self.send(code, buffers.tid, TraceItem::Records { offset, len, frees });
        }
        if is_good { Ok(()) } else { Err(BadPointer) }
    }

    /// Sends the records of a full buffer, up to `pointer`, and makes the thread's next buffer the
    /// one in use. Waits until the encoder has read that one; in a ring, that one has the oldest
    /// records: drops them instead. If the thread's trace has ended in a ring, drops the new
    /// records and reuses the same buffer. `tsc` is the time now. Fails at an invalid pointer, but
    /// moves on nevertheless.
    pub fn move_to_next_buffer(
        &mut self,
        code: &Code,
        buffers: &mut ThreadBuffers,
        pointer: u64,
        tsc: u64,
    ) -> Result<(), BadPointer> {
        let next = self.next_index(buffers);
        if next == buffers.current {
            buffers.unsent = buffers.area.buffer(next);
            return Ok(());
        }
        let frees = self.ring.is_none().then(|| (buffers.busy.clone(), buffers.current));
        let has_stopped = self.ring.is_some()
            && buffers.holds(pointer)
            && leads_to_trace_stop(code, &self.ranges, &self.shared, buffers, pointer);
        let sent = self.send_records_freeing(code, buffers, pointer, frees);
        if let Some(ring) = &mut self.ring
            && buffers.busy.in_use()[next]
        {
            // The buffer after it has the oldest records that stay: the history begins there.
            let oldest_left_began = buffers.began[(next + 1) % BUFFERS];
            ring.forget_overwritten(buffers.tid, buffers.area, next, oldest_left_began);
            buffers.busy.free(next);
        }
        buffers.busy.take(next);
        buffers.began[next] = tsc;
        buffers.current = next;
        buffers.unsent = buffers.area.buffer(next);
        // Not before the records were sent: they are part of the trace, and after `stop`, the ring
        // drops all items (`Ring::keep`).
        if let Some(ring) = self.ring.as_mut().filter(|_| has_stopped) {
            ring.stop(buffers.tid);
        }
        sent
    }

    /// Returns the address of the buffer that [`Self::move_to_next_buffer`] would make the one in
    /// use: the next one, or in a ring the same one if the thread's trace has ended.
    pub fn next_buffer_start(&self, buffers: &ThreadBuffers) -> u64 {
        buffers.area.buffer(self.next_index(buffers))
    }

    /// Returns the index of the buffer after the one in use; in a ring, the same one if the
    /// thread's trace has ended.
    fn next_index(&self, buffers: &ThreadBuffers) -> usize {
        let has_stopped = self.ring.as_ref().is_some_and(|ring| ring.has_stopped(buffers.tid));
        if has_stopped { buffers.current } else { (buffers.current + 1) % BUFFERS }
    }

    /// Sends a running thread's records up to `pointer`, except for the last one, which the thread
    /// may yet remove. `pointer` is the one that the thread last stored, at its last system call or
    /// later. It is not trusted, but a bad one is no error: it may be out of date, and a later send
    /// checks it. Returns true if there may be records that were not sent before: then sends them,
    /// but for the last one, and none if no record ends at `pointer`. Returns false, and sends
    /// nothing, if `pointer` shows no unsent record or is beyond the buffer. Never fails.
    pub fn send_records_so_far(
        &mut self,
        code: &Code,
        buffers: &mut ThreadBuffers,
        pointer: u64,
    ) -> Result<bool, BadPointer> {
        if pointer <= buffers.unsent || pointer > buffers.end() {
            return Ok(false);
        }
        match self.last_record(code, buffers, pointer) {
            Some(last) => self.send_records(code, buffers, last).map(|()| true),
            None => Ok(true),
        }
    }

    /// Returns the address of the last unsent record before `pointer`; `None` if no record ends at
    /// `pointer`, or one before it names an unknown edge.
    fn last_record(&self, code: &Code, buffers: &ThreadBuffers, pointer: u64) -> Option<u64> {
        let (mut at, mut last) = (buffers.unsent, None);
        while at < pointer {
            let mut number = [0; 4];
            self.shared.read(buffers.area.offset_of(at), &mut number);
            let edges = code.edges_from(u32::from_le_bytes(number) as usize);
            last = Some(at);
            at += edges.first()?.kind.record_bytes() as u64;
        }
        last.filter(|_| at == pointer)
    }

    /// Sends the items that a ring kept of a thread that ended, requests its packets, and lets the
    /// encoder free the thread's buffers once it has read them. Does not wait. The thread's last
    /// records must have been sent before.
    pub fn close_thread(&mut self, code: &Code, buffers: &ThreadBuffers) {
        self.send_kept(code, buffers.tid);
        for (index, taken) in buffers.busy.in_use().into_iter().enumerate() {
            if taken && (self.ring.is_some() || index == buffers.current) {
                self.send_now(
                    code,
                    buffers.tid,
                    TraceItem::FreeBuffer(buffers.busy.clone(), index),
                );
            }
        }
    }

    /// Sends the items that a ring kept of a thread that ended, if this is a ring, and requests the
    /// thread's packets.
    pub fn send_kept(&mut self, code: &Code, tid: Tid) {
        let kept = self.ring.as_mut().map(|ring| ring.take_of_ended(tid)).unwrap_or_default();
        self.send_all(code, tid, kept);
    }

    /// Sends the items that a ring kept so far of a thread that goes on, if this is a ring, and
    /// requests the thread's packets. The ring no longer has the items.
    pub fn send_kept_so_far(&mut self, code: &Code, tid: Tid) {
        let kept = self.ring.as_mut().map(|ring| ring.take_so_far(tid)).unwrap_or_default();
        self.send_all(code, tid, kept);
    }

    /// Sends items of a thread, and requests its packets.
    fn send_all(&mut self, code: &Code, tid: Tid, items: VecDeque<TraceItem>) {
        for item in items {
            self.send_now(code, tid, item);
        }
        self.send_now(code, tid, TraceItem::Flush);
    }

    /// Sends an item about a thread at once, after all edges that it may refer to.
    fn send_now(&mut self, code: &Code, tid: Tid, item: TraceItem) {
        let edges = code.edges_from(self.sent.edges);
        if !edges.is_empty() {
            let mut edges = edges.to_vec();
            // `code_times` ends up in the edges: the encoder knows no other times of code.
            for (changed, tsc) in edges_with_times(&self.code_times, self.sent.edges, edges.len()) {
                for edge in edges.get_mut(changed).unwrap_or_default() {
                    edge.since = tsc;
                }
            }
            self.code_times.clear();
            let pushes = code.return_addresses(self.sent.pushes).to_vec();
            let quiet_jumps = code.quiet_jumps(self.sent.quiet_jumps).to_vec();
            self.sent.edges += edges.len();
            self.sent.pushes += pushes.len();
            self.sent.quiet_jumps += quiet_jumps.len();
            let news = NewEdges { edges, pushes, quiet_jumps, paths: self.new_paths(code) };
            self.feed.send(tid, TraceItem::NewEdges(news));
        }
        self.feed.send(tid, item);
    }

    /// Returns the paths of superblocks that the encoder was not sent yet, and marks them as sent;
    /// empty if all code is traced, as no paths are needed then.
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

/// Splits the `count` edges from number `first` on into ranges with the same time since which their
/// code is unchanged. The ranges count from `first`; edges before the first pair of `code_times`
/// are in none. A program that generates code may have as many pairs as edges.
fn edges_with_times(
    code_times: &[(usize, u64)],
    first: usize,
    count: usize,
) -> impl Iterator<Item = (Range<usize>, u64)> {
    let inside = move |number: usize| number.saturating_sub(first).min(count);
    let ends = code_times.iter().skip(1).map(|(number, _)| *number).chain([usize::MAX]);
    code_times
        .iter()
        .zip(ends)
        .map(move |((number, tsc), end)| (inside(*number)..inside(end), *tsc))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_edge_is_as_old_as_the_last_change_before_it(
            mut code_times in prop::collection::vec((0_usize..60, 1_u64..99), 0..20),
            reported in 0_usize..40,
            count in 0_usize..40,
        ) {
            code_times.sort_by_key(|(first, _)| *first);
            let mut found = vec![0; count];
            for (edges, tsc) in edges_with_times(&code_times, reported, count) {
                found[edges].fill(tsc);
            }
            let last = |number: usize| code_times.iter().rev().find(|(first, _)| *first <= number);
            let expected = (reported..reported + count).map(|number| last(number).map_or(0, |(_, tsc)| *tsc));
            prop_assert_eq!(found, expected.collect::<Vec<_>>());
        }
    }
}
