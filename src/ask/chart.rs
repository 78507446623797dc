//! The calls of all threads over a part of the history, for a drawing: the calls that are open at
//! each of a number of columns. So the cost depends on the width of the drawing, not on the length
//! of the run.
//!
//! Each thread is drawn on its own. Its call stack is sampled at the middle of each column, from
//! left to right. A *slice* is a call, or the part of one in one function: the first sample that
//! has it opens it, and the first that does not closes it. So calls between two samples are not
//! seen.

use super::functions::Functions;
use super::opened::Asked;
use super::scale::Scale;
use crate::common::{Addr, Tid};
use crate::sideband::{Event, Record};
use crate::timeline::Frame;
use std::collections::HashMap;

/// The maximum number of columns.
const WIDTH_LIMIT: u64 = 10_000;
/// The maximum number of levels of calls, from the outermost one on.
const LEVELS: usize = 200;
/// The minimum number of columns for each segment of the path (the part from one PSB to the next),
/// if segments are to be decoded. With fewer columns, the starts of the segments are close enough
/// together to be the samples.
const COLUMNS_A_SEGMENT: u64 = 6;

/// A question for the calls in a part of the history.
#[derive(Clone, Copy, Debug)]
pub struct ChartQuestion {
    /// The first position of the part to draw.
    pub from: u64,
    /// The position after the last one of this part.
    pub to: u64,
    /// The number of columns of the drawing.
    pub width: u64,
}

/// A drawing of calls over positions.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// All threads of the run, in the order of their beginnings.
    pub threads: Vec<ChartThread>,
    /// The names of functions, by their numbers.
    pub names: Vec<String>,
    /// The signals whose handlers were executed, or that ended the run: position, thread, signal
    /// number. They are those of the whole run, not only of the part that is drawn.
    pub signals: Vec<(u64, Tid, i32)>,
}

/// A thread of a drawing.
#[derive(Clone, Debug)]
pub struct ChartThread {
    /// The ID of the thread.
    pub tid: Tid,
    /// The name of the thread; empty if it is unknown.
    pub name: String,
    /// The position where the thread begins.
    pub from: u64,
    /// The position after the thread's end.
    pub to: u64,
    /// The ranges of positions in which the thread executes, rounded to columns: first position and
    /// end.
    pub busy: Vec<(u64, u64)>,
    /// The calls that are open in at least one column, not in the order of their beginnings.
    pub slices: Vec<ChartSlice>,
    /// True if calls were left out, as they are deeper than the maximum level.
    pub has_deeper_calls: bool,
}

/// A call, or the part of a call in one function: a tail call begins another slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChartSlice {
    /// The number of open calls around the slice.
    pub level: usize,
    /// The position where the slice begins; it may be before the part of the history that is drawn.
    pub from: u64,
    /// The position after the slice's end, or the end of the part that is drawn.
    pub to: u64,
    /// The index of the function's name in [`Chart::names`].
    pub name: usize,
    /// The number of the first instruction known to be in the slice, counted per thread.
    pub instruction: u64,
    /// True if the call is of a signal's handler.
    pub is_signal: bool,
}

impl Asked {
    /// Draws the calls of all threads. Limits the width to 1 to 10 000 columns, and takes an empty
    /// part for one position. Returns `None` if the user interrupted it.
    pub fn chart(&self, question: ChartQuestion, interrupted: &dyn Fn() -> bool) -> Option<Chart> {
        let width = question.width.clamp(1, WIDTH_LIMIT);
        let to = question.to.max(question.from.saturating_add(1));
        let question = ChartQuestion { to, width, ..question };
        let moments = self.place_moments();
        let functions = self.functions();
        let mut names = Names { functions: &functions, indices: HashMap::new(), list: Vec::new() };
        let (mut threads, mut scales) = (Vec::new(), HashMap::new());
        for tid in self.tids() {
            let scale = scales.entry(tid).or_insert_with(|| self.scale(tid, &moments));
            let drawing = ThreadDrawing { asked: self, tid, scale, question };
            threads.push(drawing.draw(&mut names, interrupted)?);
        }
        threads.sort_by_key(|thread| thread.from);
        Some(Chart { threads, signals: self.signals(&scales), names: names.list })
    }

