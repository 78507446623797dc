//! The trace buffers of one thread: several of the same size in shared memory, which the thread
//! fills one after the other.

use crate::common::Tid;
use crate::engine::{Area, BUFFERS, BusyBuffers};
use crate::translate::EdgeKind;
use std::sync::Arc;

/// The maximum size of a record. Near the end of a buffer, one may reach into the page after it.
const LONGEST_RECORD_BYTES: u64 = 12;

/// A thread's trace buffers, which it fills one after the other.
#[derive(Debug)]
pub struct ThreadBuffers {
    /// The thread's number.
    pub(super) tid: Tid,
    /// The place of the buffers in the process, and in the shared memory.
    pub(super) area: Area,
    /// Which buffers are in use, or not read by the encoder yet.
    pub(super) busy: Arc<BusyBuffers>,
    /// The index of the buffer in use.
    pub(super) current: usize,
    /// The time-stamp counter when each buffer was begun.
    pub(super) began: [u64; BUFFERS],
    /// The kind of the last record that was searched for a `TraceStop`, if any was.
    pub(super) last_record: Option<EdgeKind>,
    /// The address of the first record that the encoder was not sent.
    pub(super) unsent: u64,
}

impl ThreadBuffers {
    /// Returns the buffers of a thread that has not run yet. Waits until the encoder has read the
    /// first one, which may have been another thread's.
    pub fn new(tid: Tid, area: Area, busy: Arc<BusyBuffers>) -> Self {
        busy.take(0);
        let unsent = area.buffer(0);
        Self { tid, area, busy, current: 0, began: [0; BUFFERS], last_record: None, unsent }
    }

    /// Returns the address of the first record that has not been sent to the encoder.
    pub fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Returns the address after the buffer in use, the start of its guard page: records end there
    /// at the latest.
    pub fn end(&self) -> u64 {
        self.area.guard(self.current).start.0
    }

    /// Returns true if records may end at `pointer`: it is in the buffer in use, or right after it.
    /// Does not check that a record ends there, nor the alignment.
    /// The program can write the slot that a trace pointer is kept in, so each one is untrusted
    /// input.
    pub fn holds(&self, pointer: u64) -> bool {
        (self.area.buffer(self.current)..=self.end()).contains(&pointer)
    }

    /// Returns true if the buffer in use has no room at `pointer` for a record of the maximum size;
    /// false if the pointer is not in that buffer.
    pub fn is_full_at(&self, pointer: u64) -> bool {
        self.holds(pointer) && self.end() - pointer < LONGEST_RECORD_BYTES
    }
}
