//! Superblocks of much use, translated anew along the ways that are mostly taken.
//!
//! A path follows conditional branches by a guess: backward ones are taken, forward ones are not.
//! Where a sample of records shows that the other way is the usual one, the superblock is dropped,
//! and made anew when a thread comes to its start.

use super::address_map::{AddressMap, AddressSet};
use super::edge::{Edge, EdgeKind};
use super::superblock::{Outcome, Step, Superblock};
use super::translator::{CacheMemory, Translator};

/// A superblock with one record in so many of a sample is worth a second translation.
const HOT_SHARE: u64 = 1024;
/// Of ten threads that come to a branch, so many must go the other way.
const OTHERS_OF_TEN: u64 = 6;
/// The most bytes of code that is dropped so: its room in the cache is lost.
const DROPPED_BYTES: u64 = 8 << 20;

/// What samples showed.
#[derive(Debug, Default)]
pub(super) struct Heat {
    /// Conditional branches that mostly go the other way than was guessed: whether they are taken.
    likely: AddressMap<u64, bool>,
    /// Where superblocks of much use begin.
    starts: AddressSet<u64>,
    dropped_bytes: u64,
}

impl Heat {
    /// Whether the branch at an address is mostly taken, where that was seen.
    pub(super) fn likely(&self, branch: u64) -> Option<bool> {
        self.likely.get(&branch).copied()
    }

    /// Whether a superblock that begins at an address is of much use.
    pub(super) fn is_hot(&self, start: u64) -> bool {
        self.starts.contains(&start)
    }

    /// The code of a path is not what it was.
    pub(super) fn forget(&mut self, start: u64, path: &[Step]) {
        if self.starts.remove(&start) {
            for step in path {
                self.likely.remove(&step.ip);
            }
        }
    }
}

impl<M: CacheMemory> Translator<M> {
    /// Takes a sample of records: edges, and how often each was met. Drops the superblocks that are
    /// worth another translation, and gives how many. Each superblock becomes longer once, and each
    /// branch changes its way once, so that this comes to an end.
    pub fn learn(&mut self, sample: &AddressMap<u32, u64>) -> usize {
        let hot_from = (sample.values().sum::<u64>() / HOT_SHARE).max(1);
        let mut by_superblock: AddressMap<u32, Vec<(Edge, u64)>> = AddressMap::default();
        for (&number, &count) in sample {
            if let Some(edge) = self.edges.get(number as usize) {
                by_superblock.entry(edge.superblock).or_default().push((*edge, count));
            }
        }
        let mut dropped = 0;
        for (number, mut edges) in by_superblock {
            if self.heat.dropped_bytes > DROPPED_BYTES {
                break;
            }
            let superblock = self.superblock(number).filter(|superblock| superblock.alive);
            let Some(&Superblock { start, entry, end, .. }) = superblock else { continue };
            // A branch may be the path's last instruction: then those that leave at it come first.
            edges.sort_by_cached_key(|(edge, _)| (edge.instructions, self.left_at(edge).is_none()));
            let mut coming: u64 = edges.iter().map(|(_, count)| count).sum();
            if coming < hot_from {
                continue;
            }
            let mut is_new = self.heat.starts.insert(start);
            for (edge, count) in edges {
                if count * 10 >= coming * OTHERS_OF_TEN
                    && let Some((branch, taken)) = self.left_at(&edge)
                    && !self.heat.likely.contains_key(&branch)
                {
                    self.heat.likely.insert(branch, taken);
                    is_new = true;
                }
                coming -= count;
            }
            if is_new && self.drop_superblock(number) {
                self.heat.dropped_bytes += end - entry;
                dropped += 1;
            }
        }
        dropped
    }

    /// The conditional branch at which an edge leaves the path of its superblock, and whether it is
    /// taken then.
    fn left_at(&self, edge: &Edge) -> Option<(u64, bool)> {
        let step = self.path_of(edge).last()?;
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
