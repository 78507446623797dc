//! Memory that a debugger allocates for its own use, for instance for the results of expressions
//! and the code of called functions. The program never had it, so the tracer keeps it in its own
//! memory, as *areas*, and reads and writes it there. Only for a *diversion*
//! ([`super::diversion`]), in which a debugger calls functions, the areas are mapped in the
//! process, which then has their contents; as it ends, they are copied back.

use super::error::Error;
use super::process::Replay;
use crate::common::{Addr, AddrRange};
use crate::sideband::{Mapping, Protection};
use crate::tracee::call_numbers::MMAP;
use std::collections::BTreeMap;

/// The lowest address that is lent, in a range that neither Linux nor a sanitizer uses unasked.
const FIRST: Addr = Addr(0x4100_0000_0000);
/// The size of a page, and so of the smallest area.
const PAGE_BYTES: u64 = 0x1000;
/// The maximum number of bytes that are lent at once.
const LIMIT_BYTES: u64 = 64 << 20;

/// The memory that is lent to the debugger, by address.
#[derive(Debug, Default)]
pub(super) struct Lent {
    areas: BTreeMap<Addr, Area>,
}

#[derive(Debug)]
struct Area {
    protection: Protection,
    bytes: Vec<u8>,
}

impl Area {
    fn range(&self, start: Addr) -> AddrRange {
        AddrRange::sized(start, self.bytes.len() as u64)
    }
}

impl Lent {
    /// Adds an area of at least `size` zero bytes, in whole pages, where nothing of `taken` or lent
    /// is, and returns its address; `None` if more than 64 MiB would be lent in all.
    fn add(&mut self, size: u64, protection: Protection, taken: &[Mapping]) -> Option<Addr> {
        let lent: u64 = self.areas.values().map(|area| area.bytes.len() as u64).sum();
        let size = size.max(1).checked_next_multiple_of(PAGE_BYTES)?;
        let count = usize::try_from(size).ok().filter(|_| size <= LIMIT_BYTES - lent)?;
        let own = self.areas.iter().map(|(start, area)| area.range(*start));
        let mut ranges: Vec<AddrRange> = taken.iter().map(|m| m.range).chain(own).collect();
        ranges.sort_by_key(|range| range.start);
        let start = ranges.iter().fold(FIRST, |start, range| {
            if range.overlaps(AddrRange::sized(start, size)) { range.end } else { start }
        });
        self.areas.insert(start, Area { protection, bytes: vec![0; count] });
        Some(start)
    }

    /// Returns the bytes from `addr` to the end of its area; `None` where nothing is lent.
    fn at(&self, addr: Addr) -> Option<&[u8]> {
        let (start, area) = self.areas.range(..=addr).next_back()?;
        area.bytes.get(usize::try_from(addr.0 - start.0).ok()?..).filter(|bytes| !bytes.is_empty())
    }

    /// Returns the `size` bytes at `addr`; `None` if no single area contains them all.
    fn whole_mut(&mut self, addr: Addr, size: usize) -> Option<&mut [u8]> {
        let (start, area) = self.areas.range_mut(..=addr).next_back()?;
        let offset = usize::try_from(addr.0 - start.0).ok()?;
        area.bytes.get_mut(offset..offset.checked_add(size)?)
    }

    /// Returns the lent areas as mappings, by address.
    fn mappings(&self) -> impl Iterator<Item = Mapping> {
        self.areas.iter().map(|(start, area)| Mapping {
            range: area.range(*start),
            protection: area.protection,
            ..Mapping::default()
        })
    }
}

impl Replay {
    /// Lends at least `size` bytes of memory, in one or more whole pages, to the debugger. They are
    /// zero at first, and are kept wherever the replay moves, until [`Self::take_back`]. In a
    /// diversion, maps them in the process as well. Returns their address, where the program has
    /// nothing now; `None` if more than 64 MiB would be lent in all.
    pub fn lend(&mut self, size: u64, protection: Protection) -> Result<Option<Addr>, Error> {
        let taken = self.mappings();
        let Some(start) = self.lent.add(size, protection, &taken) else { return Ok(None) };
        if self.diverted.is_some() {
            self.map_lent(start)?;
        }
        Ok(Some(start))
    }

    /// Takes back the area that was lent at `start`, and forgets its contents; in a diversion it
    /// stays mapped until that ends. Returns false if no area begins there.
    pub fn take_back(&mut self, start: Addr) -> bool {
        self.lent.areas.remove(&start).is_some()
    }

