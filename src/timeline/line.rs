//! The timeline itself: answers what was executed where. How one is opened is in
//! [`open`](super::open).

use super::effects::Effects;
use super::images::Images;
use super::index::{Entry, Index};
use super::order::{Order, Slice};
use super::segment::Segment;
use super::stack::Frame;
use super::walk::{Caches, Walker};
use crate::common::{Addr, Pid, Tid, Tsc};
use crate::flow::{Gap, GapReason};
use crate::recording::{self, Reader, Trace};
use crate::sideband::Record;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A recording as a line.
#[derive(Debug)]
pub struct Timeline {
    pub(super) reader: Reader,
    pub(super) records: Vec<Record>,
    pub(super) images: Images,
    pub(super) lost: Vec<recording::Error>,
    pub(super) threads: Vec<Thread>,
    pub(super) order: Order,
    pub(super) cache: Mutex<Cache>,
    /// The index came from the recording, and was not built.
    pub(super) was_saved: bool,
}

/// A thread of the timeline.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) tid: Tid,
    pub(super) trace: Trace,
    pub(super) index: Index,
    /// When another program began.
    pub(super) execs: Vec<Tsc>,
    /// The holes, as soon as they are known: a saved index tells only where to look for them.
    pub(super) gaps: OnceLock<Vec<(u64, Gap)>>,
    pub(super) final_pc: Option<Addr>,
}

impl Thread {
    /// The hole that a trace is in which decoding can start nowhere.
    pub(super) fn no_psb(&self) -> Option<Gap> {
        let lost = self.index.entries.is_empty() && !self.trace.as_ref().is_empty();
        lost.then_some(Gap { offset: 0, last_ip: None, reason: GapReason::NoPsb })
    }
}

impl Timeline {
    /// The recording.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// What the operating system did.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The code over time.
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// Stored images that are gone from the recording.
    pub fn lost_images(&self) -> &[recording::Error] {
        &self.lost
    }

    /// The threads that have a trace.
    pub fn threads(&self) -> impl Iterator<Item = Tid> {
        self.threads.iter().map(|thread| thread.tid)
    }

    /// A thread's process.
    pub fn process_of(&self, tid: Tid) -> Pid {
        let manifest = self.reader.manifest();
        let mut entries = manifest.end.iter().flat_map(|end| &end.threads);
        entries.find(|entry| entry.tid == tid).map_or(manifest.pid, |entry| entry.pid)
    }

    /// Instructions of all threads.
    pub fn total(&self) -> u64 {
        self.order.total()
    }

    /// Instructions of a thread.
    pub fn instructions(&self, tid: Tid) -> u64 {
        self.thread(tid).map_or(0, |(_, thread)| thread.index.insns)
    }

    /// The PT bytes of a thread.
    pub fn trace(&self, tid: Tid) -> Option<&[u8]> {
        self.thread(tid).map(|(_, thread)| thread.trace.as_ref())
    }

    /// The trace offset from which the thread's instruction `index` is decoded, and that of the
    /// next PSB.
    pub fn segment_bounds(&self, tid: Tid, index: u64) -> Option<(usize, Option<usize>)> {
        let (_, thread) = self.thread(tid)?;
        let entry = thread.index.entries.get(thread.index.entry_of(index)?)?;
        Some((entry.start, entry.end))
    }

    /// How many segments a thread's trace has.
    pub fn segments(&self, tid: Tid) -> usize {
        self.thread(tid).map_or(0, |(_, thread)| thread.index.entries.len())
    }

    /// The thread that executes instruction `global`.
    pub fn running_at(&self, global: u64) -> Option<Tid> {
        self.tid_of(self.order.slice_at(global)?)
    }

    /// The thread that executed the last instruction before `global`.
    pub fn running_before(&self, global: u64) -> Option<Tid> {
        self.tid_of(self.order.slice_at(global.checked_sub(1)?)?)
    }

    fn tid_of(&self, slice: &Slice) -> Option<Tid> {
        self.threads.get(slice.thread).map(|thread| thread.tid)
    }

    /// How many instructions a thread executed before `global`.
    pub fn index_of(&self, tid: Tid, global: u64) -> u64 {
        self.thread(tid).map_or(0, |(number, _)| self.order.index_of(number, global))
    }

    /// The place among all of a thread's instruction `index`.
    pub fn global_of(&self, tid: Tid, index: u64) -> Option<u64> {
        let (number, _) = self.thread(tid)?;
        self.order.global_of(number, index)
    }

