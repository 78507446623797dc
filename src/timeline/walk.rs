//! Decoding of a segment with the code of its time. This is the only place that combines the
//! decoder's clock with the sideband's: at each time in the trace, a [`Walker`] switches to the
//! epoch of that time, in which the mapped code stays the same.
//!
//! A walker of a part of a segment, that of one thread in the trace of a CPU, decodes from before
//! the part, and skips the items there ([`Stage`]). A part has three offsets: code is decoded from
//! `start`, shown from `from`, and the part ends at `to`.
//!
//! Of the functions that advance, [`Walker::next`] and [`Walker::tally_until_mark`] process events
//! and gaps themselves. The caller of the other two passes these to [`Walker::process_mark`].

use super::images::Images;
use super::piece::{DecodeContext, Part};
use crate::common::{Addr, Tsc};
use crate::flow::{
    BlockCache, CallWatch, Code, Decoder, Event, EventKind, ExecutedCode, FlowItem, GapReason,
    Last, Span,
};
use crate::image::{CodeSource, Image};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// Block caches by generation of the code; a worker keeps one over all segments that it decodes.
#[derive(Debug, Default)]
pub(super) struct BlockCaches {
    by_generation: HashMap<u32, BlockCache>,
}

/// The maximum number of generations kept: programs that generate code go through thousands.
const GENERATIONS_LIMIT: usize = 8;

impl BlockCaches {
    /// Removes the cache of a generation, and returns it; an empty one if there is none.
    fn take(&mut self, generation: u32) -> BlockCache {
        self.by_generation.remove(&generation).unwrap_or_default()
    }

    /// Keeps a cache. At the limit, drops all others.
    fn put(&mut self, generation: u32, cache: BlockCache) {
        if self.by_generation.len() >= GENERATIONS_LIMIT {
            self.by_generation.clear();
        }
        self.by_generation.insert(generation, cache);
    }
}

/// An iterator over the items of one segment, or of the part of it that one thread executed.
pub(super) struct Walker<'a> {
    decoder: Decoder<'a>,
    images: &'a Images,
    caches: &'a mut BlockCaches,
    epoch: usize,
    /// The code of the epoch; `None` if the recording has no image at all.
    code: Option<Code<'a>>,
    /// True if code was missing in the epoch: blocks that end at missing code are valid in this
    /// epoch only.
    lacks_code: bool,
    /// The earliest valid time; earlier times in the trace are raised to it.
    since: Tsc,
    /// The limits of a partial walk; `None` for a whole segment.
    limits: Option<PartLimits<'a>>,
}

/// The limits of the walk of a part of a segment.
struct PartLimits<'a> {
    part: Part<'a>,
    context: DecodeContext<'a>,
    stage: Stage,
}

/// The progress of the walk of a part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Items precede the part and only establish the state at its beginning.
    Before,
    Inside,
    Done,
}

impl<'a> Walker<'a> {
    /// Returns a walker of a part of a segment, or of a whole one, at its beginning.
    pub(super) fn new(
        part: &Part<'a>,
        context: DecodeContext<'a>,
        caches: &'a mut BlockCaches,
    ) -> Self {
        let stage = if part.from > part.start { Stage::Before } else { Stage::Inside };
        let limits = part.is_partial.then_some(PartLimits { part: *part, context, stage });
        let mut walker = Self {
            decoder: part.decoder(part.start, context.config),
            images: context.images,
            caches,
            epoch: 0,
            code: None,
            lacks_code: false,
            since: part.since,
            limits,
        };
        walker.load_epoch(0);
        if part.since > Tsc(0) {
            walker.switch_to_time(part.since);
        }
        walker
    }

    /// Returns the next item; `None` at the end of the segment or part. At a time in the trace,
    /// switches to the code of that time.
    #[inline]
    pub(super) fn next(&mut self) -> Option<FlowItem> {
        let item = if self.limits.is_some() { self.next_in_part() } else { self.decode_next() };
        match &item {
            None | Some(FlowItem::Block(_)) => {}
            Some(other) => self.process_mark(other),
        }
        item
    }

    /// Returns the next event or gap, and passes the blocks before it to `show`, several at a time;
    /// `None` at the end. The code stays that of the time before the item, so that the caller can
    /// read the blocks' code, until it calls [`Self::process_mark`] with the item.
    pub(super) fn blocks_until_mark(&mut self, show: &mut impl FnMut(&[Span])) -> Option<FlowItem> {
        if self.limits.is_none() {
            return self.decoder.list_spans(self.code.as_mut()?, show);
        }
        loop {
            match self.next_in_part()? {
                FlowItem::Block(span) => show(&[span]),
                item => return Some(item),
            }
        }
    }

    /// Passes blocks to `show` like [`Self::blocks_until_mark`], and breaks with the next event or
    /// gap, or `None` at the end. Ends earlier with [`ControlFlow::Continue`] if `show` returns
    /// false; the next call goes on there.
    pub(super) fn some_blocks_until_mark(
        &mut self,
        show: &mut impl FnMut(&[Span]) -> bool,
    ) -> ControlFlow<Option<FlowItem>> {
        if self.limits.is_none() {
            let Some(code) = self.code.as_mut() else { return ControlFlow::Break(None) };
            return self.decoder.list_spans_while(code, show);
        }
        loop {
            match self.next_in_part() {
                Some(FlowItem::Block(span)) => {
                    if !show(&[span]) {
                        return ControlFlow::Continue(());
                    }
                }
                item => return ControlFlow::Break(item),
            }
        }
    }

    /// Returns the next item that the decoder finds, whether inside the part or not.
    #[inline]
    fn decode_next(&mut self) -> Option<FlowItem> {
        self.decoder.next(self.code.as_mut()?)
    }

