//! The protocol of the two rings that perf and its reader share: records, and the AUX area's bytes
//! (`perf_event_open(2)`, "MMAP layout"). The kernel writes and moves the head; the reader moves
//! the tail. Code over plain memory: what lies behind it, a mapping or a model, is the caller's.
//!
//! The heads and tails count bytes since the beginning; a byte's place is its count modulo the
//! ring's size. Who reads loads the head, then the bytes, then stores the tail, in this order.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory that is written by somebody else up to a head, and read up to a tail.
pub(super) trait RingMemory: fmt::Debug {
    /// Bytes of the ring; not 0.
    fn size_bytes(&self) -> u64;

    /// How far the writer is. What was written before is seen by who looks at it after this.
    fn head(&self) -> u64;

    /// Copies what stands from `place` on, which with `to` is inside of the ring.
    fn copy(&self, place: u64, to: &mut [u8]);

    /// Gives what is before `tail` back to the writer. All reads come before it.
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

/// A ring in memory that `owner` keeps.
pub(super) struct Plain {
    base: NonNull<u8>,
    size_bytes: u64,
    head: NonNull<AtomicU64>,
    tail: Option<NonNull<AtomicU64>>,
    _owner: Arc<dyn Send + Sync>,
}

// SAFETY: the memory lives as long as `_owner`; the counters are atomic, and bytes are only read
// between tail and head, which the writer leaves alone until the tail moves.
unsafe impl Send for Plain {}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plain").field("size_bytes", &self.size_bytes).finish_non_exhaustive()
    }
}

impl Plain {
    /// A ring of `size_bytes` at `base`. Without a tail it is never given back: it overwrites.
    ///
    /// # Safety
    ///
    /// All of it stays valid while `owner` lives, and nobody else writes the tail.
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

impl RingMemory for Plain {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn head(&self) -> u64 {
        // SAFETY: valid as `new` was promised. Acquire pairs with the writer's release: the bytes
        // before the head are there.
        unsafe { self.head.as_ref() }.load(Ordering::Acquire)
    }

    fn copy(&self, place: u64, to: &mut [u8]) {
        let size = usize::try_from(self.size_bytes).unwrap_or(usize::MAX);
        let start = usize::try_from(place).unwrap_or(size).min(size);
        let count = to.len().min(size - start);
        // SAFETY: `start + count` is within the ring. The writer does not touch what is between
        // tail and head; of a ring that overwrites, the reader sees to it that nobody writes.
        unsafe {
            let from = self.base.as_ptr().add(start);
            std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), count);
        }
    }

    fn set_tail(&self, tail: u64) {
        if let Some(counter) = self.tail {
            // SAFETY: as for the head. Release: the reads before it are done.
            unsafe { counter.as_ref() }.store(tail, Ordering::Release);
        }
    }
}

/// Copies bytes by their counts, across the ring's end.
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

/// type, misc, size.
const HEADER_BYTES: u64 = 8;

/// Reads records.
#[derive(Debug)]
pub(super) struct DataRing<M> {
    memory: M,
    tail: u64,
    /// The tail when it was read the time before.
    tail_before: u64,
    record: Vec<u8>,
}

/// Whether all records were seen that were to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// All but those that a record says are lost.
    All,
    /// There may have been no place for the last ones; or the ring held what is no row of records,
    /// and was passed over.
    Doubtful,
}

/// What the largest records of a PT event take, with one before it that tells of losses.
const PLACE_BYTES: u64 = 128;

impl<M: RingMemory> DataRing<M> {
    pub(super) const fn new(memory: M) -> Self {
        Self { memory, tail: 0, tail_before: 0, record: Vec::new() }
    }

    /// Gives each record that has come, whole, and its place back.
    pub(super) fn read(&mut self, each: &mut dyn FnMut(&[u8])) -> Seen {
        let head = self.memory.head();
        // The writer may have looked for place at any time since the last reading began.
        let most = head.saturating_sub(self.tail_before);
        self.tail_before = self.tail;
        while self.tail < head {
            let Some(size) = self.size_of_next(head) else {
                self.tail = head;
                self.memory.set_tail(head);
                return Seen::Doubtful;
            };
            self.record.resize(usize::from(size), 0);
            copy(&self.memory, self.tail, &mut self.record);
            self.tail += u64::from(size);
            // What takes long is done with the place free again.
            self.memory.set_tail(self.tail);
            each(&self.record);
        }
        let is_tight = most + PLACE_BYTES > self.memory.size_bytes();
        if is_tight { Seen::Doubtful } else { Seen::All }
    }

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

/// Reads the AUX area of an event that fills it up and waits.
#[derive(Debug)]
pub(super) struct AuxRing<M> {
    memory: M,
    tail: u64,
}

impl<M: RingMemory> AuxRing<M> {
    pub(super) const fn new(memory: M) -> Self {
        Self { memory, tail: 0 }
    }

    /// How far the writer is.
    pub(super) fn head(&self) -> u64 {
        self.memory.head()
    }

    /// How far the reader is.
    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// Whether a writer who is at `head` has no place, with the tail there (one byte may be left:
    /// full is not empty). Who finds none when it begins drops what comes, without a word, until
    /// the event is enabled again.
    pub(super) fn is_full(&self, head: u64, tail: u64) -> bool {
        let (taken, size) = (head.saturating_sub(tail), self.memory.size_bytes());
        taken == size || taken + 1 == size
    }

    /// Appends all up to a head that was seen, gives its place back, and says where it began.
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

/// Reads the AUX area of an event that overwrites what is old. To be asked only while nobody
/// writes: the thread stands still.
#[derive(Debug)]
pub(super) struct Snapshots<M> {
    memory: M,
    has_wrapped: bool,
}

impl<M: RingMemory> Snapshots<M> {
    pub(super) const fn new(memory: M) -> Self {
        Self { memory, has_wrapped: false }
    }

    /// What is in the ring, from the oldest byte on. The first may be in the midst of a packet.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let size = self.memory.size_bytes();
        // In this mode the head is a place in the ring; one that counts on is as good.
        let head = self.memory.head();
        let place = head % size;
        // The kernel does not say whether it came round. A ring is zero at first: what is not zero
        // behind the head was written the time before.
        self.has_wrapped |= head >= size || self.has_bytes_behind(place);
        let count = if self.has_wrapped { size } else { place };
        let start = if self.has_wrapped { place } else { 0 };
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(0)];
        copy(&self.memory, start, &mut bytes);
        bytes
    }

    fn has_bytes_behind(&self, place: u64) -> bool {
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
