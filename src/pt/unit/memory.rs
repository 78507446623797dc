//! Simulated physical memory for the unit's output: pages created when written, and regions that
//! the platform restricts.

use std::collections::BTreeMap;
use std::ops::Range;

const PAGE_BYTES: usize = 4096;

/// The effect of trace output on restricted memory, which depends on the processor (SDM table
/// "Behavior on Restricted Memory Access").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnRestricted {
    /// The stores are dropped and tracing continues.
    #[default]
    Drop,
    /// An operational error ends tracing.
    Error,
}

/// Physical memory. Unwritten bytes are 0. Nothing may be read or written at the very end of the
/// 64-bit address space: a debug build panics there.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES]>>,
    restricted: Vec<Range<u64>>,
    on_restricted: OnRestricted,
}

impl Memory {
    /// Creates memory without restricted regions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Restricts `region`, which must not be empty: stores to it are lost and reads return all
    /// ones. `on_restricted` sets the effect of trace output on all restricted regions, also on
    /// those of earlier calls.
    pub fn restrict(&mut self, region: Range<u64>, on_restricted: OnRestricted) {
        self.restricted.push(region);
        self.on_restricted = on_restricted;
    }

    /// Copies the bytes at `address` to `bytes`; restricted memory reads as FF, unwritten as 0.
    pub fn read(&self, address: u64, bytes: &mut [u8]) {
        for (at, byte) in (address..).zip(bytes) {
            *byte = if self.is_restricted(at) { 0xff } else { self.byte(at) };
        }
    }

    /// Returns the `size_bytes` bytes at `address`, as [`Self::read`] reads them: restricted memory
    /// as FF, unwritten as 0.
    #[must_use]
    pub fn bytes(&self, address: u64, size_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; size_bytes];
        self.read(address, &mut bytes);
        bytes
    }

    /// Writes `bytes` at `address`, except to restricted memory.
    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        for (at, byte) in (address..).zip(bytes) {
            if !self.is_restricted(at) {
                let page = self.pages.entry(page(at));
                let page = page.or_insert_with(|| Box::new([0; PAGE_BYTES]));
                page[offset(at)] = *byte;
            }
        }
    }

    /// Writes an 8-byte value, such as an entry of a table of physical addresses, except to
    /// restricted memory.
    pub fn write_u64(&mut self, address: u64, value: u64) {
        self.write(address, &value.to_le_bytes());
    }

    /// Reads an 8-byte value, of bytes as [`Self::read`] reads them.
    #[must_use]
    pub fn read_u64(&self, address: u64) -> u64 {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Returns true if any of the `size_bytes` bytes at `address` is restricted.
    pub(super) fn overlaps_restricted(&self, address: u64, size_bytes: u64) -> bool {
        let end = address.saturating_add(size_bytes);
        self.restricted.iter().any(|region| region.start < end && address < region.end)
    }

    /// Returns how many of the `size_bytes` bytes at `address` can be output before one ends
    /// tracing: all of them with [`OnRestricted::Drop`], else those before restricted memory.
    pub(super) fn writable_bytes(&self, address: u64, size_bytes: u64) -> u64 {
        if self.on_restricted == OnRestricted::Drop {
            return size_bytes;
        }
        let end = address.saturating_add(size_bytes);
        let hits = self.restricted.iter().filter(|region| region.end > address);
        hits.map(|region| region.start.max(address))
            .min()
            .map_or(size_bytes, |at| at.min(end) - address)
    }

    fn is_restricted(&self, address: u64) -> bool {
        self.restricted.iter().any(|region| region.contains(&address))
    }

    fn byte(&self, address: u64) -> u8 {
        self.pages.get(&page(address)).map_or(0, |bytes| bytes[offset(address)])
    }
}

/// Returns the number of the page that contains `address`.
const fn page(address: u64) -> u64 {
    address >> 12
}

/// Returns the offset of `address` in its page.
fn offset(address: u64) -> usize {
    let [low, high, ..] = address.to_le_bytes();
    usize::from(u16::from_le_bytes([low, high & 0xf]))
}
