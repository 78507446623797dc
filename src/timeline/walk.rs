//! Decodes a segment with the code that stood there at the time. The one place where the
//! decoder's clock and the sideband's meet.

use super::images::Images;
use crate::common::{Addr, Tsc};
use crate::flow::{
    BlockCache, Code, Config, Decoder, Event, EventKind, FlowItem, GapReason, Insn, Span,
};
use std::collections::HashMap;

/// Block caches by generation of the code; a worker keeps one over all the segments it decodes.
#[derive(Debug, Default)]
pub(super) struct Caches {
    by_generation: HashMap<u32, BlockCache>,
    /// Where calls return to, by generation and address of the call.
    behind: HashMap<(u32, Addr), Addr>,
}

/// Calls whose return addresses are kept.
const CALLS: usize = 1 << 20;

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

/// The items of one segment.
pub(super) struct Walker<'a> {
    decoder: Decoder<'a>,
    images: &'a Images,
    caches: &'a mut Caches,
    epoch: usize,
    /// The code of the epoch; none when the recording has no image at all.
    code: Option<Code<'a>>,
    /// Blocks that end at a hole hold in this epoch only.
    hole: bool,
}

impl<'a> Walker<'a> {
    /// The segment from the PSB at `start` to the one at `end`, or to the trace's end.
    pub(super) fn new(
        trace: &'a [u8],
        start: usize,
        end: Option<usize>,
        images: &'a Images,
        caches: &'a mut Caches,
    ) -> Self {
        let decoder = Decoder::segment(trace, start, end, Config::default());
        let mut walker = Self { decoder, images, caches, epoch: 0, code: None, hole: false };
        walker.open(0);
        walker
    }

    /// The next item.
    #[inline]
    pub(super) fn next(&mut self) -> Option<FlowItem> {
        let code = self.code.as_mut()?;
        let item = self.decoder.next(code);
        match &item {
            None | Some(FlowItem::Block(_)) => {}
            Some(other) => self.note(other),
        }
        item
    }

    #[cold]
    fn note(&mut self, item: &FlowItem) {
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
    pub(super) fn last_insn(&self, span: &Span) -> Option<Insn> {
        self.code.as_ref()?.insns(span.last, span.mode, 1).next()
    }

    /// The address behind the last instruction of a span that was just given.
    pub(super) fn behind(&mut self, span: &Span) -> Addr {
        let generation = self.images.epochs().get(self.epoch).map_or(0, |epoch| epoch.generation);
        let key = (generation, span.last);
        if let Some(known) = self.caches.behind.get(&key) {
            return *known;
        }
        let behind = self.last_insn(span).map_or(span.last, |insn| insn.next());
        if self.caches.behind.len() >= CALLS {
            self.caches.behind.clear();
        }
        self.caches.behind.insert(key, behind);
        behind
    }

    /// Copies code bytes of this moment.
    pub(super) fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        use crate::image::CodeSource;
        let epoch = self.images.epochs().get(self.epoch);
        epoch.map_or(0, |epoch| epoch.image.read(addr, buf))
    }

    /// The number of the epoch that the decoder is in.
    pub(super) fn epoch(&self) -> usize {
        self.epoch
    }

    fn time_is(&mut self, at: Tsc) {
        let epoch = self.images.epoch_at(at);
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

impl Drop for Walker<'_> {
    fn drop(&mut self) {
        self.close();
    }
}
