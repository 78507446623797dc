//! Visits of a thread's whole history in order, for dumps and exports.

use super::block_code::BlockCode;
use super::line::Timeline;
use super::piece::DecodeContext;
use super::walk::{BlockCaches, Walker};
use crate::common::Tid;
use crate::flow::{Config, Event, FlowItem, Gap, Meter, Span, Timing};
use crate::image::Image;
use crate::pt::TimeEstimate;
use crate::recording::Trace;
use std::cell::RefCell;
use std::ops::ControlFlow;

/// The number of blocks, or a few more, that are decoded before they are visited: they stay in the
/// CPU's first cache.
const BLOCKS_AT_ONCE: usize = 256;

/// One item of a thread's history.
pub enum Visit<'a> {
    /// Instructions in a straight line.
    Block {
        /// The number of the first instruction, counted per thread.
        index: u64,
        /// The block.
        span: Span,
        /// The code of the block.
        code: &'a BlockCode<'a>,
        /// The times of the trace's clock, if requested.
        moment: &'a Timing,
    },
    /// An event between two instructions.
    Event {
        /// The number of the next instruction.
        index: u64,
        /// The event.
        event: Event,
        /// The times of the trace's clock, if requested.
        moment: Timing,
    },
    /// A gap in the path.
    Gap {
        /// The number of the next instruction.
        index: u64,
        /// The gap, with its reason and the last known address.
        gap: Gap,
        /// The image at that time, if known.
        image: Option<&'a Image>,
    },
}

