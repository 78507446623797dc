//! Collects what a part of a trace executed, regardless of order: the number of instructions, and
//! the set of blocks. Reads no trace.
//!
//! Blocks get numbers, so that a set of them is a set of bits. The number of a block is stored in
//! the cached block, and the set of a chain's blocks in the chain: so a chain that is executed
//! again in the same round costs one comparison.

use super::block::{BlockCache, BlockId};
use super::chain::{BlockSetWord, Chain};
use super::chains::ChainId;
use super::code::Code;
use super::item::Span;
use crate::common::Addr;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// A block, as the addresses of its first and last instruction.
pub type Bounds = (Addr, Addr);

/// The executed instructions and blocks of a part of a trace; see
/// [`Decoder::collect_code`](super::Decoder::collect_code). A round is what was added since the
/// last [`Self::restart`]. Blocks keep their numbers in later rounds.
#[derive(Debug)]
pub struct ExecutedCode {
    /// The number of instructions executed in this round.
    pub insns: u64,
    /// The numbers of the blocks executed in this round.
    executed: NumberSet,
    numbering: Numbering,
    /// The identifier of this round, stored in chains that were added in it. Unique among the
    /// rounds of all values of this type.
    round: u32,
    /// The identifier of this value, stored in the cached blocks and chains that have its numbers.
    id: u32,
}

impl Default for ExecutedCode {
    fn default() -> Self {
        Self::new()
    }
}

impl ExecutedCode {
    /// Creates an empty set, without numbered blocks.
    pub fn new() -> Self {
        let (executed, numbering) = (NumberSet::default(), Numbering::default());
        Self { insns: 0, executed, numbering, round: unique_id(), id: unique_id() }
    }

    /// Starts a new round, with nothing executed. Blocks keep their numbers.
    pub fn restart(&mut self) {
        self.insns = 0;
        self.executed.clear();
        self.round = unique_id();
    }

    /// Returns the numbers of the blocks executed in this round, each once, in ascending order.
    /// [`Self::numbered`] has their bounds.
    pub fn blocks(&self) -> impl Iterator<Item = u32> {
        self.words().flat_map(|(word, bits)| {
            let numbers = (0..64).filter(move |bit| bits >> bit & 1 != 0);
            numbers.map(move |bit| word << 6 | bit)
        })
    }

    /// Returns the set of [`Self::blocks`] as words: the index of a group of 64 numbers, and its
    /// bits, the lowest number in the lowest bit.
    pub fn words(&self) -> impl Iterator<Item = (u32, u64)> {
        self.executed.words()
    }

    /// Returns the bounds of all numbered blocks, in order of their numbers: those of all rounds.
    pub fn numbered(&self) -> &[Bounds] {
        &self.numbering.bounds
    }

    /// Adds a block, or a part of one, to those executed in this round. Numbers it if it has no
    /// number. Does not count its instructions.
    pub fn add(&mut self, bounds: Bounds) {
        let number = self.numbering.number_of(bounds);
        self.executed.add(set_word_of(number));
    }

    /// Returns true if the chain's blocks were already added in this round.
    #[inline]
    pub(super) const fn has_added(&self, chain: &Chain) -> bool {
        chain.round == self.round
    }

    /// Adds the blocks of a chain to the executed ones, and notes the round in the chain
    /// ([`Self::has_added`]). Does not count its instructions.
    #[inline]
    pub(super) fn add_chain(&mut self, cache: &mut BlockCache, at: ChainId) {
        match cache.chains.set_words_for_round(at, self.round, self.id) {
            Some(set_words) => set_words.iter().for_each(|word| self.executed.add(*word)),
            None => self.add_new_chain(cache, at),
        }
    }

    /// Does the same as [`Self::add_chain`] for a chain that does not have its blocks' numbers of
    /// this value yet, and stores them there.
    #[cold]
    #[inline(never)]
    fn add_new_chain(&mut self, cache: &mut BlockCache, at: ChainId) {
        let mut set_words: Vec<BlockSetWord> = Vec::new();
        for index in 0..cache.chains.blocks(at).len() {
            let Some(id) = cache.chains.blocks(at).get(index).copied() else { break };
            let Some(number) = self.number_of_block(cache, id) else { continue };
            let (index, bit) = set_word_of(number);
            match set_words.iter_mut().find(|word| word.0 == index) {
                Some(word) => word.1 |= bit,
                None => set_words.push((index, bit)),
            }
        }
        for word in &set_words {
            self.executed.add(*word);
        }
        cache.chains.store_set_words(at, self.id, &set_words);
    }

