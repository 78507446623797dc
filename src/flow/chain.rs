//! Chains: what an address, the next few TNT bits and a TIP behind them lead to, remembered.
//! Executing a hot loop takes one look-up for several branches. Plain values; the table of them is
//! elsewhere.

use super::block::{Block, BlockId};
use super::tnt::TntBits;
use crate::common::Addr;
use crate::insn::ExecMode;

/// TNT bits in a chain at most.
pub(super) const CHAIN_BITS: u8 = 10;
/// Calls that a chain leaves open, or has open at a time, at most.
pub(super) const MAX_CALLS: usize = 3;

/// What a chain takes of the trace, and the width of its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u32);

impl Key {
    const NONE: Self = Self(0);
    const LEN_SHIFT: u32 = 16;
    const TIP: u32 = 1 << 24;
    const MODE_SHIFT: u32 = 25;

    /// The next of `bits`; and whether a TIP comes next behind all of them. There must be either.
    #[inline]
    pub(super) const fn new(bits: TntBits, has_tip: bool, mode: ExecMode) -> Self {
        let next = (bits.next_16() >> (16 - CHAIN_BITS)) as u32;
        let len = bits.first(CHAIN_BITS).len() as u32;
        let tip = if has_tip { Self::TIP } else { 0 };
        Self(next | len << Self::LEN_SHIFT | tip | (mode as u32) << Self::MODE_SHIFT)
    }

    #[inline]
    pub(super) const fn number(self) -> u64 {
        self.0 as u64
    }

    /// Whether there is a TIP for the chain.
    pub(super) const fn has_tip(self) -> bool {
        self.0 & Self::TIP != 0
    }
}

/// Where an address and some TNT bits lead, and how many instructions that takes. Half a cache
/// line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct Chain {
    pub(super) from: Addr,
    /// The address behind, where code and bits alone tell it.
    pub(super) next: Addr,
    pub(super) key: Key,
    /// Where its details are.
    pub(super) detail: u32,
    /// The round of a tally that counted the chain's blocks last.
    pub(super) round: u32,
    pub(super) insns: u16,
    /// How many bits it uses, and in the two highest bits how many calls it has open at a time at
    /// most.
    pub(super) bits_and_depth: u8,
    pub(super) tail: Tail,
}

const _: () = assert!(size_of::<Chain>() == 32 && CHAIN_BITS < 16 && MAX_CALLS < 4);

/// How control leaves a chain's last block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// By a conditional branch.
    Plain,
    /// By a return from a call of the chain.
    Return,
    /// By a compressed return to what comes before the chain.
    Out,
    /// To where a TIP says: by a jump,
    TipJump,
    /// by a call, the innermost of those that are open,
    TipCall,
    /// or by a return.
    TipReturn,
    /// There is none: the first branch takes a TIP before the bits.
    Ask,
}

impl Tail {
    /// Whether a TIP tells the address behind.
    #[inline]
    pub(super) const fn takes_tip(self) -> bool {
        matches!(self, Self::TipJump | Self::TipCall | Self::TipReturn)
    }
}

impl Chain {
    /// A free place for one.
    pub(super) const NONE: Self = Self {
        from: Addr(0),
        next: Addr(0),
        key: Key::NONE,
        detail: 0,
        round: 0,
        insns: 0,
        bits_and_depth: 0,
        tail: Tail::Plain,
    };

    pub(super) fn is_none(&self) -> bool {
        self.key == Key::NONE
    }

    #[inline]
    pub(super) fn is(&self, from: Addr, key: Key) -> bool {
        self.from == from && self.key == key
    }

    /// How many bits it uses.
    #[inline]
    pub(super) const fn bits(&self) -> u8 {
        self.bits_and_depth & 0x3f
    }

    /// How many calls it has open at a time at most.
    #[inline]
    pub(super) const fn depth(&self) -> u8 {
        self.bits_and_depth >> 6
    }
}

/// A call on a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// The block that it ends.
    pub(super) block: BlockId,
    pub(super) site: Addr,
    pub(super) return_address: Addr,
    /// Where it goes; of no meaning where a TIP says.
    pub(super) entry: Addr,
    /// Instructions of the chain up to it, and with it.
    pub(super) insns: u16,
}

impl Call {
    pub(super) const fn of(id: BlockId, block: &Block, before: u16) -> Self {
        Self {
            block: id,
            site: block.last(),
            return_address: block.fall(),
            entry: block.target,
            insns: before + block.insns,
        }
    }
}

/// Numbers of blocks in a tally: those of 64 in a row that have their bit set.
pub(super) type Mark = (u32, u64);

/// A chain that was just walked.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) next: Addr,
    pub(super) blocks: Vec<BlockId>,
    pub(super) calls: Vec<Call>,
    pub(super) insns: u16,
    pub(super) bits: u8,
    pub(super) depth: u8,
    pub(super) open: u8,
    pub(super) tail: Option<Tail>,
}

impl Draft {
    /// How many calls are open before the last block's branch.
    pub(super) fn inside(&self, tail: Tail) -> u8 {
        match tail {
            Tail::TipCall => self.open.saturating_sub(1),
            // What it returns from was open.
            Tail::Return => self.open + 1,
            _ => self.open,
        }
    }
}
