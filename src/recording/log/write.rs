//! Writes the log.

use super::super::chunk::{Appender, frame};
use super::super::error::Error;
use super::super::manifest::LogTotals;
use super::entry::Entry;
use super::pack::pack;
use std::convert::Infallible;
use std::path::PathBuf;

/// The number of encoded bytes at which a chunk is written.
pub(in crate::recording) const CHUNK_BYTES: usize = 256 << 10;

/// The maximum encoded size in bytes of entries that are encoded on the stack.
const SMALL_BYTES: usize = 256;

/// A file of a log that is being written.
#[derive(Debug)]
pub(in crate::recording) struct LogFile {
    file: Appender,
    pending: Vec<u8>,
    totals: LogTotals,
}

impl LogFile {
    pub(in crate::recording) fn create(path: PathBuf) -> Result<Self, Error> {
        let file = Appender::create(path)?;
        Ok(Self { file, pending: Vec::new(), totals: LogTotals::default() })
    }

    pub(in crate::recording) fn append(&mut self, entry: &Entry) -> Result<(), Error> {
        encode_entry(entry, &mut self.pending);
        self.totals.count(entry.ticks);
        if self.pending.len() >= CHUNK_BYTES { self.flush() } else { Ok(()) }
    }

    pub(in crate::recording) fn flush(&mut self) -> Result<(), Error> {
        pack(&self.pending, |payload| self.file.append_framed(payload))?;
        self.pending.clear();
        Ok(())
    }

    /// Returns the size of the log in bytes. Entries that are not written yet count before they are
    /// compressed.
    pub(in crate::recording) fn size_bytes(&self) -> u64 {
        self.file.size_bytes() + self.pending.len() as u64
    }

    /// Returns the number of entries in this file, their ticks, and the size.
    pub(in crate::recording) fn totals(&self) -> LogTotals {
        LogTotals { size_bytes: self.size_bytes(), ..self.totals }
    }
}

/// Returns the bytes of a log with these entries.
pub fn encode<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<u8> {
    let (mut log, mut pending) = (Vec::new(), Vec::new());
    for entry in entries {
        encode_entry(entry, &mut pending);
        if pending.len() >= CHUNK_BYTES {
            log.extend(framed(&pending));
            pending.clear();
        }
    }
    log.extend(framed(&pending));
    log
}

/// Returns a chunk of encoded entries, packed and framed as in a log.
pub(in crate::recording) fn framed(chunk: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    let Ok(()) = pack(chunk, |payload| {
        frames.extend_from_slice(&frame(payload));
        Ok::<(), Infallible>(())
    });
    frames
}

/// Encodes an entry and appends it to `pending`.
pub(in crate::recording) fn encode_entry(entry: &Entry, pending: &mut Vec<u8>) {
    // Most entries are small, and need no allocation.
    let mut small = [0; SMALL_BYTES];
    if let Ok(bytes) = postcard::to_slice(entry, &mut small) {
        pending.extend_from_slice(bytes);
        return;
    }
    // An entry is plain data without maps or floats, and writes to memory cannot fail.
    if let Ok(bytes) = postcard::to_stdvec(entry) {
        pending.extend_from_slice(&bytes);
    }
}
