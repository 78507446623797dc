//! One mapping: a range of addresses and the file bytes behind it. Knows nothing of other
//! mappings and nothing of time.

use crate::common::{Addr, AddrRange};
use crate::image::Bytes;
use std::sync::Arc;

/// Size of a page in bytes: the grain in which the kernel maps files.
pub const PAGE_SIZE_BYTES: u64 = 4096;

/// A mapping of bytes at a range of addresses, as `mmap` makes it.
///
/// Where the range reaches past the end of `bytes`, the rest of the last page reads as zero, as
/// the kernel fills it, and everything behind that page is unknown. A mapping whose contents are
/// not known at all (anonymous memory) has empty `bytes`.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// The addresses that it covers.
    pub range: AddrRange,
    /// The bytes of the whole file, not only of this mapping.
    pub bytes: Bytes,
    /// Where in `bytes` the first byte of `range` lies, in bytes.
    pub offset: u64,
    /// Whether the program may write to it now.
    pub writable: bool,
    /// Whether the program may execute it now.
    pub executable: bool,
    /// Whether the program could have changed it since it was mapped: it was writable at some
    /// time, as relocated read-only data was. A section that is mapped writable need not say so.
    pub altered: bool,
    /// Path of the mapped file, or a name in brackets such as `[vdso]`; empty when anonymous.
    pub name: Arc<str>,
    /// The build id of the file, where it is known.
    pub build_id: Option<Arc<[u8]>>,
}

impl Section {
    /// Copies bytes from `addr` on into `buf`; returns how many are known. 0 when `addr` lies
    /// outside.
    pub fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        if !self.range.contains(addr) {
            return 0;
        }
        let Some(position) = self.file_offset(addr) else { return 0 };
        let size = clamp(self.range.end.0 - addr.0).min(buf.len());
        let Some(buf) = buf.get_mut(..size) else { return 0 };
        copy_padded(&self.bytes, position, buf)
    }

    /// The offset in the file of the byte at `addr`; `None` when `addr` lies outside.
    pub fn file_offset(&self, addr: Addr) -> Option<u64> {
        let inside = self.range.contains(addr).then(|| addr.0 - self.range.start.0)?;
        self.offset.checked_add(inside)
    }

    /// Whether what is read from it is what the program saw at any time since it was mapped: it
    /// maps a file (or the vdso) and was never writable.
    pub fn is_file_data(&self) -> bool {
        !self.writable && !self.altered && (self.name.starts_with('/') || &*self.name == "[vdso]")
    }

    /// The part of it inside `range`; `None` when they share no byte.
    #[must_use]
    pub fn cut(&self, range: AddrRange) -> Option<Self> {
        let start = self.range.start.max(range.start);
        let end = self.range.end.min(range.end);
        if start >= end {
            return None;
        }
        let offset = self.file_offset(start)?;
        Some(Self { range: AddrRange::new(start, end), offset, ..self.clone() })
    }
}

/// Copies `bytes` from `position` on, then zeros to the end of the last page of `bytes`.
fn copy_padded(bytes: &[u8], position: u64, buf: &mut [u8]) -> usize {
    let padded_end = (bytes.len() as u64).next_multiple_of(PAGE_SIZE_BYTES);
    let size = clamp(padded_end.saturating_sub(position)).min(buf.len());
    let rest = bytes.get(clamp(position)..).unwrap_or_default();
    let from_file = rest.len().min(size);
    if let (Some(to), Some(from)) = (buf.get_mut(..from_file), rest.get(..from_file)) {
        to.copy_from_slice(from);
    }
    if let Some(padding) = buf.get_mut(from_file..size) {
        padding.fill(0);
    }
    size
}

/// A 64-bit size as a length in memory.
fn clamp(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}
