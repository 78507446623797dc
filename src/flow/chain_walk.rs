//! Builds a chain when it is first executed: walks through the code with the available TNT bits, as
//! the decoder does block by block.
//!
//! The walk adds blocks, and uses a bit at each conditional branch and compressed return, or the
//! TIP at an indirect branch or another return, which ends it. The chain is the walk up to the last
//! branch that used one. Usually, a TIP comes right after the bits of the branches before its own.
//! But it may be *deferred*: then bits of later branches come before it. If the first branch takes
//! such a TIP, the chain is empty, with [`Tail::NeedsTip`]; the decoder looks it up again, with the
//! TIP.

use super::block::{Block, BlockCache, BlockExit, BlockId, End};
use super::chain::{CHAIN_BITS, Call, ChainDraft, ChainKey, MAX_CALLS, Tail};
use super::chains::ChainId;
use super::code::Code;
use super::item::{Exit, Span};
use super::tnt::TntBits;
use crate::common::Addr;
use crate::insn::ExecMode;

/// The limit on blocks in a chain, whose instructions are counted in 16 bits.
const MAX_BLOCKS: usize = 40;
const _: () = assert!(MAX_BLOCKS * BlockCache::BLOCK_INSNS as usize <= u16::MAX as usize);

/// The state of a walk along a chain. Nothing is executed yet: the walk follows the code with the
/// TNT bits that the decoder has, and does not take them.
struct ChainWalk {
    /// True if a TIP follows right after the TNT bits at hand, of which `first_bits` are the first.
    has_tip: bool,
    /// The bits that the chain may use: at most [`CHAIN_BITS`].
    first_bits: TntBits,
    /// The bits that are not used yet.
    unused_bits: TntBits,
    /// The number of instructions in `blocks`.
    insns: u16,
    /// The maximum number of calls open at one time.
    depth: u8,
    /// The number of open calls, which are the first of `calls`.
    open: u8,
    calls: [Option<Call>; MAX_CALLS],
    /// All walked blocks.
    blocks: Vec<BlockId>,
    /// The chain so far: the blocks up to the last branch that used a TNT bit or the TIP.
    kept: ChainDraft,
}

/// The result of following the branch at a block's end.
enum ChainStep {
    /// The chain continues at this address, by this exit of the block.
    To(BlockExit, Addr),
    /// The chain continues at the address after this call, by a return.
    ReturnFrom(Call),
    /// The chain ends with this block.
    EndAfter(Tail),
    /// The chain ends before this block.
    EndBefore,
}

impl Code<'_> {
    /// Builds and caches the chain from an address. Returns `None` if there is none: the first
    /// block must be executed outside of chains, the available bits and TIP do not suffice for the
    /// next branch, or the cache was full and had to be emptied. Executes nothing.
    ///
    /// All code of a chain is certain to be executed, except at the trace's end or damage: no
    /// packet binds before the branches that have their bits or TIP.
    #[cold]
    #[inline(never)]
    pub(super) fn add_chain(
        &mut self,
        from: Addr,
        key: ChainKey,
        bits: TntBits,
        mode: ExecMode,
    ) -> Option<ChainId> {
        let draft = self.walk_chain(from, mode, bits.first(CHAIN_BITS), key.has_tip())?;
        self.cache.chains.add(from, key, &draft)
    }

    /// Walks along the chain from an address, as far as it goes, and returns it; `None` in the
    /// cases of [`Self::add_chain`].
    fn walk_chain(
        &mut self,
        from: Addr,
        mode: ExecMode,
        bits: TntBits,
        has_tip: bool,
    ) -> Option<ChainDraft> {
        let mut walk = ChainWalk {
            has_tip,
            first_bits: bits,
            unused_bits: bits,
            insns: 0,
            depth: 0,
            open: 0,
            calls: [None; MAX_CALLS],
            blocks: Vec::with_capacity(MAX_BLOCKS),
            kept: ChainDraft::default(),
        };
        let mut ip = from;
        let mut id = BlockId::NONE;
        let emptied = self.cache.emptied;
        while walk.blocks.len() < MAX_BLOCKS {
            id = self.find_near(id, ip, mode);
            if emptied != self.cache.emptied {
                // The cache was emptied, so the walked blocks have other ids now.
                return None;
            }
            let block = *self.block(id)?;
            let unused_before = walk.unused_bits.len();
            let step = walk.step(id, &block);
            let (link, to) = match step {
                ChainStep::To(exit, to) => (Some((id, exit)), to),
                ChainStep::ReturnFrom(call) => {
                    (Some((call.block, BlockExit::Fall)), call.return_address)
                }
                ChainStep::EndAfter(_) => (None, Addr(0)),
                ChainStep::EndBefore => {
                    let first_tip_is_deferred =
                        block.end.takes_tip() && !walk.unused_bits.is_empty() && !has_tip;
                    if walk.kept.tail.is_none() && first_tip_is_deferred {
                        walk.kept.tail = Some(Tail::NeedsTip);
                    }
                    break;
                }
            };
            walk.blocks.push(id);
            walk.insns += block.insns;
            let tail = match step {
                ChainStep::EndAfter(tail) => tail,
                ChainStep::ReturnFrom(_) => Tail::InnerReturn,
                _ => Tail::Jcc,
            };
            if walk.unused_bits.len() < unused_before || tail.takes_tip() {
                walk.keep(tail, to);
            }
            // Code after the last bit may never be executed.
            let is_next_certain = has_tip || !walk.unused_bits.is_empty();
            let Some((from, exit)) = link.filter(|_| is_next_certain) else { break };
            id = self.successor(from, exit, to, mode);
            ip = to;
        }
        let is_valid = emptied == self.cache.emptied && walk.kept.tail.is_some();
        is_valid.then_some(walk.kept)
    }

    /// Stores in a cached chain the spans of its blocks, for later executions of it. `bits` start
    /// with those that the chain uses.
    #[cold]
    #[inline(never)]
    pub(super) fn store_spans(&mut self, at: ChainId, bits: TntBits) {
        let mut bits = bits;
        let span = |id: &BlockId| {
            let block = self.cache.get(*id)?;
            let bit = if matches!(block.end, End::Jcc | End::Ret) { bits.pop() } else { None };
            Some(block.span(exit_of(block.end, bit)))
        };
        let spans: Vec<Span> = self.cache.chains.blocks(at).iter().filter_map(span).collect();
        self.cache.chains.set_spans(at, spans.into_iter());
    }
}

