//! Chains: what a block and the next few TNT bits lead to, remembered. Counting a hot loop takes
//! one look-up for several branches. Holds nothing that the block cache does not imply.

use super::block::{Block, BlockCache, BlockId, End, Way};
use super::tnt::TntBits;

/// TNT bits in a chain at most.
pub(super) const CHAIN_BITS: u8 = 8;
/// Blocks in a chain at most.
const MAX_BLOCKS: usize = 40;
/// Calls that a chain leaves open, or has open at a time, at most.
const MAX_CALLS: usize = 2;
const SLOTS_LOG2: u32 = 15;

/// Where a block and some TNT bits lead without a packet, and how many instructions that takes.
/// Half a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct Chain {
    from: BlockId,
    /// The bits, with a stop bit above.
    key: u16,
    /// The tally that counted the chain's blocks last.
    pub(super) mark: u32,
    /// The block behind.
    pub(super) next: BlockId,
    pub(super) insns: u32,
    /// How many bits it uses.
    pub(super) bits: u8,
    /// How many calls it has open at a time at most.
    pub(super) depth: u8,
    /// Whether it ends with a return to a call before it; `next` is then that return's block.
    pub(super) returns: bool,
    open: u8,
    calls: [BlockId; MAX_CALLS],
}

/// A chain's place in its table, until the next chain is added.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainId(usize);

impl Chain {
    const NONE: Self = Self {
        from: BlockId::NONE,
        key: 0,
        mark: 0,
        next: BlockId::NONE,
        insns: 0,
        bits: 0,
        depth: 0,
        returns: false,
        open: 0,
        calls: [BlockId::NONE; MAX_CALLS],
    };

    #[inline]
    fn is(&self, from: BlockId, key: u16) -> bool {
        self.from == from && self.key == key
    }

    /// The blocks of the calls that are open at the end, the outermost first.
    pub(super) fn open_calls(&self) -> &[BlockId] {
        self.calls.get(..usize::from(self.open)).unwrap_or_default()
    }

    fn push(&mut self, call: BlockId) -> bool {
        let Some(slot) = self.calls.get_mut(usize::from(self.open)) else { return false };
        *slot = call;
        self.open += 1;
        self.depth = self.depth.max(self.open);
        true
    }

    fn pop(&mut self) -> Option<BlockId> {
        self.open = self.open.checked_sub(1)?;
        self.calls.get(usize::from(self.open)).copied()
    }
}

/// The chains of a block cache: a table in which a new chain takes the place of an old one.
#[derive(Clone, Debug, Default)]
pub(super) struct Chains {
    slots: Vec<Chain>,
}

impl Chains {
    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }

    /// Where the chain is if it is there.
    #[inline]
    fn index(&mut self, from: BlockId, key: u16) -> usize {
        if self.slots.is_empty() {
            self.slots = vec![Chain::NONE; 1 << SLOTS_LOG2];
        }
        let mixed = (from.number() ^ u32::from(key) << 23).wrapping_mul(0x9e37_79b1);
        (mixed >> (32 - SLOTS_LOG2)) as usize
    }
}

/// What a walk along a chain meets at a block.
enum Step {
    To(BlockId),
    /// Out of the chain, to where the stack says.
    Return,
    /// The chain ends before this block.
    Stop,
    /// The block behind is not known yet.
    Unknown,
}

impl BlockCache {
    /// The chain of block `from` with the next of `bits`. None while blocks on it are not met yet.
    #[inline]
    pub(super) fn chain(&mut self, from: BlockId, bits: TntBits) -> Option<ChainId> {
        let key = bits.key(CHAIN_BITS);
        let index = self.chains.index(from, key);
        if self.chains.slots.get(index)?.is(from, key) {
            return Some(ChainId(index));
        }
        self.add_chain(index, from, bits)
    }

    #[inline]
    pub(super) fn get_chain(&self, id: ChainId) -> Option<&Chain> {
        self.chains.slots.get(id.0)
    }

    /// Marks the chain as counted by the tally `mark`.
    pub(super) fn mark_chain(&mut self, id: ChainId, mark: u32) {
        if let Some(chain) = self.chains.slots.get_mut(id.0) {
            chain.mark = mark;
        }
    }

    #[cold]
    #[inline(never)]
    fn add_chain(&mut self, index: usize, from: BlockId, bits: TntBits) -> Option<ChainId> {
        let chain = self.walk(from, bits, |_| {})?;
        let key = bits.key(CHAIN_BITS);
        *self.chains.slots.get_mut(index)? = Chain { key, ..chain };
        Some(ChainId(index))
    }

    /// Walks along the chain of block `from` with `bits`, and shows its blocks.
    pub(super) fn walk(
        &self,
        from: BlockId,
        bits: TntBits,
        mut show: impl FnMut(BlockId),
    ) -> Option<Chain> {
        let mut chain = Chain { from, next: from, ..Chain::NONE };
        let mut left = bits.first(CHAIN_BITS);
        for _ in 0..MAX_BLOCKS {
            if left.is_empty() || chain.returns {
                break;
            }
            let id = chain.next;
            let block = self.get(id)?;
            match self.step(&mut chain, block, &mut left) {
                Step::To(next) => chain.next = next,
                Step::Return => chain.returns = true,
                Step::Stop => break,
                Step::Unknown => return None,
            }
            show(id);
            chain.insns += u32::from(block.insns);
        }
        Some(chain)
    }

    fn step(&self, chain: &mut Chain, block: &Block, left: &mut TntBits) -> Step {
        let taken = left.peek().unwrap_or_default();
        let next = match block.end {
            End::Jcc => block.link(Way::of(taken)),
            End::Jmp => block.link(Way::Branch),
            End::Call if chain.push(chain.next) => block.link(Way::Branch),
            End::Ret if taken => {
                let Some(call) = chain.pop() else {
                    chain.bits += 1;
                    return Step::Return;
                };
                self.link(call, Way::Fall)
            }
            _ => return Step::Stop,
        };
        if next == BlockId::NONE {
            return Step::Unknown;
        }
        if matches!(block.end, End::Jcc | End::Ret) {
            left.skip_one();
            chain.bits += 1;
        }
        Step::To(next)
    }
}
