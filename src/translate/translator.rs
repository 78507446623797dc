//! The code cache: its superblocks, the links between them, and their removal.
//!
//! A request for an address ([`Translator::get_or_translate`]) builds a superblock, writes its code
//! to a zone, adds it to all lists (*registers* it), and lets branches lead to it (*publishes* it).
//! When its code changes, it is *dropped*: nothing leads there any more, but its number and its
//! code stay, since threads may still be in it. Only [`Translator::clear`] uses the space again.

mod linking;
mod order;
mod size_limit;

use super::address_map::{AddressMap, AddressSet};
use super::builder::{Built, Exit, Limits, ProgramCode, Site, build};
use super::counting::{Bound, Bounded};
use super::dormant::{Dormant, Module};
use super::edge::{Edge, EdgeKind, Jump};
use super::heat::Heat;
use super::links::{ExitList, Links};
use super::logged::CallHandling;
use super::packed::{Points, Steps, put_path, put_points};
use super::saves::Components;
use super::slots;
use super::superblock::{Location, Outcome, PackedRange, Step, Superblock};
use super::table::Table;
use super::targets::Targets;
use super::zone::Zone;
use order::Order;
use std::collections::BTreeSet;

/// An upper bound of the size of a superblock's code, in bytes.
const LARGEST_SUPERBLOCK_BYTES: u64 = 32 << 10;
/// The size of a jump to an address beyond the reach of a 32-bit displacement, with that address.
const FAR_JUMP_BYTES: u64 = 16;

/// The memory of the code cache and of the table of targets, addressed by offset in the memory
/// shared by tracer and traced process.
pub trait CacheMemory {
    /// Returns an empty vector for the translator's own tables, which grow large.
    fn vector<T>() -> Vec<T> {
        Vec::new()
    }

    /// Reads code.
    fn read(&self, offset: u64, bytes: &mut [u8]);
    /// Writes code, or entries of the table of targets, that no thread can use yet.
    fn write(&self, offset: u64, bytes: &[u8]);
    /// Stores an aligned 4-byte displacement that threads may be executing.
    fn store_u32(&self, offset: u64, value: u32);
    /// Stores an aligned address that threads may be reading.
    fn store_u64(&self, offset: u64, value: u64);
}

/// The reason why a translation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TranslateError {
    /// No zone within reach of the code at this address has room.
    #[error("no code cache within reach of {0:#x}")]
    NoZone(u64),
    /// The 32-bit numbers of superblocks or edges are used up.
    #[error("the code cache is full")]
    Full,
}

/// The kind of thread for which a superblock is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Entered by any thread that reaches its start.
    Plain,
    /// Entered by a thread that resumes from a stop at its start, which it ignores.
    PastStop,
    /// Entered by a thread that runs up to a bound, where the path ends.
    Bounded(Bound),
}

