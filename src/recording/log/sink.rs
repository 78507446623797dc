//! Encodes entries, and writes them to a file of the log in chunks.

use super::super::chunk::Appender;
use super::super::error::Error;
use super::call::CallEntry;
use super::encode::{CHUNK_BYTES, encode_entry};
use super::entry::Entry;
use super::pack::pack_chunk;

/// A file of a log, and its entries that are not written yet.
#[derive(Debug)]
pub struct LogSink {
    file: Appender,
    /// The encoded entries that are not written yet.
    pending: Vec<u8>,
    /// The first error, until it is returned.
    error: Option<Error>,
    /// True if there was an error: nothing is written after it.
    has_failed: bool,
}

impl LogSink {
    pub(super) fn new(file: Appender) -> Self {
        Self { file, pending: Vec::new(), error: None, has_failed: false }
    }

    /// Appends an entry. If it cannot be written, the next flush of the log fails.
    pub fn entry(&mut self, entry: &Entry) {
        encode_entry(entry, &mut self.pending);
        self.write_if_full();
    }

    /// Appends the entry of a system call, as [`Self::entry`] does.
    pub fn call(&mut self, call: &CallEntry<'_>) {
        call.encode(&mut self.pending);
        self.write_if_full();
    }

    /// Appends encoded entries, as [`Self::entry`] does.
    pub(super) fn encoded(&mut self, entries: &[u8]) {
        self.pending.extend_from_slice(entries);
        self.write_if_full();
    }

    /// Returns true if any write has failed: nothing is written since.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    fn write_if_full(&mut self) {
        if self.pending.len() >= CHUNK_BYTES {
            self.write();
        }
    }

    /// Writes the pending entries as a chunk. Drops them if a write has failed.
    fn write(&mut self) {
        if !self.has_failed {
            let written = pack_chunk(&self.pending, |payload| self.file.append_framed(payload));
            self.error = written.err();
            self.has_failed = self.error.is_some();
        }
        self.pending.clear();
    }

    /// Writes out all entries. Returns the size of the file in bytes, or the first error of all
    /// writes, once: later calls succeed, but write nothing ([`Self::has_failed`]).
    pub(super) fn flush(&mut self) -> Result<u64, Error> {
        self.write();
        self.error.take().map_or(Ok(self.file.size_bytes()), Err)
    }
}