impl Timeline {
    /// Passes the items of a thread's history to `visitor` in order, until it breaks. Begins at the
    /// start of the segment of instruction `from`, perhaps with earlier instructions; for 0, with
    /// everything before the first instruction, too. Visits nothing if there is no such
    /// instruction. Items have no times ([`Self::visit_timed`]).
    pub fn visit<B>(
        &self,
        tid: Tid,
        from: u64,
        visitor: &mut dyn FnMut(Visit<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.visit_with(tid, from, &self.config, visitor)
    }

    /// Visits a thread's history like [`Self::visit`], with the times of the trace's clock. Slower.
    pub fn visit_timed<B>(
        &self,
        tid: Tid,
        from: u64,
        visitor: &mut dyn FnMut(Visit<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.visit_with(tid, from, &self.config_with_clock(), visitor)
    }

    /// Returns the estimated time at which a thread was about to execute its instruction `index`,
    /// from the packets around it. Returns `None` if there is no time before the instruction in its
    /// segment.
    pub fn time(&self, tid: Tid, index: u64) -> Option<TimeEstimate> {
        let found = self.visit_timed(tid, index, &mut |visit| match visit {
            Visit::Block { index: first, span, moment, .. }
                if index < first + u64::from(span.insns) =>
            {
                ControlFlow::Break(moment.time)
            }
            _ => ControlFlow::Continue(()),
        });
        found.break_value().flatten()
    }

    /// Returns the decoder's settings for a visit with the times of the trace's clock.
    fn config_with_clock(&self) -> Config {
        let clocks = self.reader.manifest().capture.clocks().unwrap_or_default();
        Config { clock: Some(clocks), ..self.config.clone() }
    }

    /// Visits like [`Self::visit`], with times if `config` has a clock.
    fn visit_with<B>(
        &self,
        tid: Tid,
        from: u64,
        config: &Config,
        visitor: &mut dyn FnMut(Visit<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut blocks = Vec::new();
        self.walk_segments(tid, from, config, &mut |mut index, segment| match segment {
            SegmentWalk::Lost(gap) => visitor(Visit::Gap { index, gap, image: None }),
            SegmentWalk::Walker(walker) if config.clock.is_none() => {
                visit_blocks(walker, &mut index, &mut blocks, visitor)
            }
            SegmentWalk::Walker(walker) => visit_items(walker, index, visitor),
        })
    }

    /// Passes the segments of a thread, from the one with instruction `from` on, to `walk`, each
    /// with the index of its first instruction, until `walk` breaks. Passes none if there is no
    /// such instruction. Nothing is decoded before `walk` uses the walker.
    pub(super) fn walk_segments<B>(
        &self,
        tid: Tid,
        from: u64,
        config: &Config,
        walk: &mut dyn FnMut(u64, SegmentWalk<'_, '_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let Some((_, thread)) = self.thread(tid) else { return ControlFlow::Continue(()) };
        let mut caches = BlockCaches::default();
        // The first segments may consist of gaps only.
        let start = if from == 0 { Some(0) } else { thread.path.index.entry_with(from) };
        let start = start.unwrap_or(thread.path.index.entries.len());
        if let Some(gap) = thread.gap_without_psb() {
            walk(0, SegmentWalk::Lost(gap))?;
        }
        let mut releaser = self.whole_trace(thread).map(Trace::releaser);
        for entry in thread.path.index.entries.get(start..).unwrap_or_default() {
            let Some(piece) = thread.piece(entry) else { continue };
            if piece.lost {
                walk(entry.first, SegmentWalk::Lost(piece.gap()))?;
                continue;
            }
            if let Some(releaser) = &mut releaser {
                releaser.release_before(entry.start);
            }
            let trace = self.traces.get(piece.trace).map(AsRef::as_ref).unwrap_or_default();
            let part = piece.part(trace, entry.start, entry.end);
            let context = DecodeContext { config, ..self.decode_context() };
            let mut walker = Walker::new(&part, context, &mut caches);
            walk(entry.first, SegmentWalk::Walker(&mut walker))?;
        }
        ControlFlow::Continue(())
    }
}

/// A segment, as [`Timeline::walk_segments`] passes it.
pub(super) enum SegmentWalk<'a, 'w> {
    /// The segment is this gap: its piece is lost.
    Lost(Gap),
    /// A walker of the segment.
    Walker(&'w mut Walker<'a>),
}

/// Visits the items of a segment, whose first instruction is the thread's instruction `index`.
fn visit_items<B>(
    walker: &mut Walker<'_>,
    mut index: u64,
    visitor: &mut dyn FnMut(Visit<'_>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let mut meter = Meter::default();
    while let Some(item) = walker.next() {
        match item {
            FlowItem::Block(span) => {
                let last = walker.last(&span);
                let moment = meter.timing_of(walker.decoder(), &item, last);
                let generation = walker.generation();
                let source = RefCell::new(&mut *walker);
                let code = &BlockCode::new(&span, &source, generation);
                visitor(Visit::Block { index, span, code, moment: &moment })?;
                index += u64::from(span.insns);
            }
            FlowItem::Event(event) => {
                let moment = meter.timing_of(walker.decoder(), &item, None);
                visitor(Visit::Event { index, event, moment })?;
            }
            FlowItem::Gap(gap) => {
                meter.timing_of(walker.decoder(), &item, None);
                visitor(Visit::Gap { index, gap, image: walker.image() })?;
            }
        }
    }
    ControlFlow::Continue(())
}

/// Visits the items of a segment without times, which allows to decode many blocks at a time.
/// `blocks` is a buffer to reuse.
fn visit_blocks<B>(
    walker: &mut Walker<'_>,
    index: &mut u64,
    blocks: &mut Vec<Span>,
    visitor: &mut dyn FnMut(Visit<'_>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let moment = Timing::default();
    loop {
        blocks.clear();
        let item = walker.some_blocks_until_mark(&mut |spans| {
            blocks.extend_from_slice(spans);
            blocks.len() < BLOCKS_AT_ONCE
        });
        let generation = walker.generation();
        let source = RefCell::new(&mut *walker);
        for span in blocks.iter() {
            let code = &BlockCode::new(span, &source, generation);
            visitor(Visit::Block { index: *index, span: *span, code, moment: &moment })?;
            *index += u64::from(span.insns);
        }
        let ControlFlow::Break(item) = item else { continue };
        let Some(item) = item else { return ControlFlow::Continue(()) };
        walker.process_mark(&item);
        let index = *index;
        match item {
            FlowItem::Event(event) => visitor(Visit::Event { index, event, moment })?,
            FlowItem::Gap(gap) => visitor(Visit::Gap { index, gap, image: walker.image() })?,
            FlowItem::Block(_) => {}
        }
    }
}
