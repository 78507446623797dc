//! The code cache: which superblocks there are, how they lead to each other, and how they go.

use super::address_map::AddressMap;
use super::builder::{Built, Limits, ProgramCode, Site, build};
use super::counting::{Bound, Bounded};
use super::edge::{Edge, Jump};
use super::heat::Heat;
use super::links::{Links, List};
use super::slots;
use super::superblock::{Location, Point, Step, Stretch, Superblock};
use super::table::Table;
use super::zone::Zone;
use std::collections::BTreeSet;

/// A superblock's code is smaller than this for certain.
const LARGEST_SUPERBLOCK_BYTES: u64 = 32 << 10;
/// A jump out of a 32-bit displacement's reach, with its literal.
const FAR_JUMP_BYTES: u64 = 16;

/// The memory of the cache and of the table of targets, by offset in the memory that tracer and
/// traced process share.
pub trait CacheMemory {
    /// Writes code that no thread executes yet.
    fn write(&self, offset: u64, bytes: &[u8]);
    /// Stores a 4-byte displacement, aligned, that threads may be executing.
    fn store_u32(&self, offset: u64, value: u32);
    /// Stores an address, aligned, that threads may be using.
    fn store_u64(&self, offset: u64, value: u64);
}

/// Why nothing was translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TranslateError {
    /// No zone that is near enough to the code has room.
    #[error("no code cache within reach of {0:#x}")]
    NoZone(u64),
    /// Numbers have run out.
    #[error("the code cache is full")]
    Full,
}

/// What a superblock is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Whoever comes to its start.
    Plain,
    /// A thread that is to go on from a stop.
    Passing,
    /// A thread that is to come to a place.
    Bounded(Bound),
}

/// The translator of one process.
#[derive(Debug)]
pub struct Translator<M> {
    memory: M,
    table: Table,
    pub(super) limits: Limits,
    zones: Vec<Zone>,
    superblocks: Vec<Superblock>,
    /// The paths of all superblocks, and their points.
    steps: Vec<Step>,
    points: Vec<Point>,
    by_start: AddressMap<u64, u32>,
    /// The superblocks of each zone, by address.
    by_entry: Vec<Vec<u32>>,
    by_page: AddressMap<u64, Vec<u32>>,
    pub(super) edges: Vec<Edge>,
    links: Links,
    pushes: Vec<u64>,
    quiet_jumps: Vec<Jump>,
    /// Where threads are to stop.
    stops: BTreeSet<u64>,
    /// Superblocks that begin where threads are to stop, and do not stop there.
    passing: AddressMap<u64, u32>,
    /// The last superblock as it was built, for its room.
    built: Built,
    /// Branches are counted, and nothing is recorded.
    pub(super) counts: bool,
    /// Superblocks of one use, which nothing leads to.
    pub(super) bounded: Bounded,
    /// What was learnt from samples.
    pub(super) heat: Heat,
}

impl<M: CacheMemory> Translator<M> {
    /// A translator without zones. `table_offset` is where the table of targets begins.
    pub fn new(memory: M, table_offset: u64, limits: Limits) -> Self {
        let none = Edge {
            bits: 0,
            bit_count: 0,
            kind: super::EdgeKind::Direct,
            pushes: 0,
            peak: 0,
            first_push: 0,
            instructions: 0,
            superblock: 0,
            start: 0,
            target: 0,
            quiet_low: u64::MAX,
            quiet_high: 0,
            since: 0,
            branch: false,
            quiet_start: 0,
            quiet_jumps: 0,
            first_quiet: 0,
        };
        Self {
            memory,
            table: Table::new(table_offset),
            limits,
            zones: Vec::new(),
            superblocks: Vec::new(),
            steps: Vec::new(),
            points: Vec::new(),
            by_start: AddressMap::default(),
            by_entry: Vec::new(),
            by_page: AddressMap::default(),
            // Edge 0 is none: a request of 0 is no request.
            edges: vec![none],
            links: Links::default(),
            pushes: Vec::new(),
            quiet_jumps: Vec::new(),
            stops: BTreeSet::new(),
            passing: AddressMap::default(),
            built: Built::default(),
            counts: false,
            bounded: Bounded::default(),
            heat: Heat::default(),
        }
    }

