//! Reads the log, a chunk at a time. Entries are numbered from the beginning of the run, even if
//! the first parts of the log were dropped.
//!
//! A chunk of the log (`LogChunk`) is whole entries that were compressed together. In the file, it
//! is the payload of one *frame*, or of several in a row, of which each but the last says that it
//! continues. In the module `chunk`, and in [`WholeChunks`], each frame counts as a chunk.

use super::super::chunk::{WholeChunks, parse_frames};
use super::super::error::{Error, ErrorKind};
use super::super::format::LOG;
use super::super::manifest::LogTotals;
use super::super::mapped::Mapped;
use super::entry::Entry;
use super::pack::{is_continued, unpack_payload};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A log that is open for reading, in one or more files. Copies share its bytes.
#[derive(Clone, Debug)]
pub struct Log {
    files: Arc<LogFiles>,
}

/// The files of a log, and where its chunks are.
#[derive(Debug)]
struct LogFiles {
    /// The number of entries before the first part, which were dropped.
    first: u64,
    parts: Vec<LogFile>,
    /// The whole chunks of all parts, in order.
    chunks: Vec<LogChunk>,
}

/// A file of a log.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    bytes: Mapped,
}

/// A file of a log that does not consist of whole chunks only.
#[derive(Debug)]
pub(in crate::recording) struct BrokenPart {
    pub(in crate::recording) path: PathBuf,
    /// The chunks before the broken one.
    pub(in crate::recording) whole: WholeChunks,
    /// The size of the file in bytes.
    pub(in crate::recording) file_bytes: u64,
}

/// The place of a chunk of the log: encoded entries that were compressed and written together.
#[derive(Debug)]
struct LogChunk {
    /// The index of the file that contains the chunk.
    part: usize,
    /// The payloads of the chunk's frames, as ranges of that file; each but the last continues.
    payloads: Vec<Range<usize>>,
}

/// A position in a log, before the next entry to read. A copy of it moves independently.
#[derive(Clone, Debug)]
pub struct Cursor {
    log: Log,
    /// The index of the next chunk to read.
    next_chunk: usize,
    /// The encoded entries of the current chunk.
    chunk: Arc<Vec<u8>>,
    /// The offset of the next entry in `chunk`.
    at: usize,
    /// The next entry, if it was decoded, and its end in the chunk.
    next: Option<(Arc<Entry>, usize)>,
    /// The number of entries of the run before the next one.
    index: u64,
}

/// A shared entry, which stays valid when the cursor that returned it moves on.
pub type SharedEntry = Arc<Entry>;

impl Log {
    /// Opens the whole chunks of a log that is one file, whose `path` errors name. Returns their
    /// extent as well.
    pub(in crate::recording) fn of_file(path: &Path, bytes: Mapped) -> (Self, WholeChunks) {
        let mut files = LogFiles { first: 0, parts: Vec::new(), chunks: Vec::new() };
        let whole = files.append(path, bytes);
        (Self { files: Arc::new(files) }, whole)
    }

    /// Opens the whole chunks of a log of several files, in their order, after `first` entries that
    /// were dropped. The log ends at the first broken chunk; the file with that chunk is returned,
    /// too.
    pub(in crate::recording) fn of_parts(
        first: u64,
        parts: Vec<(PathBuf, Mapped)>,
    ) -> (Self, Option<BrokenPart>) {
        let mut files = LogFiles { first, parts: Vec::new(), chunks: Vec::new() };
        let mut broken = None;
        for (path, bytes) in parts {
            let file_bytes = bytes.as_ref().len() as u64;
            let whole = files.append(&path, bytes);
            if whole.broken {
                broken = Some(BrokenPart { path, whole, file_bytes });
                break;
            }
        }
        (Self { files: Arc::new(files) }, broken)
    }

