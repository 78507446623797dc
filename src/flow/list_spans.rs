//! Decodes to the list of executed blocks, chain by chain. Yields the same blocks, events and gaps
//! in the same order as decoding item by item, but faster.

use super::chains::ChainId;
use super::code::Code;
use super::decoder::Decoder;
use super::item::{FlowItem, Span};
use super::run_chains::ChainSink;
use super::tnt::TntBits;
use crate::common::Addr;
use std::ops::ControlFlow;

impl Decoder<'_> {
    /// Decodes to the next event or gap and returns it; `None` at the end. Passes the spans
    /// executed until then to `show`, in order, some at a time. Spans, events and gaps together are
    /// the items that [`Decoder::next`] would return.
    pub fn list_spans(
        &mut self,
        code: &mut Code<'_>,
        show: &mut impl FnMut(&[Span]),
    ) -> Option<FlowItem> {
        let mut show = |spans: &[Span]| {
            show(spans);
            true
        };
        loop {
            if let ControlFlow::Break(item) = self.list_spans_while(code, &mut show) {
                return item;
            }
        }
    }

    /// Decodes like [`Self::list_spans`], and returns [`ControlFlow::Break`] with its result, but
    /// stops early with [`ControlFlow::Continue`] after `show` returned false. The next call goes
    /// on after the spans that were shown.
    pub fn list_spans_while(
        &mut self,
        code: &mut Code<'_>,
        show: &mut impl FnMut(&[Span]) -> bool,
    ) -> ControlFlow<Option<FlowItem>> {
        loop {
            let mut goes_on = true;
            if self.is_about_to_execute() {
                let mut show = |spans: &[Span]| {
                    goes_on = show(spans);
                    goes_on
                };
                self.run_chains(code, &mut List { show: &mut show });
            }
            if !goes_on {
                return ControlFlow::Continue(());
            }
            match self.next_uncached(code) {
                Some(FlowItem::Block(span)) => {
                    if !show(&[span]) {
                        return ControlFlow::Continue(());
                    }
                }
                item => return ControlFlow::Break(item),
            }
        }
    }
}

/// A sink that passes the blocks of chains to a closure, until it returns false.
struct List<'a, F> {
    show: &'a mut F,
}

impl<F: FnMut(&[Span]) -> bool> ChainSink for List<'_, F> {
    #[inline]
    fn executed(&mut self, _: Addr, at: ChainId, bits: TntBits, code: &mut Code<'_>) -> bool {
        if code.cache.chains.spans(at).is_none() {
            code.store_spans(at, bits);
        }
        (self.show)(code.cache.chains.spans(at).unwrap_or_default())
    }
}