/// The translator of one process, and all that is known of the code in its cache.
#[derive(Debug)]
pub struct Translator<M> {
    pub(super) memory: M,
    table: Table,
    pub(super) limits: Limits,
    pub(super) zones: Vec<Zone>,
    pub(super) superblocks: Vec<Superblock>,
    /// The paths and the points of all superblocks, packed.
    pub(super) packed: Vec<u8>,
    /// The superblock that branches to an address enter.
    pub(super) by_start: AddressMap<u64, u32>,
    /// The numbers of each zone's superblocks, in the order of their addresses in the cache.
    pub(super) by_entry: Vec<Vec<u32>>,
    /// The superblocks with instructions from each page of the program, by its address.
    pub(super) by_page: AddressMap<u64, Vec<u32>>,
    /// All edges, in the order of their superblocks' numbers.
    pub(super) edges: Vec<Edge>,
    pub(super) links: Links,
    /// The return addresses and the quiet jumps of all edges ([`Edge::first_push`],
    /// [`Edge::first_quiet`]).
    pushes: Vec<u64>,
    quiet_jumps: Vec<Jump>,
    /// Program addresses at which threads stop.
    pub(super) stops: BTreeSet<u64>,
    /// Superblocks that start at a stop and ignore it, by start address.
    past_stop: AddressMap<u64, u32>,
    /// In code that counts ticks: the heads of loops, to which branches lead back.
    pub(super) loops: AddressSet<u64>,
    /// The last superblock that was built: its successors are translated ahead, and its allocations
    /// are reused.
    built: Built,
    /// The limit in bytes on the zones within reach of any one address.
    pub(super) size_limit: u64,
    /// True if the code counts ticks and records nothing.
    pub(super) counts: bool,
    /// True if instructions with a [`super::Hook`] are left to the caller, since the run is to be
    /// repeatable. Ticks limit a path then.
    pub(super) leaves_hooks: bool,
    /// The processor's state components, if stores in the cache complete the saves of XSAVEC.
    pub(super) saves: Option<Components>,
    /// Set where code in the cache logs system calls, or answers them.
    pub(super) call_handling: Option<CallHandling>,
    /// Superblocks that end at a bound, to which no exit is linked.
    pub(super) bounded: Bounded,
    /// The results of samples of records.
    pub(super) heat: Heat,
    /// The expected targets of indirect branches.
    pub(super) targets: Targets,
    /// The order in which earlier runs requested code, by which code is translated ahead.
    order: Order,
    /// The superblocks of a persisted cache whose code is not mapped yet.
    pub(super) dormant: Dormant,
    /// The files with code that are mapped and were not changed since.
    pub(super) present: Vec<Module>,
}

impl<M: CacheMemory> Translator<M> {
    /// Creates a translator without zones. `table_offset` is the offset of the table of targets.
    pub fn new(memory: M, table_offset: u64, limits: Limits) -> Self {
        let mut edges = M::vector();
        edges.push(Edge::UNUSED);
        Self {
            memory,
            table: Table::new(table_offset),
            limits,
            zones: Vec::new(),
            superblocks: M::vector(),
            packed: M::vector(),
            by_start: AddressMap::default(),
            by_entry: Vec::new(),
            by_page: AddressMap::default(),
            edges,
            links: Links::new(M::vector()),
            pushes: Vec::new(),
            quiet_jumps: Vec::new(),
            stops: BTreeSet::new(),
            past_stop: AddressMap::default(),
            loops: AddressSet::default(),
            built: Built::default(),
            size_limit: u64::MAX,
            counts: false,
            leaves_hooks: false,
            saves: None,
            call_handling: None,
            bounded: Bounded::default(),
            heat: Heat::default(),
            targets: Targets::default(),
            order: Order::default(),
            dormant: Dormant::default(),
            present: Vec::new(),
        }
    }

    /// Sets the addresses at which threads stop before they execute the instruction there. The
    /// superblocks of these addresses are [`Superblock::native`]. Drops the code of each page on
    /// which a stop is new or gone. No thread may be in the cache.
    pub fn set_stops(&mut self, stops: &BTreeSet<u64>) {
        let changed: Vec<u64> = self.stops.symmetric_difference(stops).copied().collect();
        self.stops.clone_from(stops);
        for addr in changed {
            self.drop_code(addr, addr.saturating_add(1));
        }
    }

    /// Returns true if threads stop at an address.
    pub fn is_stop(&self, addr: u64) -> bool {
        self.stops.contains(&addr)
    }

    /// Returns true if threads stop at the start of a superblock before they execute anything of
    /// it.
    pub fn stops_at(&self, number: u32) -> bool {
        let superblock = self.superblocks.get(number as usize).filter(|of| !of.ignores_stop);
        superblock.is_some_and(|superblock| self.is_stop(superblock.start))
    }

    /// Returns the number of the superblock for a thread that is at `addr` and resumes there: it
    /// does not stop at its start, even if threads stop at that address. Translates the superblock
    /// if there is none.
    pub fn get_past_stop(
        &mut self,
        addr: u64,
        code: &mut dyn ProgramCode,
    ) -> Result<u32, TranslateError> {
        if !self.is_stop(addr) {
            return self.get_or_translate(addr, code);
        }
        match self.past_stop.get(&addr) {
            Some(number) => Ok(*number),
            None => self.translate(addr, Purpose::PastStop, code),
        }
    }