    /// Returns the next item of a part; skips the items before the part, and ends after it. If a
    /// gap precedes the part, decodes the part from its own packets alone. Returns a gap for the
    /// part if none of its items is found.
    fn next_in_part(&mut self) -> Option<FlowItem> {
        loop {
            let item = self.decode_next();
            let Some(limits) = &mut self.limits else { return item };
            let offset = item.as_ref().and_then(offset);
            let is_over = item.is_none() || offset.is_some_and(|at| at >= limits.part.to as u64);
            let begins = offset.is_some_and(|at| at >= limits.part.from as u64);
            match limits.stage {
                Stage::Done => return None,
                stage if is_over => {
                    limits.stage = Stage::Done;
                    return (stage == Stage::Before).then_some(limits.part.gap_item());
                }
                Stage::Inside => return item,
                Stage::Before if begins => {
                    limits.stage = Stage::Inside;
                    return item;
                }
                Stage::Before => {
                    // The state is lost here.
                    if let Some(FlowItem::Gap(_)) = item {
                        limits.stage = Stage::Inside;
                        self.decoder = limits.part.decoder(limits.part.from, limits.context.config);
                    }
                    if let Some(item) = &item {
                        self.process_mark(item);
                    }
                }
            }
        }
    }

    /// Returns the next event or gap, `None` at the end; adds the instructions before it to
    /// `tally`, and passes their calls and returns to `watch`. At a time, switches to the code of
    /// that time. Must not be called for a part of a segment.
    pub(super) fn tally_until_mark(
        &mut self,
        tally: &mut ExecutedCode,
        watch: &mut impl CallWatch,
    ) -> Option<FlowItem> {
        let code = self.code.as_mut()?;
        let item = self.decoder.collect_code_watched(code, tally, watch);
        if let Some(item) = &item {
            self.process_mark(item);
        }
        item
    }

    /// Processes an event or gap that [`Self::blocks_until_mark`] or
    /// [`Self::some_blocks_until_mark`] returned: at a time, switches to the code of that time; at
    /// a gap for lack of code, notes that the epoch's blocks must not be kept.
    #[cold]
    pub(super) fn process_mark(&mut self, item: &FlowItem) {
        match item {
            FlowItem::Event(Event { kind: EventKind::Tsc(at), .. }) => self.switch_to_time(*at),
            FlowItem::Gap(gap) if matches!(gap.reason, GapReason::NoCode(_)) => {
                self.lacks_code = true;
            }
            _ => {}
        }
    }

    /// Returns the addresses of a span that was just returned.
    pub(super) fn addrs(&mut self, span: &Span) -> impl Iterator<Item = Addr> {
        let addrs = self.code.as_mut().map(|code| code.addrs(span.ip, span.mode, span.insns));
        addrs.into_iter().flatten()
    }

    /// Returns the last instruction of a span that was just returned; `None` if its code is
    /// unknown.
    pub(super) fn last(&mut self, span: &Span) -> Option<Last> {
        self.code.as_mut()?.last(span)
    }

    /// Returns true if an instruction of a span that was just returned loads the stack pointer.
    pub(super) fn loads_sp(&mut self, span: &Span) -> bool {
        self.code.as_mut().is_some_and(|code| code.loads_sp(span))
    }

    /// Returns the decoder, at the walk's present place.
    pub(super) fn decoder(&self) -> &Decoder<'a> {
        &self.decoder
    }

    /// Copies code bytes of the current time; returns how many are known, 0 if the recording has no
    /// image.
    pub(super) fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        self.image().map_or(0, |image| image.read(addr, buf))
    }

    /// Returns the image of the current time, the first one for earlier times; `None` if the
    /// recording has no image.
    pub(super) fn image(&self) -> Option<&'a Image> {
        self.images.epochs().get(self.epoch).map(|epoch| epoch.image.as_ref())
    }

    /// Returns the index of the current epoch in [`Images::epochs`].
    pub(super) fn epoch(&self) -> usize {
        self.epoch
    }

    /// Returns the generation of the code of the current time; 0 if the recording has no image.
    pub(super) fn generation(&self) -> u32 {
        self.images.epochs().get(self.epoch).map_or(0, |epoch| epoch.generation)
    }

    /// Switches to the code of a time, if it belongs to another epoch.
    fn switch_to_time(&mut self, at: Tsc) {
        let epoch = self.images.epoch_at(at.max(self.since));
        if epoch != self.epoch {
            self.store_blocks();
            self.load_epoch(epoch);
        }
    }

    /// Loads the code of an epoch, with the blocks known of its generation.
    fn load_epoch(&mut self, number: usize) {
        self.epoch = number;
        self.code = self.images.epochs().get(number).map(|epoch| {
            Code::with_cache(epoch.image.as_ref(), self.caches.take(epoch.generation))
        });
    }

    /// Keeps the blocks known of the current epoch for its generation, unless code was missing.
    fn store_blocks(&mut self) {
        let cache = self.code.take().map(Code::into_cache);
        let generation = self.images.epochs().get(self.epoch).map(|epoch| epoch.generation);
        if let Some((cache, generation)) = cache.zip(generation)
            && !self.lacks_code
        {
            self.caches.put(generation, cache);
        }
        self.lacks_code = false;
    }
}

/// Returns the trace offset of an item; `None` for blocks, which lie between other items.
fn offset(item: &FlowItem) -> Option<u64> {
    match item {
        FlowItem::Block(_) => None,
        FlowItem::Event(event) => Some(event.offset),
        FlowItem::Gap(gap) => Some(gap.offset),
    }
}

impl Drop for Walker<'_> {
    fn drop(&mut self) {
        self.store_blocks();
    }
}
