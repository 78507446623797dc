//! Chains: what a block and the next few TNT bits lead to, remembered; or, without a bit, to which
//! branch the next TIP belongs. Counting a hot loop takes one look-up for several branches. Holds
//! nothing that the block cache does not imply.

use super::block::{Block, BlockCache, BlockId, End, Way};
use super::tnt::TntBits;

/// TNT bits in a chain at most.
pub(super) const CHAIN_BITS: u8 = 8;
/// Blocks in a chain at most: their instructions are counted in 16 bits.
const MAX_BLOCKS: usize = 40;
const _: () = assert!(MAX_BLOCKS * BlockCache::BLOCK_INSNS as usize <= u16::MAX as usize);
/// Calls that a chain leaves open, or has open at a time, at most.
const MAX_CALLS: usize = 2;
const SLOTS_LOG2: u32 = 15;
/// The key of a chain that leads to a branch with a TIP.
const NO_BITS: u16 = 1;

/// Where a block and some TNT bits lead without a packet, and how many instructions that takes.
/// Half a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct Chain {
    from: BlockId,
    /// The block behind.
    pub(super) next: BlockId,
    /// The round of a tally that counted the chain's blocks last.
    pub(super) round: u32,
    /// Where its blocks start in [`Chains::blocks`], and how many they are.
    start: u32,
    count: u8,
    /// Which of the blocks end with the calls that are open.
    calls: [u8; MAX_CALLS],
    /// Instructions up to each call, and with it.
    calls_at: [u16; MAX_CALLS],
    /// The bits, with a stop bit above.
    key: u16,
    pub(super) insns: u16,
    /// How many bits it uses.
    pub(super) bits: u8,
    /// How many calls it has open at a time at most.
    pub(super) depth: u8,
    open: u8,
    /// Direct jumps and calls since the last bit.
    pub(super) without_bit: u8,
    pub(super) tail: Tail,
}

/// How control leaves a chain's last block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// Neither by a call nor by a return.
    Plain,
    /// By a call, the innermost of those that are open.
    Call,
    /// By a return from a call of the chain.
    Return,
    /// By a return to what comes before the chain, or to where a TIP says; `next` is then that
    /// return's block.
    Out,
}

/// A chain's place in its table, until the next chain is added.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainId(usize);

impl Chain {
    const NONE: Self = Self {
        from: BlockId::NONE,
        next: BlockId::NONE,
        round: 0,
        start: 0,
        count: 0,
        calls: [0; MAX_CALLS],
        calls_at: [0; MAX_CALLS],
        key: 0,
        insns: 0,
        bits: 0,
        depth: 0,
        open: 0,
        without_bit: 0,
        tail: Tail::Plain,
    };

    #[inline]
    fn is(&self, from: BlockId, key: u16) -> bool {
        self.from == from && self.key == key
    }

    /// How many calls are open before the last block's branch.
    #[inline]
    const fn open_inside(&self) -> u8 {
        match self.tail {
            Tail::Plain | Tail::Out => self.open,
            Tail::Call => self.open.saturating_sub(1),
            // What it returns from was open.
            Tail::Return => self.open + 1,
        }
    }

    /// Whether the last block's branch takes a TIP; there is no block [`Self::next`] then.
    #[inline]
    pub(super) const fn takes_tip(&self) -> bool {
        self.key == NO_BITS
    }

    fn push(&mut self, call: u8, insns: u16) -> bool {
        let Some(slot) = self.calls.get_mut(usize::from(self.open)) else { return false };
        *slot = call;
        self.calls_at[usize::from(self.open)] = insns;
        self.open += 1;
        self.depth = self.depth.max(self.open);
        true
    }

    /// Takes in a block whose branch takes a TIP.
    fn step_to_tip(&mut self, block: &Block) -> Step {
        if block.end == End::CallIndirect && !self.push(self.count, self.insns + block.insns) {
            return Step::Stop;
        }
        self.tail = match block.end {
            End::CallIndirect => Tail::Call,
            End::Ret => Tail::Out,
            _ => Tail::Plain,
        };
        Step::Out
    }

    fn pop(&mut self) -> Option<u8> {
        self.open = self.open.checked_sub(1)?;
        self.calls.get(usize::from(self.open)).copied()
    }
}

/// The chains of a block cache: a table in which a new chain takes the place of an old one.
#[derive(Clone, Debug, Default)]
pub(super) struct Chains {
    slots: Vec<Chain>,
    /// The blocks of the chains, also of those that are gone.
    blocks: Vec<BlockId>,
}

/// When the blocks of chains are more than these, all chains are forgotten. 8 MiB.
const BLOCKS_LIMIT: usize = 2 << 20;

