//! Continues with a persisted cache: [`Translator::resume`] takes over its superblocks, all
//! dormant, and [`Translator::wake`] lets threads use those whose *modules* (parts of files with
//! code) are mapped where they were.

use super::super::dormant::{DormantSuperblock, Module};
use super::super::translator::{CacheMemory, Translator};
use super::super::zone::Zone;
use super::format::{PART_BYTES, ZoneSizes};
use super::read::PersistedCode;
use crate::common::AddrRange;
use std::io::{self, Read};

impl<M: CacheMemory> Translator<M> {
    /// Returns the number of superblocks that a persisted cache brought, dormant and unused ones
    /// included, and of those that were built since.
    pub fn persisted_and_new(&self) -> (usize, usize) {
        let persisted = self.dormant.persisted_count;
        (persisted, self.superblocks.len() - persisted)
    }

    /// Returns the settings on which the code depends, beside the program's code and the build of
    /// the translator, as text. `None` for code that writes records, which cannot be persisted: its
    /// edges have facts that are not kept.
    pub fn variant(&self) -> Option<String> {
        let variant = (self.leaves_hooks, self.saves, self.call_handling, self.limits);
        self.counts.then(|| format!("{variant:?}"))
    }

    /// Returns the number of bytes of the code cache that are in use, dropped code and the code
    /// that superblocks share included.
    pub fn used_bytes(&self) -> u64 {
        self.zones.iter().map(|zone| zone.used).sum()
    }

    /// Takes over the superblocks of a persisted cache, all dormant, with their code from `from`.
    /// Returns false, with no superblock changed, unless this cache is empty and has the same zones
    /// with the same shared code, and all code can be read; unused space of the zones may be
    /// written then. The caller makes sure that [`Self::variant`] is the same.
    pub fn resume(&mut self, code: PersistedCode, from: &mut dyn Read) -> bool {
        let are_same = self.superblocks.is_empty()
            && self.zones.len() == code.zones.len()
            && self.zones.iter().zip(&code.zones).all(|(zone, of)| {
                let sizes = (zone.base, zone.size, zone.shared, zone.used);
                sizes == (of.base, of.size, of.shared, of.shared)
            });
        if !are_same
            || !self.zones.iter().zip(&code.zones).all(|(zone, of)| {
                self.has_shared_code(zone, from) && self.read_code(zone, of, from).is_ok()
            })
        {
            return false;
        }
        for (zone, of) in self.zones.iter_mut().zip(&code.zones) {
            zone.used = of.used;
        }
        for (number, superblock) in (0..).zip(&code.superblocks) {
            if superblock.end > 0 {
                self.by_entry[superblock.zone].push(number);
            }
        }
        self.by_start.reserve(code.superblocks.len());
        self.superblocks = code.superblocks;
        self.edges = code.edges;
        self.packed = code.packed;
        self.dormant = code.dormant;
        self.loops.extend(code.loops);
        self.heat.add_hints(code.hot, code.likely);
        self.targets.add_hints(code.expected);
        true
    }

    /// Reads the code that the superblocks of a zone share from `from`. Returns true if that of
    /// this zone is the same; false also if it cannot be read.
    fn has_shared_code(&self, zone: &Zone, from: &mut dyn Read) -> bool {
        let mut own = vec![0; usize::try_from(zone.shared).unwrap_or(0)];
        let mut read = own.clone();
        self.memory.read(zone.offset, &mut own);
        from.read_exact(&mut read).is_ok() && own == read
    }

    /// Reads the code of a zone's superblocks from `from` into the cache, where no branch leads to
    /// it yet.
    fn read_code(&self, zone: &Zone, of: &ZoneSizes, from: &mut dyn Read) -> io::Result<()> {
        let mut part = vec![0; PART_BYTES];
        let mut at = of.shared;
        while at < of.used {
            let left = usize::try_from(of.used - at).unwrap_or(usize::MAX);
            let part = &mut part[..left.min(PART_BYTES)];
            from.read_exact(part)?;
            self.memory.write(zone.offset + at, part);
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Notes that a module was just mapped, in place of those in its range. Lets threads use the
    /// dormant superblocks whose modules are now all mapped and unchanged. `is_fixed` returns true
    /// for the pages whose bytes are the file's. A superblock that cannot be used at once, as its
    /// page is not fixed or threads stop there, is never used.
    pub fn wake(&mut self, module: &Module, is_fixed: &dyn Fn(u64) -> bool) {
        self.forget_modules(module.range);
        self.present.push(module.clone());
        for sleeper in self.dormant.take_ready(&self.present) {
            self.wake_one(&sleeper, is_fixed);
        }
    }

    /// Notes that a range has, or may have, other bytes than before: modules that overlap it, even
    /// in part, are neither woken nor persisted until they are mapped anew. Their superblocks that
    /// are in use stay so.
    pub(in super::super) fn forget_modules(&mut self, range: AddrRange) {
        self.present.retain(|module| !module.range.overlaps(range));
    }

    /// Lets threads use a dormant superblock, unless there is another for its code by now, its code
    /// is not the file's, or threads stop on its pages: then it stays unused for good.
    fn wake_one(&mut self, sleeper: &DormantSuperblock, is_fixed: &dyn Fn(u64) -> bool) {
        let superblock = &self.superblocks[sleeper.number as usize];
        let (start, zone) = (superblock.start, superblock.zone);
        let pages = &self.dormant.pages[sleeper.pages.clone()];
        let has_stop = |page: &u64| self.stops.range(*page..=*page | 0xfff).next().is_some();
        if self.by_start.contains_key(&start)
            || !pages.iter().all(|page| is_fixed(*page) && !has_stop(page))
        {
            return;
        }
        for page in pages {
            self.by_page.entry(*page).or_default().push(sleeper.number);
        }
        self.superblocks[sleeper.number as usize].alive = true;
        self.publish(sleeper.number, start);
        for index in sleeper.exits.clone() {
            let exit = self.dormant.exits[index];
            // It still leads to where it led in the earlier run.
            self.aim(zone, exit.field, exit.request());
            self.add_exit(exit, sleeper.number, zone);
        }
    }
}
