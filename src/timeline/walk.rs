//! Decodes a segment with the code that stood there at the time. The one place where the
//! decoder's clock and the sideband's meet.

use super::images::Images;
use super::piece::{Part, World};
use crate::common::{Addr, Tsc};
use crate::flow::{
    BlockCache, CallWatch, Code, Decoder, Event, EventKind, FlowItem, GapReason, Last, Span, Tally,
};
use crate::image::{CodeSource, Image};
use std::collections::HashMap;

/// Block caches by generation of the code; a worker keeps one over all the segments it decodes.
#[derive(Debug, Default)]
pub(super) struct Caches {
    by_generation: HashMap<u32, BlockCache>,
}

/// Generations kept at once: programs that make code go through thousands.
const GENERATIONS: usize = 8;

impl Caches {
    fn take(&mut self, generation: u32) -> BlockCache {
        self.by_generation.remove(&generation).unwrap_or_default()
    }

    fn put(&mut self, generation: u32, cache: BlockCache) {
        if self.by_generation.len() >= GENERATIONS {
            self.by_generation.clear();
        }
        self.by_generation.insert(generation, cache);
    }
}

/// The items of one segment, or of the part of it that one thread executed.
pub(super) struct Walker<'a> {
    decoder: Decoder<'a>,
    images: &'a Images,
    caches: &'a mut Caches,
    epoch: usize,
    /// The code of the epoch; none when the recording has no image at all.
    code: Option<Code<'a>>,
    /// Blocks that end at a hole hold in this epoch only.
    hole: bool,
    /// No time before this is believed.
    since: Tsc,
    /// None where all is given.
    cut: Option<Cut<'a>>,
}

/// How far a part of a segment is walked.
struct Cut<'a> {
    part: Part<'a>,
    world: World<'a>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// What is met is not of the part, but tells the state at its beginning.
    Before,
    Inside,
    Done,
}

impl<'a> Walker<'a> {
    /// A part of a segment, with the code that stood there then.
    pub(super) fn new(part: &Part<'a>, world: World<'a>, caches: &'a mut Caches) -> Self {
        let stage = if part.from > part.start { Stage::Before } else { Stage::Inside };
        let cut = part.cut.then_some(Cut { part: *part, world, stage });
        let mut walker = Self {
            decoder: part.decoder(part.start, world.config),
            images: world.images,
            caches,
            epoch: 0,
            code: None,
            hole: false,
            since: part.since,
            cut,
        };
        walker.open(0);
        if part.since > Tsc(0) {
            walker.time_is(part.since);
        }
        walker
    }

    /// The next item.
    #[inline]
    pub(super) fn next(&mut self) -> Option<FlowItem> {
        let item = if self.cut.is_some() { self.next_of_cut() } else { self.next_of_all() };
        match &item {
            None | Some(FlowItem::Block(_)) => {}
            Some(other) => self.note(other),
        }
        item
    }

    /// As [`Self::next`] up to the next event or gap; the blocks that are executed on the way are
    /// shown to `show`, several at a time. The code stays as it was then until [`Self::note`] is
    /// told of the event or gap.
    pub(super) fn list(&mut self, show: &mut impl FnMut(&[Span])) -> Option<FlowItem> {
        if self.cut.is_none() {
            return self.decoder.list(self.code.as_mut()?, show);
        }
        loop {
            match self.next_of_cut()? {
                FlowItem::Block(span) => show(&[span]),
                item => return Some(item),
            }
        }
    }

    #[inline]
    fn next_of_all(&mut self) -> Option<FlowItem> {
        self.decoder.next(self.code.as_mut()?)
    }