    /// The time that the trace told last before instruction `global`.
    pub fn time_at(&self, global: u64) -> Option<Tsc> {
        self.order.slice_before(global).map(|slice| slice.tsc).filter(|tsc| tsc.0 > 0)
    }

    /// The address of a thread's instruction `index`; behind the last one, where the thread stood
    /// at its end.
    pub fn pc(&self, tid: Tid, index: u64) -> Option<Addr> {
        let (number, thread) = self.thread(tid)?;
        if index >= thread.index.insns {
            return thread.final_pc.filter(|_| index == thread.index.insns);
        }
        let entry = thread.index.entry_of(index)?;
        let first = thread.index.entries.get(entry)?.first;
        self.segment(number, entry)?.addr(index - first)
    }

    /// The activations that a thread is in before its instruction `index`, innermost first.
    pub fn call_stack(&self, tid: Tid, index: u64) -> Vec<Frame> {
        let Some((number, thread)) = self.thread(tid) else { return Vec::new() };
        let Some(last) = thread.index.entries.len().checked_sub(1) else { return Vec::new() };
        let at = thread.index.entry_of(index).unwrap_or(last);
        let Some(entry) = thread.index.entries.get(at) else { return Vec::new() };
        let mut calls = entry.calls.clone();
        if let Some(segment) = self.segment(number, at) {
            let limit = (index - entry.first).min(segment.insns);
            calls.apply(&Effects::of(&segment, limit, &thread.execs), entry.first);
        }
        calls.stack.frames().collect()
    }

    /// Where a thread's path has holes: before which instruction, and why.
    pub fn gaps(&self, tid: Tid) -> &[(u64, Gap)] {
        let Some((number, thread)) = self.thread(tid) else { return &[] };
        thread.gaps.get_or_init(|| self.find_gaps(number, thread))
    }

    fn find_gaps(&self, number: usize, thread: &Thread) -> Vec<(u64, Gap)> {
        let entries = thread.index.entries.iter().enumerate().filter(|(_, entry)| entry.has_gaps);
        let of_entry = |(at, entry): (usize, &Entry)| {
            let segment = self.segment(number, at);
            let gaps = segment.iter().flat_map(|segment| segment.gaps());
            gaps.map(|(at, gap)| (entry.first + at, gap)).collect::<Vec<_>>()
        };
        thread.no_psb().map(|gap| (0, gap)).into_iter().chain(entries.flat_map(of_entry)).collect()
    }

    pub(super) fn thread(&self, tid: Tid) -> Option<(usize, &Thread)> {
        self.threads.iter().enumerate().find(|(_, thread)| thread.tid == tid)
    }

    /// A decoded segment, out of the cache where it is there.
    pub(super) fn segment(&self, thread: usize, entry: usize) -> Option<Arc<Segment>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(segment) = cache.get((thread, entry)) {
            return Some(segment);
        }
        let of = self.threads.get(thread)?;
        let bounds = of.index.entries.get(entry)?;
        let trace = of.trace.as_ref();
        let mut walker =
            Walker::new(trace, bounds.start, bounds.end, &self.images, &mut cache.blocks);
        let segment = Arc::new(Segment::decode(&mut walker));
        drop(walker);
        cache.put((thread, entry), segment.clone());
        Some(segment)
    }
}

/// Decoded segments, the least recently used ones dropped when they grow too many.
#[derive(Debug)]
pub(super) struct Cache {
    segments: HashMap<(usize, usize), (u64, Arc<Segment>)>,
    blocks: Caches,
    clock: u64,
    size_bytes: usize,
    limit_bytes: usize,
}

impl Cache {
    pub(super) fn new(limit_bytes: usize) -> Self {
        let (segments, blocks) = (HashMap::new(), Caches::default());
        Self { segments, blocks, clock: 0, size_bytes: 0, limit_bytes }
    }

    fn get(&mut self, key: (usize, usize)) -> Option<Arc<Segment>> {
        self.clock += 1;
        let (used, segment) = self.segments.get_mut(&key)?;
        *used = self.clock;
        Some(segment.clone())
    }

    fn put(&mut self, key: (usize, usize), segment: Arc<Segment>) {
        self.size_bytes += segment.size_bytes();
        self.segments.insert(key, (self.clock, segment));
        while self.size_bytes > self.limit_bytes && self.segments.len() > 1 {
            let oldest = self.segments.iter().min_by_key(|(_, (used, _))| *used);
            let Some(key) = oldest.map(|(key, _)| *key) else { return };
            if let Some((_, dropped)) = self.segments.remove(&key) {
                self.size_bytes -= dropped.size_bytes();
            }
        }
    }
}
