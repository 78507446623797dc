//! A thread's part of the shared memory: its slots, the tables after them, and its trace buffers,
//! each followed by a page that cannot be accessed.

use crate::common::{Addr, AddrRange};
use crate::translate::slots;
use std::sync::{Condvar, Mutex, PoisonError};

/// The number of trace buffers of a thread.
pub const BUFFERS: usize = 4;
const PAGE_BYTES: u64 = 0x1000;
/// The offset of the first trace buffer in an area.
const FIRST_BUFFER: u64 = (slots::AREA_BYTES as u64).next_multiple_of(PAGE_BYTES) + PAGE_BYTES;

/// The place of a thread's part of the shared memory. A *slot* is a word at its start, named by its
/// offset in bytes ([`slots`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The area's address in the traced process: the thread's GS base in the code cache.
    pub base: u64,
    /// The area's offset in the shared memory.
    pub offset: u64,
    /// Bytes of each trace buffer, a multiple of a page.
    pub buffer_bytes: u64,
}

impl Area {
    /// Returns the size of the area in bytes, with its tables, buffers, and the pages after them.
    pub fn size_bytes(self) -> u64 {
        FIRST_BUFFER + BUFFERS as u64 * (self.buffer_bytes + PAGE_BYTES)
    }

    /// Returns the offset of a slot from the start of the shared memory.
    pub fn slot(self, slot: u32) -> u64 {
        self.offset + u64::from(slot)
    }

    /// Returns the address of a slot in the traced process.
    pub fn slot_address(self, slot: u32) -> u64 {
        self.base + u64::from(slot)
    }

    /// Returns the range of the traced process in which the area maps the tables that all threads
    /// share.
    pub fn tables(self) -> AddrRange {
        let start = self.base + u64::from(slots::PRIVATE_BYTES);
        AddrRange::sized(Addr(start), slots::SHARED_BYTES.into())
    }

    /// Returns the address of a trace buffer in the traced process.
    pub fn buffer(self, index: usize) -> u64 {
        self.base + FIRST_BUFFER + index as u64 * (self.buffer_bytes + PAGE_BYTES)
    }

    /// Returns the page after a trace buffer, which cannot be accessed.
    pub fn guard(self, index: usize) -> AddrRange {
        AddrRange::sized(Addr(self.buffer(index) + self.buffer_bytes), PAGE_BYTES)
    }

    /// Returns true if an address is in the page after one of the buffers.
    pub fn is_guarded(self, addr: Addr) -> bool {
        (0..BUFFERS).any(|index| self.guard(index).contains(addr))
    }

    /// Returns the offset in the shared memory of an address of the traced process. The address
    /// must be in the area.
    pub fn offset_of(self, addr: u64) -> u64 {
        self.offset + (addr - self.base)
    }
}

/// Which of an area's buffers are in use: a thread writes there, or the encoder has yet to read.
#[derive(Debug, Default)]
pub struct BusyBuffers {
    /// For each buffer, true if it is in use.
    busy: Mutex<[bool; BUFFERS]>,
    /// Notified when a buffer is freed.
    freed: Condvar,
}

impl BusyBuffers {
    /// Waits without limit until the buffer with this index is free, and marks it as in use.
    pub fn take(&self, index: usize) {
        let guard = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = self.freed.wait_while(guard, |busy| busy[index]);
        wait.unwrap_or_else(PoisonError::into_inner)[index] = true;
    }

    /// Returns for each buffer, by its index, true if it is in use.
    pub fn in_use(&self) -> [bool; BUFFERS] {
        *self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a buffer as free, after the encoder has read it, and wakes those who wait for it.
    pub fn free(&self, index: usize) {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)[index] = false;
        self.freed.notify_all();
    }
}
