//! The links between superblocks, and their removal.

use super::{CacheMemory, FAR_JUMP_BYTES, Translator};

impl<M: CacheMemory> Translator<M> {
    /// Lets all branches to `start`, direct and indirect, lead to a superblock from now on, also
    /// the exits that wait for one.
    pub(in super::super) fn offer(&mut self, number: u32, start: u64) {
        self.by_start.insert(start, number);
        self.table.enter(&self.memory, &self.zones, &mut self.superblocks, number);
        let mut waiting = self.links.take_waiting(start);
        while let Some((number_of_way, way)) = self.links.pop(&mut waiting) {
            if self.is_alive(way.of) {
                self.link(number_of_way, way.zone, way.exit.field, number);
            }
        }
    }

    /// Links an exit, whose jump is at `field`, to a superblock. If the superblock is out of reach,
    /// the exit stays a request.
    pub(super) fn link(&mut self, way: u32, zone: usize, field: u64, number: u32) {
        let body = self.superblocks[number as usize].body;
        let Some(destination) = self.reachable(zone, field, body) else { return };
        self.links.push(&mut self.superblocks[number as usize].incoming, way);
        self.aim(zone, field, destination);
    }

    /// Returns `body`, or the address of a jump to it in this zone if it is too far from `field`;
    /// `None` if the zone has no room for that jump.
    fn reachable(&mut self, zone: usize, field: u64, body: u64) -> Option<u64> {
        let distance = body.wrapping_sub(field + 4).cast_signed();
        if i32::try_from(distance).is_ok() {
            return Some(body);
        }
        let zone = &mut self.zones[zone];
        let used = zone.used.next_multiple_of(FAR_JUMP_BYTES);
        if used + FAR_JUMP_BYTES > zone.size {
            return None;
        }
        // jmp [rip + 2]; the address is at a multiple of 8
        let mut code = vec![0xff, 0x25, 2, 0, 0, 0, 0xcc, 0xcc];
        code.extend_from_slice(&body.to_le_bytes());
        self.memory.write(zone.offset + used, &code);
        zone.used = used + FAR_JUMP_BYTES;
        Some(zone.base + used)
    }

    fn is_alive(&self, number: u32) -> bool {
        self.superblocks.get(number as usize).is_some_and(|superblock| superblock.alive)
    }

    /// Lets the jump at `field` lead to `destination`, while threads may be executing it.
    pub(in super::super) fn aim(&self, zone: usize, field: u64, destination: u64) {
        let zone = &self.zones[zone];
        let displacement = destination.wrapping_sub(field + 4).to_le_bytes();
        let [a, b, c, d, ..] = displacement;
        self.memory.store_u32(zone.offset + (field - zone.base), u32::from_le_bytes([a, b, c, d]));
    }

    /// Drops a superblock: nothing leads there any more, and the exits that were linked to it are
    /// requests again. Threads inside leave it at its exits. Returns false if it was dropped
    /// before.
    pub(in super::super) fn drop_superblock(&mut self, number: u32) -> bool {
        let superblock = &mut self.superblocks[number as usize];
        if !superblock.alive {
            return false;
        }
        superblock.alive = false;
        let (start, mut incoming) = (superblock.start, std::mem::take(&mut superblock.incoming));
        if self.by_start.get(&start) == Some(&number) {
            self.by_start.remove(&start);
        }
        if self.passing.get(&start) == Some(&number) {
            self.passing.remove(&start);
        }
        if let Some(bounded) = self.bounded.get_mut(&start) {
            bounded.retain(|(_, of)| *of != number);
        }
        while let Some((number_of_way, way)) = self.links.pop(&mut incoming) {
            self.aim(way.zone, way.exit.field, way.exit.request());
            // Threads may still be in a dropped superblock. Its exits stay requests.
            if self.is_alive(way.of) {
                self.links.wait(number_of_way);
            }
        }
        self.table.remove(&self.memory, &self.zones, &mut self.superblocks, number);
        true
    }
}
