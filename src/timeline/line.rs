//! The timeline: queries of the instructions that each thread executed. [`open`](super::open)
//! creates a timeline from a recording. A thread's instructions are numbered from 0 (`index`); a
//! position `global` is a number in the order of all threads. A query decodes the *segment* of its
//! instruction, the part of the trace from one PSB packet to the next, and keeps it in a cache.

use super::call_stack::{Calls, MissingFrames};
use super::effects::Effects;
use super::images::Images;
use super::index::SegmentEntry;
use super::order::{Order, Slice};
use super::piece::{DecodeContext, Piece};
use super::saved::ThreadPath;
use super::segment::{NextAddr, Segment};
use super::stack::Frame;
use super::walk::{BlockCaches, Walker};
use crate::common::{Addr, Pid, Tid, Tsc};
use crate::flow::{Config, Gap, GapReason};
use crate::recording::{self, BackendName, Reader, Trace};
use crate::sideband::Record;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// An open recording whose instructions can be queried by thread and by position.
#[derive(Debug)]
pub struct Timeline {
    pub(super) reader: Reader,
    pub(super) records: Vec<Record>,
    pub(super) images: Images,
    /// The settings with which the traces were recorded.
    pub(super) config: Config,
    pub(super) traces: Vec<Trace>,
    /// The errors of stored images that are missing from the recording.
    pub(super) missing_images: Vec<recording::Error>,
    pub(super) threads: Vec<Thread>,
    pub(super) order: Order,
    pub(super) cache: Mutex<Cache>,
    /// True if the index was read from the recording, not built.
    pub(super) had_saved_index: bool,
}

/// A thread that has a trace, and its path.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) tid: Tid,
    pub(super) path: ThreadPath,
    /// The times of the thread's exec(2) calls, in ascending order.
    pub(super) execs: Vec<Tsc>,
    /// The gaps of the path, each with the number of the next instruction. If the index was read
    /// from the recording, they are found on first use: it notes only which segments contain gaps.
    pub(super) gaps: OnceLock<Vec<(u64, Gap)>>,
    /// The final address that the recorder noted, if any.
    pub(super) final_pc: Option<Addr>,
}

impl Thread {
    /// Returns a gap for the whole path if the thread has trace bytes but no PSB, the packet at
    /// which decoding can start; `None` otherwise.
    pub(super) fn gap_without_psb(&self) -> Option<Gap> {
        let some = self.path.pieces.iter().any(|piece| piece.size_bytes() > 0);
        let lost = self.path.index.entries.is_empty() && some;
        lost.then_some(Gap { offset: 0, last_ip: None, reason: GapReason::NoPsb })
    }

    /// Returns the piece of a trace to which a segment belongs.
    pub(super) fn piece(&self, entry: &SegmentEntry) -> Option<&Piece> {
        self.path.pieces.get(entry.piece)
    }
}

/// The maximum number of segments, from the last one back, searched for a thread's final address.
const SEGMENTS_AT_END: usize = 64;

impl Timeline {
    /// Returns the reader of the recording.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Returns the sideband's records of the operating system's actions.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the images of the mapped code over time.
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// Returns the errors of stored images that are missing from the recording.
    pub fn missing_images(&self) -> &[recording::Error] {
        &self.missing_images
    }

    /// Returns the IDs of the threads that have a trace, in the order of their indexes.
    pub fn threads(&self) -> impl Iterator<Item = Tid> {
        self.threads.iter().map(|thread| thread.tid)
    }

    /// Returns a thread's process; the recording's first process if the manifest does not list the
    /// thread.
    pub fn process_of(&self, tid: Tid) -> Pid {
        let manifest = self.reader.manifest();
        let mut entries = manifest.end.iter().flat_map(|end| &end.threads);
        entries.find(|entry| entry.tid == tid).map_or(manifest.pid, |entry| entry.pid)
    }

    /// Returns the number of instructions of all threads.
    pub fn total(&self) -> u64 {
        self.order.total()
    }

    /// Returns the number of instructions that a thread executed; 0 for an unknown thread.
    pub fn instructions(&self, tid: Tid) -> u64 {
        self.thread(tid).map_or(0, |(_, thread)| thread.path.index.insns)
    }

