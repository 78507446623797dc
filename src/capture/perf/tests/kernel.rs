//! A model of the kernel's side of perf's rings, after `kernel/events/ring_buffer.c`
//! (`perf_output_begin`, `perf_aux_output_begin`, `perf_aux_output_end`) and
//! `arch/x86/events/intel/pt.c`: it writes the memory that the reader reads, in the kernel's order.

use super::super::ring::MappedRing;
use crate::sideband::perf_data::Attr;
use std::cell::UnsafeCell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory that the kernel and the reader share: a ring and its two counters.
pub(in crate::capture::perf) struct AuxArea {
    bytes: UnsafeCell<Box<[u8]>>,
    size_bytes: u64,
    pub(super) head: AtomicU64,
    pub(super) tail: AtomicU64,
}

// SAFETY: the counters are atomic, and writers of bytes keep to the protocol: they never write
// between tail and head, except in a ring that overwrites.
unsafe impl Sync for AuxArea {}
// SAFETY: the area is plain memory.
unsafe impl Send for AuxArea {}

impl fmt::Debug for AuxArea {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuxArea").field("size_bytes", &self.size_bytes).finish_non_exhaustive()
    }
}

impl AuxArea {
    pub(super) fn new(size_bytes: u64) -> Arc<Self> {
        let bytes = vec![0; usize::try_from(size_bytes).unwrap()].into_boxed_slice();
        let (head, tail) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { bytes: UnsafeCell::new(bytes), size_bytes, head, tail })
    }

    /// Returns the reader's view of the area.
    pub(super) fn plain(self: &Arc<Self>, overwrites: bool) -> MappedRing {
        // SAFETY: the box is never replaced, so its bytes stay where they are.
        let base = unsafe { (*self.bytes.get()).as_mut_ptr() };
        let (base, head) = (NonNull::new(base).unwrap(), NonNull::from(&self.head));
        let tail = (!overwrites).then(|| NonNull::from(&self.tail));
        // SAFETY: all of it lives as long as the area, which the view owns.
        unsafe { MappedRing::new(base, self.size_bytes, head, tail, self.clone()) }
    }

    /// Writes bytes from the count `at` on, wrapping at the end.
    fn put(&self, at: u64, bytes: &[u8]) {
        for (place, byte) in (at..).zip(bytes) {
            let place = usize::try_from(place % self.size_bytes).unwrap();
            // SAFETY: `place` is within the box; the protocol keeps the reader away.
            unsafe { (*self.bytes.get()).as_mut_ptr().add(place).write(*byte) };
        }
    }

    /// Returns the number of bytes that can be written, as `CIRC_SPACE` does: one less than are
    /// free.
    fn space(&self, head: u64, tail: u64) -> u64 {
        self.size_bytes - 1 - (head - tail)
    }
}

const RECORD_LOST: u32 = 2;
const RECORD_AUX: u32 = 11;
const FLAG_TRUNCATED: u64 = 1;
const FLAG_OVERWRITE: u64 = 2;
/// `PERF_AUX_FLAG_COLLISION`.
pub(super) const FLAG_COLLISION: u64 = 8;
/// The size in bytes of a record's trailer: PID, TID, time.
const TRAILER_BYTES: usize = 16;

/// Returns the attributes of the model's events, which determine the trailer of its records.
pub(in crate::capture::perf) fn attr() -> Attr {
    const TID_AND_TIME: u64 = 2 | 4;
    const SAMPLE_ID_ALL: u64 = 1 << 18;
    Attr { sample_type: TID_AND_TIME, flags: SAMPLE_ID_ALL, ..Attr::default() }
}

/// The output of a thread's event from one scheduling of the thread to the next.
#[derive(Debug)]
struct Output {
    space: u64,
    written: u64,
    flags: u64,
}

/// The kernel's side of one event.
#[derive(Debug)]
pub(in crate::capture::perf) struct Kernel {
    pub(super) data: Arc<AuxArea>,
    pub(super) aux: Arc<AuxArea>,
    overwrites: bool,
    data_head: u64,
    records_lost: u64,
    aux_head: u64,
    enabled: bool,
    output: Option<Output>,
    /// All bytes written to the AUX area since the beginning.
    pub(super) written: Vec<u8>,
    /// The number of bytes of trace that were lost.
    pub(super) dropped: u64,
    /// True once a record reported missing bytes, or was lost.
    pub(super) reported_badly: bool,
}

impl Kernel {
    pub(super) fn new(data_bytes: u64, aux_bytes: u64, overwrites: bool) -> Self {
        Self {
            data: AuxArea::new(data_bytes),
            aux: AuxArea::new(aux_bytes),
            overwrites,
            data_head: 0,
            records_lost: 0,
            aux_head: 0,
            enabled: true,
            output: None,
            written: Vec::new(),
            dropped: 0,
            reported_badly: false,
        }
    }