    /// Returns the signals of the whole run, from the sideband, each with the position of the
    /// thread's next instruction. Leaves out those of threads without a scale.
    fn signals(&self, scales: &HashMap<Tid, Scale<'_>>) -> Vec<(u64, Tid, i32)> {
        let signal = |record: &Record| {
            let Event::Signal { number, .. } = record.event else { return None };
            let (tid, timeline) = (record.tid, &self.timeline);
            let global = timeline.position_after(tid, record.tsc);
            let global = global.unwrap_or_else(|| timeline.total());
            let index = timeline.index_of(tid, global);
            Some((scales.get(&tid)?.position_of(index), tid, number))
        };
        self.timeline.records().iter().filter_map(signal).collect()
    }
}

/// The names of the functions of a drawing, and their indices by address.
struct Names<'a> {
    functions: &'a Functions<'a>,
    indices: HashMap<Addr, usize>,
    list: Vec<String>,
}

impl Names<'_> {
    /// Returns the index of the name of the function at an address. The name is the address itself
    /// if it is in no function.
    fn name_index(&mut self, addr: Addr) -> usize {
        let function = self.functions.at(addr);
        let start = function.as_ref().map_or(addr, |function| function.start);
        *self.indices.entry(start).or_insert_with(|| {
            self.list
                .push(function.map_or_else(|| addr.to_string(), |found| found.name.to_string()));
            self.list.len() - 1
        })
    }
}

/// The call stack of a thread at an instruction.
struct Sample {
    /// The position of the column's middle.
    at: u64,
    /// The number of the instruction, counted per thread.
    index: u64,
    /// The open calls, outermost first, up to the maximum level.
    frames: Vec<Frame>,
    /// The address of the instruction, or of one that executed in the same function.
    pc: Option<Addr>,
    /// True if there are calls deeper than the maximum level.
    has_deeper_calls: bool,
}

/// A slice that is still open at the current column.
struct OpenSlice {
    /// The number of the instruction that called its function; `None` for the outermost function.
    call: Option<u64>,
    slice: ChartSlice,
}

/// The drawing of one thread.
struct ThreadDrawing<'a> {
    asked: &'a Asked,
    tid: Tid,
    scale: &'a Scale<'a>,
    question: ChartQuestion,
}

