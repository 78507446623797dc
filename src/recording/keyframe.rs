//! Keyframes of an exact recording: the whole state of its process at some places of the run, from
//! which a replay can begin.
//!
//! A keyframe is a file like the log. It has the entries that a log would begin with if the
//! recording had begun at that place, and ends like a whole log. One that does not was not
//! completed.

use super::chunk::Appender;
use super::error::{At, Error};
use super::format::KEYFRAME_DIR;
use super::log::{CHUNK_BYTES, Entry, Log, encode_entry, framed};
use super::mapped::Mapped;
use super::reader::Reader;
use super::regular::must_be_directory;
use super::sums::Sums;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread::{self, Builder};

const EXTENSION: &str = ".bin";

/// The number of chunks per processor that are collected, and then compressed in parallel.
const CHUNKS_PER_CPU: usize = 4;
/// The maximum number of processors that compress: each needs megabytes for its chunks.
const MOST_CPUS: usize = 8;

/// A keyframe that is being written. Several processors compress it, since the program waits for
/// it.
#[derive(Debug)]
pub struct KeyframeWriter {
    file: Appender,
    pending: Vec<u8>,
    chunks: Vec<Vec<u8>>,
    cpus: usize,
}

impl KeyframeWriter {
    pub(super) fn create(recording: &Path, entry: u64) -> Result<Self, Error> {
        let dir = recording.join(KEYFRAME_DIR);
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.at(&dir)?,
        }
        let file = Appender::create(dir.join(keyframe_name(entry)))?;
        let cpus = thread::available_parallelism().map_or(1, usize::from).min(MOST_CPUS);
        Ok(Self { file, pending: Vec::new(), chunks: Vec::new(), cpus })
    }

    /// Appends an entry.
    pub fn append(&mut self, entry: &Entry) -> Result<(), Error> {
        encode_entry(entry, &mut self.pending);
        if self.pending.len() < CHUNK_BYTES {
            return Ok(());
        }
        self.chunks.push(std::mem::take(&mut self.pending));
        if self.chunks.len() < self.cpus * CHUNKS_PER_CPU { Ok(()) } else { self.write_chunks() }
    }

    /// Writes out the last entries. Returns the size of the keyframe in bytes.
    pub fn finish(mut self) -> Result<u64, Error> {
        self.chunks.push(std::mem::take(&mut self.pending));
        self.write_chunks()?;
        Ok(self.file.size_bytes())
    }

    fn write_chunks(&mut self) -> Result<(), Error> {
        let chunks = std::mem::take(&mut self.chunks);
        let of_cpu = chunks.len().div_ceil(self.cpus).max(1);
        let parts: Vec<Vec<u8>> = thread::scope(|scope| {
            let spawn = |part| (part, Builder::new().spawn_scoped(scope, move || frame_all(part)));
            let threads: Vec<_> = chunks.chunks(of_cpu).map(spawn).collect();
            let frames = threads.into_iter().map(|(part, thread)| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                // The user already has as many threads as are allowed.
                Err(_) => frame_all(part),
            });
            frames.collect()
        });
        parts.iter().try_for_each(|part| self.file.append(part))
    }
}

/// Returns chunks, compressed and framed as in a log.
fn frame_all(chunks: &[Vec<u8>]) -> Vec<u8> {
    chunks.iter().map(|chunk| framed(chunk)).collect::<Vec<_>>().concat()
}

/// Returns the file name of the keyframe after `entry` entries of the log.
pub(super) fn keyframe_name(entry: u64) -> String {
    format!("{entry}{EXTENSION}")
}

/// Returns the path of that keyframe file, relative to its recording.
pub(super) fn listed_name(entry: u64) -> String {
    format!("{KEYFRAME_DIR}/{}", keyframe_name(entry))
}

impl Reader {
    /// Returns the number of log entries before each keyframe, in ascending order. Some of the
    /// keyframes may be unreadable.
    pub fn keyframes(&self) -> Vec<u64> {
        let dir = self.dir().join(KEYFRAME_DIR);
        if must_be_directory(&dir).is_err() {
            return Vec::new();
        }
        let files = fs::read_dir(&dir).into_iter().flatten().flatten();
        let number = |file: &fs::DirEntry| {
            let name = file.file_name().into_string().ok()?;
            let entry = name.strip_suffix(EXTENSION)?.parse().ok()?;
            // A complete recording lists its keyframes.
            let is_listed = |sums: &Sums| sums.lists(&listed_name(entry));
            (keyframe_name(entry) == name && self.sums().is_none_or(is_listed)).then_some(entry)
        };
        let mut entries: Vec<u64> = files.filter_map(|file| number(&file)).collect();
        entries.sort_unstable();
        entries
    }

    /// Opens the keyframe after `entry` entries of the log.
    pub fn keyframe(&self, entry: u64) -> Result<Log, Error> {
        let name = listed_name(entry);
        let path = self.dir().join(&name);
        let mapped = match self.sums() {
            Some(sums) => Mapped::of_file(&sums.check_file(self.dir(), &name)?),
            None => Mapped::open_own(&path),
        };
        Ok(Log::of_file(&path, mapped.at(&path)?).0)
    }
}