    /// Where threads are to stop from now on, before they execute what is there: the superblocks
    /// of these addresses are [`Superblock::native`] ones. No thread may be in the cache.
    pub fn set_stops(&mut self, stops: &BTreeSet<u64>) {
        let changed: Vec<u64> = self.stops.symmetric_difference(stops).copied().collect();
        self.stops.clone_from(stops);
        for addr in changed {
            self.invalidate(addr, addr.saturating_add(1));
        }
    }

    /// Whether threads are to stop at an address.
    pub fn is_stop(&self, addr: u64) -> bool {
        self.stops.contains(&addr)
    }

    /// Whether a superblock is where threads are to stop.
    pub fn stops_at(&self, number: u32) -> bool {
        let start = self.superblocks.get(number as usize).map(|superblock| superblock.start);
        start.is_some_and(|start| self.is_stop(start) && self.passing.get(&start) != Some(&number))
    }

    /// The superblock for a thread that stands at `addr`, and is to go on even if it is a stop.
    pub fn get_passing(
        &mut self,
        addr: u64,
        code: &mut dyn ProgramCode,
    ) -> Result<u32, TranslateError> {
        if !self.is_stop(addr) {
            return self.get(addr, code);
        }
        match self.passing.get(&addr) {
            Some(number) => Ok(*number),
            None => self.translate(addr, Way::Passing, code),
        }
    }

    /// Adds a stretch of code cache.
    pub fn add_zone(&mut self, base: u64, size: u64, offset: u64) {
        let (zone, code) = Zone::new(base, size, offset);
        self.memory.write(offset, &code);
        self.zones.push(zone);
        self.by_entry.push(Vec::new());
        if self.zones.len() == 1 {
            self.table.clear(&self.memory, &zone);
        }
    }

    /// The zones.
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// Whether an address is in the cache.
    pub fn in_cache(&self, addr: u64) -> bool {
        self.zones.iter().any(|zone| zone.contains(addr))
    }

    /// The edges from number `first` on.
    pub fn edges_from(&self, first: usize) -> &[Edge] {
        self.edges.get(first..).unwrap_or_default()
    }

    /// How many edges there are.
    pub fn edge_count(&self) -> usize {
        self.edges.len()
    }

    /// The return addresses that paths leave on the stack, from index `first` on.
    pub fn return_addresses(&self, first: usize) -> &[u64] {
        self.pushes.get(first..).unwrap_or_default()
    }

    /// The direct jumps and calls behind the last TNT bits of paths, from index `first` on.
    pub fn quiet_jumps(&self, first: usize) -> &[Jump] {
        self.quiet_jumps.get(first..).unwrap_or_default()
    }

    /// A superblock by its number.
    pub fn superblock(&self, number: u32) -> Option<&Superblock> {
        self.superblocks.get(number as usize)
    }

    /// The path of a superblock, as far as it goes without leaving.
    pub fn path(&self, number: u32) -> &[Step] {
        self.superblock(number).map_or(&[], |superblock| superblock.path.of(&self.steps))
    }

    /// The path of an edge: that of its superblock, up to where it leaves.
    pub fn path_of(&self, edge: &Edge) -> &[Step] {
        let path = self.path(edge.superblock);
        path.get(..usize::from(edge.instructions)).unwrap_or_default()
    }

    /// The number of superblocks ever made.
    pub fn superblock_count(&self) -> usize {
        self.superblocks.len()
    }

    /// The superblock at an address of the program, translated now if need be.
    pub fn get(&mut self, addr: u64, code: &mut dyn ProgramCode) -> Result<u32, TranslateError> {
        if let Some(number) = self.by_start.get(&addr) {
            return Ok(*number);
        }
        let number = self.translate(addr, Way::Plain, code)?;
        self.translate_ahead(addr, code);
        Ok(number)
    }

