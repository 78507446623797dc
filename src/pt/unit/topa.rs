//! Output through a table of physical addresses (SDM section "Table of Physical Addresses
//! (`ToPA`)"). Reads each entry only when output reaches it.

use super::output::{OperationalError, Output, Stored, split};
use super::{Capabilities, Capability};

/// An entry of a table of physical addresses (SDM table "`ToPA` Table Entry Fields").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TopaEntry(pub u64);

impl TopaEntry {
    /// END: the entry points to another table.
    pub const END: u64 = 1 << 0;
    /// INT: raise an interrupt when the region is full.
    pub const INT: u64 = 1 << 2;
    /// STOP: stop tracing when the region is full.
    pub const STOP: u64 = 1 << 4;
    const RESERVED: u64 = 1 << 1 | 1 << 3 | 1 << 5 | 3 << 10;

    /// Creates an output region at `base` of 2^(`size` + 12) bytes, `size` below 16, with `flags`.
    /// `base` must be a multiple of that size: output to the region fails otherwise.
    #[must_use]
    pub const fn region(base: u64, size: u8, flags: u64) -> Self {
        Self(base | (size as u64 & 15) << 6 | flags)
    }

    /// Creates the end of a table, which points to the table at `base`, a multiple of 4096.
    #[must_use]
    pub const fn end(base: u64) -> Self {
        Self(base | Self::END)
    }

    /// Returns true if at least one of these bits is set.
    const fn has_any(self, flags: u64) -> bool {
        self.0 & flags != 0
    }

    const fn base(self) -> u64 {
        self.0 & !0xfff
    }

    const fn size_bytes(self) -> u64 {
        4096 << (self.0 >> 6 & 15)
    }
}

/// The output registers, as a position in a table.
pub(super) struct Topa<'a> {
    pub(super) output: &'a mut Output,
    pub(super) capabilities: &'a Capabilities,
}

impl Topa<'_> {
    /// Makes sure that the entry in use is a region. If it is END, moves to the table that it
    /// points to, and checks the first entry there. Fails if the entry is invalid or the output
    /// offset is outside its region.
    pub(super) fn resolve(&mut self) -> Result<(), OperationalError> {
        self.current_region().map(drop)
    }

    /// Stores `bytes` at the current position of the table, and advances it through the entries.
    /// Stops when a region with STOP is full, even if no bytes are left, and loses the bytes after
    /// it. Fails as soon as the next entry is invalid, even if no bytes are left, or at restricted
    /// memory, after storing the bytes before it. Counts the interrupts of regions with INT. Does
    /// nothing if there are no bytes at all.
    pub(super) fn store(&mut self, mut bytes: &[u8]) -> Result<Stored, OperationalError> {
        while !bytes.is_empty() {
            let region = self.current_region()?;
            let offset = self.output.offset();
            let (now, rest) = split(bytes, region.size_bytes() - offset);
            self.output.write_memory(region.base() + offset, now)?;
            let end = offset + now.len() as u64;
            self.output.set_offset(end);
            self.count_interrupt(region, offset, end);
            if end == region.size_bytes() {
                if region.has_any(TopaEntry::STOP) {
                    return Ok(Stored::Stopped);
                }
                self.advance()?;
            }
            bytes = rest;
        }
        Ok(Stored::All)
    }

    /// Counts the interrupt of a region with INT, if output from offset `from` to `to` in it
    /// crosses its threshold: the region's end, or an eighth before it if there is only one region.
    fn count_interrupt(&mut self, region: TopaEntry, from: u64, to: u64) {
        // With one region only, the interrupt comes before it is full. The SDM does not specify how
        // early; this model uses an eighth.
        let single = !self.capabilities.has(Capability::TopaMultiple);
        let size_bytes = region.size_bytes();
        let at = if single { size_bytes - size_bytes / 8 } else { size_bytes };
        if region.has_any(TopaEntry::INT) && (from..to).contains(&(at - 1)) {
            self.output.topa_pmis += 1;
        }
    }

    /// Advances to the next entry, and to the next table if that entry is END. Fails if the entry
    /// is invalid.
    fn advance(&mut self) -> Result<(), OperationalError> {
        // The last entry that the register can index is followed by the first.
        let last = 0xffff_ffff >> 7;
        let index = self.output.table_index();
        self.output.set_table_index(if index == last { 0 } else { index + 1 });
        self.output.set_offset(0);
        self.current_region().map(drop)
    }

    /// Returns the entry in use, which is a region. If it was END, moves to the start of the table
    /// that it points to. Fails if the entry is invalid or the output offset is outside its region.
    fn current_region(&mut self) -> Result<TopaEntry, OperationalError> {
        let entry = self.current_entry()?;
        let entry = if entry.has_any(TopaEntry::END) {
            self.output.base = entry.base();
            self.output.set_table_index(0);
            self.output.set_offset(0);
            self.current_entry()?
        } else {
            entry
        };
        let offset = self.output.offset();
        if offset >= entry.size_bytes() {
            return Err(OperationalError::OffsetOutside(offset));
        }
        Ok(entry)
    }

    /// Returns the entry at the table's index, if it is well-formed.
    fn current_entry(&self) -> Result<TopaEntry, OperationalError> {
        let (base, index) = (self.output.base, self.output.table_index());
        if base & 0xfff != 0 {
            return Err(OperationalError::TableMisaligned(base));
        }
        let at = base + index * 8;
        if self.output.memory.overlaps_restricted(at, 8) {
            return Err(OperationalError::Restricted(at));
        }
        let entry = TopaEntry(self.output.memory.read_u64(at));
        if entry.has_any(TopaEntry::RESERVED | self.capabilities.reserved_address_bits()) {
            return Err(OperationalError::ReservedBits(at));
        }
        self.check_entry(entry, at, index)?;
        Ok(entry)
    }

    /// Checks the entry with number `index`, at `at`: its flags, its place in the table (END is not
    /// first; without [`Capability::TopaMultiple`], an entry after the first is END and points back
    /// to this table), and the alignment of its region.
    fn check_entry(&self, entry: TopaEntry, at: u64, index: u64) -> Result<(), OperationalError> {
        let end = entry.has_any(TopaEntry::END);
        if end && entry.has_any(TopaEntry::STOP | TopaEntry::INT) {
            return Err(OperationalError::EndCombined(at));
        }
        if end && index == 0 {
            return Err(OperationalError::EndFirst(at));
        }
        let back = end && entry.base() == self.output.base;
        if !self.capabilities.has(Capability::TopaMultiple) && index > 0 && !back {
            return Err(OperationalError::NotCircular(at));
        }
        if !end && entry.base() & (entry.size_bytes() - 1) != 0 {
            return Err(OperationalError::RegionMisaligned(at));
        }
        Ok(())
    }
}
