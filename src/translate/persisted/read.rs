//! Reads the description of a persisted cache, and checks it. A file can be damaged, so each number
//! is checked where it is read, and the first bad one makes the whole description `None`. The order
//! is that in which `write` writes it. All superblocks become dormant; places of those that were
//! not kept become unused ones.

use super::super::builder::Exit;
use super::super::dormant::{Dormant, DormantSuperblock, Group, Module};
use super::super::edge::Edge;
use super::super::hook::Hook;
use super::super::packed::{take_distance, take_number};
use super::super::superblock::{PackedRange, Superblock};
use super::super::translator::CacheMemory;
use super::format::{
    FIELD_BYTES, HAS_TARGET, IS_BRANCH, KIND_BITS, KINDS, NATIVE, WORD_BYTES, ZoneSizes,
};
use crate::common::AddrRange;
use std::ops::Range;

/// The maximum number of edges. No cache that is stored has more, so a damaged one reserves little
/// memory.
const MOST_EDGES: usize = 1 << 22;

/// The description of a persisted code cache that was read and checked: no number in it leads out
/// of the code.
#[derive(Debug)]
pub struct PersistedCode {
    pub(super) zones: Vec<ZoneSizes>,
    pub(super) superblocks: Vec<Superblock>,
    pub(super) edges: Vec<Edge>,
    pub(super) packed: Vec<u8>,
    pub(super) dormant: Dormant,
    /// The heads of loops.
    pub(super) loops: Vec<u64>,
    /// This and the rest: what samples showed (`Heat::hints`, `Targets::hints`).
    pub(super) hot: Vec<u64>,
    pub(super) likely: Vec<(u64, bool)>,
    pub(super) expected: Vec<(u64, Vec<u64>)>,
}

impl PersistedCode {
    /// Reads a description; `None` if it is damaged, or bytes are left over. `M` allocates the
    /// large tables.
    pub fn read<M: CacheMemory>(description: &[u8]) -> Option<Self> {
        Reader(description).code::<M>()
    }

    /// Returns the address and the size in bytes of each zone.
    pub fn zones(&self) -> impl Iterator<Item = (u64, u64)> {
        self.zones.iter().map(|zone| (zone.base, zone.size))
    }
}

/// The bytes of a persisted cache that are not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads a number; `None` if the bytes end in it.
    fn number(&mut self) -> Option<u64> {
        take_number(&mut self.0)
    }

    /// Reads a number of things that take a byte each at least. `None` if the bytes left are fewer,
    /// so that a damaged number reserves no memory.
    fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        Some(count).filter(|count| *count <= self.0.len())
    }

    /// Takes the next `count` bytes; `None`, with none taken, if there are fewer.
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Reads a list, with its length before it; `None` if an item is.
    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        (0..self.count()?).map(|_| item(self)).collect()
    }

    /// Reads the whole description, in the order in which it is written. `None` if bytes are left
    /// over, or the bytes of paths and points are more or fewer than the superblocks have.
    fn code<M: CacheMemory>(mut self) -> Option<PersistedCode> {
        let zones = self.list(Self::zone)?;
        let modules = self.list(Self::module)?;
        let group = |of: &mut Self| {
            let modules = of.list(|of| of.index(modules.len()))?;
            Some(Group { modules, members: Vec::new() })
        };
        let groups = self.list(group)?;
        let loops = self.list(Self::number)?;
        let hot = self.list(Self::number)?;
        let likely = self.list(|of| Some((of.number()?, of.number()? != 0)))?;
        let expected = self.list(|of| Some((of.number()?, of.list(Self::number)?)))?;
        let pages = Vec::with_capacity(self.count()?);
        let exits = Vec::with_capacity(self.count()?);
        let dormant = Dormant { modules, groups, pages, exits, ..Dormant::default() };
        let mut superblocks = Superblocks::new::<M>(&zones, dormant);
        for number in 0..self.count()? {
            superblocks.read(u32::try_from(number).ok()?, &mut self)?;
        }
        let count = self.count()?;
        let mut packed = M::vector();
        packed.extend_from_slice(self.bytes(count)?);
        let is_whole = self.0.is_empty() && count == superblocks.packed;
        let Superblocks { made, edges, mut dormant, .. } = superblocks;
        dormant.persisted_count = made.len();
        is_whole.then_some(PersistedCode {
            zones,
            superblocks: made,
            edges,
            packed,
            dormant,
            loops,
            hot,
            likely,
            expected,
        })
    }

    /// Reads a zone; `None` if its sizes contradict each other.
    fn zone(&mut self) -> Option<ZoneSizes> {
        let [base, size] = [self.number()?, self.number()?];
        let [shared, used] = [self.number()?, self.number()?];
        let is_valid = shared <= used
            && used <= size
            && base.checked_add(size).is_some()
            && base.is_multiple_of(WORD_BYTES);
        is_valid.then_some(ZoneSizes { base, size, shared, used })
    }

    /// Reads a module; `None` if its range or its text is invalid.
    fn module(&mut self) -> Option<Module> {
        let [start, end, offset] = [self.number()?, self.number()?, self.number()?];
        let count = self.count()?;
        let file = String::from_utf8(self.bytes(count)?.to_vec()).ok()?;
        (start <= end).then(|| Module {
            range: AddrRange::new(start.into(), end.into()),
            offset,
            file,
        })
    }

    /// Reads an index of a list of `count` items; `None` if it is not below `count`.
    fn index(&mut self, count: usize) -> Option<usize> {
        usize::try_from(self.number()?).ok().filter(|index| *index < count)
    }

    /// Reads an edge of a superblock that starts at `start`; `None` if a number in it is bad. The
    /// facts that are not written, since only encoders need them, are those of [`Edge::UNUSED`]:
    /// return addresses (`pushes`, `peak`), the quiet part and `since`.
    fn edge(&mut self, superblock: u32, start: u64) -> Option<Edge> {
        let facts = self.number()?;
        let kind = *KINDS.get(usize::try_from(facts & KIND_BITS).ok()?)?;
        let has_target = facts & HAS_TARGET != 0;
        Some(Edge {
            kind,
            branch: facts & IS_BRANCH != 0,
            target: if has_target { take_distance(&mut self.0, start)? } else { 0 },
            bits: self.number()?,
            bit_count: u8::try_from(self.number()?).ok()?,
            ticks: u8::try_from(self.number()?).ok()?,
            instructions: u16::try_from(self.number()?).ok()?,
            superblock,
            start,
            ..Edge::UNUSED
        })
    }
}

