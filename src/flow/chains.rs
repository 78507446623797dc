//! The hash table of chains. Contains nothing that cannot be rebuilt from the code.
//!
//! A chain keeps what one [`ExecutedCode`](super::ExecutedCode) knows of it: the round in which it
//! was last added, and the set of its blocks. The set consists of *set words*: bits of the numbers
//! that this `ExecutedCode` gave the blocks.

use super::block::BlockId;
use super::chain::{BlockSetWord, Call, Chain, ChainDraft, ChainKey};
use super::item::Span;
use crate::common::Addr;

const FIRST_SLOTS_LOG2: u32 = 12;
/// The binary logarithm of the maximum number of slots, which take 4 MiB.
const LAST_SLOTS_LOG2: u32 = 17;
/// The number of slots in which a chain can be: its home slot and the next ones.
const PROBES: usize = 4;
/// The limit on stored blocks, including those of evicted chains. Beyond it, all chains are
/// dropped.
const BLOCKS_LIMIT: usize = 1 << 20;
/// Index of an item that is not stored yet.
const NOT_STORED: u32 = u32::MAX;

/// The rarely used data of a chain. Indices are those of the vectors of [`Chains`].
#[derive(Clone, Copy, Debug)]
struct Detail {
    /// The first of the chain's blocks; likewise the next three.
    blocks: u32,
    calls: u32,
    /// [`NOT_STORED`] until the chain's spans are first listed.
    spans: u32,
    /// [`NOT_STORED`] until the chain's blocks are first added to an
    /// [`ExecutedCode`](super::ExecutedCode).
    set_words: u32,
    /// The identifier of the [`ExecutedCode`](super::ExecutedCode) that gave the blocks the numbers
    /// in the set words.
    numbered_by: u32,
    /// The number of blocks, and of spans if these are stored.
    block_count: u8,
    /// The number of calls that are open at the end of the chain.
    open_at_end: u8,
    /// The number of calls that are open before the last block's branch.
    open_before_last: u8,
    set_word_count: u8,
}

/// The slot of a chain. Valid until the next chain is added, which may evict it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainId(usize);

/// The chains of a block cache: a hash table in which a new chain may evict an old one.
#[derive(Clone, Debug, Default)]
pub(super) struct Chains {
    slots: Vec<Chain>,
    /// The number of slots that are not free.
    used: usize,
    details: Vec<Detail>,
    blocks: Vec<BlockId>,
    calls: Vec<Call>,
    spans: Vec<Span>,
    set_words: Vec<BlockSetWord>,
}

impl Chains {
    /// Drops all chains. Keeps the size of the table.
    pub(super) fn clear(&mut self) {
        *self = Self { slots: std::mem::take(&mut self.slots), ..Self::default() };
        self.slots.fill(Chain::NONE);
    }

    /// Returns the chain from an address with this key; `None` if it is not cached.
    ///
    /// The next lookup depends on its result, so its latency matters. The branch predictor learns
    /// that the chain is in its home slot; a branch-free choice between two slots takes longer.
    #[inline]
    pub(super) fn find(&self, from: Addr, key: ChainKey) -> Option<ChainId> {
        let slot = self.home_slot(from, key);
        if self.slots.get(slot)?.is_for(from, key) {
            return Some(ChainId(slot));
        }
        self.find_after(slot, from, key)
    }

    /// Returns the chain if it is in one of the slots after `first`.
    fn find_after(&self, first: usize, from: Addr, key: ChainKey) -> Option<ChainId> {
        let mut later = (1..PROBES).map(|later| self.wrap(first + later));
        later
            .find(|slot| self.slots.get(*slot).is_some_and(|chain| chain.is_for(from, key)))
            .map(ChainId)
    }

    /// Returns the slot's index modulo the size of the table, which is a power of two.
    #[inline]
    const fn wrap(&self, slot: usize) -> usize {
        slot & self.slots.len().wrapping_sub(1)
    }

    /// Returns the slot for a new chain: a free one, or that of the chain to evict. Evicts nothing.
    fn slot_for_new(&self, from: Addr, key: ChainKey) -> usize {
        let first = self.home_slot(from, key);
        let mut slots = (0..PROBES).map(|later| self.wrap(first + later));
        let is_free = |slot: &usize| self.slots.get(*slot).is_some_and(Chain::is_none);
        // Evicts in an order that is as good as random.
        slots.find(is_free).unwrap_or(self.wrap(first + self.details.len() % PROBES))
    }

    /// Returns the chain in this slot. It is another one if the chain was evicted.
    #[inline]
    pub(super) fn get(&self, at: ChainId) -> Option<&Chain> {
        self.slots.get(at.0)
    }

    /// Returns a chain's home slot. Hashes address and key separately: the bits in the key are
    /// known later.
    #[inline]
    const fn home_slot(&self, from: Addr, key: ChainKey) -> usize {
        let from = from.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let key = key.to_u64().wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.wrap(((from ^ key) >> 40) as usize)
    }

