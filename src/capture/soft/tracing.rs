//! Sends the records of threads to the encoder, and writes its packets to the recording.

use super::process::Process;
use super::thread::Thread;
use crate::capture::Error;
use crate::capture::clock::now;
use crate::common::Tid;
use crate::encode::{BadPointer, Item};

impl Process {
    /// Sends an item of a thread's history to the encoder.
    pub(super) fn send(&mut self, tid: Tid, item: Item) {
        self.tracer.send(self.engine.translator(), tid, item);
    }

    /// Sends a thread's records up to `pointer` to the encoder.
    pub(super) fn take_records(&mut self, thread: &mut Thread, pointer: u64) {
        let sent = self.tracer.records(self.engine.translator(), &mut thread.lane, pointer);
        self.check(sent);
    }

    /// Switches a thread to its next trace buffer, and sends the records of this one, up to
    /// `pointer`, to the encoder.
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

    /// Lets the translator learn the program's frequent paths from a full buffer, if a sample is
    /// due.
    pub(super) fn learn(&mut self, thread: &Thread) {
        let engine = &self.engine;
        let sample = self.sampler.sample(engine.translator(), engine.shared(), &thread.lane);
        if let Some(sample) = sample {
            self.engine.learn(&sample);
        }
    }

    /// Sends a thread's records so far to the encoder, as far as they are known without a stop.
    /// Returns true if there may be new ones.
    pub(super) fn note_so_far(&mut self, thread: &mut Thread) -> bool {
        let pointer = thread.translated.trace_pointer(self.engine.shared());
        let code = self.engine.translator();
        let sent = self.tracer.records_so_far(code, &mut thread.lane, pointer);
        self.check(sent.map(drop));
        sent == Ok(true)
    }

    /// Sends a thread's records so far to the encoder, to be encoded at once. Does nothing if only
    /// the end of the history is kept.
    pub(super) fn save_so_far(&mut self, thread: &mut Thread) {
        if !self.tracer.is_ring() && self.note_so_far(thread) {
            self.send(thread.tid(), Item::Flush);
        }
    }

    /// Sends the ring of a thread that ended, if it has one, to the encoder.
    pub(super) fn send_kept(&mut self, tid: Tid) {
        self.tracer.send_kept(self.engine.translator(), tid);
    }

    /// Sends the ring of a thread that goes on, if it has one, to the encoder.
    pub(super) fn send_kept_so_far(&mut self, tid: Tid) {
        self.tracer.send_kept_so_far(self.engine.translator(), tid);
    }

    /// Frees the buffers of a thread that ended.
    pub(super) fn close(&mut self, thread: Thread) {
        self.tracer.close(self.engine.translator(), &thread.lane);
        self.engine.recycle_area(thread.translated.area, thread.translated.busy);
    }

    /// Writes the packets that the encoder has made to the recording, which becomes a ring if it
    /// has reached its size limit.
    pub(super) fn write_packets(&mut self) -> Result<(), Error> {
        self.take_packets()?;
        self.recorder.flush_if_due()?;
        self.become_ring_if_full()
    }

    fn take_packets(&mut self) -> Result<(), Error> {
        for (tid, bytes) in self.tracer.packets() {
            self.recorder.append_trace(tid, &bytes)?;
        }
        Ok(())
    }

    /// Starts to keep only the end of the further history, if the recording has reached its size
    /// limit.
    fn become_ring_if_full(&mut self) -> Result<(), Error> {
        let is_full = self.limit_bytes.is_some_and(|limit| self.recorder.written_bytes() >= limit);
        if !is_full || self.tracer.is_ring() {
            return Ok(());
        }
        self.tracer.become_ring(Tid(self.recorder.pid().0));
        self.recorder.note_ring_start();
        self.take_packets()?;
        Ok(self.recorder.flush()?)
    }

    /// Returns true if the recording has reached its size limit, and keeps only the end since.
    pub(super) fn has_become_ring(&self) -> bool {
        self.limit_bytes.is_some() && self.tracer.is_ring()
    }
}
