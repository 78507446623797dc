//! Retranslates hot superblocks along the branch directions that are mostly taken.
//!
//! A path follows conditional branches by a guess: backward ones are taken, forward ones are not.
//! If a sample of records shows that the guess is mostly wrong, the superblock is dropped, and
//! rebuilt when a thread next reaches its start.

use super::address_map::{AddressMap, AddressSet};
use super::edge::{Edge, EdgeKind};
use super::superblock::{Outcome, Step, Superblock};
use super::translator::{CacheMemory, Translator};

/// The inverse of the share of a sample's records that makes a superblock hot.
const HOT_SHARE: u64 = 1024;
/// The share of passages, in tenths, that must go against a guess for it to be wrong.
const OTHERS_OF_TEN: u64 = 6;
/// The limit on bytes of dropped hot code, whose space in the cache is not reused.
const DROPPED_BYTES: u64 = 8 << 20;
/// The number of samples of an exit after which its superblock is judged. It is judged again near
/// each doubling of that number.
const FEW_EXITS: u64 = 3;

/// The results of all samples of records: which superblocks are hot, and which branches are guessed
/// wrong.
#[derive(Debug, Default)]
pub(super) struct Heat {
    /// Conditional branches that were mostly guessed wrong, with their usual outcome: true if
    /// taken.
    likely: AddressMap<u64, bool>,
    /// Start addresses of hot superblocks.
    starts: AddressSet<u64>,
    /// The number of samples that found a thread at the exit of each edge, in code that counts
    /// ticks.
    exits: AddressMap<u32, u64>,
    /// The size of the hot code that was dropped since the cache was last cleared.
    dropped_bytes: u64,
}

impl Heat {
    /// Returns true if samples, of this run or earlier ones, showed that the branch at an address
    /// is mostly taken, against the guess, and false if they showed that it is mostly not taken;
    /// `None` if no sample showed that the guess is wrong.
    pub(super) fn usual_outcome(&self, branch: u64) -> Option<bool> {
        self.likely.get(&branch).copied()
    }

    /// Returns true if the superblock that starts at an address is hot, in this run or an earlier
    /// one.
    pub(super) fn is_hot(&self, start: u64) -> bool {
        self.starts.contains(&start)
    }

    /// Returns what samples showed: the starts of hot superblocks, and the branches that are mostly
    /// guessed wrong, with their usual outcome.
    pub(super) fn hints(&self) -> (Vec<u64>, Vec<(u64, bool)>) {
        let likely = self.likely.iter().map(|(branch, taken)| (*branch, *taken));
        (self.starts.iter().copied().collect(), likely.collect())
    }

    /// Adds [`Self::hints`] of earlier runs. Outcomes in them replace those that are known.
    pub(super) fn add_hints(&mut self, hot: Vec<u64>, likely: Vec<(u64, bool)>) {
        self.starts.extend(hot);
        self.likely.extend(likely);
    }

    /// Forgets the samples by superblock and edge, since all superblocks were dropped: their space
    /// and numbers are used again. Keeps what is known of the program's addresses.
    pub(super) fn forget_superblocks(&mut self) {
        self.dropped_bytes = 0;
        self.exits.clear();
    }

    /// Forgets that the superblock at `start` is hot, and the usual outcomes of the branches of its
    /// path, since its code has changed. Does nothing if it is not hot.
    pub(super) fn forget_path(&mut self, start: u64, path: &[Step]) {
        if self.starts.remove(&start) {
            for step in path {
                self.likely.remove(&step.ip);
            }
        }
    }
}

impl<M: CacheMemory> Translator<M> {
    /// Finds the hot superblocks, with at least one record in `HOT_SHARE`, in a sample of records,
    /// which has the number of records of each edge. Drops those that are worth retranslating, and
    /// returns how many it dropped. They are retranslated when a thread next reaches them. Each
    /// superblock is lengthened once and each branch changes direction once, so repeated calls
    /// converge. Ignores unknown edges, and superblocks that were dropped before.
    pub fn learn_from_records(&mut self, sample: &AddressMap<u32, u64>) -> usize {
        let hot_from = (sample.values().sum::<u64>() / HOT_SHARE).max(1);
        let mut by_superblock: AddressMap<u32, Vec<(Edge, u64)>> = AddressMap::default();
        for (&number, &count) in sample {
            if let Some(edge) = self.edges.get(number as usize) {
                by_superblock.entry(edge.superblock).or_default().push((*edge, count));
            }
        }
        let mut dropped = 0;
        for (number, edges) in by_superblock {
            let is_hot = edges.iter().map(|(_, count)| count).sum::<u64>() >= hot_from;
            dropped += usize::from(is_hot && self.drop_if_improvable(number, edges));
        }
        dropped
    }