    /// Reads lent memory, up to the end of its area. Returns the number of bytes that were read: 0
    /// where nothing is lent, and in a diversion, where the process has it.
    pub(super) fn read_lent(&self, addr: Addr, buf: &mut [u8]) -> usize {
        if self.diverted.is_some() {
            return 0;
        }
        let bytes = self.lent.at(addr).unwrap_or_default();
        let count = bytes.len().min(buf.len());
        buf[..count].copy_from_slice(&bytes[..count]);
        count
    }

    /// Writes lent memory. Returns false, and writes nothing, if not all of it is in one area, or
    /// in a diversion, where the process has it.
    pub(super) fn write_lent(&mut self, addr: Addr, bytes: &[u8]) -> bool {
        let lent = self.lent.whole_mut(addr, bytes.len()).filter(|_| self.diverted.is_none());
        lent.map(|lent| lent.copy_from_slice(bytes)).is_some()
    }

    /// Returns the lent memory as mappings; none in a diversion, where the process has them.
    pub(super) fn lent_mappings(&self) -> Vec<Mapping> {
        if self.diverted.is_some() { Vec::new() } else { self.lent.mappings().collect() }
    }

    /// Maps all lent memory in the process, as a diversion begins. Fails at the first area where
    /// something else is mapped; those before it stay mapped.
    pub(super) fn map_all_lent(&mut self) -> Result<(), Error> {
        let starts: Vec<Addr> = self.lent.areas.keys().copied().collect();
        starts.into_iter().try_for_each(|start| self.map_lent(start))
    }

    /// Maps the area that is lent at `start`, if there is one, in the process, with its contents.
    /// Fails if something else is mapped there.
    fn map_lent(&mut self, start: Addr) -> Result<(), Error> {
        let Some(area) = self.lent.areas.get(&start) else { return Ok(()) };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let Protection { read, write, execute, .. } = area.protection;
        let bits = [(read, libc::PROT_READ), (write, libc::PROT_WRITE), (execute, libc::PROT_EXEC)];
        let protection = bits.iter().fold(0, |all, (set, bit)| if *set { all | bit } else { all });
        let (size, flags) = (area.bytes.len() as u64, u64::from(flags.cast_unsigned()));
        let args = [start.0, size, u64::from(protection.cast_unsigned()), flags, u64::MAX, 0];
        self.epoch.syscall("mmap", MMAP, args)?;
        self.epoch.refresh_mappings()?;
        self.epoch.overwrite(start, &area.bytes)
    }

    /// Copies the contents of lent memory from the process, as a diversion ends: of each area the
    /// bytes up to the first unreadable one. The others keep their old contents.
    pub(super) fn keep_lent(&mut self) {
        for (start, area) in &mut self.lent.areas {
            let mut now = vec![0; area.bytes.len()];
            let known = self.epoch.engine.read_visible(*start, &mut now);
            area.bytes[..known].copy_from_slice(&now[..known]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, size: u64) -> Mapping {
        Mapping { range: AddrRange::sized(Addr(start), size), ..Mapping::default() }
    }

    #[test]
    fn areas_lie_where_nothing_else_is() {
        let taken = [mapping(0x1000, 0x1000), mapping(FIRST.0 + 0x1000, 0x2000)];
        let mut lent = Lent::default();
        let all = Protection::default();
        assert_eq!(lent.add(1, all, &taken), Some(FIRST));
        assert_eq!(lent.add(0x1001, all, &taken), Some(Addr(FIRST.0 + 0x3000)));
        assert_eq!(lent.add(0, all, &taken), Some(Addr(FIRST.0 + 0x5000)));
        let sizes: Vec<u64> = lent.mappings().map(|mapping| mapping.range.size_bytes()).collect();
        assert_eq!(sizes, [0x1000, 0x2000, 0x1000]);
    }

    #[test]
    fn no_more_than_the_limit_is_lent() {
        let mut lent = Lent::default();
        assert_eq!(lent.add(u64::MAX, Protection::default(), &[]), None);
        assert_eq!(lent.add(LIMIT_BYTES, Protection::default(), &[]), Some(FIRST));
        assert_eq!(lent.add(1, Protection::default(), &[]), None);
    }

    #[test]
    fn bytes_are_those_of_one_area() {
        let mut lent = Lent::default();
        let start = lent.add(0x1000, Protection::default(), &[]).unwrap();
        lent.whole_mut(Addr(start.0 + 0xffe), 2).unwrap().copy_from_slice(&[7, 8]);
        assert_eq!(lent.at(Addr(start.0 + 0xffe)), Some(&[7, 8][..]));
        assert_eq!(lent.whole_mut(Addr(start.0 + 0xffe), 3), None);
        assert_eq!(lent.at(Addr(start.0 + 0x1000)), None);
        assert_eq!(lent.at(Addr(start.0 - 1)), None);
        assert_eq!(lent.whole_mut(Addr(start.0), usize::MAX), None);
    }
}
