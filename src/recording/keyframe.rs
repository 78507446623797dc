//! Keyframes of an exact recording: the whole state of its process at some places of the run, from
//! which a replay can begin.
//!
//! A keyframe is a file like the log, named after the number of log entries before its place. It
//! has the entries that a log would begin with if the recording had begun there, and ends like a
//! whole log. One that does not was not completed.
//!
//! The recorder appends entries while the program waits; a thread compresses and writes them while
//! the program goes on. Only if no thread can be started, the recorder's thread does so.

use super::chunk::Appender;
use super::error::{At, Error};
use super::format::KEYFRAME_DIR;
use super::log::{CHUNK_BYTES, Entry, Log, encode_entry, framed};
use super::mapped::Mapped;
use super::reader::Reader;
use super::regular::must_be_directory;
use super::sums::Sums;
use nix::sys::sysinfo::sysinfo;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::mpsc::{Receiver, SendError, SyncSender, sync_channel};
use std::thread::{self, Builder, JoinHandle};
use std::{io, iter};

const EXTENSION: &str = ".bin";

/// The number of chunks per processor that are collected, and then compressed in parallel.
const CHUNKS_PER_CPU: usize = 4;
/// The maximum number of processors that compress: each needs megabytes for its chunks.
const CPUS_LIMIT: usize = 8;
/// The limits of the number of chunks that may wait to be written before the program has to wait:
/// 64 MiB and a GiB. Between them, the chunks may take 1/[`MEMORY_SHARE`] of the free memory.
const MIN_WAITING: usize = (64 << 20) / CHUNK_BYTES;
const MAX_WAITING: usize = (1 << 30) / CHUNK_BYTES;
const MEMORY_SHARE: usize = 8;

/// A keyframe that is being written. The program waits only while its state is copied: a thread
/// compresses and writes it.
#[derive(Debug)]
pub struct KeyframeWriter {
    /// The encoded entries that are not handed over yet.
    pending: Vec<u8>,
    sink: ChunkSink,
}

/// The writer of a keyframe's chunks.
#[derive(Debug)]
enum ChunkSink {
    /// A thread.
    Thread { chunks: SyncSender<Vec<u8>>, written: WrittenKeyframe },
    /// The caller, if the user has as many threads as are allowed.
    Caller { file: Appender, result: Result<(), Error> },
}

/// A keyframe that a thread may still be writing. Dropping it waits for the thread.
#[derive(Debug)]
pub struct WrittenKeyframe {
    /// The thread, which returns the size of the keyframe in bytes; `None` if there was none.
    thread: Option<JoinHandle<Result<u64, Error>>>,
    /// The result without a thread.
    result: Result<u64, Error>,
}

impl KeyframeWriter {
    /// Creates the file of the keyframe after `entry` entries of the log, and the directory of
    /// keyframes if there is none. Fails if the file exists.
    pub(super) fn create(recording: &Path, entry: u64) -> Result<Self, Error> {
        let dir = recording.join(KEYFRAME_DIR);
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.at(&dir)?,
        }
        let file = Appender::create(dir.join(keyframe_name(entry)))?;
        Ok(Self { pending: Vec::new(), sink: ChunkSink::of(file) })
    }

    /// Appends an entry. Waits only if too many chunks are waiting to be written. If an entry
    /// cannot be written, [`WrittenKeyframe::wait`] returns the error.
    pub fn append(&mut self, entry: &Entry) {
        encode_entry(entry, &mut self.pending);
        if self.pending.len() >= CHUNK_BYTES {
            self.hand_over();
        }
    }

    /// Hands over the last entries, which complete the keyframe. Does not wait until they are
    /// written.
    pub fn finish(mut self) -> WrittenKeyframe {
        self.hand_over();
        match self.sink {
            ChunkSink::Thread { written, .. } => written,
            ChunkSink::Caller { file, result } => {
                WrittenKeyframe { thread: None, result: result.map(|()| file.size_bytes()) }
            }
        }
    }

    /// Hands over the pending entries as a chunk to the thread, or writes them if there is none.
    fn hand_over(&mut self) {
        let chunk = std::mem::take(&mut self.pending);
        match &mut self.sink {
            // A thread that cannot write ends early, and returns the error.
            ChunkSink::Thread { chunks, .. } => _ = chunks.send(chunk),
            ChunkSink::Caller { file, result } => {
                if result.is_ok() {
                    *result = file.append(&framed(&chunk));
                }
            }
        }
    }
}

