//! Writes a persisted cache, as `read` reads it ([`Translator::persist`]):
//! 1. Selects the superblocks to keep: those that are *dormant*, of code that is not mapped, and
//!    those in use whose code is in unchanged *modules*, parts of files
//!    ([`super::super::dormant`]). A *group* has the superblocks with code of the same modules.
//! 2. Ends without a cache if they have less than half of the code.
//! 3. Writes the description: zones, modules, groups, hints of samples, superblocks with their
//!    edges. Superblocks and edges keep their numbers, so those that are not kept leave empty
//!    places.
//! 4. Writes the code of all zones as it is.

use super::super::address_map::AddressMap;
use super::super::builder::Exit;
use super::super::dormant::{DormantSuperblock, Module};
use super::super::edge::Edge;
use super::super::packed::{put_distance, put_number};
use super::super::superblock::Superblock;
use super::super::translator::{CacheMemory, Translator};
use super::format::{HAS_TARGET, IS_BRANCH, KINDS, NATIVE};
use std::collections::BTreeMap;
use std::ops::Range;

/// A persisted code cache, as it is written.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Persisted {
    /// All that the translator knows of the code.
    pub description: Vec<u8>,
    /// The bytes of all zones that are in use.
    pub code: Vec<u8>,
}

impl<M: CacheMemory> Translator<M> {
    /// Returns a cache that the next run of the program can read. It has the superblocks with code
    /// of modules that are mapped and were not changed, on pages for which `is_fixed` returns true,
    /// and the dormant ones. Returns `None` if these have less than half of the code.
    pub fn persist(&self, is_fixed: &dyn Fn(u64) -> bool) -> Option<Persisted> {
        let writer = Writer::select(self, is_fixed);
        writer.is_worth_it().then(|| writer.write())
    }
}

/// A superblock that goes into a persisted cache.
#[derive(Debug)]
struct Kept {
    /// The number of its group.
    group: u64,
    /// Its pages and its exits, as indexes in the vectors of [`Writer`].
    pages: Range<usize>,
    exits: Range<usize>,
}

/// The parts of a persisted cache that is being written.
struct Writer<'a, M> {
    of: &'a Translator<M>,
    modules: Vec<Module>,
    /// The number of each group, by the numbers of its modules.
    groups: BTreeMap<Vec<usize>, u64>,
    /// Each superblock that is kept, by its number.
    kept: Vec<Option<Kept>>,
    pages: Vec<u64>,
    exits: Vec<Exit>,
}

impl<'a, M: CacheMemory> Writer<'a, M> {
    /// Selects the superblocks to keep: all dormant ones, whatever `is_fixed` returns, and those in
    /// use of [`Self::keep_used`].
    fn select(of: &'a Translator<M>, is_fixed: &dyn Fn(u64) -> bool) -> Self {
        let mut writer = Self {
            of,
            modules: of.dormant.modules.clone(),
            groups: BTreeMap::new(),
            kept: of.superblocks.iter().map(|_| None).collect(),
            pages: of.dormant.pages.clone(),
            exits: of.dormant.exits.clone(),
        };
        writer.keep_dormant();
        writer.keep_used(is_fixed);
        writer.keep_exits();
        writer
    }

    /// Returns true if at least half of the code is kept, of all code that has space in the cache,
    /// dropped code included.
    fn is_worth_it(&self) -> bool {
        let kept = self.of.superblocks.iter().zip(&self.kept).filter(|(_, kept)| kept.is_some());
        let bytes: u64 = kept.map(|(superblock, _)| superblock.end - superblock.entry).sum();
        let all: u64 = self.of.zones.iter().map(|zone| zone.used - zone.shared).sum();
        2 * bytes >= all
    }

    /// Returns the number of the group with these modules, which it adds if it is new.
    fn group_of(&mut self, modules: Vec<usize>) -> u64 {
        let next = self.groups.len() as u64;
        *self.groups.entry(modules).or_insert(next)
    }

    /// Keeps the superblocks that are dormant still.
    fn keep_dormant(&mut self) {
        let of = self.of;
        for group in of.dormant.groups.iter().filter(|group| !group.members.is_empty()) {
            let number = self.group_of(group.modules.clone());
            for DormantSuperblock { number: of, pages, exits } in &group.members {
                let (pages, exits) = (pages.clone(), exits.clone());
                self.kept[*of as usize] = Some(Kept { group: number, pages, exits });
            }
        }
    }

