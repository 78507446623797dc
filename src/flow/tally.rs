//! What a stretch of the trace executed, without its order: how many instructions, and which
//! blocks. Reads no trace itself.

use super::block::{Block, BlockId};
use super::chain::{Chain, ChainId};
use super::code::Code;
use super::item::Span;
use crate::common::Addr;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// A block by the addresses of its first and last instruction.
pub type Bounds = (Addr, Addr);

/// Counts what is executed; see [`Decoder::skim`](super::Decoder::skim). Blocks have numbers that
/// stay from one round to the next.
#[derive(Debug)]
pub struct Tally {
    /// Instructions executed in this round.
    pub insns: u64,
    /// In no order of theirs, each once.
    blocks: Vec<u32>,
    names: Names,
    /// Blocks and chains that were counted in this round bear it. No other round of any tally is
    /// the same.
    round: u32,
    /// Blocks whose number is one of this tally's bear it.
    owner: u32,
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

impl Tally {
    /// Nothing yet.
    pub fn new() -> Self {
        let (insns, blocks, names) = (0, Vec::new(), Names::default());
        Self { insns, blocks, names, round: unique(), owner: unique() }
    }

    /// Begins a new round, with nothing executed. Blocks keep their numbers.
    pub fn restart(&mut self) {
        self.insns = 0;
        self.blocks.clear();
        self.round = unique();
    }

    /// The numbers of the blocks that were executed in this round, each once, in the order in which
    /// they were met.
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// All blocks that have a number, in order of the numbers.
    pub fn names(&self) -> &[Bounds] {
        &self.names.bounds
    }

    /// Adds a block, or a part of one.
    pub fn add(&mut self, bounds: Bounds) {
        let number = self.names.number(bounds);
        self.add_number(number);
    }

    /// Whether the chain was counted in this round.
    #[inline]
    pub(super) const fn has(&self, chain: &Chain) -> bool {
        chain.round == self.round
    }

    fn add_number(&mut self, number: u32) {
        // The same code may be there as several blocks.
        if self.names.is_news(number, self.round) {
            self.blocks.push(number);
        }
    }

    #[inline]
    pub(super) fn add_block(&mut self, code: &mut Code<'_>, id: BlockId) {
        if let Some(block) = code.cache.mark(id, self.round) {
            self.add_marked(block);
        }
    }

    #[cold]
    fn add_marked(&mut self, block: &mut Block) {
        if block.number.0 != self.owner {
            block.number = (self.owner, self.names.number((block.ip, block.last())));
        }
        self.add_number(block.number.1);
    }

    /// Adds the blocks of a chain.
    #[cold]
    #[inline(never)]
    pub(super) fn add_chain(&mut self, code: &mut Code<'_>, id: ChainId) {
        code.cache.mark_chain(id, self.round, |block| self.add_marked(block));
    }

    pub(super) fn add_span(&mut self, code: &mut Code<'_>, span: &Span) {
        self.insns += u64::from(span.insns);
        let id = code.find(span.ip, span.mode);
        match code.block(id) {
            Some(block) if block.last() == span.last => self.add_block(code, id),
            // An event cut it short.
            _ => self.add((span.ip, span.last)),
        }
    }
}

/// Numbers of blocks.
#[derive(Debug, Default)]
struct Names {
    bounds: Vec<Bounds>,
    numbers: HashMap<Bounds, u32>,
    /// In which round each was executed last.
    rounds: Vec<u32>,
}

impl Names {
    fn number(&mut self, bounds: Bounds) -> u32 {
        *self.numbers.entry(bounds).or_insert_with(|| {
            self.bounds.push(bounds);
            self.rounds.push(0);
            u32::try_from(self.bounds.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// Whether the block was not yet executed in this round; from now on it was.
    fn is_news(&mut self, number: u32, round: u32) -> bool {
        let last = self.rounds.get_mut(number as usize);
        last.is_some_and(|last| std::mem::replace(last, round) != round)
    }
}

/// A number that nobody else gets, and not 0.
fn unique() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if number != 0 {
            return number;
        }
    }
}
