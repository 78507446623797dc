//! Decoding that counts and keeps no order: how many instructions, which code, and what calls and
//! returns did. Finds the same events and gaps as decoding item by item, and faster.

use super::block::{Block, BlockId, End};
use super::chain::{CHAIN_BITS, Chain, Tail};
use super::code::Code;
use super::decoder::{Decoder, State};
use super::item::{Exit, FlowItem, Span};
use super::tally::Tally;
use crate::common::Addr;

/// Is told of calls and returns while a trace is skimmed. All is told as it is executed, but for
/// plain jumps. Instructions are counted from the beginning of the tally's round.
pub trait CallWatch {
    /// Nobody watches: nothing needs to be told.
    const IS_IDLE: bool = false;

    /// Control is at `ip` before the instruction number `index`.
    fn arrive(&mut self, ip: Addr, index: u64);

    /// The instruction number `index`, a near call at `site`, led to `entry`. A return from it goes
    /// to `return_address`.
    fn call(&mut self, index: u64, site: Addr, return_address: Addr, entry: Addr);

    /// Control leaves `span`, which was told by [`Self::arrive`], for somewhere; `behind` is the
    /// address behind it.
    fn leave(&mut self, span: &Span, behind: Addr, code: &Code<'_>);

    /// Control leaves for somewhere that is not known yet.
    fn leave_by(&mut self, by: Leaving);
}

/// How control leaves several blocks at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// Neither by a call nor by a return.
    Plain,
    /// By a near call.
    Call {
        /// The instruction.
        site: Addr,
        /// The next one.
        return_address: Addr,
    },
    /// By a near return.
    Return,
}

/// Nobody watches.
impl CallWatch for () {
    const IS_IDLE: bool = true;

    fn arrive(&mut self, _: Addr, _: u64) {}
    fn call(&mut self, _: u64, _: Addr, _: Addr, _: Addr) {}
    fn leave(&mut self, _: &Span, _: Addr, _: &Code<'_>) {}
    fn leave_by(&mut self, _: Leaving) {}
}

impl Decoder<'_> {
    /// Decodes on to the next event or gap, or None at the end; what is executed on the way is
    /// added to `tally`. Events and gaps are those that [`Decoder::next`] gives.
    pub fn skim(&mut self, code: &mut Code<'_>, tally: &mut Tally) -> Option<FlowItem> {
        self.skim_watched(code, tally, &mut ())
    }

    /// The same; calls and returns are told to `watch`.
    pub fn skim_watched(
        &mut self,
        code: &mut Code<'_>,
        tally: &mut Tally,
        watch: &mut impl CallWatch,
    ) -> Option<FlowItem> {
        loop {
            if self.state == State::On && self.queue.is_empty() {
                self.skim_known(code, tally, watch);
            }
            match self.next_any(code)? {
                FlowItem::Block(span) => {
                    watch.arrive(span.ip, tally.insns);
                    tally.add_span(code, &span);
                    tell_span(&span, code, watch);
                }
                item => return Some(item),
            }
        }
    }

    /// Executes blocks as long as all is at hand.
    fn skim_known(&mut self, code: &mut Code<'_>, tally: &mut Tally, watch: &mut impl CallWatch) {
        loop {
            if self.tnt.len() < CHAIN_BITS && self.bound.is_empty() {
                self.read_ahead();
            }
            if !self.skim_chain(code, tally, watch) {
                let id = self.hint;
                let Some(span) = self.run_known(code) else { return };
                watch.arrive(span.ip, tally.insns);
                tally.insns += u64::from(span.insns);
                tally.add_block(code, id);
                watch.leave_by(leaving(&span, code.block(id)));
            }
        }
    }

