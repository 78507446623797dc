//! Decoding that counts and keeps no order: how many instructions, and which code.
//! Finds the same events and gaps as decoding item by item, and faster.

use super::block::{BlockId, End};
use super::chain::{CHAIN_BITS, Chain, ChainId};
use super::code::Code;
use super::decoder::{Decoder, State};
use super::item::{FlowItem, Span};
use super::tnt::TntBits;
use crate::common::{Addr, AddrRange};
use std::sync::atomic::{AtomicU32, Ordering};

/// What a stretch of the trace executed, without its order; see [`Decoder::skim`].
#[derive(Debug)]
pub struct Tally {
    /// Instructions executed.
    pub insns: u64,
    code: Vec<AddrRange>,
    /// Marks the blocks and chains that this tally has counted. No other tally has it.
    mark: u32,
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

impl Tally {
    /// Nothing yet.
    pub fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let mark = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        Self { insns: 0, code: Vec::new(), mark }
    }

    /// The blocks that were executed, in no order, seldom twice. An event may have cut one short:
    /// no instruction outside of them was executed, and most inside were.
    pub fn code(&self) -> &[AddrRange] {
        &self.code
    }

    fn add_block(&mut self, code: &mut Code<'_>, id: BlockId) {
        if let Some(block) = code.cache.mark(id, self.mark) {
            self.code.push(AddrRange::new(block.ip, block.fall()));
        }
    }

    /// Adds the blocks of a chain, which begins with the block `from` and takes some of `bits`.
    #[cold]
    #[inline(never)]
    fn add_chain(&mut self, code: &mut Code<'_>, id: ChainId, from: BlockId, bits: TntBits) {
        code.cache.mark_chain(id, self.mark);
        let mut blocks = Vec::new();
        code.cache.walk(from, bits, |id| blocks.push(id));
        for id in blocks {
            self.add_block(code, id);
        }
    }

    fn add_span(&mut self, code: &mut Code<'_>, span: &Span) {
        self.insns += u64::from(span.insns);
        let id = code.find(span.ip, span.mode);
        self.add_block(code, id);
    }
}

impl Decoder<'_> {
    /// Decodes on to the next event or gap, or None at the end; what is executed on the way is
    /// added to `tally`. Events and gaps are those that [`Decoder::next`] gives.
    pub fn skim(&mut self, code: &mut Code<'_>, tally: &mut Tally) -> Option<FlowItem> {
        loop {
            if self.state == State::On && self.queue.is_empty() {
                self.skim_known(code, tally);
            }
            match self.next_any(code)? {
                FlowItem::Block(span) => tally.add_span(code, &span),
                item => return Some(item),
            }
        }
    }

    /// Executes blocks as long as all is at hand.
    fn skim_known(&mut self, code: &mut Code<'_>, tally: &mut Tally) {
        loop {
            if self.tnt.len() < CHAIN_BITS && self.bound.is_empty() {
                self.read_ahead();
            }
            if !self.skim_chain(code, tally) {
                let id = self.hint;
                let Some(span) = self.run_known(code) else { return };
                tally.insns += u64::from(span.insns);
                tally.add_block(code, id);
            }
        }
    }

    /// Executes several blocks at once. False, and nothing done, where that cannot be.
    fn skim_chain(&mut self, code: &mut Code<'_>, tally: &mut Tally) -> bool {
        let Some(block) = code.block(self.hint) else { return false };
        let is_chained = matches!(block.end, End::Jcc | End::Jmp | End::Call);
        if !is_chained || self.tnt.is_empty() || !block.is_at(self.ip, self.mode) {
            return false;
        }
        let Some(id) = code.cache.chain(self.hint, self.tnt) else { return false };
        let Some(chain) = code.cache.get_chain(id) else { return false };
        let Some(next) = self.behind(chain, code) else { return false };
        let is_new = chain.mark != tally.mark;
        let (from, bits) = (self.hint, self.tnt);
        tally.insns += u64::from(chain.insns);
        self.tnt.skip(chain.bits);
        self.without_bit = 0;
        if chain.depth > 0 {
            self.take_calls(chain, code);
        }
        if chain.returns {
            self.stack.drop_one();
        }
        (self.hint, self.ip) = next;
        if is_new {
            tally.add_chain(code, id, from, bits);
        }
        true
    }

    /// What the chain's calls and their returns leave on the stack.
    #[inline]
    fn take_calls(&mut self, chain: &Chain, code: &Code<'_>) {
        self.stack.touch(chain.depth);
        for call in chain.open_calls() {
            if let Some(block) = code.block(*call) {
                self.stack.push(block.fall(), *call);
            }
        }
    }

    /// The block behind the chain, and its address. None if the chain goes nowhere.
    #[inline]
    fn behind(&self, chain: &Chain, code: &Code<'_>) -> Option<(BlockId, Addr)> {
        if chain.bits == 0 {
            return None;
        }
        if chain.returns {
            return self.caller(code);
        }
        Some((chain.next, code.block(chain.next)?.ip))
    }
}
