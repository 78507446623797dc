//! Visits of a thread's whole history in order, for dumps and exports.

use super::block_code::BlockCode;
use super::line::Timeline;
use super::piece::World;
use super::walk::{Caches, Walker};
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
    /// Visits a thread's history until the visitor breaks. Begins with the segment of instruction
    /// `from`, which may contain earlier instructions.
    pub fn visit<B>(
        &self,
        tid: Tid,
        from: u64,
        visitor: &mut dyn FnMut(Visit<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.visit_with(tid, from, &self.config, visitor)
    }

    /// Visits a thread's history like [`Self::visit`], with the times of the trace's clock.
    pub fn visit_timed<B>(
        &self,
        tid: Tid,
        from: u64,
        visitor: &mut dyn FnMut(Visit<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.visit_with(tid, from, &self.timed(), visitor)
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
    fn timed(&self) -> Config {
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
            Segment::Hole(gap) => visitor(Visit::Gap { index, gap, image: None }),
            Segment::Walker(walker) if config.clock.is_none() => {
                visit_blocks(walker, &mut index, &mut blocks, visitor)
            }
            Segment::Walker(walker) => visit_items(walker, index, visitor),
        })
    }

    /// Walks the segments of a thread from the one with instruction `from`; none if there is no
    /// such instruction. Passes each segment, with the number of its first instruction, to `walk`,
    /// until `walk` breaks.
    pub(super) fn walk_segments<B>(
        &self,
        tid: Tid,
        from: u64,
        config: &Config,
        walk: &mut dyn FnMut(u64, Segment<'_, '_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let Some((_, thread)) = self.thread(tid) else { return ControlFlow::Continue(()) };
        let mut caches = Caches::default();
        // The first segments may consist of gaps only.
        let start = if from == 0 { Some(0) } else { thread.path.index.entry_of(from) };
        let start = start.unwrap_or(thread.path.index.entries.len());
        if let Some(gap) = thread.no_psb() {
            walk(0, Segment::Hole(gap))?;
        }
        let mut releaser = self.whole_trace(thread).map(Trace::releaser);
        for entry in thread.path.index.entries.get(start..).unwrap_or_default() {
            let Some(piece) = thread.piece(entry) else { continue };
            if piece.lost {
                walk(entry.first, Segment::Hole(piece.hole()))?;
                continue;
            }
            if let Some(releaser) = &mut releaser {
                releaser.pass(entry.start);
            }
            let trace = self.traces.get(piece.trace).map(AsRef::as_ref).unwrap_or_default();
            let part = piece.part(trace, entry.start, entry.end);
            let world = World { config, ..self.world() };
            let mut walker = Walker::new(&part, world, &mut caches);
            walk(entry.first, Segment::Walker(&mut walker))?;
        }
        ControlFlow::Continue(())
    }
}

/// A segment, as [`Timeline::walk_segments`] passes it.
pub(super) enum Segment<'a, 'w> {
    /// The segment is lost.
    Hole(Gap),
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
                let moment = meter.moment(walker.decoder(), &item, last);
                let generation = walker.generation();
                let source = RefCell::new(&mut *walker);
                let code = &BlockCode::new(&span, &source, generation);
                visitor(Visit::Block { index, span, code, moment: &moment })?;
                index += u64::from(span.insns);
            }
            FlowItem::Event(event) => {
                let moment = meter.moment(walker.decoder(), &item, None);
                visitor(Visit::Event { index, event, moment })?;
            }
            FlowItem::Gap(gap) => {
                meter.moment(walker.decoder(), &item, None);
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
        let item = walker.list_some(&mut |spans| {
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
        walker.note(&item);
        let index = *index;
        match item {
            FlowItem::Event(event) => visitor(Visit::Event { index, event, moment })?,
            FlowItem::Gap(gap) => visitor(Visit::Gap { index, gap, image: walker.image() })?,
            FlowItem::Block(_) => {}
        }
    }
}