/// Returns how control leaves a block of a chain, given the bit that its branch takes.
fn exit_of(end: End, bit: Option<bool>) -> Exit {
    match end {
        End::Jcc if bit == Some(true) => Exit::Taken,
        End::Jcc => Exit::NotTaken,
        End::Jmp => Exit::Jmp,
        End::Call | End::CallIndirect => Exit::Call,
        End::JmpIndirect => Exit::JmpIndirect,
        End::Ret => Exit::Ret,
        _ => Exit::Next,
    }
}

impl ChainWalk {
    /// Follows the branch at the end of a block. Uses a TNT bit or the TIP if the branch needs it.
    /// Does not add the block to the walk.
    fn step(&mut self, id: BlockId, block: &Block) -> ChainStep {
        match block.end {
            // A block that loads RSP is executed outside of chains, so that call watchers see it.
            _ if block.loads_sp => ChainStep::EndBefore,
            End::Jcc => match self.unused_bits.pop() {
                Some(true) => ChainStep::To(BlockExit::Branch, block.target),
                Some(false) => ChainStep::To(BlockExit::Fall, block.following()),
                None => ChainStep::EndBefore,
            },
            End::Jmp => ChainStep::To(BlockExit::Branch, block.target),
            End::Call if self.open_call(id, block) => {
                ChainStep::To(BlockExit::Branch, block.target)
            }
            End::Ret => match self.unused_bits.peek() {
                Some(true) => {
                    self.unused_bits.skip_one();
                    self.close_call()
                        .map_or(ChainStep::EndAfter(Tail::OuterReturn), ChainStep::ReturnFrom)
                }
                // A chain with all the bits it can have may be followed by more bits before the
                // TIP.
                None if self.has_tip && self.first_bits.len() < CHAIN_BITS => {
                    ChainStep::EndAfter(Tail::TipReturn)
                }
                _ => ChainStep::EndBefore,
            },
            End::JmpIndirect if self.has_tip => ChainStep::EndAfter(Tail::TipJump),
            End::CallIndirect if self.has_tip && self.open_call(id, block) => {
                ChainStep::EndAfter(Tail::TipCall)
            }
            _ => ChainStep::EndBefore,
        }
    }

    /// Opens the call at the end of a block. Returns false, and does nothing, if as many as a chain
    /// can have are open.
    fn open_call(&mut self, id: BlockId, block: &Block) -> bool {
        let Some(slot) = self.calls.get_mut(usize::from(self.open)) else { return false };
        *slot = Some(Call::at_end_of(id, block, self.insns));
        self.open += 1;
        self.depth = self.depth.max(self.open);
        true
    }

    /// Closes the innermost open call and returns it; `None` if none is open.
    fn close_call(&mut self) -> Option<Call> {
        self.open = self.open.checked_sub(1)?;
        *self.calls.get(usize::from(self.open))?
    }

    /// Makes all blocks walked so far the chain. It has `tail`, and leads to `next`.
    fn keep(&mut self, tail: Tail, next: Addr) {
        let kept = &mut self.kept;
        kept.blocks.extend_from_slice(&self.blocks[kept.blocks.len()..]);
        kept.calls.clear();
        kept.calls.extend(self.calls.iter().flatten());
        (kept.insns, kept.depth, kept.open) = (self.insns, self.depth, self.open);
        kept.bits = self.first_bits.len() - self.unused_bits.len();
        (kept.next, kept.tail) = (next, Some(tail));
    }
}