impl ThreadDrawing<'_> {
    /// Returns the position where a column begins.
    fn column_start(&self, column: u64) -> u64 {
        let ChartQuestion { from, to, width } = self.question;
        let part = u128::from(to - from) * u128::from(column) / u128::from(width);
        from.saturating_add(u64::try_from(part).unwrap_or(u64::MAX))
    }

    /// Samples the call stack at the middle of each column in which the thread exists, and makes
    /// slices of the samples. A column without a new instruction, or with a damaged path, continues
    /// the slices before it. Returns `None` if the user interrupted it.
    fn draw(&self, names: &mut Names<'_>, interrupted: &dyn Fn() -> bool) -> Option<ChartThread> {
        let (from, to) = self.scale.start_and_end();
        let mut thread = self.new_thread(from, to);
        let count = self.asked.timeline.instructions(self.tid);
        let decodes = self.segment_count() <= self.question.width / COLUMNS_A_SEGMENT;
        let mut open: Vec<OpenSlice> = Vec::new();
        let mut last = None;
        for column in 0..self.question.width {
            let (column_start, next) = (self.column_start(column), self.column_start(column + 1));
            let middle = column_start + (next - column_start) / 2;
            if next <= from || column_start >= to || count == 0 {
                close_slices(&mut open, 0, column_start, &mut thread);
                continue;
            }
            let [begins, index, ends] =
                [column_start, middle, next].map(|at| self.scale.index_of(at));
            if begins < ends {
                thread.add_busy(column_start.max(from), next.min(to));
            }
            let index = index.min(count - 1);
            if last == Some(index) {
                continue;
            }
            if interrupted() {
                return None;
            }
            // A damaged path has no segment here.
            let Some(sample) = self.sample_stack(middle, index, decodes) else { continue };
            thread.has_deeper_calls |= sample.has_deeper_calls;
            self.apply_sample(&mut open, &sample, column_start.max(from), names, &mut thread);
            last = Some(index);
        }
        close_slices(&mut open, 0, self.question.to.min(to), &mut thread);
        Some(thread)
    }

    /// Returns the thread with its name, its first position and its end, without slices.
    fn new_thread(&self, from: u64, to: u64) -> ChartThread {
        let manifest = self.asked.timeline.reader().manifest();
        let entries = manifest.end.iter().flat_map(|end| &end.threads);
        let entry = entries.into_iter().find(|entry| entry.tid == self.tid);
        let name = entry.map(|entry| entry.name.clone()).unwrap_or_default();
        let (busy, slices) = (Vec::new(), Vec::new());
        ChartThread { tid: self.tid, name, from, to, busy, slices, has_deeper_calls: false }
    }

    /// Returns the number of segments of the thread's path in this part of the history.
    fn segment_count(&self) -> u64 {
        let [from, to] =
            [self.question.from, self.question.to].map(|position| self.scale.index_of(position));
        self.asked.timeline.segments_between(self.tid, from, to)
    }

    /// Returns the call stack at instruction `index`, or at the start of its segment unless
    /// `decodes`: that needs no decoding. `None` if it is unknown.
    fn sample_stack(&self, at: u64, index: u64, decodes: bool) -> Option<Sample> {
        let (timeline, tid) = (&self.asked.timeline, self.tid);
        let (index, mut frames, pc) = if decodes {
            (index, timeline.call_stack(tid, index), timeline.pc(tid, index))
        } else {
            let (start, frames) = timeline.call_stack_near(tid, index)?;
            let entry = frames.first().map(|frame| frame.entry);
            let pc = entry.or_else(|| timeline.outermost_near(tid, start));
            (start, frames, pc)
        };
        frames.reverse();
        let has_deeper_calls = frames.len() >= LEVELS;
        // The function at the last level is the one from which the next level was called.
        let pc = frames.get(LEVELS - 1).map(|frame| frame.site).or(pc);
        frames.truncate(LEVELS - 1);
        Some(Sample { at, index, frames, pc, has_deeper_calls })
    }

    /// Ends the open slices that are not in a sample, and begins those that are new in it.
    /// `column_start` is the position where the sample's column begins.
    fn apply_sample(
        &self,
        open: &mut Vec<OpenSlice>,
        sample: &Sample,
        column_start: u64,
        names: &mut Names<'_>,
        thread: &mut ChartThread,
    ) {
        for level in 0..=sample.frames.len() {
            let frame = level.checked_sub(1).and_then(|outer| sample.frames.get(outer));
            let inner = sample.frames.get(level).map(|frame| frame.site);
            let Some(at) = inner.or(sample.pc) else { break };
            let (call, name) = (frame.map(|frame| frame.index), names.name_index(at));
            let known = open.get(level).filter(|open| open.call == call);
            if known.is_some_and(|known| known.slice.name == name) {
                continue;
            }
            // After a jump to another function, the call is the same.
            let is_new_call = known.is_none();
            let (from, instruction) = match frame {
                Some(frame) if is_new_call => {
                    // A call begins at its call instruction: after it, the thread may have waited
                    // for others.
                    let called = self.scale.position_of(frame.index).min(sample.at);
                    (called, frame.index + u64::from(!frame.signal))
                }
                _ => {
                    let inner = sample.frames.get(level);
                    let called =
                        inner.map_or(column_start, |inner| self.scale.position_of(inner.index));
                    (column_start.min(called), sample.index)
                }
            };
            close_slices(open, level, column_start.min(from), thread);
            let is_signal = frame.is_some_and(|frame| frame.signal);
            let slice = ChartSlice { level, from, to: from, name, instruction, is_signal };
            open.push(OpenSlice { call, slice });
        }
        close_slices(open, sample.frames.len() + 1, column_start, thread);
    }
}

/// Ends the open slices from a level on, at position `to`, and adds them to the thread.
fn close_slices(open: &mut Vec<OpenSlice>, level: usize, to: u64, thread: &mut ChartThread) {
    for OpenSlice { slice, .. } in open.drain(level.min(open.len())..) {
        thread.slices.push(ChartSlice { to: to.max(slice.from), ..slice });
    }
}

impl ChartThread {
    /// Adds the positions `from..to` of a column in which the thread executes; joins them to the
    /// last range if they touch. Columns must be added in order.
    fn add_busy(&mut self, from: u64, to: u64) {
        match self.busy.last_mut() {
            Some(last) if last.1 >= from => last.1 = to,
            _ => self.busy.push((from, to)),
        }
    }
}
