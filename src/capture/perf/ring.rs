//! The protocol of the two rings that perf shares with its reader: records, and the bytes of the
//! AUX area (`perf_event_open(2)`, "MMAP layout"). The kernel writes bytes and moves the head; the
//! reader moves the tail. The code works on any memory: a mapping, or a model.
//!
//! Heads and tails count bytes since the beginning. A byte's offset in the ring is its count modulo
//! the ring's size. The reader loads the head, then the bytes, then stores the tail, in this order.
//! The *AUX area* is the buffer to which the PMU writes a thread's trace.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory that a writer fills up to a head, and a reader reads up to a tail.
pub(super) trait RingMemory: fmt::Debug {
    /// Returns the size of the ring, which is not 0.
    fn size_bytes(&self) -> u64;

    /// Loads the head with acquire ordering: bytes before it are visible to reads after this.
    fn head(&self) -> u64;

    /// Copies the bytes from the offset `place`, all of which must be within the ring.
    fn copy(&self, place: u64, to: &mut [u8]);

    /// Releases the bytes before `tail` to the writer. All reads of them must come first.
    fn set_tail(&self, tail: u64);
}

impl<M: RingMemory + ?Sized> RingMemory for Box<M> {
    fn size_bytes(&self) -> u64 {
        (**self).size_bytes()
    }

    fn head(&self) -> u64 {
        (**self).head()
    }

    fn copy(&self, place: u64, to: &mut [u8]) {
        (**self).copy(place, to);
    }

    fn set_tail(&self, tail: u64) {
        (**self).set_tail(tail);
    }
}

/// A ring in memory that `_owner` keeps alive.
pub(super) struct MappedRing {
    base: NonNull<u8>,
    size_bytes: u64,
    head: NonNull<AtomicU64>,
    tail: Option<NonNull<AtomicU64>>,
    _owner: Arc<dyn Send + Sync>,
}

// SAFETY: the memory lives as long as `_owner`. The counters are atomic, and bytes are only read
// between tail and head, where the writer does not write until the tail moves.
unsafe impl Send for MappedRing {}

impl fmt::Debug for MappedRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plain").field("size_bytes", &self.size_bytes).finish_non_exhaustive()
    }
}

impl MappedRing {
    /// Creates a ring of `size_bytes` at `base`. Without a tail, the writer overwrites old bytes.
    ///
    /// # Safety
    ///
    /// The memory and both counters must stay valid while `owner` lives, and nothing else may write
    /// the tail.
    pub(super) unsafe fn new(
        base: NonNull<u8>,
        size_bytes: u64,
        head: NonNull<AtomicU64>,
        tail: Option<NonNull<AtomicU64>>,
        owner: Arc<dyn Send + Sync>,
    ) -> Self {
        Self { base, size_bytes, head, tail, _owner: owner }
    }
}

impl RingMemory for MappedRing {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn head(&self) -> u64 {
        // SAFETY: the caller of `new` guarantees that the counter is valid. Acquire pairs with the
        // writer's release: the bytes before the head are visible.
        unsafe { self.head.as_ref() }.load(Ordering::Acquire)
    }

    fn copy(&self, place: u64, to: &mut [u8]) {
        let size = usize::try_from(self.size_bytes).unwrap_or(usize::MAX);
        let start = usize::try_from(place).unwrap_or(size).min(size);
        let count = to.len().min(size - start);
        // SAFETY: `start + count` is within the ring. The writer does not write between tail and
        // head; for a ring that overwrites, the reader ensures that there are no writes.
        unsafe {
            let from = self.base.as_ptr().add(start);
            std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), count);
        }
    }

    fn set_tail(&self, tail: u64) {
        if let Some(counter) = self.tail {
            // SAFETY: as for the head. Release orders the earlier reads of bytes before the store.
            unsafe { counter.as_ref() }.store(tail, Ordering::Release);
        }
    }
}

/// Copies the bytes from the count `from` on, wrapping at the ring's end.
fn copy<M: RingMemory + ?Sized>(memory: &M, from: u64, to: &mut [u8]) {
    let size = memory.size_bytes();
    let mut done = 0;
    while done < to.len() {
        let place = (from + done as u64) % size;
        let whole = usize::try_from(size - place).unwrap_or(usize::MAX);
        let end = to.len().min(done.saturating_add(whole));
        memory.copy(place, &mut to[done..end]);
        done = end;
    }
}

/// The size in bytes of a record's header: type, misc, size.
const HEADER_BYTES: u64 = 8;

/// The reader of a ring of records.
#[derive(Debug)]
pub(super) struct DataRing<M> {
    memory: M,
    tail: u64,
    /// The tail at the start of the previous reading.
    tail_before: u64,
    record: Vec<u8>,
}

/// The completeness of the records read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completeness {
    /// All records were read, except those that a record reports as lost.
    Complete,
    /// The kernel may have had no room for the last records; or the ring contained invalid records,
    /// and was skipped.
    MayLackRecords,
}

/// The maximum size in bytes of a record of a PT event, with a preceding record of losses.
const LARGEST_RECORD_BYTES: u64 = 128;

