//! Writes a file of the log. Entries are collected in batches. The caller's thread writes until the
//! first batch is full; then another thread is started, which gets this batch and all later ones.
//! So an error of a write is returned by a later call.

use super::super::chunk::Appender;
use super::super::error::Error;
use super::super::manifest::LogTotals;
use super::encode::encode_entry;
use super::entry::Entry;
use super::sink::LogSink;
use super::thread::{LogThread, PendingEntries};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The number of bytes after which entries are handed over to the thread that writes them: of
/// encoded ones, and of the data of which others are made.
const BATCH_BYTES: usize = 256 << 10;

/// A file of a log that is being written. If there is much to write, a thread does it.
#[derive(Debug)]
pub(in crate::recording) struct LogFile {
    /// `None` only while it is replaced.
    sink: Option<Sink>,
    /// The entries that are not handed over yet.
    pending: Vec<PendingEntries>,
    /// Their size in bytes.
    pending_bytes: usize,
    /// The size of the file in bytes at the last flush.
    size_bytes: u64,
    totals: LogTotals,
    place: CpuPlacement,
}

/// The writer of a log.
#[derive(Debug)]
enum Sink {
    /// The caller.
    Caller(Box<LogSink>),
    /// A thread.
    Thread(LogThread),
}

/// A function by which the thread that writes a log moves to a CPU; `None` if it stays where it
/// starts.
#[derive(Clone, Default)]
pub(in crate::recording) struct CpuPlacement(
    pub(in crate::recording) Option<Arc<dyn Fn() + Send + Sync>>,
);

impl fmt::Debug for CpuPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CpuPlacement").field(&self.0.is_some()).finish()
    }
}

/// Entries that are made only when they are written, on the thread that writes the log if there is
/// one. That saves time of the caller.
pub struct DeferredEntries {
    /// The number of the entries.
    pub entries: u64,
    /// The ticks of all of them.
    pub ticks: u64,
    /// The size in bytes of the data of which they are made.
    pub size_bytes: usize,
    /// Makes them.
    pub make: Box<dyn FnOnce(&mut LogSink) + Send>,
}

impl LogFile {
    pub(in crate::recording) fn create(path: PathBuf, place: CpuPlacement) -> Result<Self, Error> {
        Ok(Self {
            sink: Some(Sink::Caller(Box::new(LogSink::new(Appender::create(path)?)))),
            pending: Vec::new(),
            pending_bytes: 0,
            size_bytes: 0,
            totals: LogTotals::default(),
            place,
        })
    }

    /// Sets the function by which a thread that is started later to write moves to a CPU.
    pub(in crate::recording) fn set_placement(&mut self, place: CpuPlacement) {
        self.place = place;
    }

    /// Appends an entry. Returns an error of an earlier write.
    pub(in crate::recording) fn append(&mut self, entry: &Entry) -> Result<(), Error> {
        if !matches!(self.pending.last(), Some(PendingEntries::Encoded(_))) {
            self.pending.push(PendingEntries::Encoded(Vec::new()));
        }
        if let Some(PendingEntries::Encoded(bytes)) = self.pending.last_mut() {
            let before = bytes.len();
            encode_entry(entry, bytes);
            self.pending_bytes += bytes.len() - before;
        }
        self.totals.add(1, entry.ticks);
        self.hand_over_if_large()
    }

    /// Appends entries that are made where they are written. Returns an error of an earlier write.
    pub(in crate::recording) fn append_later(
        &mut self,
        later: DeferredEntries,
    ) -> Result<(), Error> {
        self.pending.push(PendingEntries::Made(later.make));
        self.pending_bytes += later.size_bytes;
        self.totals.add(later.entries, later.ticks);
        self.hand_over_if_large()
    }

    /// Hands over the pending entries if they are a batch, and first starts the thread if there is
    /// none. Returns an error of an earlier write.
    fn hand_over_if_large(&mut self) -> Result<(), Error> {
        if self.pending_bytes < BATCH_BYTES {
            return Ok(());
        }
        if let Some(Sink::Caller(sink)) = self.sink.take_if(|sink| matches!(sink, Sink::Caller(_)))
        {
            self.sink = Some(self.start_thread(sink));
        }
        self.hand_over();
        let has_failed = match &self.sink {
            Some(Sink::Caller(sink)) => sink.has_failed(),
            Some(Sink::Thread(thread)) => thread.has_failed(),
            None => false,
        };
        if has_failed { self.flush() } else { Ok(()) }
    }