impl ChunkSink {
    /// Starts the thread that writes to `file`; if that fails, the caller writes.
    fn of(file: Appender) -> Self {
        let (chunks, received) = sync_channel(waiting_limit());
        // The thread gets the file from here: one that does not start would lose it.
        let (give, given) = sync_channel(1);
        let write = move || given.recv().map_or(Ok(0), |file| write_all(file, &received));
        let Ok(thread) = Builder::new().name("keyframe".to_owned()).spawn(write) else {
            return Self::Caller { file, result: Ok(()) };
        };
        match give.send(file) {
            Ok(()) => {
                let written = WrittenKeyframe { thread: Some(thread), result: Ok(0) };
                Self::Thread { chunks, written }
            }
            Err(SendError(file)) => Self::Caller { file, result: Ok(()) },
        }
    }
}

impl WrittenKeyframe {
    /// Returns true if the keyframe is written, or failed to be: [`Self::wait`] does not wait then.
    pub fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the keyframe is written. Returns the size of its file in bytes, or the error of
    /// a write.
    pub fn wait(mut self) -> Result<u64, Error> {
        match self.thread.take().map(JoinHandle::join) {
            Some(joined) => joined.unwrap_or_else(|panic| resume_unwind(panic)),
            None => std::mem::replace(&mut self.result, Ok(0)),
        }
    }
}

impl Drop for WrittenKeyframe {
    fn drop(&mut self) {
        // A recording is complete only when nothing writes to its files.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Returns the number of chunks that may wait to be written, by the free memory.
fn waiting_limit() -> usize {
    let free = sysinfo().map_or(0, |info| info.ram_unused());
    let chunks = usize::try_from(free).unwrap_or(0) / MEMORY_SHARE / CHUNK_BYTES;
    chunks.clamp(MIN_WAITING, MAX_WAITING)
}

/// Compresses and writes chunks to a file as they come, until the sender is dropped. Returns the
/// file's size in bytes. Several processors compress them; the program has one for itself.
fn write_all(mut file: Appender, chunks: &Receiver<Vec<u8>>) -> Result<u64, Error> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let cpus = cpus.saturating_sub(1).clamp(1, CPUS_LIMIT);
    while let Ok(first) = chunks.recv() {
        let more = chunks.iter().take(cpus * CHUNKS_PER_CPU - 1);
        let chunks: Vec<_> = iter::once(first).chain(more).collect();
        write_chunks(&mut file, &chunks, cpus)?;
    }
    Ok(file.size_bytes())
}

/// Compresses chunks on `cpus` threads (at least 1), this one among them, and writes them in order.
fn write_chunks(file: &mut Appender, chunks: &[Vec<u8>], cpus: usize) -> Result<(), Error> {
    let of_cpu = chunks.len().div_ceil(cpus).max(1);
    let parts: Vec<Vec<u8>> = thread::scope(|scope| {
        let spawn = |part| (part, Builder::new().spawn_scoped(scope, move || compress_all(part)));
        let threads: Vec<_> = chunks.chunks(of_cpu).skip(1).map(spawn).collect();
        let own = chunks.chunks(of_cpu).take(1).map(compress_all).collect::<Vec<_>>();
        let frames = threads.into_iter().map(|(part, thread)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // The user already has as many threads as are allowed.
            Err(_) => compress_all(part),
        });
        own.into_iter().chain(frames).collect()
    });
    parts.iter().try_for_each(|part| file.append(part))
}

/// Returns chunks, compressed and framed as in a log.
fn compress_all(chunks: &[Vec<u8>]) -> Vec<u8> {
    chunks.iter().map(|chunk| framed(chunk)).collect::<Vec<_>>().concat()
}

/// Returns the file name of the keyframe after `entry` entries of the log.
pub(super) fn keyframe_name(entry: u64) -> String {
    format!("{entry}{EXTENSION}")
}

/// Returns the path of the keyframe after `entry` entries of the log, relative to its recording.
pub(super) fn keyframe_path(entry: u64) -> String {
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
            let is_listed = |sums: &Sums| sums.lists(&keyframe_path(entry));
            (keyframe_name(entry) == name && self.sums().is_none_or(is_listed)).then_some(entry)
        };
        let mut entries: Vec<u64> = files.filter_map(|file| number(&file)).collect();
        entries.sort_unstable();
        entries
    }

    /// Opens the keyframe after `entry` entries of the log, as a log, whose entries are numbered
    /// from 0. In a complete recording, fails if its checksum is wrong. In a cut recording, the
    /// keyframe ends at its first broken chunk, so it may not be whole.
    pub fn open_keyframe(&self, entry: u64) -> Result<Log, Error> {
        let name = keyframe_path(entry);
        let path = self.dir().join(&name);
        let mapped = match self.sums() {
            Some(sums) => Mapped::of_file(&sums.check_file(self.dir(), &name)?),
            None => Mapped::open_without_link(&path),
        };
        Ok(Log::of_file(&path, mapped.at(&path)?).0)
    }
}