impl<M: RingMemory> DataRing<M> {
    /// Returns the reader of a ring from which nothing was read yet.
    pub(super) const fn new(memory: M) -> Self {
        Self { memory, tail: 0, tail_before: 0, record: Vec::new() }
    }

    /// Passes each new record to `each`, and releases its bytes. At an invalid record, drops all up
    /// to the head. Returns whether records may be missing.
    pub(super) fn read(&mut self, each: &mut dyn FnMut(&[u8])) -> Completeness {
        let head = self.memory.head();
        // The writer may have checked for room at any time since the last reading began.
        let most = head.saturating_sub(self.tail_before);
        self.tail_before = self.tail;
        while self.tail < head {
            let Some(size) = self.size_of_next(head) else {
                self.tail = head;
                self.memory.set_tail(head);
                return Completeness::MayLackRecords;
            };
            self.record.resize(usize::from(size), 0);
            copy(&self.memory, self.tail, &mut self.record);
            self.tail += u64::from(size);
            // Release the bytes before work that may take long.
            self.memory.set_tail(self.tail);
            each(&self.record);
        }
        let is_tight = most + LARGEST_RECORD_BYTES > self.memory.size_bytes();
        if is_tight { Completeness::MayLackRecords } else { Completeness::Complete }
    }

    /// Returns the size of the next record; `None` if there is no valid one before `head`.
    fn size_of_next(&self, head: u64) -> Option<u16> {
        let there = head - self.tail;
        let mut header = [0; 8];
        if there < HEADER_BYTES || there > self.memory.size_bytes() {
            return None;
        }
        copy(&self.memory, self.tail, &mut header);
        let size = u16::from_le_bytes([header[6], header[7]]);
        (HEADER_BYTES..=there).contains(&u64::from(size)).then_some(size)
    }
}

/// The reader of the AUX area of an event that stops when the area is full.
#[derive(Debug)]
pub(super) struct AuxRing<M> {
    memory: M,
    tail: u64,
}

impl<M: RingMemory> AuxRing<M> {
    /// Returns the reader of an area from which nothing was read yet.
    pub(super) const fn new(memory: M) -> Self {
        Self { memory, tail: 0 }
    }

    /// Returns the writer's position, as a count of bytes.
    pub(super) fn head(&self) -> u64 {
        self.memory.head()
    }

    /// Returns the reader's position, as a count of bytes.
    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// Returns true if the area is full for a writer at `head`, with this tail (one byte may be
    /// free: full differs from empty). A writer that begins with a full area silently drops
    /// everything until the event is enabled again.
    pub(super) fn is_full(&self, head: u64, tail: u64) -> bool {
        let (taken, size) = (head.saturating_sub(tail), self.memory.size_bytes());
        taken == size || taken + 1 == size
    }

    /// Appends the bytes up to `head`, which was loaded before, to `into`, and releases them.
    /// Returns the count at which they start.
    pub(super) fn take(&mut self, head: u64, into: &mut Vec<u8>) -> u64 {
        let start = self.tail;
        let size = usize::try_from(head.saturating_sub(start)).unwrap_or(0);
        let at = into.len();
        into.resize(at + size, 0);
        copy(&self.memory, start, &mut into[at..]);
        if head > start {
            self.tail = head;
            self.memory.set_tail(head);
        }
        start
    }
}

/// The reader of an AUX area in which the kernel overwrites old bytes. It may read only while the
/// thread is stopped, so that nothing writes.
#[derive(Debug)]
pub(super) struct OverwritingRing<M> {
    memory: M,
    has_wrapped: bool,
}

impl<M: RingMemory> OverwritingRing<M> {
    /// Returns the reader of an area that was zero at first.
    pub(super) const fn new(memory: M) -> Self {
        Self { memory, has_wrapped: false }
    }

    /// Returns the bytes in the area, oldest first. The first may be in the middle of a packet.
    /// They stay there: the next call returns them again, as far as they are not overwritten.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let size = self.memory.size_bytes();
        // In this mode the kernel's head is an offset in the ring; a model's head that counts on
        // works as well.
        let head = self.memory.head();
        let place = head % size;
        // The kernel does not report a wrap. A ring is zero at first: nonzero bytes after the head
        // were written in an earlier round.
        self.has_wrapped |= head >= size || self.has_bytes_after(place);
        let count = if self.has_wrapped { size } else { place };
        let start = if self.has_wrapped { place } else { 0 };
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(0)];
        copy(&self.memory, start, &mut bytes);
        bytes
    }

    /// Returns true if a byte of the area from `place` on, an offset, is not 0.
    fn has_bytes_after(&self, place: u64) -> bool {
        let mut window = [0; 4096];
        let (mut at, size) = (place, self.memory.size_bytes());
        while at < size {
            let count = window.len().min(usize::try_from(size - at).unwrap_or(usize::MAX));
            copy(&self.memory, at, &mut window[..count]);
            if window[..count].iter().any(|byte| *byte != 0) {
                return true;
            }
            at += count as u64;
        }
        false
    }
}
