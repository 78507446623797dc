//! Sends the records of threads to the encoder, and writes its packets to the recording.
//!
//! The encoder runs on another thread, and encodes records some time after they were sent. An
//! [`TraceItem::Flush`] requests the packets so far. In a ring, records are kept instead, and only
//! the last ones are encoded: when their thread ends, or for a snapshot. *Harm* is damage that the
//! program did to the memory of its records (`harm`).

use super::process::Process;
use super::thread::Thread;
use crate::capture::Error;
use crate::capture::clock::now;
use crate::common::Tid;
use crate::encode::{BadPointer, TraceItem};

impl Process {
    /// Sends an item of a thread's history to the encoder, which encodes it later.
    pub(super) fn send(&mut self, tid: Tid, item: TraceItem) {
        self.tracer.send(self.engine.translator(), tid, item);
    }

    /// Sends a thread's records up to `pointer`, its trace pointer, to the encoder. If the pointer
    /// is outside the thread's buffer, notes harm and sends none; nothing more of the thread is
    /// encoded then.
    pub(super) fn take_records(&mut self, thread: &mut Thread, pointer: u64) {
        let sent = self.tracer.send_records(self.engine.translator(), &mut thread.buffers, pointer);
        self.note_bad_pointer(sent);
    }

    /// Sends the records of a thread's trace buffer, up to `pointer`, to the encoder, and makes the
    /// thread's next buffer the one in use. Waits until the encoder has read that; in a ring, drops
    /// the old records in it instead. Leaves the thread's own trace pointer to the caller. Notes
    /// harm if `pointer` is outside the buffer, and switches nevertheless.
    pub(super) fn switch_to_next_buffer(&mut self, thread: &mut Thread, pointer: u64) {
        let code = self.engine.translator();
        let sent = self.tracer.move_to_next_buffer(code, &mut thread.buffers, pointer, now().0);
        self.note_bad_pointer(sent);
    }

    /// Notes harm if the encoder rejected a thread's trace pointer.
    fn note_bad_pointer(&mut self, sent: Result<(), BadPointer>) {
        if sent.is_err() {
            self.note_harm("overwrote its trace pointer");
        }
    }

    /// Lets the translator learn the program's frequent paths from a full buffer, if a sample is
    /// due: drops their code, which is translated anew, in a better order, when it is next reached.
    pub(super) fn learn_paths(&mut self, thread: &Thread) {
        let engine = &self.engine;
        let sample = self.sampler.sample(engine.translator(), engine.shared(), &thread.buffers);
        if let Some(sample) = sample {
            self.engine.drop_hot_code(&sample);
        }
    }

    /// Sends the records of a running thread to the encoder, as far as they are known without a
    /// stop: up to its last system call at least. Returns true if there may be new ones since the
    /// last call. Sends nothing, and returns false, if its trace pointer is outside its buffer:
    /// that may be out of date.
    pub(super) fn send_known_records(&mut self, thread: &mut Thread) -> bool {
        let pointer = thread.translated.trace_pointer(self.engine.shared());
        let code = self.engine.translator();
        let sent = self.tracer.send_records_so_far(code, &mut thread.buffers, pointer);
        self.note_bad_pointer(sent.map(drop));
        sent == Ok(true)
    }

    /// Sends the records of a running thread so far to the encoder, to be encoded at once. Does
    /// nothing if the buffers are rings.
    pub(super) fn save_so_far(&mut self, thread: &mut Thread) {
        if !self.tracer.is_ring() && self.send_known_records(thread) {
            self.send(thread.tid(), TraceItem::Flush);
        }
    }

    /// Requests the packets of a thread that ended. In a ring, first sends the records that are
    /// kept of it, and forgets them.
    pub(super) fn send_kept(&mut self, tid: Tid) {
        self.tracer.send_kept(self.engine.translator(), tid);
    }

    /// Requests the packets so far of a thread that goes on. In a ring, first sends the records
    /// that are kept of it so far, and forgets them.
    pub(super) fn send_kept_so_far(&mut self, tid: Tid) {
        self.tracer.send_kept_so_far(self.engine.translator(), tid);
    }

    /// Frees the trace buffers of a thread that ended, for later threads. Its records must have
    /// been sent.
    pub(super) fn free_buffers(&mut self, thread: Thread) {
        self.tracer.close_thread(self.engine.translator(), &thread.buffers);
        self.engine.recycle_area(thread.translated.area, thread.translated.busy);
    }

    /// Writes the packets that the encoder has made by now to the recording, and flushes that if it
    /// is due. The recording becomes a ring if it has reached its size limit.
    pub(super) fn write_packets(&mut self) -> Result<(), Error> {
        self.write_encoded()?;
        self.recorder.flush_if_due()?;
        self.become_ring_if_full()
    }

    /// Writes the packets that the encoder has made by now to the recording, which may keep them in
    /// its buffers.
    fn write_encoded(&mut self) -> Result<(), Error> {
        for (tid, bytes) in self.tracer.packets() {
            self.recorder.append_trace(tid, &bytes)?;
        }
        Ok(())
    }

    /// Starts to keep only the end of the further history, if the recording has reached its size
    /// limit and is no ring yet. First waits until all records that were sent are encoded; writes
    /// and flushes them.
    fn become_ring_if_full(&mut self) -> Result<(), Error> {
        let is_full = self.limit_bytes.is_some_and(|limit| self.recorder.written_bytes() >= limit);
        if !is_full || self.tracer.is_ring() {
            return Ok(());
        }
        // Any thread will do.
        self.tracer.become_ring(Tid(self.recorder.pid().0));
        self.recorder.note_ring_start();
        self.write_encoded()?;
        Ok(self.recorder.flush()?)
    }

    /// Returns true if the recording has reached its size limit, and keeps only the end since then.
    pub(super) fn has_become_ring(&self) -> bool {
        self.limit_bytes.is_some() && self.tracer.is_ring()
    }
}
