//! The links between superblocks, and their removal.

use super::{CacheMemory, FAR_JUMP_BYTES, Translator};
use crate::common::AddrRange;

impl<M: CacheMemory> Translator<M> {
    /// Lets all branches to `start`, direct and indirect, lead to a superblock from now on: links
    /// the exits that wait for it, and adds it to the table of indirect targets. The superblock is
    /// registered, with its code in the cache, and there is no other for `start`.
    pub(in super::super) fn publish(&mut self, number: u32, start: u64) {
        self.by_start.insert(start, number);
        self.table.insert(&self.memory, &self.zones, &mut self.superblocks, number);
        let mut waiting = self.links.take_waiting(start);
        while let Some((exit_number, linked)) = self.links.pop(&mut waiting) {
            if self.is_alive(linked.superblock) {
                self.link(exit_number, linked.zone, linked.exit.field, number);
            }
        }
    }

    /// Links an exit, whose jump has its displacement at `field`, to the superblock `number`. The
    /// exit is on no list yet. If the superblock is out of reach, and the zone has no room for a
    /// far jump, the exit stays a request for good.
    pub(super) fn link(&mut self, exit_number: u32, zone: usize, field: u64, number: u32) {
        let body = self.superblocks[number as usize].body;
        let Some(destination) = self.make_reachable(zone, field, body) else { return };
        self.links.push(&mut self.superblocks[number as usize].incoming, exit_number);
        self.aim(zone, field, destination);
    }

    /// Returns the address to which the jump of `field` must lead to reach `body`: `body` itself,
    /// or if that is too far, a far jump to it. Writes that to this zone, a new one at each call.
    /// `None` if the zone has no room for it.
    fn make_reachable(&mut self, zone: usize, field: u64, body: u64) -> Option<u64> {
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

    /// Returns true if a superblock is in use; false if it was dropped, is dormant, or there is
    /// none.
    fn is_alive(&self, number: u32) -> bool {
        self.superblocks.get(number as usize).is_some_and(|superblock| superblock.alive)
    }

    /// Aims the jump whose displacement is at the address `field`, a multiple of 4, at
    /// `destination`, while threads may be executing it. The destination is in reach of 32 bits.
    pub(in super::super) fn aim(&self, zone: usize, field: u64, destination: u64) {
        let zone = &self.zones[zone];
        let displacement = destination.wrapping_sub(field + 4).to_le_bytes();
        let [a, b, c, d, ..] = displacement;
        self.memory.store_u32(zone.offset + (field - zone.base), u32::from_le_bytes([a, b, c, d]));
    }

    /// Drops a superblock: nothing leads there any more, and the exits that were linked to it are
    /// requests again. Threads inside leave it at its exits. Its number and its code stay. Returns
    /// false if it was dropped before, or is dormant.
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
        if self.past_stop.get(&start) == Some(&number) {
            self.past_stop.remove(&start);
        }
        if let Some(bounded) = self.bounded.get_mut(&start) {
            bounded.retain(|(_, of)| *of != number);
        }
        while let Some((exit_number, linked)) = self.links.pop(&mut incoming) {
            self.aim(linked.zone, linked.exit.field, linked.exit.request());
            // Threads may still be in a dropped superblock. Its exits stay requests.
            if self.is_alive(linked.superblock) {
                self.links.add_waiting(exit_number);
            }
        }
        self.table.remove(&self.memory, &self.zones, &mut self.superblocks, number);
        true
    }

    /// Drops all superblocks with code from the pages of `start..end`, whose bytes have changed,
    /// and forgets the modules there, so that dormant superblocks stay unused. Threads inside a
    /// superblock leave it at its exits. Returns true if one was dropped.
    pub fn invalidate(&mut self, start: u64, end: u64) -> bool {
        self.forget_modules(AddrRange::new(start.into(), end.into()));
        self.drop_code(start, end)
    }

    /// Drops all superblocks with code from the pages of `start..end`, and what samples showed of
    /// their paths. Returns true if one was dropped.
    pub(super) fn drop_code(&mut self, start: u64, end: u64) -> bool {
        let pages: Vec<u64> = if (end.saturating_sub(start) >> 12) as usize > self.by_page.len() {
            self.by_page
                .keys()
                .copied()
                .filter(|&page| page + 0xfff >= start && page < end)
                .collect()
        } else {
            (start >> 12..end.div_ceil(0x1000)).map(|page| page << 12).collect()
        };
        let mut any = false;
        for page in pages {
            for number in self.by_page.remove(&page).unwrap_or_default() {
                let (start, path) = (self.superblocks[number as usize].start, self.path(number));
                self.heat.forget_path(start, &path);
                self.targets.forget_path(&path);
                any |= self.drop_superblock(number);
            }
        }
        any
    }
}
