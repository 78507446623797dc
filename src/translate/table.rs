//! The table of indirect branch targets: for each value of the low 16 bits of an address, a
//! *bucket* of superblocks that compare the target with their start, one after the other. An
//! indirect branch enters the first one of its bucket, each leads to the next if the target is
//! another, and the last one to code of the first zone that requests the target.

use super::superblock::Superblock;
use super::translator::CacheMemory;
use super::zone::Zone;

const BUCKETS: usize = 1 << 16;
/// The number of buckets that one write clears.
const CLEARED_BUCKETS: usize = 1 << 9;

/// The table, and the first superblock of each bucket.
#[derive(Debug)]
pub(super) struct Table {
    /// The table's offset in the shared memory.
    offset: u64,
    /// The number of the first superblock of each bucket.
    first: Vec<Option<u32>>,
}

impl Table {
    /// Creates an empty table. [`Self::clear`] must write it before a thread uses it.
    pub(super) fn new(offset: u64) -> Self {
        Self { offset, first: vec![None; BUCKETS] }
    }

    /// Empties all buckets: each leads to the code of `zone` that requests the target. No thread
    /// may be using the table. Leaves [`Superblock::next_in_bucket`] as it is.
    pub(super) fn clear(&mut self, memory: &impl CacheMemory, zone: &Zone) {
        let stretch = zone.miss.to_le_bytes().repeat(CLEARED_BUCKETS);
        for first in (0..BUCKETS).step_by(CLEARED_BUCKETS) {
            memory.write(self.offset + first as u64 * 8, &stretch);
        }
        self.first.fill(None);
    }

    /// Inserts a superblock, which is in no bucket, at the front of its bucket. Threads may be
    /// using the bucket.
    pub(super) fn insert(
        &mut self,
        memory: &impl CacheMemory,
        zones: &[Zone],
        superblocks: &mut [Superblock],
        number: u32,
    ) {
        let bucket = bucket_of(superblocks[number as usize].start);
        let next = self.first[bucket].replace(number);
        superblocks[number as usize].next_in_bucket = next;
        let (superblock, entry) =
            (&superblocks[number as usize], entry_of(zones, superblocks, next));
        store_next(memory, zones, superblock, entry);
        memory.store_u64(self.offset + bucket as u64 * 8, superblock.entry);
    }

    /// Removes a superblock from its bucket; does nothing if it is in none. Threads that are in its
    /// check continue with the next one.
    pub(super) fn remove(
        &mut self,
        memory: &impl CacheMemory,
        zones: &[Zone],
        superblocks: &mut [Superblock],
        number: u32,
    ) {
        let bucket = bucket_of(superblocks[number as usize].start);
        let next = superblocks[number as usize].next_in_bucket;
        let entry = entry_of(zones, superblocks, next);
        if self.first[bucket] == Some(number) {
            self.first[bucket] = next;
            memory.store_u64(self.offset + bucket as u64 * 8, entry);
            return;
        }
        // Walks the bucket to the superblock whose successor is the removed one.
        let mut before = self.first[bucket];
        while let Some(other) = before {
            let superblock = &mut superblocks[other as usize];
            before = superblock.next_in_bucket;
            if before == Some(number) {
                superblock.next_in_bucket = next;
                store_next(memory, zones, superblock, entry);
            }
        }
    }
}

/// Returns the entry of a superblock; for `None`, the end of a bucket, the code of the first zone
/// that requests the target; 0 without zones.
fn entry_of(zones: &[Zone], superblocks: &[Superblock], number: Option<u32>) -> u64 {
    let miss = zones.first().map_or(0, |zone| zone.miss);
    number.map_or(miss, |number| superblocks[number as usize].entry)
}

/// Sets the entry to which a superblock's check leads if the target is another, while threads may
/// be reading it.
fn store_next(memory: &impl CacheMemory, zones: &[Zone], superblock: &Superblock, next: u64) {
    let zone = &zones[superblock.zone];
    memory.store_u64(zone.offset + (superblock.next_literal - zone.base), next);
}

/// Returns the number of the bucket of an address: its low 16 bits.
fn bucket_of(addr: u64) -> usize {
    usize::try_from(addr & 0xffff).unwrap_or(0)
}
