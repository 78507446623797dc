//! Decodes without order: to the number of instructions, the set of blocks, and the calls and
//! returns. Yields the same events and gaps as decoding item by item, but faster.

use super::block::Block;
use super::chain::{Call, Chain, Tail};
use super::chains::{ChainId, Chains};
use super::code::Code;
use super::decoder::Decoder;
use super::executed_code::ExecutedCode;
use super::item::{FlowItem, Span};
use super::run_chains::ChainSink;
use super::tnt::TntBits;
use crate::common::Addr;

/// A receiver of the calls and returns of a trace whose code is collected, in execution order.
///
/// The code is reported in pieces, each a span or several blocks at once. For each piece,
/// [`arrive`](Self::arrive) is called first, then [`call`](Self::call) for calls inside it or
/// [`loads_sp`](Self::loads_sp), then at most one of [`leave`](Self::leave) and
/// [`leave_by`](Self::leave_by), unless control leaves by a plain jump. Instructions are numbered
/// from the start of the round ([`ExecutedCode`]).
pub trait CallWatch {
    /// True if the watch ignores everything, so that nothing is reported.
    const IS_IDLE: bool = false;

    /// Handles the arrival of control at `ip`, the start of a piece. `index` is the number of its
    /// first instruction.
    fn arrive(&mut self, ip: Addr, index: u64);

    /// Handles a near call inside the piece that has not returned before the piece's last branch;
    /// others are not reported. It is the instruction number `index`, at `site`, to `entry`, and a
    /// return from it goes to `return_address`.
    fn call(&mut self, index: u64, site: Addr, return_address: Addr, entry: Addr);

    /// Handles a load of RSP in the block where control arrived last; see
    /// [`Insn::loads_sp`](crate::insn::Insn). By default, does nothing.
    fn loads_sp(&mut self) {}

    /// Handles the exit from a piece that is one span, by any [`Exit`](super::Exit), plain jumps
    /// included. `following` is the address after the span if it ends in a branch.
    fn leave(&mut self, span: &Span, following: Addr, code: &Code<'_>);

    /// Handles a call or return by which control leaves a piece of several blocks. Its target is
    /// where control arrives next.
    fn leave_by(&mut self, by: Leaving);
}

/// The exit from a piece of several blocks, if it is not a plain jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// By a near call.
    Call {
        /// The address of the call.
        site: Addr,
        /// The address after the call.
        return_address: Addr,
    },
    /// By a near return.
    Return,
}

/// A watch that ignores everything.
impl CallWatch for () {
    const IS_IDLE: bool = true;

    fn arrive(&mut self, _: Addr, _: u64) {}
    fn call(&mut self, _: u64, _: Addr, _: Addr, _: Addr) {}
    fn leave(&mut self, _: &Span, _: Addr, _: &Code<'_>) {}
    fn leave_by(&mut self, _: Leaving) {}
}

impl Decoder<'_> {
    /// Decodes to the next event or gap and returns it; `None` at the end. Adds the code executed
    /// until then to `executed`. Events and gaps are those that [`Decoder::next`] would return, but
    /// executed blocks are not returned.
    pub fn collect_code(
        &mut self,
        code: &mut Code<'_>,
        executed: &mut ExecutedCode,
    ) -> Option<FlowItem> {
        self.collect_code_watched(code, executed, &mut ())
    }

    /// Decodes as [`Self::collect_code`] does, and reports the calls and returns executed until
    /// then to `watch`.
    pub fn collect_code_watched(
        &mut self,
        code: &mut Code<'_>,
        executed: &mut ExecutedCode,
        watch: &mut impl CallWatch,
    ) -> Option<FlowItem> {
        loop {
            if self.is_about_to_execute() {
                self.run_chains(code, &mut CodeCollector { executed, watch });
            }
            match self.next_uncached(code)? {
                FlowItem::Block(span) => {
                    watch.arrive(span.ip, executed.insns);
                    executed.add_span(code, &span);
                    report_span(&span, code, watch);
                }
                item => return Some(item),
            }
        }
    }
}

/// A sink that adds chains to an [`ExecutedCode`], and reports their calls and returns.
struct CodeCollector<'a, W> {
    executed: &'a mut ExecutedCode,
    watch: &'a mut W,
}

impl<W: CallWatch> ChainSink for CodeCollector<'_, W> {
    #[expect(clippy::inline_always, reason = "it takes no longer than a call of it")]
    #[inline(always)]
    fn executed(&mut self, ip: Addr, at: ChainId, _: TntBits, code: &mut Code<'_>) -> bool {
        let Some(chain) = code.cache.chains.get(at) else { return true };
        self.watch.arrive(ip, self.executed.insns);
        report_chain(chain, self.executed.insns, &code.cache.chains, self.watch);
        self.executed.insns += u64::from(chain.insns);
        if !self.executed.has_added(chain) {
            self.executed.add_chain(&mut code.cache, at);
        }
        true
    }
}

/// Reports the calls in a chain that have not returned before its last branch, and the call or
/// return at its end, if there is one. `first_index` is the number of its first instruction. The
/// caller has reported the arrival.
#[inline]
fn report_chain<W: CallWatch>(chain: &Chain, first_index: u64, chains: &Chains, watch: &mut W) {
    if W::IS_IDLE {
        return;
    }
    if chain.depth() > 0 {
        for call in chains.calls_before_last(chain) {
            let index = (first_index + u64::from(call.insns)).saturating_sub(1);
            watch.call(index, call.site, call.return_address, call.entry);
        }
    }
    match chain.tail {
        Tail::Jcc | Tail::TipJump | Tail::NeedsTip => {}
        Tail::InnerReturn | Tail::OuterReturn | Tail::TipReturn => watch.leave_by(Leaving::Return),
        Tail::TipCall => {
            if let Some(Call { site, return_address, .. }) = chains.open_calls(chain).last() {
                let (site, return_address) = (*site, *return_address);
                watch.leave_by(Leaving::Call { site, return_address });
            }
        }
    }
}

/// Reports the exit from a span that was not part of a chain, and a load of RSP in its block. The
/// caller has reported the arrival.
fn report_span<W: CallWatch>(span: &Span, code: &mut Code<'_>, watch: &mut W) {
    if W::IS_IDLE {
        return;
    }
    let id = code.find(span.ip, span.mode);
    if code.block(id).is_some_and(|block| block.loads_sp) {
        watch.loads_sp();
    }
    let whole = code.block(id).filter(|block| block.last() == span.last);
    // The address matters only after a branch, which is at the end of a block.
    let following = whole.map_or(span.last, Block::following);
    watch.leave(span, following, code);
}
