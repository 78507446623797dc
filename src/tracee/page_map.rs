//! Finds the pages of a process that were touched, in the kernel's page map
//! (Documentation/admin-guide/mm/pagemap.rst).

use super::procfs::live_thread_dir;
use crate::common::{Addr, AddrRange, Pid};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

const PAGE_BYTES: u64 = 4096;
/// `PAGEMAP_SCAN` of linux/fs.h: `_IOWR('f', 16, struct pm_scan_arg)`. Linux 6.7 and later.
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
/// The flag of the kernel's page of zeros: the page was only read, and has no file.
const PAGE_IS_PFNZERO: u64 = 1 << 5;
/// The maximum number of ranges that one scan returns.
const SCANNED_RANGES: usize = 2048;
/// The maximum number of entries of the page map that are read at once.
const READ_ENTRIES: usize = 1 << 17;
const ENTRY_BYTES: usize = 8;

/// The state of a touched page. An untouched page has zeros, or the bytes of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// A page of the file itself, or of memory shared with others.
    OfFile,
    /// The process's own copy of the page, or anonymous memory.
    Private,
}

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
#[derive(Debug, Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of linux/fs.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// The kernel's page map of a process, held open.
#[derive(Debug)]
pub struct PageMap(File);

impl PageMap {
    /// Opens the page map; `None` if the kernel does not allow it, or the process is gone.
    pub fn open(pid: Pid) -> Option<Self> {
        File::open(live_thread_dir(pid).join("pagemap")).ok().map(Self)
    }

    /// Returns the pages of `range` that were touched (present or swapped out), in order, as ranges
    /// of pages in the same state. `range` must begin and end at the start of a page. `None` if the
    /// kernel does not report them, as for a process that is gone. A range of terabytes that was
    /// only reserved costs nothing, from Linux 6.7 on.
    pub fn touched(&self, range: AddrRange) -> Option<Vec<(AddrRange, PageState)>> {
        self.scan(range).or_else(|| self.read(range))
    }

    /// Gets the touched ranges from the kernel (`PAGEMAP_SCAN`); `None` if that fails.
    fn scan(&self, range: AddrRange) -> Option<Vec<(AddrRange, PageState)>> {
        let mut touched = Vec::new();
        let mut regions = vec![Region::default(); SCANNED_RANGES];
        let mut start = range.start.0;
        while start < range.end.0 {
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                start,
                end: range.end.0,
                vec: regions.as_mut_ptr().expose_provenance() as u64,
                vec_len: regions.len() as u64,
                category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
                return_mask: PAGE_IS_FILE | PAGE_IS_PFNZERO,
                ..Scan::default()
            };
            // SAFETY: the kernel reads and writes `scan`, and writes up to `vec_len` regions to
            // `vec`.
            let found = unsafe { libc::ioctl(self.0.as_raw_fd(), PAGEMAP_SCAN, &raw mut scan) };
            let found = regions.get(..usize::try_from(found).ok()?)?;
            for region in found.iter().filter(|region| region.categories & PAGE_IS_PFNZERO == 0) {
                push_pages(
                    &mut touched,
                    region.start,
                    region.end,
                    touched_state(region.categories, PAGE_IS_FILE),
                );
            }
            // The kernel is to make progress.
            start = Some(scan.walk_end).filter(|end| *end > start)?;
        }
        Some(touched)
    }

    /// Reads the entry of each whole page, where [`Self::scan`] is not available; `None` if that
    /// fails. Entries do not show the kernel's page of zeros, so memory without a file that was
    /// only read counts as private.
    fn read(&self, range: AddrRange) -> Option<Vec<(AddrRange, PageState)>> {
        const FILE_BIT: u64 = 1 << 61;
        const IS_TOUCHED: u64 = 3 << 62;
        let mut touched = Vec::new();
        let mut bytes = vec![0; READ_ENTRIES * ENTRY_BYTES];
        let mut page = range.start.0 / PAGE_BYTES;
        let last = range.end.0 / PAGE_BYTES;
        while page < last {
            let entries =
                usize::try_from(last - page).map_or(READ_ENTRIES, |n| n.min(READ_ENTRIES));
            let bytes = bytes.get_mut(..entries * ENTRY_BYTES)?;
            self.0.read_exact_at(bytes, page * ENTRY_BYTES as u64).ok()?;
            for entry in bytes.chunks_exact(ENTRY_BYTES) {
                let entry = u64::from_le_bytes(entry.try_into().ok()?);
                if entry & IS_TOUCHED != 0 {
                    let start = page * PAGE_BYTES;
                    let state = touched_state(entry, FILE_BIT);
                    push_pages(&mut touched, start, start + PAGE_BYTES, state);
                }
                page += 1;
            }
        }
        Some(touched)
    }
}

/// Returns the state of a touched page: of its file if `flags` have `file_bit`, else private. Not
/// for untouched pages.
fn touched_state(flags: u64, file_bit: u64) -> PageState {
    if flags & file_bit == 0 { PageState::Private } else { PageState::OfFile }
}

/// Appends pages, or extends the last range by them if they continue it in the same state.
fn push_pages(touched: &mut Vec<(AddrRange, PageState)>, start: u64, end: u64, state: PageState) {
    match touched.last_mut() {
        Some((last, of_last)) if last.end.0 == start && *of_last == state => last.end = Addr(end),
        _ => touched.push((AddrRange::new(Addr(start), Addr(end)), state)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    use std::num::NonZero;

    /// Terabytes that are reserved and hardly used.
    #[test]
    fn a_scan_finds_what_a_read_finds() {
        const RESERVED: usize = 1 << 40;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: new memory, of which this test writes pages that it owns.
        let memory =
            unsafe { mmap_anonymous(None, NonZero::new(RESERVED).unwrap(), protection, flags) };
        let memory = memory.unwrap();
        let base = memory.as_ptr() as u64;
        let pages = [0, 1, 7, 0x12_345, (RESERVED >> 12) - 1];
        for page in pages {
            // SAFETY: within the mapping.
            unsafe { memory.as_ptr().cast::<u8>().add(page * 4096).write(1) };
        }
        let map = PageMap::open(Pid(std::process::id().cast_signed())).unwrap();
        let found = map.touched(AddrRange::sized(Addr(base), RESERVED as u64)).unwrap();
        let has = |page: usize| {
            let at = Addr(base + page as u64 * PAGE_BYTES);
            found.iter().any(|(range, state)| range.contains(at) && *state == PageState::Private)
        };
        assert!(pages.into_iter().all(has), "{found:?}");
        // A page in a large one is touched with it.
        let size: u64 = found.iter().map(|(range, _)| range.size_bytes()).sum();
        assert!(size <= pages.len() as u64 * (2 << 20), "{found:?}");
        let near = AddrRange::sized(Addr(base), 0x20_000 * PAGE_BYTES);
        let is_near = |(range, _): &&(AddrRange, PageState)| range.end <= near.end;
        let found: Vec<_> = found.iter().filter(is_near).copied().collect();
        assert_eq!(map.read(near).unwrap(), found);
        // SAFETY: nothing refers to it any more.
        unsafe { munmap(memory, RESERVED) }.unwrap();
        // This program's code and data.
        let maps = super::super::mappings(Pid(std::process::id().cast_signed())).unwrap();
        for mapping in maps.iter().filter(|mapping| mapping.name.contains("/deps/")) {
            let scanned = map.scan(mapping.range);
            if scanned.is_none() {
                eprintln!("SKIPPED: this kernel has no PAGEMAP_SCAN");
                break;
            }
            assert_eq!(scanned, map.read(mapping.range), "{mapping:?}");
        }
    }
}
