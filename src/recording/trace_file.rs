//! The files of one trace that is being written.

use super::chunk::{Appender, sum_entry};
use super::error::Error;

/// The maximum number of traces whose files stay open between two chunks.
const OPEN_TRACES: usize = 32;

/// The files of a trace and of the checksums of its chunks.
#[derive(Debug)]
pub(super) struct TraceFile {
    /// The raw packets.
    pub(super) bytes: Appender,
    /// The checksums of their chunks.
    pub(super) sums: Appender,
    /// The packets that are not written yet.
    pub(super) pending: Vec<u8>,
}

impl TraceFile {
    /// Closes the files until the next packets are written, if there are many traces besides this
    /// one: a process may have 1024 files open by default.
    pub(super) fn close_if_many(&mut self, others: usize) {
        if others >= OPEN_TRACES {
            self.bytes.close_until_append();
            self.sums.close_until_append();
        }
    }

    /// Writes the pending packets to the files, as one chunk with its checksum; nothing if there
    /// are none. After an error they are still pending: another call would write them again, after
    /// those that were written.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.bytes.append(&self.pending)?;
        self.sums.append(&sum_entry(self.bytes.size_bytes(), &self.pending))?;
        self.pending.clear();
        Ok(())
    }
}
