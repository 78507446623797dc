//! The memory that the recorder and the traced process share: the code cache, the tables, each
//! thread's slots and trace buffers. Both sides change it at any time, so nothing here hands out
//! references into it.

use super::error::Error;
use super::roomy::roomy;
use crate::tracee;
use crate::translate::CacheMemory;
use nix::errno::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A mapping of the shared memory in this process.
#[derive(Debug)]
pub struct Shared {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the memory is reached through volatile copies and atomics only.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps `size` bytes of `file`.
    pub fn map(file: &File, size: u64) -> Result<Arc<Self>, Error> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        // SAFETY: a new mapping of a file that stays as large as it is; the result is checked.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        let failed = || match Errno::last() {
            Errno::ENOMEM => Error::NoRoom { call: "mmap" },
            errno => tracee::Error::System { call: "mmap", errno }.into(),
        };
        if start == libc::MAP_FAILED {
            return Err(failed());
        }
        let start = NonNull::new(start.cast()).ok_or_else(failed)?;
        Ok(Arc::new(Self { start, size }))
    }

    /// Returns the place of `len` bytes at `offset`. Panics if they are not inside: offsets come from the
    /// recorder's own layout, never from the program.
    fn at(&self, offset: u64, len: usize) -> *mut u8 {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.size);
        assert!(inside, "{len} bytes at {offset:#x} of shared memory");
        // SAFETY: inside the mapping.
        unsafe { self.start.as_ptr().add(offset) }
    }

    pub fn load(&self, offset: u64) -> u64 {
        debug_assert!(offset.is_multiple_of(8));
        // SAFETY: inside the mapping, which is page-aligned, at a multiple of 8.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }.load(Ordering::Acquire)
    }

    pub fn store(&self, offset: u64, value: u64) {
        debug_assert!(offset.is_multiple_of(8));
        // SAFETY: inside the mapping, which is page-aligned, at a multiple of 8.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }.store(value, Ordering::Release);
    }

    /// Copies bytes out.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        let from = self.at(offset, bytes.len());
        // SAFETY: both places are valid for the length and do not overlap. If the program
        // writes there at the same time, the bytes are arbitrary, and nothing depends on them.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
    }
}

impl CacheMemory for Arc<Shared> {
    fn vector<T>() -> Vec<T> {
        roomy()
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: both places are valid for the length and do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
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
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.size) };
    }
}
