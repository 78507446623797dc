//! Visits of a trace without a recording, in order: decodes on all cores, with code that never
//! changes.

use super::block_code::{BlockCode, BlockSource};
use super::digest::{Stretches, segments_in};
use super::open::Progress;
use super::parallel::Workers;
use super::visit::Visit;
use crate::common::Addr;
use crate::flow::{Code, Config, Decoder, FlowItem, Gap, GapReason, Last, Meter, Span, Timing};
use crate::image::CodeSource;
use std::ops::{ControlFlow, Range};

/// The number of trace bytes whose segments a worker takes at a time. Their instructions are all in
/// memory until they are visited.
const STRETCH_BYTES: usize = 16 << 10;
/// The number of finished stretches per worker that may wait for their visit.
const WAITING_STRETCHES: usize = 1;

/// The input of a visit without a recording: a trace, its code, and the options.
#[derive(Clone, Copy)]
pub struct RawTrace<'a> {
    /// The bytes of the trace.
    pub bytes: &'a [u8],
    /// The code that the trace executed.
    pub image: &'a (dyn CodeSource + Sync),
    /// The settings with which the trace was recorded.
    pub config: &'a Config,
    /// The number of threads that decode.
    pub workers: usize,
    /// True to pass the addresses of all instructions to the visitor.
    pub with_addrs: bool,
}

impl RawTrace<'_> {
    /// Passes the items of the whole trace to `visitor` in order, until it breaks. Calls `report`
    /// with the progress.
    pub fn visit<B>(
        self,
        report: &mut dyn FnMut(Progress),
        visitor: &mut dyn FnMut(Visit<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let stretches: Vec<Range<usize>> =
            Stretches { all: 0..self.bytes.len(), step: STRETCH_BYTES }.collect();
        let mut index = 0;
        let mut has_segments = false;
        let workers = Workers { count: self.workers, waiting: WAITING_STRETCHES };
        let decode = |range: &Range<usize>, code: &mut Code<'_>| self.decode(range, code);
        workers.in_order(
            &stretches,
            || Code::new(self.image),
            decode,
            |range, decoded| {
                has_segments |= decoded.segments > 0;
                decoded.visit(&mut index, self.image, visitor)?;
                let (done_bytes, total_bytes) = (range.end as u64, self.bytes.len() as u64);
                report(Progress { done_bytes, total_bytes });
                ControlFlow::Continue(())
            },
        )?;
        if !has_segments && !self.bytes.is_empty() {
            let gap = Gap { offset: 0, last_ip: None, reason: GapReason::NoPsb };
            visitor(Visit::Gap { index, gap, image: None })?;
        }
        ControlFlow::Continue(())
    }

    /// Decodes the segments that start in a range of the trace.
    fn decode(self, range: &Range<usize>, code: &mut Code<'_>) -> Decoded {
        let mut found = Decoded::default();
        for (psb, end) in segments_in(self.bytes, range.clone()) {
            found.segments += 1;
            let mut decoder = Decoder::segment(self.bytes, psb, end, self.config.clone());
            let mut meter = Meter::default();
            while let Some(item) = decoder.next(code) {
                let last = self.last_of(&item, code, &mut found.addrs);
                found.items.push((item, last));
                if self.config.clock.is_some() {
                    found.moments.push(meter.timing_of(&decoder, &item, last));
                }
            }
        }
        found
    }

    /// Returns the last instruction of a block, and appends the block's addresses if requested.
    fn last_of(self, item: &FlowItem, code: &mut Code<'_>, addrs: &mut Vec<Addr>) -> Option<Last> {
        let FlowItem::Block(span) = item else { return None };
        if self.with_addrs {
            code.add_addrs(span.ip, span.mode, span.insns, addrs);
        }
        code.last(span)
    }
}

/// The decoded items of some segments.
#[derive(Default)]
struct Decoded {
    segments: usize,
    items: Vec<(FlowItem, Option<Last>)>,
    /// The times of the items, if there is a clock.
    moments: Vec<Timing>,
    /// The addresses of all blocks' instructions.
    addrs: Vec<Addr>,
}

impl Decoded {
    /// Visits the items. `index` is the number of the next instruction, here and afterwards.
    fn visit<B>(
        self,
        index: &mut u64,
        image: &dyn CodeSource,
        visitor: &mut dyn FnMut(Visit<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut rest = self.addrs.as_slice();
        let mut moments = self.moments.into_iter();
        for (item, last) in self.items {
            let moment = moments.next().unwrap_or_default();
            match item {
                FlowItem::Block(span) => {
                    let (addrs, following) = rest.split_at(count(&span, rest));
                    rest = following;
                    let known = DecodedCode { addrs, last, image };
                    let code = &BlockCode::new(&span, &known, 0);
                    visitor(Visit::Block { index: *index, span, code, moment: &moment })?;
                    *index += u64::from(span.insns);
                }
                FlowItem::Event(event) => visitor(Visit::Event { index: *index, event, moment })?,
                FlowItem::Gap(gap) => visitor(Visit::Gap { index: *index, gap, image: None })?,
            }
        }
        ControlFlow::Continue(())
    }
}

/// The code of a decoded block.
struct DecodedCode<'a> {
    addrs: &'a [Addr],
    last: Option<Last>,
    image: &'a dyn CodeSource,
}

impl BlockSource for DecodedCode<'_> {
    fn addrs(&self, _: &Span) -> Vec<Addr> {
        self.addrs.to_vec()
    }

    fn last(&self, _: &Span) -> Option<Last> {
        self.last
    }

    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        self.image.read(addr, buf)
    }
}

fn count(span: &Span, rest: &[Addr]) -> usize {
    rest.len().min(span.insns as usize)
}