    /// Counts a sample, in code that counts ticks: a thread was found at a direct exit, with the
    /// number of its edge. Now and then judges the superblock by all its samples, and drops it if
    /// its path should go on at another exit from now on. Returns true if it was dropped; false for
    /// an unknown edge.
    pub fn note_exit_sample(&mut self, edge: u64) -> bool {
        let Ok(number) = u32::try_from(edge) else { return false };
        let Some(edge) = self.edges.get(number as usize).copied() else { return false };
        let count = self.heat.exits.entry(number).or_default();
        *count += 1;
        if *count < FEW_EXITS || !(*count / FEW_EXITS).is_power_of_two() {
            return false;
        }
        // Edges are in the order of their superblocks.
        let first = self.edges.partition_point(|other| other.superblock < edge.superblock);
        let of_superblock = (first..).zip(&self.edges[first..]);
        let counted = of_superblock
            .take_while(|(_, other)| other.superblock == edge.superblock)
            .filter_map(|(number, edge)| {
                let count = self.heat.exits.get(&u32::try_from(number).ok()?)?;
                Some((*edge, *count))
            });
        self.drop_if_improvable(edge.superblock, counted.collect())
    }

    /// Notes that a superblock is hot, and by how often each of its edges was taken, which branches
    /// were guessed wrong: those at which most passages left the path. Drops the superblock if one
    /// of these facts is new, so that the next translation uses it. Returns true if it was dropped.
    /// Does nothing if much hot code was dropped before, or the superblock was.
    fn drop_if_improvable(&mut self, number: u32, mut edges: Vec<(Edge, u64)>) -> bool {
        if self.heat.dropped_bytes > DROPPED_BYTES {
            return false;
        }
        let superblock = self.superblock(number).filter(|superblock| superblock.alive);
        let Some(&Superblock { start, .. }) = superblock else { return false };
        // The edges in the order of the path: `arriving` is the number of passages that reached the
        // next one. Two edges can have the same last instruction: one leaves at that branch, one
        // after it. The first is judged first, by all passages that reached the branch.
        edges.sort_by_cached_key(|(edge, _)| {
            (edge.instructions, self.branch_left_at(edge).is_none())
        });
        let mut arriving: u64 = edges.iter().map(|(_, count)| count).sum();
        let mut is_new = self.heat.starts.insert(start);
        for (edge, count) in edges {
            if count * 10 >= arriving * OTHERS_OF_TEN
                && let Some((branch, taken)) = self.branch_left_at(&edge)
                && !self.heat.likely.contains_key(&branch)
            {
                self.heat.likely.insert(branch, taken);
                is_new = true;
            }
            arriving -= count;
        }
        is_new && self.drop_hot(number)
    }

    /// Drops a superblock, which is translated anew, as a hot one, when a thread next reaches its
    /// start. Returns false, and drops nothing, if it is not in use or there is none, or if too
    /// much hot code was dropped.
    pub(super) fn drop_hot(&mut self, number: u32) -> bool {
        let Some(&Superblock { start, entry, end, .. }) = self.superblock(number) else {
            return false;
        };
        if self.heat.dropped_bytes > DROPPED_BYTES || !self.drop_superblock(number) {
            return false;
        }
        self.heat.starts.insert(start);
        self.heat.dropped_bytes += end - entry;
        true
    }

    /// Returns the address of the conditional branch at which an edge leaves its superblock's path,
    /// and true if the branch is taken there. `None` if the edge leaves otherwise.
    fn branch_left_at(&self, edge: &Edge) -> Option<(u64, bool)> {
        let step = self.path_of(edge).pop()?;
        let stays_if_taken = match step.outcome {
            Outcome::Taken => true,
            Outcome::NotTaken => false,
            _ => return None,
        };
        let is_taken = edge.bits & 1 == 1;
        let leaves = edge.kind == EdgeKind::Direct && is_taken != stays_if_taken;
        leaves.then_some((step.ip, is_taken))
    }
}
