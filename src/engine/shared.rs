//! The memory that the recorder and the traced process share: the code cache, the tables, each
//! thread's slots and trace buffers. Both sides change it at any time, so nothing here hands out
//! references into it.

use super::error::Error;
use super::roomy::vector_with_room;
use crate::tracee;
use crate::translate::CacheMemory;
use nix::errno::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Bytes of a large page (SDM volume 3, "Paging").
pub(super) const LARGE_PAGE_BYTES: usize = 2 << 20;
/// The number of the large page in which the code begins, after the tables.
const FIRST_OF_CODE: usize = 1;
/// The first bytes of a zone stay in small pages until there are more, so that small programs do
/// not pay for large pages.
const SMALL_BYTES: usize = 512 << 10;

/// A mapping of the shared memory in this process.
#[derive(Debug)]
pub struct Shared {
    /// The memory's address in this process. It is a multiple of the size of a large page, as are
    /// the addresses at which the traced process maps its code, so that both can use large pages.
    start: NonNull<u8>,
    size: usize,
    /// The whole mapping: the memory, and the unused space around it that its alignment needs.
    whole: NonNull<libc::c_void>,
    whole_size: usize,
    /// For each large page, true if the kernel was asked to make it.
    asked: Vec<AtomicBool>,
}

// SAFETY: the memory is reached through volatile copies and atomics only.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps the first `size` bytes of `file` in this process. The file must stay that large: an
    /// access after its end raises SIGBUS. Fails with [`Error::NoRoom`] if there is no room for it.
    pub fn map(file: &File, size: u64) -> Result<Arc<Self>, Error> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let whole_size = size.saturating_add(LARGE_PAGE_BYTES);
        // SAFETY: a new mapping; the result is checked.
        let whole = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(std::ptr::null_mut(), whole_size, libc::PROT_NONE, flags, -1, 0)
        };
        let whole = mapped(whole)?;
        let address = whole.as_ptr().addr().next_multiple_of(LARGE_PAGE_BYTES);
        let start = whole.as_ptr().with_addr(address);
        let asked = (0..size / LARGE_PAGE_BYTES).map(|_| AtomicBool::new(false)).collect();
        let start = NonNull::new(start.cast()).ok_or_else(no_room)?;
        let shared = Self { start, size, whole, whole_size, asked };
        // SAFETY: replaces a part of the mapping that was just made, with a file that stays as
        // large as it is; the result is checked.
        let memory = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
            libc::mmap(start.as_ptr().cast(), size, protection, flags, file.as_raw_fd(), 0)
        };
        mapped(memory)?;
        Ok(Arc::new(shared))
    }

    /// Asks the kernel to make a large page of the small ones around the byte before `end`, which
    /// was just written. Asks once for each, and only if enough of it is used or the large page
    /// before it was asked for. The tables' pages stay small.
    fn ask_for_large_page(&self, end: u64) {
        let Some(last) = usize::try_from(end).ok().and_then(|end| end.checked_sub(1)) else {
            return;
        };
        let number = last / LARGE_PAGE_BYTES;
        let asked = |number: usize| self.asked.get(number).filter(|_| number >= FIRST_OF_CODE);
        let is_asked = |asked: &AtomicBool| asked.load(Ordering::Relaxed);
        let goes_on = number.checked_sub(1).and_then(asked).is_some_and(is_asked);
        let is_small = last % LARGE_PAGE_BYTES < SMALL_BYTES && !goes_on;
        let is_new = |of: &AtomicBool| !is_asked(of) && !of.swap(true, Ordering::Relaxed);
        if is_small || !asked(number).is_some_and(is_new) {
            return;
        }
        let start = self.at((number * LARGE_PAGE_BYTES) as u64, LARGE_PAGE_BYTES);
        // SAFETY: all of the range is in the mapping. The call changes neither what is there nor
        // what may be done with it. Where it fails, pages stay small.
        unsafe { libc::madvise(start.cast(), LARGE_PAGE_BYTES, libc::MADV_COLLAPSE) };
    }

    /// Returns the address, in this process, of `len` bytes at `offset`. Panics if they are not
    /// inside: offsets come from the recorder's own layout, never from the program.
    fn at(&self, offset: u64, len: usize) -> *mut u8 {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.size);
        assert!(inside, "{len} bytes at {offset:#x} of shared memory");
        // SAFETY: inside the mapping.
        unsafe { self.start.as_ptr().add(offset) }
    }

    /// Returns the 8-byte word at an offset, a multiple of 8, for atomic accesses. Panics if it is
    /// outside the memory.
    pub(super) fn word(&self, offset: u64) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8));
        // SAFETY: inside the mapping, which is page-aligned and as long-lived as `self`, at a
        // multiple of 8.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    /// Returns the 8-byte word at an offset, a multiple of 8, read atomically and before all
    /// later accesses (acquire). Panics if it is outside the memory.
    pub fn load(&self, offset: u64) -> u64 {
        self.word(offset).load(Ordering::Acquire)
    }

    /// Sets the 8-byte word at an offset, a multiple of 8, atomically and after all earlier
    /// writes (release). Panics if it is outside the memory.
    pub fn store(&self, offset: u64, value: u64) {
        self.word(offset).store(value, Ordering::Release);
    }

    /// Returns a copy of `len` bytes at an offset. Bytes that the program writes at the same time
    /// are arbitrary. Panics if they are outside the memory.
    pub fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let from = self.at(offset, len);
        let mut bytes: Vec<u8> = Vec::with_capacity(len);
        // SAFETY: as in `read`; the copy initializes `len` bytes, for which there is room.
        unsafe {
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), len);
            bytes.set_len(len);
        }
        bytes
    }

    /// Fills `bytes` from the shared memory at an offset, as [`Self::bytes`] does. Panics if they
    /// are outside the memory.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        let from = self.at(offset, bytes.len());
        // SAFETY: both places are valid for the length and do not overlap. If the program
        // writes there at the same time, the bytes are arbitrary, and nothing depends on them.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
    }
}

impl CacheMemory for Arc<Shared> {
    fn vector<T>() -> Vec<T> {
        vector_with_room()
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) {
        Shared::read(self, offset, bytes);
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: both places are valid for the length and do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        self.ask_for_large_page(offset + bytes.len() as u64);
    }

    fn store_u32(&self, offset: u64, value: u32) {
        assert!(offset.is_multiple_of(4));
        // SAFETY: inside the mapping, which is page-aligned, at a multiple of 4.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }.store(value, Ordering::Release);
    }

    fn store_u64(&self, offset: u64, value: u64) {
        self.store(offset, value);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: unmaps what `map` mapped; nothing refers to it any more.
        unsafe { libc::munmap(self.whole.as_ptr(), self.whole_size) };
    }
}

/// Returns the address that mmap(2) returned, or its error.
fn mapped(result: *mut libc::c_void) -> Result<NonNull<libc::c_void>, Error> {
    if result == libc::MAP_FAILED {
        return Err(match Errno::last() {
            Errno::ENOMEM => no_room(),
            errno => tracee::Error::System { call: "mmap", errno }.into(),
        });
    }
    NonNull::new(result).ok_or_else(no_room)
}

fn no_room() -> Error {
    Error::NoRoom { call: "mmap" }
}