    /// Adds a chain. May evict another, or first drop all if too much is stored. Returns `None`,
    /// and adds nothing, if the draft has no tail; other chains may have been dropped then, too.
    pub(super) fn add(&mut self, from: Addr, key: ChainKey, draft: &ChainDraft) -> Option<ChainId> {
        if self.blocks.len().max(self.details.len()).max(self.set_words.len()) > BLOCKS_LIMIT {
            self.clear();
        }
        if self.used * 4 >= self.slots.len() && self.slots.len() < 1 << LAST_SLOTS_LOG2 {
            self.grow();
        }
        let tail = draft.tail?;
        let open_before_last = draft.open_before_last(tail);
        let calls = draft.calls.get(..usize::from(open_before_last.max(draft.open)))?;
        let detail = Detail {
            blocks: u32::try_from(self.blocks.len()).ok()?,
            calls: u32::try_from(self.calls.len()).ok()?,
            spans: NOT_STORED,
            set_words: NOT_STORED,
            numbered_by: 0,
            block_count: u8::try_from(draft.blocks.len()).ok()?,
            open_at_end: draft.open,
            open_before_last,
            set_word_count: 0,
        };
        let chain = Chain {
            from,
            next: draft.next,
            key,
            detail: u32::try_from(self.details.len()).ok()?,
            round: 0,
            insns: draft.insns,
            bits_and_depth: draft.bits | draft.depth << 6,
            tail,
        };
        self.details.push(detail);
        self.blocks.extend_from_slice(&draft.blocks);
        self.calls.extend_from_slice(calls);
        self.put(chain)
    }

    /// Stores a chain in its slot, in place of a chain there. Its detail must be stored already.
    fn put(&mut self, chain: Chain) -> Option<ChainId> {
        let index = self.slot_for_new(chain.from, chain.key);
        let slot = self.slots.get_mut(index)?;
        self.used += usize::from(slot.is_none());
        *slot = chain;
        Some(ChainId(index))
    }

    /// Doubles the size of the table. Chains that evict each other on the way are lost.
    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(1 << FIRST_SLOTS_LOG2);
        let old = std::mem::replace(&mut self.slots, vec![Chain::NONE; slots]);
        self.used = 0;
        for chain in old.into_iter().filter(|chain| !chain.is_none()) {
            self.put(chain);
        }
    }

    /// Returns the rarely used data of a chain.
    #[inline]
    fn detail(&self, chain: &Chain) -> Option<&Detail> {
        self.details.get(chain.detail as usize)
    }

    /// Returns the chain's calls that are open at its end, the outermost first.
    #[inline]
    pub(super) fn open_calls(&self, chain: &Chain) -> &[Call] {
        self.detail(chain)
            .and_then(|detail| self.calls(detail, detail.open_at_end))
            .unwrap_or_default()
    }

    /// Returns the chain's calls that are open before its last block's branch, the outermost first.
    /// A call at the end is not one of them.
    #[inline]
    pub(super) fn calls_before_last(&self, chain: &Chain) -> &[Call] {
        self.detail(chain)
            .and_then(|detail| self.calls(detail, detail.open_before_last))
            .unwrap_or_default()
    }

    /// Returns the outermost `count` calls of a chain.
    #[inline]
    fn calls(&self, detail: &Detail, count: u8) -> Option<&[Call]> {
        self.calls.get(detail.calls as usize..)?.get(..usize::from(count))
    }

    /// Notes that the chain was last added in `round`, and returns its set words, in numbers of the
    /// [`ExecutedCode`](super::ExecutedCode) `numbered_by`; `None` if it has none yet, or those of
    /// another one. The round is noted in any case.
    #[inline]
    pub(super) fn set_words_for_round(
        &mut self,
        at: ChainId,
        round: u32,
        numbered_by: u32,
    ) -> Option<&[BlockSetWord]> {
        let chain = self.slots.get_mut(at.0)?;
        chain.round = round;
        let detail = chain.detail as usize;
        let detail = self.details.get(detail)?;
        if detail.numbered_by != numbered_by {
            return None;
        }
        self.set_words.get(detail.set_words as usize..)?.get(..usize::from(detail.set_word_count))
    }

    /// Returns the blocks of a chain, in execution order; none if the slot is free.
    pub(super) fn blocks(&self, at: ChainId) -> &[BlockId] {
        let detail = self.get(at).and_then(|chain| self.detail(chain));
        let blocks = detail.and_then(|detail| {
            self.blocks.get(detail.blocks as usize..)?.get(..usize::from(detail.block_count))
        });
        blocks.unwrap_or_default()
    }

    /// Stores the set of the chain's blocks, as numbers of the
    /// [`ExecutedCode`](super::ExecutedCode) `numbered_by`, in place of another one's. Does nothing
    /// if there are too many words.
    pub(super) fn store_set_words(
        &mut self,
        at: ChainId,
        numbered_by: u32,
        set_words: &[BlockSetWord],
    ) {
        let start = self.set_words.len();
        let Some(detail) = self.get(at).map(|chain| chain.detail as usize) else { return };
        let Some(detail) = self.details.get_mut(detail) else { return };
        let start_and_count = (u32::try_from(start), u8::try_from(set_words.len()));
        if let (Ok(start), Ok(count)) = start_and_count {
            (detail.numbered_by, detail.set_words, detail.set_word_count) =
                (numbered_by, start, count);
            self.set_words.extend_from_slice(set_words);
        }
    }

    /// Returns the spans of the chain's blocks; `None` if they are not stored yet.
    #[inline]
    pub(super) fn spans(&self, at: ChainId) -> Option<&[Span]> {
        let detail = self.detail(self.get(at)?)?;
        self.spans.get(detail.spans as usize..)?.get(..usize::from(detail.block_count))
    }

    /// Stores the spans of the chain's blocks.
    pub(super) fn set_spans(&mut self, at: ChainId, spans: impl Iterator<Item = Span>) {
        let start = u32::try_from(self.spans.len()).unwrap_or(NOT_STORED);
        let Some(detail) = self.get(at).map(|chain| chain.detail as usize) else { return };
        if let Some(detail) = self.details.get_mut(detail) {
            detail.spans = start;
            self.spans.extend(spans);
        }
    }
}