    /// Executes several blocks at once. False, and nothing done, where that cannot be.
    #[inline]
    fn skim_chain(
        &mut self,
        code: &mut Code<'_>,
        tally: &mut Tally,
        watch: &mut impl CallWatch,
    ) -> bool {
        let Some(block) = code.block(self.hint) else { return false };
        if !block.is_at(self.ip, self.mode) || !self.may_chain(block.end) {
            return false;
        }
        let Some(id) = code.cache.chain(self.hint, self.tnt) else { return false };
        let Some(chain) = code.cache.get_chain(id) else { return false };
        let ip = self.ip;
        let Some(next) = self.behind(chain, code) else { return false };
        let is_new = !tally.has(chain);
        watch.arrive(ip, tally.insns);
        tell_chain(chain, tally.insns, code, watch);
        tally.insns += u64::from(chain.insns);
        self.tnt.skip(chain.bits);
        self.without_bit = if chain.takes_tip() { 0 } else { chain.without_bit.into() };
        if chain.depth > 0 {
            self.take_calls(chain, code);
        }
        if chain.tail == Tail::Out && !chain.takes_tip() {
            self.stack.drop_one();
        }
        (self.hint, self.ip) = next;
        if is_new {
            tally.add_chain(code, id);
        }
        true
    }

    /// Whether a chain may begin with a block that ends like this.
    #[inline]
    fn may_chain(&self, end: End) -> bool {
        match end {
            End::Jcc => !self.tnt.is_empty(),
            End::Jmp | End::Call => !self.tnt.is_empty() || self.cursor.is_at_tip(),
            // A block alone is executed faster without one.
            _ => false,
        }
    }

    /// What the chain's calls and their returns leave on the stack.
    #[inline]
    fn take_calls(&mut self, chain: &Chain, code: &Code<'_>) {
        self.stack.touch(chain.depth);
        for (id, call) in code.cache.open_calls(chain) {
            self.stack.push(call.fall(), id);
        }
    }

    /// The block behind the chain, and its address; takes the TIP that tells it, if one does. None,
    /// and nothing done, if the chain goes nowhere.
    #[inline]
    fn behind(&mut self, chain: &Chain, code: &Code<'_>) -> Option<(BlockId, Addr)> {
        if chain.takes_tip() {
            return self.take_tip_known(code);
        }
        if chain.tail == Tail::Out {
            return self.caller(code);
        }
        Some((chain.next, code.block(chain.next)?.ip))
    }
}

/// Tells what a chain did whose first instruction has the number `first`.
#[inline]
fn tell_chain<W: CallWatch>(chain: &Chain, first: u64, code: &Code<'_>, watch: &mut W) {
    if W::IS_IDLE {
        return;
    }
    for (insns, call) in code.cache.calls_inside(chain) {
        let index = (first + u64::from(insns)).saturating_sub(1);
        watch.call(index, call.last(), call.fall(), call.target);
    }
    watch.leave_by(match chain.tail {
        Tail::Plain => Leaving::Plain,
        Tail::Return | Tail::Out => Leaving::Return,
        Tail::Call => leaving_by_call(code.cache.open_calls(chain).last().map(|(_, call)| call)),
    });
}

/// How control left a whole block that is known.
#[inline]
fn leaving(span: &Span, block: Option<&Block>) -> Leaving {
    match span.exit {
        Exit::Call => leaving_by_call(block),
        Exit::Ret => Leaving::Return,
        _ => Leaving::Plain,
    }
}

#[inline]
fn leaving_by_call(block: Option<&Block>) -> Leaving {
    block.map_or(Leaving::Plain, |block| Leaving::Call {
        site: block.last(),
        return_address: block.fall(),
    })
}

/// Tells how control left a span that the long way gave.
fn tell_span<W: CallWatch>(span: &Span, code: &mut Code<'_>, watch: &mut W) {
    if W::IS_IDLE {
        return;
    }
    let id = code.find(span.ip, span.mode);
    let whole = code.block(id).filter(|block| block.last() == span.last);
    // Only a branch, at the end of a block, makes this matter.
    let behind = whole.map_or(span.last, Block::fall);
    watch.leave(span, behind, code);
}