    /// Adds a zone to the code cache: `size` bytes at `base` in the traced process, which are at
    /// `offset` in the shared memory. Writes the code that its superblocks share. The first zone
    /// also initializes the table of targets, whose buckets end in it.
    pub fn add_zone(&mut self, base: u64, size: u64, offset: u64) {
        let (zone, code) = Zone::new(base, size, offset, self.call_handling);
        self.memory.write(offset, &code);
        self.zones.push(zone);
        self.by_entry.push(Vec::new());
        if self.zones.len() == 1 {
            self.table.clear(&self.memory, &zone);
        }
    }

    /// Returns the zones.
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// Returns true if an address is in the cache.
    pub fn in_cache(&self, addr: u64) -> bool {
        self.zones.iter().any(|zone| zone.contains(addr))
    }

    /// Returns the edges from number `first` on; empty if there are none.
    pub fn edges_from(&self, first: usize) -> &[Edge] {
        self.edges.get(first..).unwrap_or_default()
    }

    /// Returns the number of edges, including edge 0, which is unused.
    pub fn edge_count(&self) -> usize {
        self.edges.len()
    }

    /// Returns the return addresses that paths leave on the stack, from index `first` on
    /// ([`Edge::first_push`]); empty if there are none.
    pub fn return_addresses(&self, first: usize) -> &[u64] {
        self.pushes.get(first..).unwrap_or_default()
    }

    /// Returns the direct jumps and calls after the last TNT bit of each edge's path, from index
    /// `first` on ([`Edge::first_quiet`]); empty if there are none.
    pub fn quiet_jumps(&self, first: usize) -> &[Jump] {
        self.quiet_jumps.get(first..).unwrap_or_default()
    }

    /// Returns a superblock by its number, also if it is not in use; `None` if none had the number.
    pub fn superblock(&self, number: u32) -> Option<&Superblock> {
        self.superblocks.get(number as usize)
    }

    /// Returns the whole path of a superblock; empty if there is no such superblock.
    pub fn path(&self, number: u32) -> Vec<Step> {
        self.superblock(number).map_or_else(Vec::new, |superblock| self.steps(superblock).collect())
    }

    /// Returns the path of an edge: its superblock's, up to where the edge leaves it; empty if
    /// there is no such superblock.
    pub fn path_of(&self, edge: &Edge) -> Vec<Step> {
        let steps = self.superblock(edge.superblock).map(|superblock| self.steps(superblock));
        steps.into_iter().flatten().take(edge.instructions.into()).collect()
    }

