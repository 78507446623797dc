//! One mapping: a range of addresses with the bytes of its file. Knows nothing of other mappings
//! and nothing of time.

use crate::common::{Addr, AddrRange};
use crate::image::Bytes;
use std::sync::Arc;

/// Size of a page in bytes: the granularity at which the kernel maps files.
pub const PAGE_SIZE_BYTES: u64 = 4096;

/// A mapping of bytes at a range of addresses, as `mmap` creates it.
///
/// Where the range extends past the end of `bytes`, the rest of the last page reads as zero, as the
/// kernel fills it, and all further pages are unknown. A mapping with unknown contents (anonymous
/// memory) has empty `bytes`.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// The mapped addresses.
    pub range: AddrRange,
    /// The bytes of the whole file, not only of this mapping, or those that replaced them.
    pub bytes: Bytes,
    /// The offset in `bytes` of the first byte of `range`.
    pub offset: u64,
    /// True if the program may write to the mapping now.
    pub writable: bool,
    /// True if the program may execute the mapping now.
    pub executable: bool,
    /// True if the program could have changed the bytes since they were mapped, because the mapping
    /// was writable before. An example is read-only data that was relocated. May be false while the
    /// mapping is writable.
    pub altered: bool,
    /// The path of the mapped file, or a name in brackets such as `[vdso]`; empty if anonymous.
    pub name: Arc<str>,
    /// The build id of the file, if known.
    pub build_id: Option<Arc<[u8]>>,
}

impl Section {
    /// Copies bytes from `addr` on into `buf`, up to the first unknown one or the end of the
    /// section. Returns the number of bytes copied, which is 0 if `addr` lies outside.
    pub fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        if !self.range.contains(addr) {
            return 0;
        }
        let Some(position) = self.position_of(addr) else { return 0 };
        let size = clamp(self.range.end.0 - addr.0).min(buf.len());
        let Some(buf) = buf.get_mut(..size) else { return 0 };
        copy_padded(&self.bytes, position, buf)
    }

    /// Returns the offset in `bytes` of the byte at `addr`, which may be beyond their end; `None`
    /// if `addr` lies outside.
    fn position_of(&self, addr: Addr) -> Option<u64> {
        let inside = self.range.contains(addr).then(|| addr.0 - self.range.start.0)?;
        self.offset.checked_add(inside)
    }

    /// Returns true if the program saw these bytes at all times since they were mapped, as far as
    /// this mapping shows: the section maps a file (or the vdso) and was never writable. Writes to
    /// the file, as by another mapping of it, are not noticed.
    pub fn is_file_data(&self) -> bool {
        !self.writable && !self.altered && (self.name.starts_with('/') || &*self.name == "[vdso]")
    }

    /// Returns the part of the section inside `range`; `None` if they share no address.
    #[must_use]
    pub fn cut(&self, range: AddrRange) -> Option<Self> {
        let start = self.range.start.max(range.start);
        let end = self.range.end.min(range.end);
        if start >= end {
            return None;
        }
        let offset = self.position_of(start)?;
        Some(Self { range: AddrRange::new(start, end), offset, ..self.clone() })
    }
}

/// Copies to `buf` the bytes of a file from `position` on, and zeros to the end of its last page.
/// Returns the number of bytes written to `buf`, zeros included.
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

/// Converts a 64-bit size to a length in memory, the largest one if it is too large.
fn clamp(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}
