//! Reads the log, a chunk at a time.

use super::super::chunk::{Whole, frames};
use super::super::error::{Error, ErrorKind};
use super::super::mapped::Mapped;
use super::entry::Entry;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A log that is open for reading. Copies share its bytes.
#[derive(Clone, Debug)]
pub struct Log {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    bytes: Mapped,
    chunks: Vec<Range<usize>>,
}

/// A place in a log, from which it is read on. A copy reads on independently.
#[derive(Clone, Debug)]
pub struct Cursor {
    log: Log,
    /// The number of the next chunk.
    next_chunk: usize,
    /// The entries of the chunk at hand.
    entries: Arc<Vec<Entry>>,
    /// How many of them were read.
    read: usize,
    /// How many entries were read in all.
    index: u64,
}

/// An entry that stays while its cursor moves on.
#[derive(Clone, Debug)]
pub struct Current {
    entries: Arc<Vec<Entry>>,
    at: usize,
}

impl Deref for Current {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.entries[self.at]
    }
}

impl Log {
    /// Opens the whole chunks of a log.
    pub(in crate::recording) fn of_file(path: &Path, bytes: Mapped) -> (Self, Whole) {
        let (chunks, whole) = frames(bytes.as_ref());
        let shared = Shared { path: path.to_owned(), bytes, chunks };
        (Self { shared: Arc::new(shared) }, whole)
    }

    /// Returns a cursor at the first entry.
    pub fn cursor(&self) -> Cursor {
        Cursor { log: self.clone(), next_chunk: 0, entries: Arc::default(), read: 0, index: 0 }
    }

    fn chunk(&self, number: usize) -> Result<Option<Vec<Entry>>, Error> {
        let Some(range) = self.shared.chunks.get(number).cloned() else { return Ok(None) };
        let offset = range.start as u64;
        let mut rest = self.shared.bytes.as_ref().get(range).unwrap_or_default();
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let (entry, behind) = postcard::take_from_bytes(rest)
                .map_err(|_| Error::new(&self.shared.path, ErrorKind::Record { offset }))?;
            entries.push(entry);
            rest = behind;
        }
        Ok(Some(entries))
    }
}

impl Cursor {
    /// Returns the number of the next entry, from 0.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Returns the next entry without reading it; `None` at the end.
    pub fn peek(&mut self) -> Result<Option<&Entry>, Error> {
        while self.read >= self.entries.len() {
            let Some(entries) = self.log.chunk(self.next_chunk)? else { return Ok(None) };
            self.next_chunk += 1;
            (self.entries, self.read) = (Arc::new(entries), 0);
        }
        Ok(self.entries.get(self.read))
    }

    /// Returns the next entry without reading it, to be kept; `None` at the end.
    pub fn current(&mut self) -> Result<Option<Current>, Error> {
        let is_there = self.peek()?.is_some();
        Ok(is_there.then(|| Current { entries: Arc::clone(&self.entries), at: self.read }))
    }

    /// Reads over the next entry.
    pub fn skip(&mut self) -> Result<(), Error> {
        if self.peek()?.is_some() {
            self.read += 1;
            self.index += 1;
        }
        Ok(())
    }

    /// Reads the next entry; `None` at the end.
    pub fn read(&mut self) -> Result<Option<Entry>, Error> {
        let entry = self.peek()?.cloned();
        if entry.is_some() {
            self.read += 1;
            self.index += 1;
        }
        Ok(entry)
    }
}