    /// Translates where the last superblock leads, and where those lead in turn.
    fn translate_ahead(&mut self, addr: u64, code: &mut dyn ProgramCode) {
        if !code.is_fixed(addr) {
            return;
        }
        let mut left = self.limits.ahead;
        let mut step = Vec::new();
        self.note_successors(&mut step);
        for _ in 0..self.limits.steps_ahead {
            let mut next = Vec::new();
            for target in step {
                if self.by_start.contains_key(&target) || !code.is_fixed(target) {
                    continue;
                }
                if left == 0 || self.translate(target, Way::Plain, code).is_err() {
                    return;
                }
                left -= 1;
                self.note_successors(&mut next);
            }
            step = next;
        }
    }

    /// Where the last superblock leads, and returns to it.
    fn note_successors(&self, to: &mut Vec<u64>) {
        to.extend(self.built.exits.iter().map(|exit| exit.target));
        to.extend(&self.built.pushes);
    }

    /// Serves a request: gives the address in the cache where the thread goes on. `target` is
    /// what [`slots::TARGET`] holds.
    pub fn serve(
        &mut self,
        request: u64,
        target: u64,
        code: &mut dyn ProgramCode,
    ) -> Result<u64, TranslateError> {
        let number = self.get(self.requested(request, target), code)?;
        let superblock = &self.superblocks[number as usize];
        Ok(if request == slots::INDIRECT { superblock.accepted } else { superblock.body })
    }

    /// The address that a request is for.
    pub fn requested(&self, request: u64, target: u64) -> u64 {
        if request == slots::INDIRECT {
            return target;
        }
        let edge = usize::try_from(request).ok().and_then(|edge| self.edges.get(edge));
        edge.map_or(0, |edge| edge.target)
    }

    /// Finds what the address of an instruction in the cache stands for. None: common code of a
    /// zone, or not in the cache at all.
    pub fn locate(&self, at: u64) -> Option<Location> {
        let zone = self.zones.iter().position(|zone| zone.contains(at))?;
        let of_zone = &self.by_entry[zone];
        let entry_of = |number: u32| self.superblocks[number as usize].entry;
        let behind = of_zone.partition_point(|&number| entry_of(number) <= at);
        let number = *of_zone.get(behind.checked_sub(1)?)?;
        let superblock = &self.superblocks[number as usize];
        if at >= superblock.end {
            return None;
        }
        let offset = u32::try_from(at - superblock.entry).ok()?;
        let points = superblock.points.of(&self.points);
        let behind = points.partition_point(|point| point.offset <= offset);
        let point = *points.get(behind.checked_sub(1)?)?;
        let exact = point.offset == offset && point.state.exact;
        Some(Location { superblock: number, point, exact })
    }