impl Chains {
    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.blocks.clear();
    }

    /// The blocks of a chain, in the order in which they are executed.
    #[inline]
    fn blocks_of(&self, chain: &Chain) -> &[BlockId] {
        let start = chain.start as usize;
        self.blocks.get(start..start + usize::from(chain.count)).unwrap_or_default()
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
    Out,
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

    /// Marks the chain, and those of its blocks that are not yet, as counted in the round of a
    /// tally; shows the latter.
    pub(super) fn mark_chain(&mut self, id: ChainId, round: u32, mut show: impl FnMut(&mut Block)) {
        let Some(chain) = self.chains.slots.get_mut(id.0) else { return };
        chain.round = round;
        let chain = *chain;
        for id in self.chains.blocks_of(&chain) {
            if let Some(block) = self.blocks.get_mut(id.number() as usize)
                && block.is_news(round)
            {
                show(block);
            }
        }
    }

    /// The blocks of the calls that are open at the end, the outermost first.
    #[inline]
    pub(super) fn open_calls(&self, chain: &Chain) -> impl Iterator<Item = (BlockId, &Block)> {
        let blocks = self.chains.blocks_of(chain);
        let calls = chain.calls.into_iter().take(usize::from(chain.open));
        calls.filter_map(|call| {
            let id = *blocks.get(usize::from(call))?;
            Some((id, self.get(id)?))
        })
    }

    /// The calls that are open before the last block's branch, the outermost first. Each with the
    /// number of instructions up to it, and with it.
    #[inline]
    pub(super) fn calls_inside(&self, chain: &Chain) -> impl Iterator<Item = (u16, &Block)> {
        let blocks = self.chains.blocks_of(chain);
        let calls = chain.calls.into_iter().zip(chain.calls_at);
        calls.take(usize::from(chain.open_inside())).filter_map(|(call, insns)| {
            let block = blocks.get(usize::from(call))?;
            Some((insns, self.get(*block)?))
        })
    }

    #[cold]
    #[inline(never)]
    fn add_chain(&mut self, index: usize, from: BlockId, bits: TntBits) -> Option<ChainId> {
        if self.chains.blocks.len() > BLOCKS_LIMIT {
            self.chains.clear();
            self.chains.index(from, 0);
        }
        let before = self.chains.blocks.len();
        let Some(chain) = self.walk(from, bits) else {
            self.chains.blocks.truncate(before);
            return None;
        };
        *self.chains.slots.get_mut(index)? = chain;
        Some(ChainId(index))
    }

    /// Walks along the chain of block `from` with `bits`, and keeps its blocks.
    fn walk(&mut self, from: BlockId, bits: TntBits) -> Option<Chain> {
        let start = u32::try_from(self.chains.blocks.len()).ok()?;
        let key = bits.key(CHAIN_BITS);
        let mut chain = Chain { from, next: from, start, key, ..Chain::NONE };
        let mut left = bits.first(CHAIN_BITS);
        let mut is_out = false;
        for _ in 0..MAX_BLOCKS {
            if left.is_empty() && !chain.takes_tip() {
                break;
            }
            let id = chain.next;
            let block = *self.get(id)?;
            match self.step(&mut chain, &block, &mut left) {
                Step::To(next) => chain.next = next,
                Step::Out => is_out = true,
                Step::Stop => break,
                Step::Unknown => return None,
            }
            self.chains.blocks.push(id);
            chain.count += 1;
            chain.insns += block.insns;
            if is_out {
                break;
            }
        }
        (is_out || chain.bits > 0).then_some(chain)
    }

    fn step(&self, chain: &mut Chain, block: &Block, left: &mut TntBits) -> Step {
        let taken = left.peek().unwrap_or_default();
        let next = match block.end {
            End::Jcc if !left.is_empty() => block.link(Way::of(taken)),
            End::Jmp => block.link(Way::Branch),
            End::Call if chain.push(chain.count, chain.insns + block.insns) => {
                block.link(Way::Branch)
            }
            End::JmpIndirect | End::CallIndirect | End::Ret if chain.key == NO_BITS => {
                return chain.step_to_tip(block);
            }
            End::Ret if taken => {
                let Some(call) = chain.pop() else {
                    chain.bits += 1;
                    chain.without_bit = 0;
                    chain.tail = Tail::Out;
                    return Step::Out;
                };
                let call = self.chains.blocks_of(chain).get(usize::from(call));
                self.link(call.copied().unwrap_or(BlockId::NONE), Way::Fall)
            }
            _ => return Step::Stop,
        };
        chain.tail = match block.end {
            End::Call => Tail::Call,
            End::Ret => Tail::Return,
            _ => Tail::Plain,
        };
        if next == BlockId::NONE {
            return Step::Unknown;
        }
        if matches!(block.end, End::Jcc | End::Ret) {
            left.skip_one();
            chain.bits += 1;
            chain.without_bit = 0;
        } else {
            chain.without_bit += 1;
        }
        Step::To(next)
    }
}