    /// Starts the thread; if that is not possible, the caller goes on writing.
    fn start_thread(&self, sink: Box<LogSink>) -> Sink {
        let place = self.place.0.clone();
        let started =
            LogThread::start(sink, move || place.iter().for_each(|move_to_cpu| move_to_cpu()));
        started.map_or_else(Sink::Caller, Sink::Thread)
    }

    /// Hands over the pending entries to the thread, or writes them if there is none.
    fn hand_over(&mut self) {
        let parts = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        match &mut self.sink {
            Some(Sink::Caller(sink)) => parts.into_iter().for_each(|part| part.write(sink)),
            Some(Sink::Thread(thread)) => thread.write(parts),
            None => {}
        }
    }

    /// Writes out all entries, and waits for that. Returns the first error of all writes, once:
    /// later calls succeed, but nothing is written any more.
    pub(in crate::recording) fn flush(&mut self) -> Result<(), Error> {
        self.hand_over();
        self.size_bytes = match &mut self.sink {
            Some(Sink::Caller(sink)) => sink.flush()?,
            Some(Sink::Thread(thread)) => thread.flush()?,
            None => 0,
        };
        Ok(())
    }

    /// Writes out all entries, and ends the thread that writes. It starts again when there is much
    /// to write.
    pub(in crate::recording) fn pause_thread(&mut self) -> Result<(), Error> {
        self.flush()?;
        if let Some(Sink::Thread(thread)) =
            self.sink.take_if(|sink| matches!(sink, Sink::Thread(_)))
        {
            self.sink = thread.end().map(Sink::Caller);
        }
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

#[cfg(test)]
mod tests {
    use super::super::super::mapped::Mapped;
    use super::super::{CallEntry, Log, LogEvent, PlaceInTick};
    use super::*;
    use crate::common::{Addr, Tid};
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn entry(ticks: u64) -> Entry {
        let place = PlaceInTick { ip: Addr(0x1000), rcx: 0 };
        Entry { tid: Tid(1), ticks, check: 7, event: LogEvent::Switch { place } }
    }

    fn later(first: u64, count: u64) -> DeferredEntries {
        let make = move |log: &mut LogSink| {
            for ticks in first..first + count {
                let (tid, bytes) = (Tid(1), [1; 100]);
                let written = (Addr(0x2000), &bytes[..]);
                log.call(&CallEntry { tid, ticks, check: 7, number: 0, result: 100, written });
            }
        };
        let ticks = (first..first + count).sum();
        DeferredEntries { entries: count, ticks, size_bytes: 100 << 10, make: Box::new(make) }
    }

    #[test]
    fn entries_keep_their_order_on_a_thread() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let placed = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&placed);
        let place = CpuPlacement(Some(Arc::new(move || _ = count.fetch_add(1, Ordering::Relaxed))));
        let mut log = LogFile::create(path.clone(), place).unwrap();
        let mut next = 0;
        while next < 30_000 {
            log.append(&entry(next)).unwrap();
            log.append_later(later(next + 1, 500)).unwrap();
            next += 501;
        }
        log.pause_thread().unwrap();
        log.append(&entry(next)).unwrap();
        log.flush().unwrap();
        assert_eq!(placed.load(Ordering::Relaxed), 2, "at its start, and after a flush");
        assert_eq!(log.size_bytes(), std::fs::metadata(&path).unwrap().len());
        let (read, whole) = Log::of_file(&path, Mapped::open_without_link(&path).unwrap());
        assert!(!whole.broken);
        assert_eq!(read.totals().unwrap(), log.totals());
        let mut cursor = read.cursor();
        for ticks in 0..=next {
            assert_eq!(cursor.read().unwrap().map(|entry| entry.ticks), Some(ticks));
        }
        assert_eq!(cursor.read().unwrap(), None);
    }
}
