//! The limit on the size of the code cache, and the reuse of the cache from its start. The caller
//! adds no zone unless [`Translator::may_add_zone`] returns true. Once code fits in no zone, it can
//! drop all code ([`Translator::clear`]).

use super::{CacheMemory, Translator};

impl<M: CacheMemory> Translator<M> {
    /// Sets the limit in bytes on the zones within reach of any one address. Zones that exist stay,
    /// but get no new superblock beyond the limit.
    pub fn limit_size(&mut self, bytes: u64) {
        self.size_limit = bytes;
    }

    /// Returns true if one more zone may be added for code at an address: those that reach it are
    /// smaller together than the limit, which the new one may exceed.
    pub fn may_add_zone(&self, addr: u64) -> bool {
        let near = self.zones.iter().filter(|zone| zone.reaches(addr));
        near.map(|zone| zone.size).sum::<u64>() < self.size_limit
    }

    /// Drops all superblocks and edges, dormant ones too, whose numbers and space are used again.
    /// No thread may be in the cache. Keeps the zones, stops, mapped modules, expected addresses
    /// and what samples showed of addresses.
    pub fn clear(&mut self) {
        self.superblocks.clear();
        self.packed.clear();
        self.by_start.clear();
        self.by_entry.iter_mut().for_each(Vec::clear);
        self.by_page.clear();
        // Edge 0, which is unused, stays: a request of 0 is no request.
        self.edges.truncate(1);
        self.links.clear();
        self.pushes.clear();
        self.quiet_jumps.clear();
        self.past_stop.clear();
        self.loops.clear();
        self.bounded.clear();
        self.dormant.clear();
        self.heat.forget_superblocks();
        // Of each zone, only the code that its superblocks share stays.
        self.zones.iter_mut().for_each(|zone| zone.used = zone.shared);
        // All buckets of the table end in the first zone, at the code that requests the target.
        if let Some(zone) = self.zones.first() {
            self.table.clear(&self.memory, zone);
        }
    }
}
