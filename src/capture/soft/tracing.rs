//! The records of threads, on their way to the recording.

use super::process::Process;
use super::thread::Thread;
use crate::capture::Error;
use crate::capture::clock::now;
use crate::common::Tid;
use crate::encode::{BadPointer, Item};

impl Process {
    /// Sends something of a thread to the encoder.
    pub(super) fn send(&mut self, tid: Tid, item: Item) {
        self.tracer.send(self.engine.translator(), tid, item);
    }

    /// Sends a thread's records up to `pointer` to the encoder.
    pub(super) fn take_records(&mut self, thread: &mut Thread, pointer: u64) {
        let sent = self.tracer.records(self.engine.translator(), &mut thread.lane, pointer);
        self.check(sent);
    }

    /// Goes on to the next of a thread's buffers: this one is full up to `pointer`.
    pub(super) fn next_buffer(&mut self, thread: &mut Thread, pointer: u64) {
        let code = self.engine.translator();
        let sent = self.tracer.next_buffer(code, &mut thread.lane, pointer, now().0);
        self.check(sent);
    }

    fn check(&mut self, sent: Result<(), BadPointer>) {
        if sent.is_err() {
            self.note_harm("overwrote its trace pointer");
        }
    }

    /// Lets the translator learn from a buffer that is full.
    pub(super) fn learn(&mut self, thread: &Thread) {
        let engine = &self.engine;
        let sample = self.sampler.sample(engine.translator(), engine.shared(), &thread.lane);
        if let Some(sample) = sample {
            self.engine.learn(&sample);
        }
    }

    /// Sends the encoder what a thread recorded, as far as it is known without a stop. Returns true
    /// if that may be more than before.
    pub(super) fn note_so_far(&mut self, thread: &mut Thread) -> bool {
        let pointer = thread.translated.trace_pointer(self.engine.shared());
        let code = self.engine.translator();
        let sent = self.tracer.records_so_far(code, &mut thread.lane, pointer);
        self.check(sent.map(drop));
        sent == Ok(true)
    }

    /// Encodes and writes what a thread recorded so far, unless only its end is kept.
    pub(super) fn save_so_far(&mut self, thread: &mut Thread) {
        if !self.tracer.is_ring() && self.note_so_far(thread) {
            self.send(thread.tid(), Item::Flush);
        }
    }

    /// Sends the encoder what was kept of a thread that ended.
    pub(super) fn send_kept(&mut self, tid: Tid) {
        self.tracer.send_kept(self.engine.translator(), tid);
    }

    /// Sends the encoder what was kept so far of a thread that goes on.
    pub(super) fn send_kept_so_far(&mut self, tid: Tid) {
        self.tracer.send_kept_so_far(self.engine.translator(), tid);
    }

    /// Frees the buffers of a thread that ended.
    pub(super) fn close(&mut self, thread: Thread) {
        self.tracer.close(self.engine.translator(), &thread.lane);
        self.engine.recycle_area(thread.translated.area, thread.translated.busy);
    }

    /// Hands packets that are there to the recording.
    pub(super) fn write_packets(&mut self) -> Result<(), Error> {
        self.take_packets()?;
        self.recorder.flush_if_due()?;
        self.become_ring_if_full()
    }

    fn take_packets(&mut self) -> Result<(), Error> {
        for (tid, bytes) in self.tracer.packets() {
            self.recorder.trace(tid, &bytes)?;
        }
        Ok(())
    }

    /// Keeps only the end of what comes from now on, if the recording has its largest size.
    fn become_ring_if_full(&mut self) -> Result<(), Error> {
        let is_full = self.limit_bytes.is_some_and(|limit| self.recorder.written_bytes() >= limit);
        if !is_full || self.tracer.is_ring() {
            return Ok(());
        }
        self.tracer.become_ring(Tid(self.recorder.pid().0));
        self.recorder.becomes_ring();
        self.take_packets()?;
        Ok(self.recorder.flush()?)
    }

    /// Returns true if it was to keep all, and does not any more.
    pub(super) fn has_become_ring(&self) -> bool {
        self.limit_bytes.is_some() && self.tracer.is_ring()
    }
}