    /// Returns the trace of a thread; `None` if it shares traces with other threads, as in traces of
    /// CPUs, or is unknown.
    pub fn trace(&self, tid: Tid) -> Option<&Trace> {
        self.whole_trace(self.thread(tid)?.1)
    }

    /// Returns the trace that only this thread executed; `None` if the thread has pieces of shared
    /// traces.
    pub(super) fn whole_trace(&self, thread: &Thread) -> Option<&Trace> {
        let [piece] = thread.path.pieces.as_slice() else { return None };
        self.traces.get(piece.trace).filter(|trace| piece.is_whole(trace.as_ref().len()))
    }

    /// Returns the trace offset of the PSB at which decoding starts to reach the thread's
    /// instruction `index`, and the offset of the next PSB if the thread's path continues there.
    /// Returns `None` if the thread has no such instruction.
    pub fn segment_bounds(&self, tid: Tid, index: u64) -> Option<(usize, Option<usize>)> {
        let (_, thread) = self.thread(tid)?;
        let entry = thread.path.index.entries.get(thread.path.index.entry_with(index)?)?;
        Some((entry.start, entry.end))
    }

    /// Returns the number of segments of a thread's trace.
    pub fn segments(&self, tid: Tid) -> usize {
        self.thread(tid).map_or(0, |(_, thread)| thread.path.index.entries.len())
    }

    /// Returns the thread that executes instruction `global`, counted over all threads; `None`
    /// after the last one.
    pub fn running_at(&self, global: u64) -> Option<Tid> {
        self.tid_of(self.order.slice_at(global)?)
    }

    /// Returns the thread that executed the last instruction before position `global`; `None` at 0.
    pub fn running_before(&self, global: u64) -> Option<Tid> {
        self.tid_of(self.order.slice_at(global.checked_sub(1)?)?)
    }

    fn tid_of(&self, slice: &Slice) -> Option<Tid> {
        self.threads.get(slice.thread).map(|thread| thread.tid)
    }

    /// Returns the number of instructions that a thread executed before position `global`: the
    /// `index` of its next one. Returns 0 for an unknown thread.
    pub fn index_of(&self, tid: Tid, global: u64) -> u64 {
        self.thread(tid).map_or(0, |(number, _)| self.order.index_of(number, global))
    }

    /// Returns the position of a thread's instruction `index` in the order of all threads; `None`
    /// if the thread did not execute so many.
    pub fn global_of(&self, tid: Tid, index: u64) -> Option<u64> {
        let (number, _) = self.thread(tid)?;
        self.order.global_of(number, index)
    }

    /// Returns the start time of the slice of the order of all threads that contains position
    /// `global`: the latest time in that thread's trace. `None` before the first time.
    pub fn time_at(&self, global: u64) -> Option<Tsc> {
        self.order.slice_at_or_before(global).map(|slice| slice.tsc).filter(|tsc| tsc.0 > 0)
    }

    /// Returns the time range in which a thread executed its instruction `index`, if another thread
    /// may have executed instructions in the same range, in an unknown order; `None` if the order
    /// is certain.
    pub fn overlap(&self, tid: Tid, index: u64) -> Option<(Tsc, Tsc)> {
        // The step backend runs one thread at a time, with a time at each change.
        if self.reader.manifest().capture.backend == BackendName::Step {
            return None;
        }
        let (number, _) = self.thread(tid)?;
        self.order.overlap(number, index)
    }

    /// Returns the first and the last time of the traces; `None` if they contain no times.
    pub fn times(&self) -> Option<(Tsc, Tsc)> {
        self.order.times()
    }

    /// Returns the address of a thread's instruction `index`; for the index right after the last
    /// instruction, the thread's final address. `None` if that is unknown, or beyond.
    pub fn pc(&self, tid: Tid, index: u64) -> Option<Addr> {
        let (number, thread) = self.thread(tid)?;
        if index >= thread.path.index.insns {
            let at_end = index == thread.path.index.insns;
            return at_end.then(|| self.final_pc(number, thread))?;
        }
        let at = thread.path.index.entry_with(index)?;
        let first = thread.path.index.entries.get(at)?.first;
        self.segment(number, at)?.addr(index - first)
    }

