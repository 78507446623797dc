//! Builds a chain when it is first executed: walks through the code with the available TNT bits, as
//! the decoder does block by block.

use super::block::{Block, BlockCache, BlockExit, BlockId, End};
use super::chain::{CHAIN_BITS, Call, Draft, Key, MAX_CALLS, Tail};
use super::chains::ChainId;
use super::code::Code;
use super::item::{Exit, Span};
use super::tnt::TntBits;
use crate::common::Addr;
use crate::insn::ExecMode;

/// The limit on blocks in a chain, whose instructions are counted in 16 bits.
const MAX_BLOCKS: usize = 40;
const _: () = assert!(MAX_BLOCKS * BlockCache::BLOCK_INSNS as usize <= u16::MAX as usize);

/// The state of a walk along a chain.
struct Walk {
    /// True if a TIP follows right after `all` bits.
    has_tip: bool,
    all: TntBits,
    /// The bits that are not used yet.
    left: TntBits,
    insns: u16,
    /// The maximum number of calls open at one time.
    depth: u8,
    /// The number of open calls, which are the first of `calls`.
    open: u8,
    calls: [Option<Call>; MAX_CALLS],
    blocks: Vec<BlockId>,
    /// The blocks up to the last branch that used a TNT bit or the TIP.
    kept: Draft,
}

/// The result of following the branch at a block's end.
enum Step {
    To(BlockExit, Addr),
    /// To the address after this call, by a return.
    Back(Call),
    /// The chain ends with this block.
    End(Tail),
    /// The chain ends before this block.
    Stop,
}

impl Code<'_> {
    /// Builds and caches the chain from an address. Returns `None` if there is none: the available
    /// bits and TIP do not suffice to execute the next branch.
    ///
    /// All that is walked is certain to be executed, except at the trace's end or damage: no packet
    /// binds before the branches that have their bits or TIP.
    #[cold]
    #[inline(never)]
    pub(super) fn add_chain(
        &mut self,
        from: Addr,
        key: Key,
        bits: TntBits,
        mode: ExecMode,
    ) -> Option<ChainId> {
        let draft = self.walk_chain(from, mode, bits.first(CHAIN_BITS), key.has_tip())?;
        self.cache.chains.add(from, key, &draft)
    }

    /// Walks along the chain from an address, as far as it goes, and returns it. Empties the cache
    /// if that is full, and then returns `None`.
    fn walk_chain(
        &mut self,
        from: Addr,
        mode: ExecMode,
        bits: TntBits,
        has_tip: bool,
    ) -> Option<Draft> {
        let mut walk = Walk {
            has_tip,
            all: bits,
            left: bits,
            insns: 0,
            depth: 0,
            open: 0,
            calls: [None; MAX_CALLS],
            blocks: Vec::with_capacity(MAX_BLOCKS),
            kept: Draft::default(),
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
            let before = walk.left.len();
            let step = walk.step(id, &block);
            let (way, to) = match step {
                Step::To(way, to) => (Some((id, way)), to),
                Step::Back(call) => (Some((call.block, BlockExit::Fall)), call.return_address),
                Step::End(_) => (None, Addr(0)),
                Step::Stop => {
                    let waits = block.end.takes_tip() && !walk.left.is_empty() && !has_tip;
                    if walk.kept.tail.is_none() && waits {
                        walk.kept.tail = Some(Tail::Ask);
                    }
                    break;
                }
            };
            walk.blocks.push(id);
            walk.insns += block.insns;
            let tail = match step {
                Step::End(tail) => tail,
                Step::Back(_) => Tail::Return,
                _ => Tail::Plain,
            };
            if walk.left.len() < before || tail.takes_tip() {
                walk.keep(tail, to);
            }
            // Code after the last bit may never be executed.
            let is_sure = has_tip || !walk.left.is_empty();
            let Some((from, way)) = way.filter(|_| is_sure) else { break };
            id = self.follow(from, way, to, mode);
            ip = to;
        }
        let is_whole = emptied == self.cache.emptied && walk.kept.tail.is_some();
        is_whole.then_some(walk.kept)
    }

    /// Builds and stores the spans of a chain's blocks.
    #[cold]
    #[inline(never)]
    pub(super) fn add_spans(&mut self, at: ChainId, bits: TntBits) {
        let mut bits = bits;
        let span = |id: &BlockId| {
            let block = self.cache.get(*id)?;
            let bit = if matches!(block.end, End::Jcc | End::Ret) { bits.pop() } else { None };
            Some(block.span(exit(block.end, bit)))
        };
        let spans: Vec<Span> = self.cache.chains.blocks(at).iter().filter_map(span).collect();
        self.cache.chains.set_spans(at, spans.into_iter());
    }
}

/// Returns how control leaves a block of a chain, given the bit that its branch takes.
fn exit(end: End, bit: Option<bool>) -> Exit {
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

impl Walk {
    /// Follows the branch at the end of a block. Uses a TNT bit or the TIP if the branch needs it.
    fn step(&mut self, id: BlockId, block: &Block) -> Step {
        match block.end {
            // A block that loads RSP is executed outside of chains, so that call watchers see it.
            _ if block.loads_sp => Step::Stop,
            End::Jcc => match self.left.pop() {
                Some(true) => Step::To(BlockExit::Branch, block.target),
                Some(false) => Step::To(BlockExit::Fall, block.fall()),
                None => Step::Stop,
            },
            End::Jmp => Step::To(BlockExit::Branch, block.target),
            End::Call if self.push(id, block) => Step::To(BlockExit::Branch, block.target),
            End::Ret => match self.left.peek() {
                Some(true) => {
                    self.left.skip_one();
                    self.pop().map_or(Step::End(Tail::Out), Step::Back)
                }
                // A chain with all the bits it can have may be followed by more bits before the
                // TIP.
                None if self.has_tip && self.all.len() < CHAIN_BITS => Step::End(Tail::TipReturn),
                _ => Step::Stop,
            },
            End::JmpIndirect if self.has_tip => Step::End(Tail::TipJump),
            End::CallIndirect if self.has_tip && self.push(id, block) => Step::End(Tail::TipCall),
            _ => Step::Stop,
        }
    }

    fn push(&mut self, id: BlockId, block: &Block) -> bool {
        let Some(slot) = self.calls.get_mut(usize::from(self.open)) else { return false };
        *slot = Some(Call::of(id, block, self.insns));
        self.open += 1;
        self.depth = self.depth.max(self.open);
        true
    }

    fn pop(&mut self) -> Option<Call> {
        self.open = self.open.checked_sub(1)?;
        *self.calls.get(usize::from(self.open))?
    }

    /// Keeps the blocks walked so far as a chain.
    fn keep(&mut self, tail: Tail, next: Addr) {
        let kept = &mut self.kept;
        kept.blocks.extend_from_slice(&self.blocks[kept.blocks.len()..]);
        kept.calls.clear();
        kept.calls.extend(self.calls.iter().flatten());
        (kept.insns, kept.depth, kept.open) = (self.insns, self.depth, self.open);
        kept.bits = self.all.len() - self.left.len();
        (kept.next, kept.tail) = (next, Some(tail));
    }
}
