//! Writes the log.

use super::super::chunk::{Appender, frame};
use super::super::error::Error;
use super::super::manifest::LogTotals;
use super::behind::{Behind, Part};
use super::entry::Entry;
use super::pack::pack;
use super::sink::LogSink;
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The number of encoded bytes at which a chunk is written.
pub(in crate::recording) const CHUNK_BYTES: usize = 256 << 10;

/// The number of bytes after which entries are handed over to the thread that writes them: of
/// encoded ones, and of the data of which others are made.
const BATCH_BYTES: usize = 256 << 10;

/// The maximum encoded size in bytes of entries that are encoded on the stack.
const SMALL_BYTES: usize = 256;

/// A file of a log that is being written. If there is much to write, a thread does it.
#[derive(Debug)]
pub(in crate::recording) struct LogFile {
    /// `None` only while it is replaced.
    sink: Option<Sink>,
    /// What is not handed over yet, and its size in bytes.
    pending: Vec<Part>,
    pending_bytes: usize,
    /// The size of the file in bytes at the last flush.
    size_bytes: u64,
    totals: LogTotals,
    prepare: Prepare,
}

/// The writer of a log.
#[derive(Debug)]
enum Sink {
    /// The caller.
    Here(Box<LogSink>),
    /// A thread.
    Behind(Behind),
}

/// What the thread that writes a log does first.
#[derive(Clone, Default)]
pub(in crate::recording) struct Prepare(
    pub(in crate::recording) Option<Arc<dyn Fn() + Send + Sync>>,
);

impl fmt::Debug for Prepare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Prepare").field(&self.0.is_some()).finish()
    }
}

/// Entries that are made where they are written.
pub struct Later {
    /// The number of the entries, and their ticks.
    pub entries: u64,
    /// The ticks of all these entries.
    pub ticks: u64,
    /// The size in bytes of the data of which they are made.
    pub size_bytes: usize,
    /// Makes them.
    pub make: Box<dyn FnOnce(&mut LogSink) + Send>,
}

impl LogFile {
    pub(in crate::recording) fn create(path: PathBuf, prepare: Prepare) -> Result<Self, Error> {
        Ok(Self {
            sink: Some(Sink::Here(Box::new(LogSink::new(Appender::create(path)?)))),
            pending: Vec::new(),
            pending_bytes: 0,
            size_bytes: 0,
            totals: LogTotals::default(),
            prepare,
        })
    }

    /// Sets what the thread that writes does first.
    pub(in crate::recording) fn prepare_by(&mut self, prepare: Prepare) {
        self.prepare = prepare;
    }

    /// Appends an entry. Returns an error of an earlier write.
    pub(in crate::recording) fn append(&mut self, entry: &Entry) -> Result<(), Error> {
        if !matches!(self.pending.last(), Some(Part::Encoded(_))) {
            self.pending.push(Part::Encoded(Vec::new()));
        }
        if let Some(Part::Encoded(bytes)) = self.pending.last_mut() {
            let before = bytes.len();
            encode_entry(entry, bytes);
            self.pending_bytes += bytes.len() - before;
        }
        self.totals.add(1, entry.ticks);
        self.hand_over_if_large()
    }

    /// Appends entries that are made where they are written. Returns an error of an earlier write.
    pub(in crate::recording) fn append_later(&mut self, later: Later) -> Result<(), Error> {
        self.pending.push(Part::Made(later.make));
        self.pending_bytes += later.size_bytes;
        self.totals.add(later.entries, later.ticks);
        self.hand_over_if_large()
    }

    fn hand_over_if_large(&mut self) -> Result<(), Error> {
        if self.pending_bytes < BATCH_BYTES {
            return Ok(());
        }
        if let Some(Sink::Here(sink)) = self.sink.take_if(|sink| matches!(sink, Sink::Here(_))) {
            self.sink = Some(self.behind(sink));
        }
        self.hand_over();
        let has_failed = match &self.sink {
            Some(Sink::Here(sink)) => sink.has_failed(),
            Some(Sink::Behind(behind)) => behind.has_failed(),
            None => false,
        };
        if has_failed { self.flush() } else { Ok(()) }
    }

    /// Starts the thread; if that is not possible, the caller goes on writing.
    fn behind(&self, sink: Box<LogSink>) -> Sink {
        let prepare = self.prepare.0.clone();
        let started = Behind::start(sink, move || prepare.iter().for_each(|prepare| prepare()));
        started.map_or_else(Sink::Here, Sink::Behind)
    }

    fn hand_over(&mut self) {
        let parts = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        match &mut self.sink {
            Some(Sink::Here(sink)) => parts.into_iter().for_each(|part| part.write(sink)),
            Some(Sink::Behind(behind)) => behind.write(parts),
            None => {}
        }
    }

    /// Writes out all entries, and waits for that. Returns the first error of all writes, once.
    pub(in crate::recording) fn flush(&mut self) -> Result<(), Error> {
        self.hand_over();
        self.size_bytes = match &mut self.sink {
            Some(Sink::Here(sink)) => sink.flush()?,
            Some(Sink::Behind(behind)) => behind.flush()?,
            None => 0,
        };
        Ok(())
    }

    /// Returns the size of the log in bytes. Entries since the last flush count before they are
    /// encoded and compressed, if at all.
    pub(in crate::recording) fn size_bytes(&self) -> u64 {
        self.size_bytes + self.pending_bytes as u64
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