    /// Returns true if a thread's instruction `index` and the next one belong to the same
    /// activation of a function: no call, no return, and no interruption in between. Returns false
    /// if the segment of `index` does not show that.
    pub fn stays_in_activation(&self, tid: Tid, index: u64) -> bool {
        let place = || {
            let (number, thread) = self.thread(tid)?;
            let at = thread.path.index.entry_with(index)?;
            let first = thread.path.index.entries.get(at)?.first;
            Some(self.segment(number, at)?.stays_in_activation(index - first))
        };
        place().unwrap_or(false)
    }

    /// Returns the address at which a thread ended, as the recorder noted it. Without a note, it is
    /// taken from the trace, unless the recording is cut: its recorder was killed.
    fn final_pc(&self, number: usize, thread: &Thread) -> Option<Addr> {
        if thread.final_pc.is_some() || self.reader.is_cut() {
            return thread.final_pc;
        }
        self.traced_end(number, thread)
    }

    /// Returns the address of the instruction that follows a thread's path, if the trace has it,
    /// whatever the recorder noted.
    pub fn path_end(&self, tid: Tid) -> Option<Addr> {
        let (number, thread) = self.thread(tid)?;
        self.traced_end(number, thread)
    }

    /// Returns the address after the last segment in which something executed or tracing changed;
    /// `None` if that segment does not show it, or is not among the last ones.
    fn traced_end(&self, number: usize, thread: &Thread) -> Option<Addr> {
        // Tracing may have been off in the last segments.
        let segments = (0..thread.path.index.entries.len()).rev().take(SEGMENTS_AT_END);
        let segments = segments.map_while(|at| self.segment(number, at));
        let end = segments
            .map(|segment| segment.next_addr())
            .find(|end| *end != NextAddr::SameAsStart)?;
        if let NextAddr::Known(addr) = end { Some(addr) } else { None }
    }

    /// Returns the call stack of a thread before its instruction `index`, innermost frame first, as
    /// far as the path shows it; empty for an unknown thread.
    pub fn call_stack(&self, tid: Tid, index: u64) -> Vec<Frame> {
        self.calls(tid, index).map(|calls| calls.stack.frames().collect()).unwrap_or_default()
    }

    /// Returns the index of the first instruction of the segment with instruction `index`, and the
    /// call stack there, innermost frame first. `None` if the thread has no such instruction.
    /// Nothing is decoded.
    pub fn call_stack_near(&self, tid: Tid, index: u64) -> Option<(u64, Vec<Frame>)> {
        let (_, thread) = self.thread(tid)?;
        let entry = thread.path.index.entries.get(thread.path.index.entry_with(index)?)?;
        Some((entry.first, entry.calls.stack.frames().collect()))
    }

    /// Returns the address of the path's first instruction, if the function in which the path begins
    /// is still the outermost one at the start of the segment with instruction `index`; `None`
    /// otherwise.
    pub fn outermost_near(&self, tid: Tid, index: u64) -> Option<Addr> {
        let (_, thread) = self.thread(tid)?;
        let entry = thread.path.index.entries.get(thread.path.index.entry_with(index)?)?;
        let is_whole = entry.calls.missing == MissingFrames::Nothing && entry.calls.execs == 0;
        self.pc(tid, 0).filter(|_| is_whole)
    }

    /// Returns the number of segments that contain some of the thread's instructions `from..to`; 0
    /// for an unknown thread.
    pub fn segments_between(&self, tid: Tid, from: u64, to: u64) -> u64 {
        let Some((_, thread)) = self.thread(tid) else { return 0 };
        let entries = &thread.path.index.entries;
        let first = entries.partition_point(|entry| entry.first + entry.insns <= from);
        let end = entries.partition_point(|entry| entry.first < to);
        end.saturating_sub(first) as u64
    }

    /// Returns the kind of the frames that are missing outside the [`call_stack`](Self::call_stack)
    /// of a thread before its instruction `index`. Some are always missing if the path before
    /// `index` contains neither the thread's birth nor an exec(2).
    pub fn missing_frames(&self, tid: Tid, index: u64) -> MissingFrames {
        let Some(calls) = self.calls(tid, index) else { return MissingFrames::Nothing };
        let is_known = calls.execs > 0 || calls.missing != MissingFrames::Nothing;
        if is_known || self.begins_at_birth(tid) {
            calls.missing
        } else {
            MissingFrames::BeforeHistory
        }
    }

