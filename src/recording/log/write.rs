//! Writes the log.

use super::super::chunk::Appender;
use super::super::error::Error;
use super::entry::Entry;
use std::path::PathBuf;

/// The number of buffered bytes at which a chunk is written.
const CHUNK_BYTES: usize = 256 << 10;

/// The file of a log.
#[derive(Debug)]
pub(in crate::recording) struct LogFile {
    file: Appender,
    pending: Vec<u8>,
}

impl LogFile {
    pub(in crate::recording) fn create(path: PathBuf) -> Result<Self, Error> {
        Ok(Self { file: Appender::create(path)?, pending: Vec::new() })
    }

    pub(in crate::recording) fn append(&mut self, entry: &Entry) -> Result<(), Error> {
        // An entry is plain data without maps or floats, and writes to memory cannot fail.
        if let Ok(bytes) = postcard::to_stdvec(entry) {
            self.pending.extend_from_slice(&bytes);
        }
        if self.pending.len() >= CHUNK_BYTES { self.flush() } else { Ok(()) }
    }

    pub(in crate::recording) fn flush(&mut self) -> Result<(), Error> {
        if !self.pending.is_empty() {
            self.file.append_framed(&self.pending)?;
            self.pending.clear();
        }
        Ok(())
    }

    /// Returns the bytes of the log so far.
    pub(in crate::recording) fn size_bytes(&self) -> u64 {
        self.file.size_bytes() + self.pending.len() as u64
    }
}
