//! The table of indirect branch targets: for each value of the low 16 bits of an address, a chain
//! of superblocks that compare the target with their start, one after the other.

use super::superblock::Superblock;
use super::translator::CacheMemory;
use super::zone::Zone;

const SLOTS: usize = 1 << 16;
/// The number of slots that one write clears.
const CLEARED_SLOTS: usize = 1 << 9;

/// The table, and the first superblock of each slot's chain.
#[derive(Debug)]
pub(super) struct Table {
    /// The table's offset in the shared memory.
    offset: u64,
    first: Vec<Option<u32>>,
}

impl Table {
    pub(super) fn new(offset: u64) -> Self {
        Self { offset, first: vec![None; SLOTS] }
    }

    /// Empties all chains: each slot leads to the code of `zone` that requests the target.
    pub(super) fn clear(&mut self, memory: &impl CacheMemory, zone: &Zone) {
        let stretch = zone.miss.to_le_bytes().repeat(CLEARED_SLOTS);
        for first in (0..SLOTS).step_by(CLEARED_SLOTS) {
            memory.write(self.offset + first as u64 * 8, &stretch);
        }
        self.first.fill(None);
    }

    /// Inserts a superblock at the front of its slot's chain.
    pub(super) fn insert(
        &mut self,
        memory: &impl CacheMemory,
        zones: &[Zone],
        superblocks: &mut [Superblock],
        number: u32,
    ) {
        let slot = slot_of(superblocks[number as usize].start);
        let next = self.first[slot].replace(number);
        superblocks[number as usize].next_of_slot = next;
        let (superblock, entry) =
            (&superblocks[number as usize], entry_of(zones, superblocks, next));
        store_chain(memory, zones, superblock, entry);
        memory.store_u64(self.offset + slot as u64 * 8, superblock.entry);
    }

    /// Removes a superblock from its chain; does nothing if it is in none. Threads that are in its
    /// check continue with the next one.
    pub(super) fn remove(
        &mut self,
        memory: &impl CacheMemory,
        zones: &[Zone],
        superblocks: &mut [Superblock],
        number: u32,
    ) {
        let slot = slot_of(superblocks[number as usize].start);
        let next = superblocks[number as usize].next_of_slot;
        let entry = entry_of(zones, superblocks, next);
        if self.first[slot] == Some(number) {
            self.first[slot] = next;
            memory.store_u64(self.offset + slot as u64 * 8, entry);
            return;
        }
        // Walks the chain to the superblock whose successor is the removed one.
        let mut before = self.first[slot];
        while let Some(other) = before {
            let superblock = &mut superblocks[other as usize];
            before = superblock.next_of_slot;
            if before == Some(number) {
                superblock.next_of_slot = next;
                store_chain(memory, zones, superblock, entry);
            }
        }
    }
}

/// Returns the entry of a superblock in a chain; for `None`, the end of the chain, the code that
/// requests the target.
fn entry_of(zones: &[Zone], superblocks: &[Superblock], number: Option<u32>) -> u64 {
    let miss = zones.first().map_or(0, |zone| zone.miss);
    number.map_or(miss, |number| superblocks[number as usize].entry)
}

/// Sets the entry to which a superblock's check leads if the target is another.
fn store_chain(memory: &impl CacheMemory, zones: &[Zone], superblock: &Superblock, next: u64) {
    let zone = &zones[superblock.zone];
    memory.store_u64(zone.offset + (superblock.chain - zone.base), next);
}

fn slot_of(addr: u64) -> usize {
    usize::try_from(addr & 0xffff).unwrap_or(0)
}