    /// Drops the superblocks made from code in `start..end`. Threads that are inside one leave it
    /// by its ends. Gives whether there were any.
    pub fn invalidate(&mut self, start: u64, end: u64) -> bool {
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
                let superblock = &self.superblocks[number as usize];
                self.heat.forget(superblock.start, superblock.path.of(&self.steps));
                any |= self.drop_superblock(number);
            }
        }
        any
    }

    pub(super) fn translate_bounded(
        &mut self,
        addr: u64,
        bound: Bound,
        code: &mut dyn ProgramCode,
    ) -> Result<u32, TranslateError> {
        self.translate(addr, Way::Bounded(bound), code)
    }

    fn translate(
        &mut self,
        addr: u64,
        way: Way,
        code: &mut dyn ProgramCode,
    ) -> Result<u32, TranslateError> {
        let has_room = |zone: &Zone| zone.used + LARGEST_SUPERBLOCK_BYTES <= zone.size;
        // What is no code is not translated, and may be anywhere.
        let is_code = code.fetch(addr, &mut [0]) > 0;
        let fits = |zone: &Zone| (zone.reaches(addr) || !is_code) && has_room(zone);
        let index = self.zones.iter().position(fits).ok_or(TranslateError::NoZone(addr))?;
        let zone = self.zones[index];
        let used = zone.used.next_multiple_of(16);
        let number = u32::try_from(self.superblocks.len()).map_err(|_| TranslateError::Full)?;
        let site = Site {
            limits: if self.heat.is_hot(addr) { self.limits.of_hot() } else { self.limits },
            superblock: number,
            base: zone.base + used,
            request: zone.request,
            miss: zone.miss,
            counts: self.counts,
            bound: if let Way::Bounded(bound) = way { Some(bound) } else { None },
            next_edge: u32::try_from(self.edges.len()).map_err(|_| TranslateError::Full)?,
            next_push: u32::try_from(self.pushes.len()).map_err(|_| TranslateError::Full)?,
            next_quiet: u32::try_from(self.quiet_jumps.len()).map_err(|_| TranslateError::Full)?,
            is_known: &|addr| self.by_start.contains_key(&addr),
            is_stop: &|addr| self.stops.contains(&addr),
            passes: way != Way::Plain,
            likely: &|branch| self.heat.likely(branch),
        };
        let built = build(&site, addr, code, std::mem::take(&mut self.built));
        let base = site.base;
        self.memory.write(zone.offset + used, &built.bytes);
        self.zones[index].used = used + built.bytes.len() as u64;
        self.enter(number, addr, index, base, &built);
        self.built = built;
        match way {
            Way::Plain => self.offer(number, addr),
            Way::Passing => {
                self.passing.insert(addr, number);
            }
            Way::Bounded(_) => {}
        }
        Ok(number)
    }

    /// Makes a superblock known, whose code is in the cache already.
    fn enter(&mut self, number: u32, start: u64, zone: usize, base: u64, built: &Built) {
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
            path: Stretch::append(&mut self.steps, &built.path),
            points: Stretch::append(&mut self.points, &built.points),
            native: built.native,
            hook: built.hook,
            zone,
            chain: built.chain,
            incoming: List::default(),
            next_of_slot: None,
            alive: true,
        });
        self.by_entry[zone].push(number);
        for &exit in &built.exits {
            let way = self.links.add(exit, zone);
            match self.by_start.get(&exit.target) {
                Some(&target) => self.link(way, zone, exit.field, target),
                None => self.links.wait(way),
            }
        }
    }

    /// Lets branches to `start` lead to a superblock.
    fn offer(&mut self, number: u32, start: u64) {
        self.by_start.insert(start, number);
        self.table.enter(&self.memory, &self.zones, &mut self.superblocks, number);
        let mut waiting = self.links.take_waiting(start);
        while let Some((number_of_way, way)) = self.links.pop(&mut waiting) {
            self.link(number_of_way, way.zone, way.exit.field, number);
        }
    }

    /// Lets a way out, whose jump is at `field`, lead to a superblock. If it cannot be reached, it
    /// is asked for each time.
    fn link(&mut self, way: u32, zone: usize, field: u64, number: u32) {
        let body = self.superblocks[number as usize].body;
        let Some(destination) = self.reachable(zone, field, body) else { return };
        self.links.push(&mut self.superblocks[number as usize].incoming, way);
        self.aim(zone, field, destination);
    }

    /// `body`, or a jump to it in this zone if it is too far from `field`.
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
        // jmp [rip + 2]; the address at a multiple of 8
        let mut code = vec![0xff, 0x25, 2, 0, 0, 0, 0xcc, 0xcc];
        code.extend_from_slice(&body.to_le_bytes());
        self.memory.write(zone.offset + used, &code);
        zone.used = used + FAR_JUMP_BYTES;
        Some(zone.base + used)
    }

    fn aim(&self, zone: usize, field: u64, destination: u64) {
        let zone = &self.zones[zone];
        let displacement = destination.wrapping_sub(field + 4).to_le_bytes();
        let [a, b, c, d, ..] = displacement;
        self.memory.store_u32(zone.offset + (field - zone.base), u32::from_le_bytes([a, b, c, d]));
    }

    pub(super) fn drop_superblock(&mut self, number: u32) -> bool {
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
            self.links.wait(number_of_way);
        }
        self.table.remove(&self.memory, &self.zones, &mut self.superblocks, number);
        true
    }
}