    /// Returns the number of a cached block, giving it one if it has none, and stores it in the
    /// block. `None` if no block has this id.
    fn number_of_block(&mut self, cache: &mut BlockCache, id: BlockId) -> Option<u32> {
        let block = cache.get_mut(id)?;
        if block.numbered.0 != self.id {
            block.numbered = (self.id, self.numbering.number_of((block.ip, block.last())));
        }
        Some(block.numbered.1)
    }

    /// Adds a whole cached block to the executed ones. Does not count its instructions.
    pub(super) fn add_block(&mut self, code: &mut Code<'_>, id: BlockId) {
        if let Some(number) = self.number_of_block(&mut code.cache, id) {
            self.executed.add(set_word_of(number));
        }
    }

    /// Adds the block of a span, or the part of it that was executed, to the executed ones, and
    /// counts the span's instructions.
    pub(super) fn add_span(&mut self, code: &mut Code<'_>, span: &Span) {
        self.insns += u64::from(span.insns);
        let id = code.find(span.ip, span.mode);
        match code.block(id) {
            Some(block) if block.last() == span.last => self.add_block(code, id),
            // An event cut the block short.
            _ => self.add((span.ip, span.last)),
        }
    }
}

/// The numbers of blocks, in the order in which they were first seen.
#[derive(Debug, Default)]
struct Numbering {
    /// The blocks by their numbers.
    bounds: Vec<Bounds>,
    numbers: HashMap<Bounds, u32>,
}

impl Numbering {
    /// Returns the number of a block; gives it the next one if it has none.
    fn number_of(&mut self, bounds: Bounds) -> u32 {
        *self.numbers.entry(bounds).or_insert_with(|| {
            self.bounds.push(bounds);
            u32::try_from(self.bounds.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

/// Returns the set that contains only this number.
const fn set_word_of(number: u32) -> BlockSetWord {
    (number >> 6, 1 << (number & 63))
}

/// A set of numbers, as a bit set.
#[derive(Debug, Default)]
struct NumberSet {
    words: Vec<u64>,
    /// A bit for each of `words`, set if that is not 0.
    used: Vec<u64>,
}

impl NumberSet {
    /// Adds the numbers in one word of a set.
    #[inline]
    fn add(&mut self, (word, bits): BlockSetWord) {
        let word = word as usize;
        let Some(all) = self.words.get_mut(word) else {
            self.grow(word);
            return self.add_grown(word, bits);
        };
        *all |= bits;
        if let Some(used) = self.used.get_mut(word >> 6) {
            *used |= 1 << (word & 63);
        }
    }

    /// Makes room for the word with this index.
    #[cold]
    fn grow(&mut self, word: usize) {
        let groups = (word >> 6) + 1;
        self.words.resize(groups << 6, 0);
        self.used.resize(groups, 0);
    }

    /// Adds bits to a word for which there is room.
    #[cold]
    fn add_grown(&mut self, word: usize, bits: u64) {
        self.words[word] |= bits;
        self.used[word >> 6] |= 1 << (word & 63);
    }

    /// Returns the words that have a bit set, each with its index, in ascending order.
    fn words(&self) -> impl Iterator<Item = BlockSetWord> {
        let groups = self.used.iter().zip(self.words.chunks(64)).zip(0_u32..);
        groups.flat_map(|((used, words), group)| {
            SetBits(*used).filter_map(move |word| {
                let bits = words.get(word as usize)?;
                Some((group << 6 | word, *bits))
            })
        })
    }

    /// Removes all numbers.
    fn clear(&mut self) {
        for (used, words) in self.used.iter_mut().zip(self.words.chunks_mut(64)) {
            for word in SetBits(std::mem::take(used)) {
                words[word as usize] = 0;
            }
        }
    }
}

/// An iterator over the positions of the set bits, from the lowest on.
struct SetBits(u64);

impl Iterator for SetBits {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.0 == 0 {
            return None;
        }
        let position = self.0.trailing_zeros();
        self.0 &= self.0 - 1;
        Some(position)
    }
}

/// Returns a nonzero number that no earlier call in this process returned (until 32 bits wrap).
fn unique_id() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if number != 0 {
            return number;
        }
    }
}
