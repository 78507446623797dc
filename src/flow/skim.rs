//! Decoding that counts and keeps no order: how many instructions, which code, and what calls and
//! returns did. Finds the same events and gaps as decoding item by item, and faster.

use super::block::Block;
use super::chain::{Call, Chain, Tail};
use super::chains::{ChainId, Chains};
use super::code::Code;
use super::decoder::Decoder;
use super::item::{FlowItem, Span};
use super::lane::Sink;
use super::tally::Tally;
use super::tnt::TntBits;
use crate::common::Addr;

/// Is told of calls and returns while a trace is skimmed. All is told as it is executed, but for
/// plain jumps. Instructions are counted from the beginning of the tally's round.
pub trait CallWatch {
    /// Nobody watches: nothing needs to be told.
    const IS_IDLE: bool = false;

    /// Control is at `ip` before the instruction number `index`, and leaves what comes there by a
    /// plain jump unless something else is told.
    fn arrive(&mut self, ip: Addr, index: u64);

    /// The instruction number `index`, a near call at `site`, led to `entry`. A return from it goes
    /// to `return_address`.
    fn call(&mut self, index: u64, site: Addr, return_address: Addr, entry: Addr);

    /// What control arrived at loads RSP, before it leaves; see [`Insn::loads_sp`](crate::insn::Insn).
    fn loads_sp(&mut self) {}

    /// Control leaves `span`, which was told by [`Self::arrive`], for somewhere; `behind` is the
    /// address behind it.
    fn leave(&mut self, span: &Span, behind: Addr, code: &Code<'_>);

    /// Control leaves by a call or return for somewhere that is not known yet.
    fn leave_by(&mut self, by: Leaving);
}

/// How control leaves several blocks at once, if not by a plain jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
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
            if self.is_on() {
                self.run_chains(code, &mut Skim { tally, watch });
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
}

/// Counts chains, and tells of their calls and returns.
struct Skim<'a, W> {
    tally: &'a mut Tally,
    watch: &'a mut W,
}

impl<W: CallWatch> Sink for Skim<'_, W> {
    #[expect(clippy::inline_always, reason = "it takes no longer than a call of it")]
    #[inline(always)]
    fn chain(&mut self, ip: Addr, at: ChainId, _: TntBits, code: &mut Code<'_>) {
        let Some(chain) = code.cache.chains.get(at) else { return };
        self.watch.arrive(ip, self.tally.insns);
        tell_chain(chain, self.tally.insns, &code.cache.chains, self.watch);
        self.tally.insns += u64::from(chain.insns);
        if !self.tally.has(chain) {
            self.tally.add_chain(&mut code.cache, at);
        }
    }
}

/// Tells what a chain did whose first instruction has the number `first`, and at whose beginning
/// control arrived.
#[inline]
fn tell_chain<W: CallWatch>(chain: &Chain, first: u64, chains: &Chains, watch: &mut W) {
    if W::IS_IDLE {
        return;
    }
    if chain.depth() > 0 {
        for call in chains.calls_inside(chain) {
            let index = (first + u64::from(call.insns)).saturating_sub(1);
            watch.call(index, call.site, call.return_address, call.entry);
        }
    }
    match chain.tail {
        Tail::Plain | Tail::TipJump | Tail::Ask => {}
        Tail::Return | Tail::Out | Tail::TipReturn => watch.leave_by(Leaving::Return),
        Tail::TipCall => {
            if let Some(Call { site, return_address, .. }) = chains.open_calls(chain).last() {
                let (site, return_address) = (*site, *return_address);
                watch.leave_by(Leaving::Call { site, return_address });
            }
        }
    }
}

/// Tells how control left a span that the long way gave.
fn tell_span<W: CallWatch>(span: &Span, code: &mut Code<'_>, watch: &mut W) {
    if W::IS_IDLE {
        return;
    }
    let id = code.find(span.ip, span.mode);
    if code.block(id).is_some_and(|block| block.loads_sp) {
        watch.loads_sp();
    }
    let whole = code.block(id).filter(|block| block.last() == span.last);
    // Only a branch, at the end of a block, makes this matter.
    let behind = whole.map_or(span.last, Block::fall);
    watch.leave(span, behind, code);
}
