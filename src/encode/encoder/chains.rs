//! A table of chains, for records that recur in the same order: one look-up replaces several rounds
//! of the loop over records. Records get a chain when the second look-up in a row at their slot of
//! the table fails for them ([`Chains::note_miss`]).

#![expect(clippy::inline_always, reason = "a call takes as long as what is called")]

use super::Encoder;
use super::chain::{Chain, ChainKey};
use crate::encode::dictionary::Dictionary;

/// The initial and the largest number of slots. The largest table takes 2 MiB.
const SLOTS: [usize; 2] = [1 << 8, 1 << 14];
/// The number of return addresses, over all chains, beyond which the table is emptied.
const ADDRESSES: usize = 1 << 17;

/// Parts of the hashes of two keys with the same slot.
#[derive(Clone, Copy, Debug, Default)]
struct Tag {
    /// The part for the records that hold the slot; 0 if none do.
    holder: u8,
    /// Belongs to the records last missed here, which take the slot if they recur.
    rival: u8,
}

/// A hash table of chains, by their records. Begins empty, and grows as chains are built.
#[derive(Debug, Default)]
pub struct Chains {
    slots: Vec<Chain>,
    /// The tags of the slots, so that a failed look-up need not read the slot.
    tags: Vec<Tag>,
    /// The number of bits by which a hash is shifted right to a slot's index.
    shift: u32,
    /// The number of chains built since the last resize.
    built: usize,
    /// The return addresses of all chains. For each chain, those that it pops, the targets of its
    /// returns to calls made before it; then those that it pushes, of its calls.
    return_addresses: Vec<u64>,
}

impl Chains {
    /// Returns the index of the slot of these records, and their tag.
    #[inline(always)]
    fn slot_and_tag(&self, key: &ChainKey) -> (usize, u8) {
        let mut hash = 0_u64;
        for word in key.as_chunks::<8>().0 {
            hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 32;
        }
        let hash = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let slot = usize::try_from(hash >> (self.shift & 63)).unwrap_or(0);
        (slot, hash.to_le_bytes()[2] | 1)
    }

    /// Returns the chain of these records, if they have one. It may be empty (`records` is 0): then
    /// these records make no chain.
    #[inline(always)]
    pub(super) fn find(&self, key: &ChainKey) -> Option<&Chain> {
        let (slot, tag) = self.slot_and_tag(key);
        if self.tags.get(slot)?.holder != tag {
            return None;
        }
        self.slots.get(slot).filter(|chain| chain.is_for(key))
    }

    /// Handles a failed look-up of these records. If the last failed one of this slot was for the
    /// same records, builds their chain, which takes the slot; this may empty the table first.
    #[cold]
    #[inline(never)]
    pub(super) fn note_miss(&mut self, key: &ChainKey, dictionary: &Dictionary, encoder: &Encoder) {
        if self.slots.is_empty() {
            self.resize(SLOTS[0]);
        }
        let (slot, tag) = self.slot_and_tag(key);
        let Some(tags) = self.tags.get_mut(slot) else { return };
        if tags.rival != tag {
            tags.rival = tag;
            return;
        }
        if self.built > self.slots.len() && self.slots.len() < SLOTS[1] {
            self.resize(self.slots.len() * 4);
        } else if self.return_addresses.len() > ADDRESSES {
            self.resize(self.slots.len());
        }
        self.built += 1;
        let (slot, _) = self.slot_and_tag(key);
        self.slots[slot] = Chain::build(key, dictionary, encoder, &mut self.return_addresses);
        self.tags[slot] = Tag { holder: tag, rival: tag };
    }

    /// Empties the table, and sets its number of slots.
    fn resize(&mut self, slots: usize) {
        self.slots.clear();
        self.slots.resize(slots, Chain::NONE);
        self.tags.clear();
        self.tags.resize(slots, Tag::default());
        self.shift = u64::BITS - slots.ilog2();
        self.built = 0;
        self.return_addresses.clear();
    }

    /// Returns the return addresses that all chains pop or push. Each chain has the index of its
    /// first one (`first_address`).
    #[inline(always)]
    pub(super) fn return_addresses(&self) -> &[u64] {
        &self.return_addresses
    }
}

#[cfg(test)]
mod tests {
    use super::super::BadRecord;
    use super::super::chain::KEY_BYTES;
    use super::*;
    use crate::encode::dictionary::NewEdges;
    use crate::translate::{Edge, EdgeKind};

    struct Random(u64);

    impl Random {
        fn word(&mut self) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.0 >> 33
        }