/// The superblocks and edges that were read so far.
struct Superblocks {
    /// For each zone, the addresses at which its superblocks may be: after the last one.
    free: Vec<Range<u64>>,
    made: Vec<Superblock>,
    edges: Vec<Edge>,
    /// The number of bytes of their paths and points.
    packed: usize,
    dormant: Dormant,
}

impl Superblocks {
    /// Begins with edge 0 alone. In each zone, all code after the shared code is still to be
    /// assigned.
    fn new<M: CacheMemory>(zones: &[ZoneSizes], dormant: Dormant) -> Self {
        let free = zones.iter().map(|of| of.base + of.shared..of.base + of.used).collect();
        let mut edges = M::vector();
        edges.push(Edge::UNUSED);
        Self { free, made: M::vector(), edges, packed: 0, dormant }
    }

    /// Reads the superblock with the next number, with its edges, and adds them. One that was not
    /// kept, and its edges, become unused ones. `None` if a number in it is bad: some parts may be
    /// added then.
    fn read(&mut self, number: u32, from: &mut Reader<'_>) -> Option<()> {
        let group = from.number()?;
        let edges = from.count()?;
        let Some(group) = group.checked_sub(1) else {
            if self.edges.len() + edges > MOST_EDGES {
                return None;
            }
            let unused = Edge { superblock: number, ..Edge::UNUSED };
            self.edges.extend(std::iter::repeat_n(unused, edges));
            self.made.push(Superblock::UNUSED);
            return Some(());
        };
        let superblock = self.superblock(from)?;
        let (start, entry, end) = (superblock.start, superblock.entry, superblock.end);
        self.made.push(superblock);
        let first = self.dormant.pages.len();
        for _ in 0..from.count()? {
            self.dormant.pages.push(take_distance(&mut from.0, start >> 12)? << 12);
        }
        let pages = first..self.dormant.pages.len();
        let first = self.dormant.exits.len();
        for _ in 0..from.count()? {
            let field = entry.checked_add(from.number()?)?;
            let is_inside = field.checked_add(FIELD_BYTES)? <= end;
            let target = take_distance(&mut from.0, start)?;
            let is_valid = is_inside && field.is_multiple_of(FIELD_BYTES);
            self.dormant.exits.push(is_valid.then_some(Exit { target, field })?);
        }
        let exits = first..self.dormant.exits.len();
        for _ in 0..edges {
            self.edges.push(from.edge(number, start)?);
        }
        let group = self.dormant.groups.get_mut(usize::try_from(group).ok()?)?;
        group.members.push(DormantSuperblock { number, pages, exits });
        Some(())
    }

    /// Reads the addresses and facts of a superblock; `None` if it is not in its zone after the
    /// last one.
    fn superblock(&mut self, from: &mut Reader<'_>) -> Option<Superblock> {
        let start = from.number()?;
        let zone = from.index(self.free.len())?;
        let free = &mut self.free[zone];
        let entry = free.start.checked_add(from.number()?)?;
        let mut inside = || entry.checked_add(from.number()?);
        let [accepted, body, next_literal, end] = [inside()?, inside()?, inside()?, inside()?];
        let is_valid = end <= free.end
            && accepted <= end
            && body <= end
            && next_literal.is_multiple_of(WORD_BYTES)
            && next_literal.checked_add(WORD_BYTES)? <= end;
        free.start = end;
        let native = from.number()? & NATIVE != 0;
        let hook = match from.number()?.checked_sub(1) {
            Some(number) => Some(Hook::of_number(u8::try_from(number).ok()?)?),
            None => None,
        };
        let mut stretch = || {
            let stretch = PackedRange::at(self.packed, u32::try_from(from.number()?).ok()?);
            self.packed = self.packed.checked_add(stretch.len())?;
            Some(stretch)
        };
        let [path, points] = [stretch()?, stretch()?];
        is_valid.then_some(Superblock {
            start,
            entry,
            accepted,
            body,
            end,
            native,
            hook,
            path,
            points,
            zone,
            next_literal,
            ..Superblock::UNUSED
        })
    }
}