    /// Returns the path of a superblock, step by step.
    pub(super) fn steps(&self, superblock: &Superblock) -> Steps<'_> {
        Steps::of(superblock.path.of(&self.packed), superblock.start)
    }

    /// Returns the number of superblocks that were built or taken over since the cache was last
    /// cleared, dropped and dormant ones included.
    pub fn superblock_count(&self) -> usize {
        self.superblocks.len()
    }

    /// Returns the number of the superblock that starts at an address of the program. If there is
    /// none, translates it, and as far as its code cannot change, the code that is likely to
    /// follow.
    pub fn get_or_translate(
        &mut self,
        addr: u64,
        code: &mut dyn ProgramCode,
    ) -> Result<u32, TranslateError> {
        if let Some(number) = self.by_start.get(&addr) {
            return Ok(*number);
        }
        let number = self.translate(addr, Purpose::Plain, code)?;
        self.translate_ahead(addr, code);
        self.follow_order(addr, code);
        Ok(number)
    }

    /// Translates the successors of the superblock that was just built at `addr`, and their
    /// successors in turn, as far as their code cannot change and the limits allow. Stops silently
    /// if the cache has no room. Translates none while the order of requests is noted.
    fn translate_ahead(&mut self, addr: u64, code: &mut dyn ProgramCode) {
        if !code.is_fixed(addr) {
            return;
        }
        let mut left = if self.order.is_learning() { 0 } else { self.limits.ahead };
        let mut step = Vec::new();
        self.note_successors(&mut step);
        for _ in 0..self.limits.steps_ahead {
            let mut next = Vec::new();
            for target in step {
                if self.by_start.contains_key(&target) || !code.is_fixed(target) {
                    continue;
                }
                if left == 0 || self.translate(target, Purpose::Plain, code).is_err() {
                    return;
                }
                left -= 1;
                self.note_successors(&mut next);
            }
            step = next;
        }
    }

    /// Appends the addresses to which the last superblock leads, and those to which its calls
    /// return.
    fn note_successors(&self, to: &mut Vec<u64>) {
        to.extend(self.built.exits.iter().map(|exit| exit.target));
        to.extend(&self.built.pushes);
    }

    /// Returns the program address at which a thread requests code: `target` if the request is
    /// [`slots::INDIRECT`], else the target of the edge that it names. Returns 0 if there is no
    /// such edge, or for a request of 0.
    pub fn requested_address(&self, request: u64, target: u64) -> u64 {
        if request == slots::INDIRECT {
            return target;
        }
        let edge = usize::try_from(request).ok().and_then(|edge| self.edges.get(edge));
        edge.map_or(0, |edge| edge.target)
    }

    /// Maps an address in the cache to the program's state there, also in dropped superblocks.
    /// Returns `None` in the code that a zone's superblocks share, in far jumps, and elsewhere.
    pub fn locate(&self, at: u64) -> Option<Location> {
        let zone = self.zones.iter().position(|zone| zone.contains(at))?;
        let of_zone = &self.by_entry[zone];
        let entry_of = |number: u32| self.superblocks[number as usize].entry;
        let following = of_zone.partition_point(|&number| entry_of(number) <= at);
        let number = *of_zone.get(following.checked_sub(1)?)?;
        let superblock = &self.superblocks[number as usize];
        if at >= superblock.end {
            return None;
        }
        let offset = u32::try_from(at - superblock.entry).ok()?;
        let points = Points::of(superblock.points.of(&self.packed), superblock.start);
        let point = points.take_while(|point| point.offset <= offset).last()?;
        let exact = point.offset == offset && point.state.exact;
        Some(Location { superblock: number, point, exact })
    }

    /// Translates a superblock that ends at a bound, in addition to others at `addr`.
    pub(super) fn translate_bounded(
        &mut self,
        addr: u64,
        bound: Bound,
        code: &mut dyn ProgramCode,
    ) -> Result<u32, TranslateError> {
        self.translate(addr, Purpose::Bounded(bound), code)
    }

    /// Builds a superblock at `addr`, writes it to a zone, registers it, and returns its number.
    /// Where no code can be read, it is one that stops there. Fails, and changes nothing, if no
    /// zone in reach has room, or the numbers are used up. Only one that is [`Purpose::Plain`] is
    /// linked to the exits of others.
    fn translate(
        &mut self,
        addr: u64,
        purpose: Purpose,
        code: &mut dyn ProgramCode,
    ) -> Result<u32, TranslateError> {
        let has_room =
            |zone: &Zone| zone.used + LARGEST_SUPERBLOCK_BYTES <= zone.size.min(self.size_limit);
        // An address without readable code gets no copied code, so any zone will do.
        let is_code = code.fetch(addr, &mut [0]) > 0;
        let fits = |zone: &Zone| (zone.reaches(addr) || !is_code) && has_room(zone);
        let index = self.zones.iter().position(fits).ok_or(TranslateError::NoZone(addr))?;
        let zone = self.zones[index];
        let used = zone.used.next_multiple_of(16);
        let number = u32::try_from(self.superblocks.len()).map_err(|_| TranslateError::Full)?;
        let site = Site {
            limits: self.limits_at(addr),
            superblock: number,
            base: zone.base + used,
            request: zone.request,
            miss: zone.miss,
            counts: self.counts,
            leaves_hooks: self.leaves_hooks,
            saves: self.saves,
            log: zone.log.map_or(0, |log| log.start),
            counters: zone.log.map_or([0; 2], |log| log.counters.map(|code| code.start)),
            call_handling: self.call_handling,
            bound: if let Purpose::Bounded(bound) = purpose { Some(bound) } else { None },
            next_edge: u32::try_from(self.edges.len()).map_err(|_| TranslateError::Full)?,
            next_push: u32::try_from(self.pushes.len()).map_err(|_| TranslateError::Full)?,
            next_quiet: u32::try_from(self.quiet_jumps.len()).map_err(|_| TranslateError::Full)?,
            is_known: &|addr| self.by_start.contains_key(&addr),
            is_stop: &|addr| self.stops.contains(&addr),
            ignores_stop: purpose != Purpose::Plain,
            likely: &|branch| self.heat.usual_outcome(branch),
            expected: &|branch| self.targets.expected(branch),
        };
        let built = build(&site, addr, code, std::mem::take(&mut self.built));
        let base = site.base;
        self.memory.write(zone.offset + used, &built.bytes);
        self.zones[index].used = used + built.bytes.len() as u64;
        if self.counts {
            self.note_loops(&built);
        }
        self.register(number, addr, index, base, &built);
        self.built = built;
        match purpose {
            Purpose::Plain => self.publish(number, addr),
            Purpose::PastStop => {
                self.past_stop.insert(addr, number);
            }
            Purpose::Bounded(_) => {}
        }
        Ok(number)
    }

    /// Returns the limits of a superblock that starts at an address.
    fn limits_at(&self, addr: u64) -> Limits {
        if self.heat.is_hot(addr) {
            self.limits.of_hot()
        } else if self.loops.contains(&addr) {
            self.limits.of_loop()
        } else {
            self.limits
        }
    }

    /// Notes the heads of loops: the addresses to which direct branches of a superblock, except for
    /// calls, lead back.
    fn note_loops(&mut self, built: &Built) {
        for edge in &built.edges {
            let last =
                edge.instructions.checked_sub(1).and_then(|at| built.path.get(usize::from(at)));
            let is_back = |last: &Step| last.outcome != Outcome::Call && edge.target <= last.ip;
            if edge.kind == EdgeKind::Direct && last.is_some_and(is_back) {
                self.loops.insert(edge.target);
            }
        }
    }

    /// Adds a superblock whose code is already in the cache to all lists, and links its exits. No
    /// branch leads to it yet ([`Self::publish`]).
    fn register(&mut self, number: u32, start: u64, zone: usize, base: u64, built: &Built) {
        self.edges.extend_from_slice(&built.edges);
        self.pushes.extend_from_slice(&built.pushes);
        self.quiet_jumps.extend_from_slice(&built.quiet_jumps);
        for &page in &built.pages {
            self.by_page.entry(page).or_default().push(number);
        }
        self.superblocks.push(Superblock {
            start,
            entry: base,
            accepted: built.accepted,
            body: built.body,
            end: base + built.bytes.len() as u64,
            path: PackedRange::append(&mut self.packed, |to| put_path(to, start, &built.path)),
            points: PackedRange::append(&mut self.packed, |to| {
                put_points(to, start, &built.points);
            }),
            native: built.native,
            hook: built.hook,
            ignores_stop: built.ignores_stop,
            zone,
            next_literal: built.next_literal,
            incoming: ExitList::default(),
            next_in_bucket: None,
            alive: true,
        });
        self.by_entry[zone].push(number);
        for &exit in &built.exits {
            self.add_exit(exit, number, zone);
        }
    }

    /// Links an exit of a superblock to the superblock of its target, or lets it wait for one.
    pub(super) fn add_exit(&mut self, exit: Exit, number: u32, zone: usize) {
        let exit_number = self.links.add(exit, number, zone);
        match self.by_start.get(&exit.target) {
            Some(&target) => self.link(exit_number, zone, exit.field, target),
            None => self.links.add_waiting(exit_number),
        }
    }
}