    /// Opens the whole chunks of a log that is in memory, up to the first broken one. Errors name
    /// `log.bin`.
    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        Self::of_file(Path::new(LOG), Mapped::held(bytes)).0
    }

    /// Returns the number of entries before the first one, which were dropped; 0 for a whole log.
    pub fn first(&self) -> u64 {
        self.files.first
    }

    /// Returns a cursor at the first entry that the log has, number [`Self::first`].
    pub fn cursor(&self) -> Cursor {
        Cursor {
            log: self.clone(),
            next_chunk: 0,
            chunk: Arc::default(),
            at: 0,
            next: None,
            index: self.first(),
        }
    }

    /// Returns the number of entries, their ticks, and the size of the whole chunks. Decodes all
    /// entries.
    pub fn totals(&self) -> Result<LogTotals, Error> {
        let last = self.files.chunks.last();
        let before = last.and_then(|chunk| self.files.parts.get(..chunk.part)).unwrap_or_default();
        let before = before.iter().map(|part| part.bytes.as_ref().len()).sum::<usize>();
        let end = last.and_then(|chunk| chunk.payloads.last()).map_or(0, |payload| payload.end);
        let size_bytes = (before + end) as u64;
        let mut totals = LogTotals { size_bytes, ..LogTotals::default() };
        let mut cursor = self.cursor();
        while let Some(entry) = cursor.take()? {
            totals.add(1, entry.ticks);
        }
        Ok(totals)
    }

    /// Returns the encoded entries of a chunk; `None` after the last one. Fails if its payloads
    /// cannot be unpacked.
    fn chunk(&self, number: usize) -> Result<Option<Vec<u8>>, Error> {
        let Some(chunk) = self.files.chunks.get(number) else { return Ok(None) };
        let part = self.files.parts.get(chunk.part);
        let bytes = part.map(|part| part.bytes.as_ref()).unwrap_or_default();
        let mut entries = Vec::new();
        for payload in &chunk.payloads {
            let payload = bytes.get(payload.clone()).unwrap_or_default();
            unpack_payload(payload, &mut entries).ok_or_else(|| self.damage(number))?;
        }
        Ok(Some(entries))
    }

    /// Returns the error for a chunk that cannot be read, with its file and its offset there.
    fn damage(&self, number: usize) -> Error {
        let chunk = self.files.chunks.get(number);
        let first = chunk.and_then(|chunk| chunk.payloads.first());
        let offset = first.map_or(0, |payload| payload.start) as u64;
        let part = chunk.and_then(|chunk| self.files.parts.get(chunk.part));
        let path = part.map_or(Path::new(LOG), |part| &part.path);
        Error::new(path, ErrorKind::LogEntry { offset })
    }
}

impl LogFiles {
    /// Appends a file and its whole chunks, and returns their extent. A last chunk that continues
    /// in a missing frame is not whole.
    fn append(&mut self, path: &Path, bytes: Mapped) -> WholeChunks {
        let (payloads, mut whole) = parse_frames(bytes.as_ref());
        let part = self.parts.len();
        let (mut chunks, mut is_open): (Vec<LogChunk>, _) = (Vec::new(), false);
        for payload in payloads {
            let continues = bytes.as_ref().get(payload.clone()).is_some_and(is_continued);
            match chunks.last_mut().filter(|_| is_open) {
                Some(chunk) => chunk.payloads.push(payload),
                None => chunks.push(LogChunk { part, payloads: vec![payload] }),
            }
            is_open = continues;
        }
        if is_open {
            chunks.pop();
            let last = chunks.last().and_then(|chunk| chunk.payloads.last());
            whole =
                WholeChunks { size_bytes: last.map_or(0, |last| last.end) as u64, broken: true };
        }
        self.chunks.append(&mut chunks);
        self.parts.push(LogFile { path: path.to_owned(), bytes });
        whole
    }
}

impl Cursor {
    /// Makes this cursor continue in `log`, which has all entries of the cursor's log, and those
    /// that were written since. The cursor stays at its entry.
    pub fn continue_in(&mut self, log: &Log) {
        self.log = log.clone();
    }

    /// Returns the number of the next entry: the number of entries of the run before it. That of
    /// the log's first entry is [`Log::first`].
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Returns the next entry without moving past it; `None` at the end. Fails if its chunk cannot
    /// be decompressed, or the entry not decoded.
    pub fn peek(&mut self) -> Result<Option<&Entry>, Error> {
        while self.next.is_none() {
            let rest = self.chunk.get(self.at..).unwrap_or_default();
            if rest.is_empty() {
                let Some(chunk) = self.log.chunk(self.next_chunk)? else { return Ok(None) };
                self.next_chunk += 1;
                (self.chunk, self.at) = (Arc::new(chunk), 0);
                continue;
            }
            let (entry, rest) = postcard::take_from_bytes::<Entry>(rest)
                .map_err(|_| self.log.damage(self.next_chunk.saturating_sub(1)))?;
            self.next = Some((Arc::new(entry), self.chunk.len() - rest.len()));
        }
        Ok(self.next.as_ref().map(|(entry, _)| entry.as_ref()))
    }

    /// Returns the next entry as a shared one, for the caller to keep, without moving past it;
    /// `None` at the end.
    pub fn current(&mut self) -> Result<Option<SharedEntry>, Error> {
        self.peek()?;
        Ok(self.next.as_ref().map(|(entry, _)| Arc::clone(entry)))
    }

    /// Moves past the next entry; stays at the end.
    pub fn skip(&mut self) -> Result<(), Error> {
        self.take().map(|_| ())
    }

    /// Returns the next entry and moves past it; `None` at the end.
    pub fn read(&mut self) -> Result<Option<Entry>, Error> {
        Ok(self.take()?.map(Arc::unwrap_or_clone))
    }

    /// Returns the next entry and moves past it, as [`Self::read`] does, without a copy.
    fn take(&mut self) -> Result<Option<SharedEntry>, Error> {
        self.peek()?;
        let Some((entry, end)) = self.next.take() else { return Ok(None) };
        self.at = end;
        self.index += 1;
        Ok(Some(entry))
    }
}
