//! The code cache: which superblocks there are, how they lead to each other, and how they go.

use super::builder::{Built, Exit, Limits, ProgramCode, Site, build};
use super::edge::{Edge, Jump};
use super::slots;
use super::superblock::{Location, Superblock};
use super::zone::Zone;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A superblock's code is smaller than this for certain.
const LARGEST_SUPERBLOCK_BYTES: u64 = 32 << 10;
/// A jump out of a 32-bit displacement's reach, with its literal.
const FAR_JUMP_BYTES: u64 = 16;
const SLOTS: usize = 1 << 16;

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

/// The translator of one process.
#[derive(Debug)]
pub struct Translator<M> {
    memory: M,
    /// Where the table of targets is in the shared memory.
    table: u64,
    limits: Limits,
    zones: Vec<Zone>,
    superblocks: Vec<Superblock>,
    by_start: HashMap<u64, u32>,
    by_entry: BTreeMap<u64, u32>,
    by_page: HashMap<u64, Vec<u32>>,
    edges: Vec<Edge>,
    exits: HashMap<u32, Exit>,
    pushes: Vec<u64>,
    quiet_jumps: Vec<Jump>,
    /// Edges that wait for the superblock of their target.
    pending: HashMap<u64, Vec<u32>>,
    /// Where threads are to stop.
    stops: BTreeSet<u64>,
    /// Superblocks that begin where threads are to stop, and do not stop there.
    passing: HashMap<u64, u32>,
    /// For each slot of the table, its superblocks in the order in which they are asked.
    slots: HashMap<u16, Vec<u32>>,
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
            table: table_offset,
            limits,
            zones: Vec::new(),
            superblocks: Vec::new(),
            by_start: HashMap::new(),
            by_entry: BTreeMap::new(),
            by_page: HashMap::new(),
            // Edge 0 is none: a request of 0 is no request.
            edges: vec![none],
            exits: HashMap::new(),
            pushes: Vec::new(),
            quiet_jumps: Vec::new(),
            pending: HashMap::new(),
            stops: BTreeSet::new(),
            passing: HashMap::new(),
            slots: HashMap::new(),
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
            None => self.translate(addr, true, code),
        }
    }

    /// Adds a stretch of code cache.
    pub fn add_zone(&mut self, base: u64, size: u64, offset: u64) {
        let (zone, code) = Zone::new(base, size, offset);
        self.memory.write(offset, &code);
        self.zones.push(zone);
        if self.zones.len() == 1 {
            for slot in 0..SLOTS as u64 {
                self.memory.store_u64(self.table + slot * 8, zone.miss);
            }
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

    /// The number of superblocks ever made.
    pub fn superblock_count(&self) -> usize {
        self.superblocks.len()
    }

    /// The superblock at an address of the program, translated now if need be.
    pub fn get(&mut self, addr: u64, code: &mut dyn ProgramCode) -> Result<u32, TranslateError> {
        match self.by_start.get(&addr) {
            Some(number) => Ok(*number),
            None => self.translate(addr, false, code),
        }
    }

    /// Serves a request: gives the address in the cache where the thread goes on. `target` is
    /// what [`slots::TARGET`] holds.
    pub fn serve(
        &mut self,
        request: u64,
        target: u64,
        code: &mut dyn ProgramCode,
    ) -> Result<u64, TranslateError> {
        if request == slots::INDIRECT {
            let number = self.get(target, code)?;
            return Ok(self.superblocks[number as usize].accepted);
        }
        let edge = u32::try_from(request).unwrap_or(0);
        let target = self.edges.get(edge as usize).map_or(0, |edge| edge.target);
        let number = self.get(target, code)?;
        self.link(edge, number);
        Ok(self.superblocks[number as usize].body)
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
        let (_, &number) = self.by_entry.range(..=at).next_back()?;
        let superblock = &self.superblocks[number as usize];
        if at >= superblock.end {
            return None;
        }
        let offset = u32::try_from(at - superblock.entry).ok()?;
        let behind = superblock.points.partition_point(|point| point.offset <= offset);
        let point = *superblock.points.get(behind.checked_sub(1)?)?;
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
                any |= self.drop_superblock(number);
            }
        }
        any
    }

    fn translate(
        &mut self,
        addr: u64,
        passes: bool,
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
            limits: self.limits,
            superblock: number,
            base: zone.base + used,
            request: zone.request,
            next_edge: u32::try_from(self.edges.len()).map_err(|_| TranslateError::Full)?,
            next_push: u32::try_from(self.pushes.len()).map_err(|_| TranslateError::Full)?,
            next_quiet: u32::try_from(self.quiet_jumps.len()).map_err(|_| TranslateError::Full)?,
            is_known: &|addr| self.by_start.contains_key(&addr),
            is_stop: &|addr| self.stops.contains(&addr),
            passes,
        };
        let built = build(&site, addr, code);
        let base = site.base;
        self.memory.write(zone.offset + used, &built.bytes);
        self.zones[index].used = used + built.bytes.len() as u64;
        self.enter(number, addr, index, base, built);
        if passes {
            self.passing.insert(addr, number);
        } else {
            self.offer(number, addr);
        }
        Ok(number)
    }

    /// Makes a superblock known, whose code is in the cache already.
    fn enter(&mut self, number: u32, start: u64, zone: usize, base: u64, built: Built) {
        self.edges.extend(built.edges);
        self.pushes.extend(built.pushes);
        self.quiet_jumps.extend(built.quiet_jumps);
        for &page in &built.pages {
            self.by_page.entry(page).or_default().push(number);
        }
        self.superblocks.push(Superblock {
            start,
            entry: base,
            accepted: built.accepted,
            body: built.body,
            end: base + built.bytes.len() as u64,
            path: built.path.into(),
            points: built.points.into(),
            native: built.native,
            zone,
            chain: built.chain,
            incoming: Vec::new(),
            alive: true,
        });
        self.by_entry.insert(base, number);
        for exit in built.exits {
            self.exits.insert(exit.edge, exit);
            match self.by_start.get(&exit.target) {
                Some(&target) => self.link(exit.edge, target),
                None => self.pending.entry(exit.target).or_default().push(exit.edge),
            }
        }
    }

    /// Lets branches to `start` lead to a superblock.
    fn offer(&mut self, number: u32, start: u64) {
        self.by_start.insert(start, number);
        self.enter_table(number);
        for edge in self.pending.remove(&start).unwrap_or_default() {
            self.link(edge, number);
        }
    }

    /// The newest superblock of a slot is asked first.
    fn enter_table(&mut self, number: u32) {
        let slot = slot_of(self.superblocks[number as usize].start);
        let chain = self.slots.entry(slot).or_default();
        chain.insert(0, number);
        self.write_slot(slot);
    }

    /// Writes the chain of a slot, from its end on, so that it is whole at every moment.
    fn write_slot(&self, slot: u16) {
        let chain = self.slots.get(&slot).map_or(&[][..], |chain| &chain[..]);
        let mut next = self.zones.first().map_or(0, |zone| zone.miss);
        for &number in chain.iter().rev() {
            let superblock = &self.superblocks[number as usize];
            self.store_u64_at(superblock.zone, superblock.chain, next);
            next = superblock.entry;
        }
        self.memory.store_u64(self.table + u64::from(slot) * 8, next);
    }

    fn store_u64_at(&self, zone: usize, addr: u64, value: u64) {
        let zone = &self.zones[zone];
        self.memory.store_u64(zone.offset + (addr - zone.base), value);
    }

    /// Lets the jump of an edge lead to a superblock.
    fn link(&mut self, edge: u32, number: u32) {
        let Some(exit) = self.exits.get_mut(&edge) else { return };
        if exit.linked.replace(number) == Some(number) {
            return;
        }
        let exit = *exit;
        let source = self.edges[edge as usize].superblock;
        let zone = self.superblocks[source as usize].zone;
        let body = self.superblocks[number as usize].body;
        let Some(destination) = self.reachable(zone, exit.field, body) else { return };
        self.superblocks[number as usize].incoming.push(edge);
        self.aim(zone, exit.field, destination);
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

    fn drop_superblock(&mut self, number: u32) -> bool {
        let superblock = &mut self.superblocks[number as usize];
        if !superblock.alive {
            return false;
        }
        superblock.alive = false;
        let (start, incoming) = (superblock.start, std::mem::take(&mut superblock.incoming));
        if self.by_start.get(&start) == Some(&number) {
            self.by_start.remove(&start);
        }
        if self.passing.get(&start) == Some(&number) {
            self.passing.remove(&start);
        }
        for edge in incoming {
            let Some(exit) = self.exits.get_mut(&edge) else { continue };
            exit.linked = None;
            let exit = *exit;
            let source = &self.superblocks[self.edges[edge as usize].superblock as usize];
            self.aim(source.zone, exit.field, exit.request);
            self.pending.entry(start).or_default().push(edge);
        }
        let slot = slot_of(start);
        if let Some(chain) = self.slots.get_mut(&slot) {
            chain.retain(|&other| other != number);
        }
        self.write_slot(slot);
        true
    }
}

fn slot_of(addr: u64) -> u16 {
    (addr & 0xffff) as u16
}