    /// Enables the event (`PERF_EVENT_IOC_ENABLE`).
    pub(super) fn enable(&mut self) {
        self.enabled = true;
    }

    /// Returns true if new bytes overwrite old ones.
    pub(super) fn overwrites(&self) -> bool {
        self.overwrites
    }

    /// Returns the number of bytes that can be written to the AUX area.
    pub(super) fn space_left(&self) -> u64 {
        let written = self.output.as_ref().map_or(0, |output| output.written);
        let tail = self.aux.tail.load(Ordering::Acquire);
        self.aux.space(self.aux_head, tail).saturating_sub(written)
    }

    /// Returns the size of the AUX area.
    pub(super) fn size_bytes(&self) -> u64 {
        self.aux.size_bytes
    }

    /// Returns true while the thread is scheduled in, so that its trace is written.
    pub(super) fn is_on(&self) -> bool {
        self.output.is_some()
    }

    /// Schedules the thread in (`perf_aux_output_begin`).
    pub(super) fn begin(&mut self) {
        if self.output.is_some() || !self.enabled {
            return;
        }
        let space = if self.overwrites {
            u64::MAX
        } else {
            self.aux.space(self.aux_head, self.aux.tail.load(Ordering::Acquire))
        };
        if space == 0 {
            // No record reports this loss.
            self.enabled = false;
            return;
        }
        self.output = Some(Output { space, written: 0, flags: 0 });
    }

    /// Writes the bytes of the PT unit as far as there is room. Further bytes are lost until the
    /// event is enabled again.
    pub(super) fn trace(&mut self, bytes: &[u8]) {
        let Some(output) = self.output.as_mut().filter(|output| output.flags == 0) else {
            self.dropped += bytes.len() as u64;
            return;
        };
        let left = usize::try_from(output.space - output.written).unwrap_or(usize::MAX);
        let count = left.min(bytes.len());
        self.aux.put(self.aux_head + output.written, &bytes[..count]);
        self.written.extend_from_slice(&bytes[..count]);
        output.written += count as u64;
        if count < bytes.len() {
            self.dropped += (bytes.len() - count) as u64;
            output.flags |= FLAG_TRUNCATED;
        }
    }

    /// Makes the unit lose all output until the next [`Self::begin`].
    pub(super) fn flag(&mut self, flag: u64) {
        if let Some(output) = &mut self.output {
            output.flags |= flag;
            self.reported_badly = true;
        }
    }

    /// Schedules the thread out, or ends a full part of the area (`perf_aux_output_end`): writes
    /// the record first, then the head.
    pub(super) fn end(&mut self) {
        if let Some((head, record)) = self.end_output() {
            if let Some(record) = record {
                self.record(&record);
            }
            self.aux.head.store(head, Ordering::Release);
        }
    }

    /// Ends the output, but writes neither its record nor the head. Returns both: the new head, and
    /// the record if there is one; `None` without an output.
    pub(super) fn end_output(&mut self) -> Option<(u64, Option<Vec<u8>>)> {
        let output = self.output.take()?;
        let start = self.aux_head;
        self.aux_head += output.written;
        let place = if self.overwrites { self.aux_head % self.aux.size_bytes } else { start };
        let flags = output.flags | if self.overwrites { FLAG_OVERWRITE } else { 0 };
        if flags & FLAG_TRUNCATED != 0 {
            self.enabled = false;
        }
        let has_news = output.written > 0 || output.flags != 0;
        let body = [place, output.written, flags].map(u64::to_le_bytes).concat();
        let head = if self.overwrites { place } else { self.aux_head };
        Some((head, has_news.then(|| record(RECORD_AUX, &body))))
    }

    /// Writes a record, with a preceding record of lost ones, if any (`perf_output_begin`).
    pub(super) fn record(&mut self, bytes: &[u8]) {
        let lost = (self.records_lost > 0)
            .then(|| record(RECORD_LOST, &[0, self.records_lost].map(u64::to_le_bytes).concat()));
        let all = [lost.unwrap_or_default(), bytes.to_vec()].concat();
        let tail = self.data.tail.load(Ordering::Acquire);
        if self.data.space(self.data_head, tail) < all.len() as u64 {
            self.records_lost += 1;
            self.reported_badly = true;
            return;
        }
        self.records_lost = 0;
        self.data.put(self.data_head, &all);
        self.data_head += all.len() as u64;
        self.data.head.store(self.data_head, Ordering::Release);
    }
}

/// Returns a record with its header and trailer.
pub(super) fn record(kind: u32, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len() + TRAILER_BYTES).unwrap();
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(size.to_le_bytes());
    bytes.extend_from_slice(body);
    for number in [7_i32, 8] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(1000_u64.to_le_bytes());
    bytes
}
