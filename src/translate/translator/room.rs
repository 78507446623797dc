//! The limit on the size of the code cache, and the reuse of the cache from its start.

use super::{CacheMemory, Translator};

impl<M: CacheMemory> Translator<M> {
    /// Sets the limit in bytes on the zones within reach of any one address.
    pub fn limit_size(&mut self, bytes: u64) {
        self.room = bytes;
    }

    /// Returns true if one more zone may be added for code at an address.
    pub fn may_add_zone(&self, addr: u64) -> bool {
        let near = self.zones.iter().filter(|zone| zone.reaches(addr));
        near.map(|zone| zone.size).sum::<u64>() < self.room
    }

    /// Drops all superblocks and edges, whose numbers and room are used again. No thread may be in
    /// the cache. Keeps the zones, stops, expected addresses and what samples showed of addresses.
    pub fn clear(&mut self) {
        self.superblocks.clear();
        self.packed.clear();
        self.by_start.clear();
        self.by_entry.iter_mut().for_each(Vec::clear);
        self.by_page.clear();
        // Edge 0 stays.
        self.edges.truncate(1);
        self.links.clear();
        self.pushes.clear();
        self.quiet_jumps.clear();
        self.past_stop.clear();
        self.loops.clear();
        self.bounded.clear();
        self.dormant.clear();
        self.heat.forget_superblocks();
        self.zones.iter_mut().for_each(|zone| zone.used = zone.shared);
        if let Some(zone) = self.zones.first() {
            self.table.clear(&self.memory, zone);
        }
    }
}
