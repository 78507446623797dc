//! Decodes to the list of executed blocks, chain by chain. Yields the same blocks, events and gaps
//! in the same order as decoding item by item, but faster.

use super::chains::ChainId;
use super::code::Code;
use super::decoder::Decoder;
use super::item::{FlowItem, Span};
use super::lane::Sink;
use super::tnt::TntBits;
use crate::common::Addr;

impl Decoder<'_> {
    /// Decodes to the next event or gap; `None` at the end. Passes the blocks executed until then
    /// to `show`, in order. Together they are the items that [`Decoder::next`] returns.
    pub fn list(
        &mut self,
        code: &mut Code<'_>,
        show: &mut impl FnMut(&[Span]),
    ) -> Option<FlowItem> {
        loop {
            if self.is_on() {
                self.run_chains(code, &mut List { show });
            }
            match self.next_any(code)? {
                FlowItem::Block(span) => show(&[span]),
                item => return Some(item),
            }
        }
    }
}

/// A sink that passes the blocks of chains to a closure.
struct List<'a, F> {
    show: &'a mut F,
}

impl<F: FnMut(&[Span])> Sink for List<'_, F> {
    #[inline]
    fn chain(&mut self, _: Addr, at: ChainId, bits: TntBits, code: &mut Code<'_>) {
        if code.cache.chains.spans(at).is_none() {
            code.add_spans(at, bits);
        }
        (self.show)(code.cache.chains.spans(at).unwrap_or_default());
    }
}