    /// Keeps the superblocks in use whose pages are all in unchanged modules and fixed by
    /// `is_fixed`. Leaves out those that begin at a stop or ignore one, and bounded ones.
    fn keep_used(&mut self, is_fixed: &dyn Fn(u64) -> bool) {
        let of = self.of;
        let mut pages: Vec<(u32, u64)> = Vec::new();
        let mut numbers: AddressMap<u64, Option<usize>> = AddressMap::default();
        for (page, of_page) in &of.by_page {
            numbers.insert(*page, self.module_at(*page).filter(|_| is_fixed(*page)));
            pages.extend(of_page.iter().map(|number| (*number, *page)));
        }
        pages.sort_unstable();
        for of_superblock in pages.chunk_by(|(one, _), (other, _)| one == other) {
            let Some((number, _)) = of_superblock.first() else { continue };
            let superblock = &of.superblocks[*number as usize];
            let is_usual = superblock.alive && of.by_start.get(&superblock.start) == Some(number);
            let all = of_superblock.iter().map(|(_, page)| numbers.get(page).copied().flatten());
            let Some(mut modules) = all.collect::<Option<Vec<usize>>>() else { continue };
            if !is_usual || superblock.ignores_stop || of.is_stop(superblock.start) {
                continue;
            }
            modules.dedup();
            modules.sort_unstable();
            modules.dedup();
            let group = self.group_of(modules);
            let first = self.pages.len();
            self.pages.extend(of_superblock.iter().map(|(_, page)| *page));
            let kept = Kept { group, pages: first..self.pages.len(), exits: 0..0 };
            self.kept[*number as usize] = Some(kept);
        }
    }

    /// Returns the number of the unchanged module that contains an address, which it adds if it is
    /// new; `None` if there is no such module.
    fn module_at(&mut self, addr: u64) -> Option<usize> {
        let present = &self.of.present;
        let module = present.iter().find(|module| module.range.contains(addr.into()))?;
        Some(self.modules.iter().position(|of| of == module).unwrap_or_else(|| {
            self.modules.push(module.clone());
            self.modules.len() - 1
        }))
    }

    /// Keeps the exits of the superblocks that [`Self::keep_used`] keeps. Those of dormant ones are
    /// kept already.
    fn keep_exits(&mut self) {
        let mut exits: Vec<(u32, Exit)> = self.of.links.exits().collect();
        exits.sort_by_key(|(of, _)| *of);
        for of_superblock in exits.chunk_by(|(one, _), (other, _)| one == other) {
            let number = of_superblock.first().map_or(0, |(number, _)| *number as usize);
            if let Some(kept) = &mut self.kept[number] {
                let first = self.exits.len();
                self.exits.extend(of_superblock.iter().map(|(_, exit)| *exit));
                kept.exits = first..self.exits.len();
            }
        }
    }

    /// Writes the description, and the used bytes of all zones, also those of superblocks that are
    /// not kept.
    fn write(self) -> Persisted {
        let mut to = Vec::new();
        self.put_zones(&mut to);
        self.put_modules(&mut to);
        self.put_hints(&mut to);
        put_number(&mut to, self.pages.len() as u64);
        put_number(&mut to, self.exits.len() as u64);
        let packed = self.put_superblocks(&mut to);
        put_bytes(&mut to, &packed);
        let mut code = Vec::new();
        for zone in &self.of.zones {
            let start = code.len();
            code.resize(start + usize::try_from(zone.used).unwrap_or(0), 0);
            self.of.memory.read(zone.offset, &mut code[start..]);
        }
        Persisted { description: to, code }
    }

    /// Appends the number of zones, and the address and sizes of each.
    fn put_zones(&self, to: &mut Vec<u8>) {
        put_number(to, self.of.zones.len() as u64);
        for zone in &self.of.zones {
            for number in [zone.base, zone.size, zone.shared, zone.used] {
                put_number(to, number);
            }
        }
    }

    /// Appends the modules, and the groups by their numbers.
    fn put_modules(&self, to: &mut Vec<u8>) {
        put_number(to, self.modules.len() as u64);
        for module in &self.modules {
            for number in [module.range.start.0, module.range.end.0, module.offset] {
                put_number(to, number);
            }
            put_bytes(to, module.file.as_bytes());
        }
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by_key(|(_, number)| **number);
        put_number(to, groups.len() as u64);
        for (modules, _) in groups {
            put_number(to, modules.len() as u64);
            for module in modules {
                put_number(to, *module as u64);
            }
        }
    }