    /// Returns the call stack before a thread's instruction `index`, or at the end of its path if
    /// there is no such instruction.
    fn calls(&self, tid: Tid, index: u64) -> Option<Calls> {
        let (number, thread) = self.thread(tid)?;
        let last = thread.path.index.entries.len().checked_sub(1)?;
        let at = thread.path.index.entry_with(index).unwrap_or(last);
        let entry = thread.path.index.entries.get(at)?;
        let mut calls = entry.calls.clone();
        if let Some(segment) = self.segment(number, at) {
            let limit = (index - entry.first).min(segment.insns);
            let effects = Effects::of(&segment, limit, &thread.execs);
            calls.apply(&effects, entry.first, &|addr| self.images.function_at(addr));
        }
        Some(calls)
    }

    /// Returns the gaps of a thread's path, each with the index of the next instruction; none for an
    /// unknown thread. If the index was read from the recording, the first call decodes the
    /// segments with gaps.
    pub fn gaps(&self, tid: Tid) -> &[(u64, Gap)] {
        let Some((number, thread)) = self.thread(tid) else { return &[] };
        thread.gaps.get_or_init(|| self.find_gaps(number, thread))
    }

    /// Returns the gaps of a path, each with the number of the next instruction: that of a trace
    /// without a PSB, and those in segments that have some, which it decodes.
    fn find_gaps(&self, number: usize, thread: &Thread) -> Vec<(u64, Gap)> {
        let entries =
            thread.path.index.entries.iter().enumerate().filter(|(_, entry)| entry.has_gaps);
        let of_entry = |(at, entry): (usize, &SegmentEntry)| {
            let segment = self.segment(number, at);
            let gaps = segment.iter().flat_map(|segment| segment.gaps());
            gaps.map(|(at, gap)| (entry.first + at, gap)).collect::<Vec<_>>()
        };
        thread
            .gap_without_psb()
            .map(|gap| (0, gap))
            .into_iter()
            .chain(entries.flat_map(of_entry))
            .collect()
    }

    /// Returns the inputs of decoding besides the traces.
    pub(super) fn decode_context(&self) -> DecodeContext<'_> {
        DecodeContext { images: &self.images, config: &self.config }
    }

    /// Returns a thread and its index in the timeline; `None` for an unknown thread.
    pub(super) fn thread(&self, tid: Tid) -> Option<(usize, &Thread)> {
        self.threads.iter().enumerate().find(|(_, thread)| thread.tid == tid)
    }

    /// Returns segment `number` of the thread with index `thread`, from the cache or decoded, with
    /// the cache locked: one thread decodes at a time.
    pub(super) fn segment(&self, thread: usize, number: usize) -> Option<Arc<Segment>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(segment) = cache.get((thread, number)) {
            return Some(segment);
        }
        let of = self.threads.get(thread)?;
        let bounds = of.path.index.entries.get(number)?;
        let piece = of.piece(bounds)?;
        let segment = if piece.lost {
            Segment::of_gap(piece.gap())
        } else {
            let trace = self.traces.get(piece.trace)?.as_ref();
            let part = piece.part(trace, bounds.start, bounds.end);
            Segment::decode(&mut Walker::new(&part, self.decode_context(), &mut cache.blocks))
        };
        let segment = Arc::new(segment);
        cache.put((thread, number), segment.clone());
        Some(segment)
    }
}

/// A cache of decoded segments, which drops the least recently used ones beyond a size limit.
#[derive(Debug)]
pub(super) struct Cache {
    /// The segments by thread and number, each with the value of `clock` at its last use.
    segments: HashMap<(usize, usize), (u64, Arc<Segment>)>,
    blocks: BlockCaches,
    /// The number of lookups so far.
    clock: u64,
    size_bytes: usize,
    limit_bytes: usize,
}

impl Cache {
    pub(super) fn new(limit_bytes: usize) -> Self {
        let (segments, blocks) = (HashMap::new(), BlockCaches::default());
        Self { segments, blocks, clock: 0, size_bytes: 0, limit_bytes }
    }

    fn get(&mut self, key: (usize, usize)) -> Option<Arc<Segment>> {
        self.clock += 1;
        let (used, segment) = self.segments.get_mut(&key)?;
        *used = self.clock;
        Some(segment.clone())
    }

    /// Adds a segment. Over the limit, drops the least recently used ones, but keeps one.
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