        fn below(&mut self, limit: u8) -> u8 {
            u8::try_from(self.word() % u64::from(limit)).unwrap()
        }
    }

    const PLACES: u8 = 12;
    const EDGES: u8 = 4;

    fn place(number: u8) -> u64 {
        0x40_0000 + u64::from(number) * 0x100
    }

    /// Returns random edges between the places, numbered from 1.
    fn news(random: &mut Random) -> NewEdges {
        let mut news = NewEdges::default();
        let edge = |kind, start, target| Edge {
            bits: 0,
            bit_count: 1,
            ticks: 0,
            kind,
            pushes: 0,
            peak: 0,
            first_push: 0,
            instructions: 3,
            superblock: 0,
            start,
            target,
            quiet_low: 1,
            quiet_high: 0,
            since: 0,
            branch: true,
            quiet_start: 0,
            quiet_jumps: 0,
            first_quiet: 0,
        };
        news.edges.push(edge(EdgeKind::Direct, 0, 0));
        for from in 0..PLACES {
            for _ in 0..EDGES {
                let kinds =
                    [EdgeKind::Direct, EdgeKind::Direct, EdgeKind::Return, EdgeKind::Indirect];
                let kind = kinds[usize::from(random.below(4))];
                let mut edge = edge(kind, place(from), place(random.below(PLACES)));
                edge.bit_count = 1 + random.below(16);
                edge.bits = random.word() & ((1 << edge.bit_count) - 1);
                if kind == EdgeKind::Direct && random.below(3) == 0 {
                    (edge.bits, edge.bit_count) = (0, 0);
                }
                edge.quiet_low = place(random.below(PLACES));
                edge.quiet_high = edge.quiet_low + 8;
                edge.pushes = random.below(3);
                let is_deep = random.below(9) == 0;
                edge.peak = edge.pushes + if is_deep { random.below(60) } else { 0 };
                edge.first_push = u32::try_from(news.pushes.len()).unwrap();
                news.pushes.extend((0..edge.pushes).map(|_| place(random.below(PLACES))));
                news.edges.push(edge);
            }
        }
        news
    }

    /// Returns the records of a walk along the edges that mostly repeats itself.
    fn walk(random: &mut Random, news: &NewEdges) -> Vec<u8> {
        let mut walk = Vec::new();
        let (mut here, mut stack, mut phase) = (place(0), Vec::new(), 0_u8);
        for _ in 0..60_000 {
            phase =
                if random.below(50) == 0 { random.below(99) } else { phase.wrapping_mul(5) % 99 };
            let edges = 1_u32..;
            let mut from_here = edges.zip(&news.edges[1..]).filter(|(_, edge)| edge.start == here);
            let (number, edge) = from_here.nth(usize::from(phase % EDGES)).unwrap();
            walk.extend(number.to_le_bytes());
            let first = edge.first_push as usize;
            stack.extend(&news.pushes[first..first + usize::from(edge.pushes)]);
            let top = if edge.kind == EdgeKind::Return { stack.pop() } else { None };
            here = match edge.kind {
                EdgeKind::Direct => edge.target,
                _ if random.below(20) == 0 => place(random.below(PLACES)),
                _ => top.unwrap_or_else(|| place(phase % PLACES)),
            };
        }
        walk
    }

    /// Encodes records, `at_once` bytes at a time. Returns the packets, and the numbers of
    /// instructions and chains.
    fn encode(news: NewEdges, walk: &[u8], at_once: usize) -> (Vec<u8>, u64, usize) {
        let (mut dictionary, mut chains) = (Dictionary::default(), Chains::default());
        dictionary.learn(news);
        let mut encoder = Encoder::new(1 << 40);
        encoder.begin_history(1);
        for records in walk.chunks(at_once) {
            assert_eq!(encoder.encode_records(&dictionary, &mut chains, records), Ok(0));
        }
        encoder.end_history(&dictionary);
        (encoder.drain(), encoder.instructions(), chains.built)
    }

    #[test]
    fn memory_that_was_not_written_is_no_record() {
        for seed in 0..20 {
            let (mut dictionary, mut chains) = (Dictionary::default(), Chains::default());
            let mut news = news(&mut Random(seed));
            let mut walk = walk(&mut Random(seed), &news);
            // After a path to address 0, zeros could pass for records.
            let last = walk.as_chunks::<4>().0.last().map(|number| u32::from_le_bytes(*number));
            news.edges[last.unwrap() as usize].target = 0;
            walk.extend([0; 4096]);
            dictionary.learn(news);
            let mut encoder = Encoder::new(1 << 40);
            encoder.begin_history(1);
            assert_eq!(encoder.encode_records(&dictionary, &mut chains, &walk), Err(BadRecord));
        }
    }

    #[test]
    fn chains_give_what_their_records_give() {
        let mut all_chains = 0;
        for seed in 0..60 {
            let news = || news(&mut Random(seed));
            let walk = walk(&mut Random(seed ^ 0x1234), &news());
            let (one_by_one, instructions, chains) = encode(news(), &walk, KEY_BYTES / 2);
            assert_eq!(chains, 0);
            let (together, all_instructions, chains) = encode(news(), &walk, 4096 * 4);
            all_chains += chains;
            assert!(one_by_one == together, "seed {seed}");
            assert_eq!(instructions, all_instructions);
        }
        assert!(all_chains > 10_000, "{all_chains}");
    }
}