    /// The next item of a part: passes over what comes before it, and ends behind it.
    fn next_of_cut(&mut self) -> Option<FlowItem> {
        loop {
            let item = self.next_of_all();
            let Some(cut) = &mut self.cut else { return item };
            let offset = item.as_ref().and_then(offset);
            let is_over = item.is_none() || offset.is_some_and(|at| at >= cut.part.to as u64);
            let begins = offset.is_some_and(|at| at >= cut.part.from as u64);
            match cut.stage {
                Stage::Done => return None,
                stage if is_over => {
                    cut.stage = Stage::Done;
                    return (stage == Stage::Before).then_some(cut.part.hole());
                }
                Stage::Inside => return item,
                Stage::Before if begins => {
                    cut.stage = Stage::Inside;
                    return item;
                }
                Stage::Before => {
                    // The state there is lost. What the packets alone tell of it has to do.
                    if let Some(FlowItem::Gap(_)) = item {
                        cut.stage = Stage::Inside;
                        self.decoder = cut.part.decoder(cut.part.from, cut.world.config);
                    }
                    if let Some(item) = &item {
                        self.note(item);
                    }
                }
            }
        }
    }

    /// As [`Self::next`] up to the next event or gap; what is executed on the way is added to
    /// `tally`, and its calls and returns are told to `watch`. Not for a part of a segment.
    pub(super) fn skim(
        &mut self,
        tally: &mut Tally,
        watch: &mut impl CallWatch,
    ) -> Option<FlowItem> {
        let code = self.code.as_mut()?;
        let item = self.decoder.skim_watched(code, tally, watch);
        if let Some(item) = &item {
            self.note(item);
        }
        item
    }

    /// Goes on with the code that stands there behind an event or gap that [`Self::list`] gave.
    #[cold]
    pub(super) fn note(&mut self, item: &FlowItem) {
        match item {
            FlowItem::Event(Event { kind: EventKind::Tsc(at), .. }) => self.time_is(*at),
            FlowItem::Gap(gap) if matches!(gap.reason, GapReason::NoCode(_)) => self.hole = true,
            _ => {}
        }
    }

    /// The addresses of a span that was just given.
    pub(super) fn addrs(&mut self, span: &Span) -> impl Iterator<Item = Addr> {
        let addrs = self.code.as_mut().map(|code| code.addrs(span.ip, span.mode, span.insns));
        addrs.into_iter().flatten()
    }

    /// The last instruction of a span that was just given.
    pub(super) fn last(&mut self, span: &Span) -> Option<Last> {
        self.code.as_mut()?.last(span)
    }

    /// Whether an instruction of a span that was just given loads the stack pointer.
    pub(super) fn loads_sp(&mut self, span: &Span) -> bool {
        self.code.as_mut().is_some_and(|code| code.loads_sp(span))
    }

    /// What decodes it.
    pub(super) fn decoder(&self) -> &Decoder<'a> {
        &self.decoder
    }

    /// Copies code bytes of this moment.
    pub(super) fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        self.image().map_or(0, |image| image.read(addr, buf))
    }

    /// What is mapped at this moment.
    pub(super) fn image(&self) -> Option<&'a Image> {
        self.images.epochs().get(self.epoch).map(|epoch| epoch.image.as_ref())
    }

    /// The number of the epoch that the decoder is in.
    pub(super) fn epoch(&self) -> usize {
        self.epoch
    }

    fn time_is(&mut self, at: Tsc) {
        let epoch = self.images.epoch_at(at.max(self.since));
        if epoch != self.epoch {
            self.close();
            self.open(epoch);
        }
    }

    fn open(&mut self, number: usize) {
        self.epoch = number;
        self.code = self.images.epochs().get(number).map(|epoch| {
            Code::with_cache(epoch.image.as_ref(), self.caches.take(epoch.generation))
        });
    }

    fn close(&mut self) {
        let cache = self.code.take().map(Code::into_cache);
        let generation = self.images.epochs().get(self.epoch).map(|epoch| epoch.generation);
        if let Some((cache, generation)) = cache.zip(generation)
            && !self.hole
        {
            self.caches.put(generation, cache);
        }
        self.hole = false;
    }
}

/// Where an item is in the trace, in bytes. Blocks are between those that tell.
fn offset(item: &FlowItem) -> Option<u64> {
    match item {
        FlowItem::Block(_) => None,
        FlowItem::Event(event) => Some(event.offset),
        FlowItem::Gap(gap) => Some(gap.offset),
    }
}

impl Drop for Walker<'_> {
    fn drop(&mut self) {
        self.close();
    }
}
