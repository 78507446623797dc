//! Chains: cached walks from an address through the blocks that the next few TNT bits, and a TIP
//! after them, determine. One lookup executes several branches of a hot loop. Plain values;
//! `chains` holds their table.

use super::block::{Block, BlockId};
use super::tnt::TntBits;
use crate::common::Addr;
use crate::insn::ExecMode;

/// The limit on TNT bits in a chain.
pub(super) const CHAIN_BITS: u8 = 10;
/// The limit on calls that a chain has open at one time. A call is open until its return.
pub(super) const MAX_CALLS: usize = 3;

/// The key of a chain, besides its address: the TNT bits and the TIP that it can use, and the width
/// of its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainKey(u32);

impl ChainKey {
    const NONE: Self = Self(0);
    const LEN_SHIFT: u32 = 16;
    const TIP: u32 = 1 << 24;
    const MODE_SHIFT: u32 = 25;

    /// Creates the key for the next [`CHAIN_BITS`] of `bits`. `has_tip` is true if a TIP follows
    /// right after all of `bits`. There must be a bit or a TIP: the key without both is that of a
    /// free slot.
    #[inline]
    pub(super) const fn new(bits: TntBits, has_tip: bool, mode: ExecMode) -> Self {
        let next = (bits.next_16() >> (16 - CHAIN_BITS)) as u32;
        let len = bits.first(CHAIN_BITS).len() as u32;
        let tip = if has_tip { Self::TIP } else { 0 };
        Self(next | len << Self::LEN_SHIFT | tip | (mode as u32) << Self::MODE_SHIFT)
    }

    /// Returns the key as a number, to be hashed.
    #[inline]
    pub(super) const fn to_u64(self) -> u64 {
        self.0 as u64
    }

    /// Returns true if a TIP follows right after all available TNT bits.
    pub(super) const fn has_tip(self) -> bool {
        self.0 & Self::TIP != 0
    }
}

/// A cached walk: the address that some TNT bits lead to, and the number of instructions. Half a
/// cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct Chain {
    /// The address of the chain's first instruction.
    pub(super) from: Addr,
    /// The address that is executed after the chain, if code and bits alone determine it; zero if
    /// it is in a TIP or on the decoder's return stack.
    pub(super) next: Addr,
    pub(super) key: ChainKey,
    /// The index of the chain's details in [`Chains`](super::chains::Chains).
    pub(super) detail: u32,
    /// The last round of an [`ExecutedCode`](super::executed_code::ExecutedCode) to which the
    /// chain's blocks were added.
    pub(super) round: u32,
    pub(super) insns: u16,
    /// The number of TNT bits that the chain uses; in the two highest bits, the maximum number of
    /// calls that it has open at one time.
    pub(super) bits_and_depth: u8,
    pub(super) tail: Tail,
}

const _: () = assert!(size_of::<Chain>() == 32 && CHAIN_BITS < 16 && MAX_CALLS < 4);

/// The kind of exit from the last block of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// By a conditional branch.
    Jcc,
    /// By a compressed return from a call in the chain.
    InnerReturn,
    /// By a compressed return from a call before the chain, which is on the decoder's return stack.
    OuterReturn,
    /// By a jump to the target in a TIP.
    TipJump,
    /// By a call to the target in a TIP; it is the innermost open call.
    TipCall,
    /// By a return to the target in a TIP.
    TipReturn,
    /// The chain is empty, and only says that its first branch takes a TIP. The TNT bits at hand
    /// are for later branches: the TIP was deferred, and follows them. The chain must be looked up
    /// again, with the TIP in its key.
    NeedsTip,
}

impl Tail {
    /// Returns true if the address after the chain is in a TIP.
    #[inline]
    pub(super) const fn takes_tip(self) -> bool {
        matches!(self, Self::TipJump | Self::TipCall | Self::TipReturn)
    }
}

impl Chain {
    /// The contents of a free slot.
    pub(super) const NONE: Self = Self {
        from: Addr(0),
        next: Addr(0),
        key: ChainKey::NONE,
        detail: 0,
        round: 0,
        insns: 0,
        bits_and_depth: 0,
        tail: Tail::Jcc,
    };

    /// Returns true if this is the contents of a free slot.
    pub(super) fn is_none(&self) -> bool {
        self.key == ChainKey::NONE
    }

    /// Returns true if this is the chain from this address with this key.
    #[inline]
    pub(super) fn is_for(&self, from: Addr, key: ChainKey) -> bool {
        self.from == from && self.key == key
    }

    /// Returns the number of TNT bits that the chain uses.
    #[inline]
    pub(super) const fn bits(&self) -> u8 {
        self.bits_and_depth & 0x3f
    }

    /// Returns the maximum number of calls that the chain has open at one time.
    #[inline]
    pub(super) const fn depth(&self) -> u8 {
        self.bits_and_depth >> 6
    }
}

/// A call in a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// The block that ends in the call.
    pub(super) block: BlockId,
    /// The address of the call.
    pub(super) site: Addr,
    /// The address after the call.
    pub(super) return_address: Addr,
    /// The target of the call; meaningless if it is in a TIP.
    pub(super) entry: Addr,
    /// The number of the chain's instructions up to and including the call.
    pub(super) insns: u16,
}

impl Call {
    /// Returns the call at the end of a block. `insns_before` instructions of the chain precede the
    /// block.
    pub(super) const fn at_end_of(id: BlockId, block: &Block, insns_before: u16) -> Self {
        Self {
            block: id,
            site: block.last(),
            return_address: block.following(),
            entry: block.target,
            insns: insns_before + block.insns,
        }
    }
}

/// A part of a set of block numbers: the index of a group of 64 consecutive numbers, and a bit for
/// each number of the group that is in the set, the lowest number in the lowest bit.
pub(super) type BlockSetWord = (u32, u64);

/// A chain under construction; its fields are those of [`Chain`], if not described here.
#[derive(Debug, Default)]
pub(super) struct ChainDraft {
    pub(super) next: Addr,
    pub(super) blocks: Vec<BlockId>,
    /// The last calls at each depth, the outermost first: the open ones, and maybe one that the
    /// last branch returned from.
    pub(super) calls: Vec<Call>,
    pub(super) insns: u16,
    pub(super) bits: u8,
    /// The maximum number of calls open at one time.
    pub(super) depth: u8,
    /// The number of calls open at the end.
    pub(super) open: u8,
    /// The exit from the last block; `None` as long as there is no block.
    pub(super) tail: Option<Tail>,
}

impl ChainDraft {
    /// Returns the number of calls that are open before the last block's branch, whose kind is
    /// `tail`.
    pub(super) fn open_before_last(&self, tail: Tail) -> u8 {
        match tail {
            Tail::TipCall => self.open.saturating_sub(1),
            // The call from which this branch returns was open.
            Tail::InnerReturn => self.open + 1,
            _ => self.open,
        }
    }
}