    /// Appends what samples showed, of all code: no more than hints.
    fn put_hints(&self, to: &mut Vec<u8>) {
        let (hot, likely) = self.of.heat.hints();
        for addresses in [self.of.loops.iter().copied().collect(), hot] {
            put_number(to, addresses.len() as u64);
            for addr in addresses {
                put_number(to, addr);
            }
        }
        put_number(to, likely.len() as u64);
        for (branch, taken) in likely {
            put_number(to, branch);
            put_number(to, taken.into());
        }
        let expected = self.of.targets.hints();
        put_number(to, expected.len() as u64);
        for (branch, targets) in expected {
            put_number(to, branch);
            put_number(to, targets.len() as u64);
            for target in targets {
                put_number(to, target);
            }
        }
    }

    /// Appends all superblocks and edges, so that they keep their numbers; of those that are not
    /// kept, no more than the number of edges. Returns the paths and points of those that are.
    fn put_superblocks(&self, to: &mut Vec<u8>) -> Vec<u8> {
        let mut packed = Vec::new();
        let mut ends: Vec<u64> = self.of.zones.iter().map(|zone| zone.base + zone.shared).collect();
        let mut edges = self.of.edges.iter().skip(1).peekable();
        put_number(to, self.of.superblocks.len() as u64);
        for (number, superblock) in (0..).zip(&self.of.superblocks) {
            let of_superblock =
                std::iter::from_fn(|| edges.next_if(|edge| edge.superblock == number));
            let own: Vec<&Edge> = of_superblock.collect();
            let Some(Kept { group, pages, exits }) = &self.kept[number as usize] else {
                put_number(to, 0);
                put_number(to, own.len() as u64);
                continue;
            };
            put_number(to, group + 1);
            put_number(to, own.len() as u64);
            put_superblock(to, superblock, &mut ends);
            for stretch in [superblock.path, superblock.points] {
                let bytes = stretch.of(&self.of.packed);
                packed.extend_from_slice(bytes);
                put_number(to, bytes.len() as u64);
            }
            put_number(to, pages.len() as u64);
            for page in &self.pages[pages.clone()] {
                put_distance(to, superblock.start >> 12, page >> 12);
            }
            put_number(to, exits.len() as u64);
            for exit in &self.exits[exits.clone()] {
                put_number(to, exit.field - superblock.entry);
                put_distance(to, superblock.start, exit.target);
            }
            for edge in own {
                put_edge(to, edge);
            }
        }
        packed
    }
}

/// Appends bytes, with their number before them.
fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put_number(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// Appends the addresses and facts of a superblock. `ends` are the ends of the last one in each
/// zone; that of its zone becomes its own end.
fn put_superblock(to: &mut Vec<u8>, superblock: &Superblock, ends: &mut [u64]) {
    let Superblock { start, entry, accepted, body, end, next_literal, zone, .. } = *superblock;
    put_number(to, start);
    put_number(to, zone as u64);
    put_number(to, entry - ends[zone]);
    for addr in [accepted, body, next_literal, end] {
        put_number(to, addr - entry);
    }
    put_number(to, if superblock.native { NATIVE } else { 0 });
    put_number(to, superblock.hook.map_or(0, |hook| u64::from(hook.number()) + 1));
    ends[zone] = end;
}

/// Appends an edge: its kind, target, TNT bits, ticks and number of instructions. The reader knows
/// its superblock and start. Leaves out the facts that only encoders need: return addresses
/// (`pushes`, `peak`), the quiet part and `since`.
fn put_edge(to: &mut Vec<u8>, edge: &Edge) {
    let kind = KINDS.iter().position(|kind| *kind == edge.kind).unwrap_or(0) as u64;
    let branch = if edge.branch { IS_BRANCH } else { 0 };
    let target = if edge.target == 0 { 0 } else { HAS_TARGET };
    put_number(to, kind | branch | target);
    if target != 0 {
        put_distance(to, edge.start, edge.target);
    }
    put_number(to, edge.bits);
    put_number(to, edge.bit_count.into());
    put_number(to, edge.ticks.into());
    put_number(to, edge.instructions.into());
}
