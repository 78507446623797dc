//! Reads a recording. Runs nothing, decodes nothing, trusts nothing.
//!
//! A *complete* recording has a manifest with an end, and a list of checksums: a file with changed
//! bytes is an error when it is read. A *cut* one has only the starting manifest, since its
//! recorder was killed or still runs: each file ends at its last whole chunk. Beside an exact
//! recording, a replay may keep its *path*, itself a recording; its *places* relate its instruction
//! counts to log entries and ticks ([`PathPlace`]).

use super::backend::BackendName;
use super::chunk::{broken_file_error, check_summed, parse_frames};
use super::directory_lock::DirectoryLock;
use super::error::{At, Error, ErrorKind};
use super::format::{
    CHECKSUMS, CORE, FORMAT_VERSION, IMAGE_DIR, MANIFEST, OLDEST_VERSION, PATH_DIR, PLACES,
    SIDEBAND, STARTING, TEXT_LIMIT_BYTES, TRACE_DIR, TraceId, first_entry_in_name, log_name,
    sums_name, trace_name,
};
use super::log::{BrokenPart, Log};
use super::manifest::{LogTotals, Manifest};
use super::mapped::Mapped;
use super::path_places::PathPlace;
use super::regular::{Links, must_be_directory, open_regular, read_limited};
use super::sums::{Sum, Sums, data_ranges_of};
use super::writer::image_id;
use crate::common::Tid;
use crate::sideband::{Event, ImageId, Record};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of attempts to open the files of a log: a recorder that keeps only the end of the log
/// may drop one of them each time.
const LOG_TRIES: u32 = 5;

/// A recording that is open for reading.
#[derive(Debug)]
pub struct Reader {
    dir: PathBuf,
    manifest: Manifest,
    /// The checksums of a complete recording; `None` for a cut one.
    sums: Option<Sums>,
}

/// The bytes of a trace, up to its last whole chunk.
#[derive(Clone, Debug)]
pub struct Trace {
    mapped: Arc<Mapped>,
    size_bytes: usize,
}

impl AsRef<[u8]> for Trace {
    fn as_ref(&self) -> &[u8] {
        let all = (*self.mapped).as_ref();
        all.get(..self.size_bytes).unwrap_or(all)
    }
}

impl Trace {
    /// Returns a releaser of the trace's memory, for one sequential pass over its bytes.
    pub fn releaser(&self) -> Releaser<'_> {
        Releaser::new(&self.mapped)
    }
}

/// A sequential pass over a mapped file, which releases the memory of the bytes that were read.
#[derive(Debug)]
pub struct Releaser<'a> {
    mapped: &'a Mapped,
    /// The offset before which the memory is released.
    released: usize,
}

/// The minimum number of bytes released at a time.
const RELEASE_BYTES: usize = 16 << 20;

impl<'a> Releaser<'a> {
    /// Returns a releaser for a file of which nothing has been read yet.
    pub fn new(mapped: &'a Mapped) -> Self {
        Self { mapped, released: 0 }
    }

    /// Releases the memory of the bytes before `at`, which the caller has read, if they are at
    /// least `RELEASE_BYTES` since the last release. They can still be read again, from the file.
    pub fn release_before(&mut self, at: usize) {
        if at.saturating_sub(self.released) >= RELEASE_BYTES {
            self.mapped.release(self.released..at);
            self.released = at;
        }
    }
}

impl Reader {
    /// Opens the recording in `dir`, and checks its manifest. Other files are checked when they are
    /// read. Fails if the directory does not exist or is not a recording, or if the format version
    /// is unknown.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        if !dir.try_exists().at(dir)? {
            return Err(Error::new(dir, ErrorKind::Missing));
        }
        let path = manifest_of(dir)?.ok_or_else(|| Error::new(dir, ErrorKind::NotARecording))?;
        for sub in [TRACE_DIR, IMAGE_DIR] {
            let path = dir.join(sub);
            must_be_directory(&path).at(&path)?;
        }
        let text = match read_limited(&path, TEXT_LIMIT_BYTES) {
            // The recorder has just completed it.
            Err(_) if manifest_of(dir)?.is_some_and(|now| now != path) => return Self::open(dir),
            text => text.at(&path)?,
        };
        check_version(&path, &text)?;
        let mut manifest: Manifest = serde_json::from_slice(&text)
            .map_err(|error| Error::new(&path, ErrorKind::Manifest(error)))?;
        if path.ends_with(STARTING) {
            manifest.end = None;
            return Ok(Self { dir: dir.to_owned(), manifest, sums: None });
        }
        let mut sums = read_sums(dir)?;
        let sum = Sum::of_bytes(&text);
        if !sums.lists(MANIFEST) {
            // A recorder was killed while it replaced the manifest.
            sums.add(MANIFEST.to_owned(), sum);
        }
        sums.check(MANIFEST, &path, sum)?;
        Ok(Self { dir: dir.to_owned(), manifest, sums: Some(sums) })
    }

    /// Returns the checksums of the files of a complete recording; `None` for a cut one.
    pub(super) fn sums(&self) -> Option<&Sums> {
        self.sums.as_ref()
    }

    /// Returns the directory of the recording.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns true if the recording is not complete: its recorder was killed before the program's
    /// end, or is still running.
    pub fn is_cut(&self) -> bool {
        self.manifest.end.is_none()
    }

    /// Returns the threads of the manifest, in order of creation. Fails if the recording has the
    /// trace of another thread. For a cut recording, returns those that have a trace or, if it is
    /// exact, those that start in the sideband, in numerical order.
    pub fn threads(&self) -> Result<Vec<Tid>, Error> {
        match &self.manifest.end {
            Some(end) => {
                self.check_threads_are_listed()?;
                Ok(end.threads.iter().map(|thread| thread.tid).collect())
            }
            None if self.is_exact() => self.threads_in_sideband(),
            None => self.threads_with_trace(),
        }
    }

    fn is_exact(&self) -> bool {
        self.manifest.capture.backend == BackendName::Exact
    }

    /// Returns the threads that start in the sideband, in numerical order.
    fn threads_in_sideband(&self) -> Result<Vec<Tid>, Error> {
        let records = self.sideband()?;
        let begun = records.iter().filter(|record| record.event == Event::ThreadStart);
        let tids: BTreeSet<Tid> = begun.map(|record| record.tid).collect();
        Ok(tids.into_iter().collect())
    }

    /// Returns the threads with a trace, in numerical order; without the CPUs that have one.
    pub(super) fn threads_with_trace(&self) -> Result<Vec<Tid>, Error> {
        let dir = self.dir.join(TRACE_DIR);
        let mut tids = Vec::new();
        let entries = match fs::read_dir(&dir) {
            // The recorder was killed before it made the directory.
            Err(error) if self.is_cut() && error.kind() == io::ErrorKind::NotFound => {
                return Ok(tids);
            }
            entries => entries.at(&dir)?,
        };
        for entry in entries {
            let name = entry.at(&dir)?.file_name();
            let number = name.to_str().and_then(|n| n.strip_suffix(".pt")).map(str::parse);
            tids.extend(number.and_then(Result::ok).map(Tid));
        }
        tids.sort_unstable();
        Ok(tids)
    }

    /// Returns the IDs of the traces: one of each traced CPU, else one of each thread; none in an
    /// exact recording. Those of CPUs are not found in a cut recording.
    pub fn traces(&self) -> Result<Vec<TraceId>, Error> {
        match &self.manifest.end {
            _ if self.is_exact() => Ok(Vec::new()),
            Some(end) if !end.cpus.is_empty() => {
                Ok(end.cpus.iter().map(|entry| TraceId::Cpu(entry.cpu)).collect())
            }
            _ => Ok(self.threads()?.into_iter().map(TraceId::Thread).collect()),
        }
    }

    /// Opens the path that a replay kept with this exact recording. `None` if there is none, if it
    /// is not whole or not of this recording, or if this one is cut, and so may still grow.
    pub fn kept_path(&self) -> Option<Self> {
        let path = Self::open(&self.path_dir()).ok()?;
        // A path that was made before the recording was complete lacks the end.
        let facts = |of: &Self| {
            let duration_ns = of.manifest.end.as_ref().map(|end| end.duration_ns);
            (of.manifest.started_unix_ns, of.manifest.pid, duration_ns)
        };
        let has_places = path.sums.as_ref().is_some_and(|sums| sums.lists(PLACES));
        (!self.is_cut() && has_places && facts(&path) == facts(self)).then_some(path)
    }

    /// Returns the places of the exact recording that this path passes, in the order of the run;
    /// empty if this is not such a path.
    pub fn path_places(&self) -> Result<Vec<PathPlace>, Error> {
        let path = self.dir.join(PLACES);
        let Some(sums) = self.sums.as_ref().filter(|sums| sums.lists(PLACES)) else {
            return Ok(Vec::new());
        };
        let mapped = Mapped::of_file(&sums.check_file(&self.dir, PLACES)?).at(&path)?;
        let chunks = mapped.as_ref().chunks_exact(PathPlace::BYTES);
        Ok(chunks.filter_map(PathPlace::from_bytes).collect())
    }

    /// Removes the path that is kept with this exact recording, if any. Returns the directory for a
    /// new one, which does not exist then.
    pub fn remove_kept_path(&self) -> Result<PathBuf, Error> {
        let dir = self.path_dir();
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::new(&dir, error)),
            _ => Ok(dir),
        }
    }

    /// Takes the lock for making the path of this exact recording. Does not wait: returns `None`
    /// while another process or thread has it.
    pub fn lock_path(&self) -> Option<DirectoryLock> {
        DirectoryLock::take(&self.dir)
    }

    fn path_dir(&self) -> PathBuf {
        self.dir.join(PATH_DIR)
    }

    /// Maps a trace, and checks all of its bytes against the checksums of their chunks. A broken
    /// chunk of a complete recording is an error; a cut one's trace ends before it.
    pub fn trace(&self, trace: TraceId) -> Result<Trace, Error> {
        let path = self.dir.join(TRACE_DIR).join(trace_name(trace));
        let sums_path = self.dir.join(TRACE_DIR).join(sums_name(trace));
        let mapped = Mapped::open_without_link(&path).at(&path)?;
        let sums = match &self.sums {
            Some(listed) => {
                let name = format!("{TRACE_DIR}/{}", sums_name(trace));
                Mapped::of_file(&listed.check_file(&self.dir, &name)?)
            }
            None => Mapped::open_without_link(&sums_path),
        };
        let sums = sums.at(&sums_path)?;
        let mut releaser = Releaser::new(&mapped);
        let whole =
            check_summed(mapped.as_ref(), sums.as_ref(), &mut |at| releaser.release_before(at));
        let found = mapped.as_ref().len() as u64;
        let expected = self.listed_trace_bytes(trace);
        if expected.is_some_and(|expected| whole.broken || whole.size_bytes != expected) {
            return Err(broken_file_error(&path, &whole, expected, found));
        }
        // A mapped file fits in memory, so its size fits in a `usize`.
        let size_bytes = usize::try_from(whole.size_bytes).unwrap_or(0);
        Ok(Trace { mapped: Arc::new(mapped), size_bytes })
    }

    /// Returns the size of a trace in bytes according to the manifest; `None` if it is not listed,
    /// and for a cut recording.
    pub fn listed_trace_bytes(&self, trace: TraceId) -> Option<u64> {
        let end = self.manifest.end.as_ref()?;
        match trace {
            TraceId::Thread(tid) => {
                end.threads.iter().find(|t| t.tid == tid).map(|t| t.trace_bytes)
            }
            TraceId::Cpu(cpu) => end.cpus.iter().find(|c| c.cpu == cpu).map(|c| c.trace_bytes),
        }
    }

    /// Reads all events of the operating system, in the order in which they were written; of a cut
    /// recording, those up to the last whole chunk. Fails if a record cannot be decoded, or a chunk
    /// of a complete recording is broken.
    pub fn sideband(&self) -> Result<Vec<Record>, Error> {
        let path = self.dir.join(SIDEBAND);
        let mapped = match &self.sums {
            Some(sums) => Mapped::of_file(&sums.check_file(&self.dir, SIDEBAND)?),
            None => Mapped::open_without_link(&path),
        };
        let mapped = match mapped {
            Err(error) if self.is_cut() && error.kind() == io::ErrorKind::NotFound => {
                return Ok(Vec::new());
            }
            mapped => mapped.at(&path)?,
        };
        let bytes = mapped.as_ref();
        let (payloads, whole) = parse_frames(bytes);
        if whole.broken && !self.is_cut() {
            return Err(broken_file_error(&path, &whole, None, bytes.len() as u64));
        }
        let mut records = Vec::new();
        for payload in payloads {
            let offset = payload.start as u64;
            let mut rest = &bytes[payload];
            while !rest.is_empty() {
                let (record, following) = postcard::take_from_bytes(rest)
                    .map_err(|_| Error::new(&path, ErrorKind::Record { offset }))?;
                records.push(record);
                rest = following;
            }
        }
        Ok(records)
    }

    /// Returns the log of an exact recording; `None` for other recordings. The log of a cut
    /// recording ends at its last whole chunk; in a complete one, a broken chunk is an error.
    pub fn log(&self) -> Result<Option<Log>, Error> {
        match self.open_log_parts()? {
            Some((_, Some(broken))) if !self.is_cut() => {
                Err(broken_file_error(&broken.path, &broken.whole, None, broken.file_bytes))
            }
            opened => Ok(opened.map(|(log, _)| log)),
        }
    }

    /// Opens the parts of the log up to the first broken one, which it also returns. Tries again if
    /// the recorder drops a part at the same time. Returns `None` without a log.
    fn open_log_parts(&self) -> Result<Option<(Log, Option<BrokenPart>)>, Error> {
        for last_try in (0..LOG_TRIES).map(|tried| tried + 1 == LOG_TRIES) {
            let numbers = self.log_part_starts()?;
            let Some(&first) = numbers.first() else { break };
            let parts = numbers.into_iter().map(|number| self.open_log_part(number));
            match parts.collect::<Result<Vec<_>, Error>>() {
                Ok(parts) => return Ok(Some(Log::of_parts(first, parts))),
                // The recorder dropped the part after it was listed.
                Err(error) if self.is_cut() && error.is_missing() && !last_try => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Returns the number of the first entry of each part of the log, in ascending order; the
    /// number is in the file's name ([`log_name`]). Empty without a log. Does not check that the
    /// parts follow one another.
    pub(super) fn log_part_starts(&self) -> Result<Vec<u64>, Error> {
        let mut parts: Vec<u64> = if let Some(sums) = &self.sums {
            sums.names().filter_map(first_entry_in_name).collect()
        } else {
            let files = fs::read_dir(&self.dir).at(&self.dir)?.flatten();
            files.filter_map(|file| first_entry_in_name(file.file_name().to_str()?)).collect()
        };
        parts.sort_unstable();
        Ok(parts)
    }

    fn open_log_part(&self, first: u64) -> Result<(PathBuf, Mapped), Error> {
        let name = log_name(first);
        let path = self.dir.join(&name);
        let mapped = match &self.sums {
            Some(sums) => Mapped::of_file(&sums.check_file(&self.dir, &name)?),
            None => Mapped::open_without_link(&path),
        };
        let mapped = mapped.at(&path)?;
        Ok((path, mapped))
    }

    /// Decodes the log and returns its totals; `None` without a log.
    pub fn log_totals(&self) -> Result<Option<LogTotals>, Error> {
        self.log()?.map(|log| log.totals()).transpose()
    }

    /// Checks a stored image as [`Self::image`] does, and returns the path of its file.
    pub fn image_path(&self, id: &ImageId) -> Result<PathBuf, Error> {
        self.image(id).map(|_| self.dir.join(IMAGE_DIR).join(&id.0))
    }

    /// Maps a stored image. Checks all of its bytes: against the checksum, or if the recording is
    /// cut, against the hash that is its ID.
    pub fn image(&self, id: &ImageId) -> Result<Mapped, Error> {
        let Some(sums) = &self.sums else { return self.image_checked_by_id(id) };
        let (path, file) = self.open_image(id)?;
        // The CRC-32 is computed several times as fast as the hash in the image's name.
        sums.check(&format!("{IMAGE_DIR}/{id}"), &path, Sum::of_file(&file).at(&path)?)
            .map_err(|_| Error::new(&path, ErrorKind::ImageDamaged))?;
        Mapped::of_file(&file).at(&path)
    }

    /// Maps a stored image, after a check of all its bytes against the hash that is its ID.
    pub(super) fn image_checked_by_id(&self, id: &ImageId) -> Result<Mapped, Error> {
        let (path, file) = self.open_image(id)?;
        if image_id(&file).at(&path)? != *id {
            return Err(Error::new(&path, ErrorKind::ImageDamaged));
        }
        Mapped::of_file(&file).at(&path)
    }

    /// Opens a stored image, and returns its path, too. Does not check its bytes. Fails if it is
    /// missing, or its ID is not hexadecimal.
    fn open_image(&self, id: &ImageId) -> Result<(PathBuf, File), Error> {
        let path = self.dir.join(IMAGE_DIR).join(&id.0);
        // A hostile sideband may contain any ID, which must not lead out of the directory.
        if !id.0.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(Error::new(&path, ErrorKind::ImageMissing));
        }
        let opened = open_regular(&path, Links::Refuse);
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::new(&path, ErrorKind::ImageMissing),
            _ => Error::new(&path, error),
        })?;
        Ok((path, file))
    }

    /// Returns true if the recording has a core file with the final state; false for a cut one.
    pub fn has_core(&self) -> bool {
        self.sums.as_ref().is_some_and(|sums| sums.lists(CORE))
    }

    /// Maps the core file with the final state, after a check of all its bytes; `None` if there is
    /// none, as in a cut recording.
    pub fn core(&self) -> Result<Option<Mapped>, Error> {
        Ok(self.stored_core()?.map(|state| state.core))
    }

    /// Maps the core file as [`Self::core`] does, and finds the ranges of it that are not holes;
    /// `None` if there is no core file.
    pub fn stored_core(&self) -> Result<Option<StoredCore>, Error> {
        let Some(sums) = self.sums.as_ref().filter(|sums| sums.lists(CORE)) else {
            return Ok(None);
        };
        let path = self.dir.join(CORE);
        let file = sums.check_file(&self.dir, CORE)?;
        let (core, data) = (Mapped::of_file(&file).at(&path)?, data_ranges_of(&file).at(&path)?);
        Ok(Some(StoredCore { path, core, data }))
    }
}

/// The core file with the final state of a recorded process.
#[derive(Debug)]
pub struct StoredCore {
    /// The path of the file.
    pub path: PathBuf,
    /// An ELF core file.
    pub core: Mapped,
    /// The ranges of the file that the file system stores, in order. All other bytes are zeros.
    pub data: Vec<Range<u64>>,
}

/// Returns the path of a recording's manifest, else that of the starting one; `None` if the
/// directory has neither, so that it is not a recording. Fails for a file, and without access.
pub(super) fn manifest_of(dir: &Path) -> Result<Option<PathBuf>, Error> {
    for path in [MANIFEST, STARTING].map(|name| dir.join(name)) {
        match path.symlink_metadata() {
            Ok(_) => return Ok(Some(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(Error::new(dir, ErrorKind::IsFile));
            }
            Err(error) => return Err(Error::new(dir, error)),
        }
    }
    Ok(None)
}

fn read_sums(dir: &Path) -> Result<Sums, Error> {
    let path = dir.join(CHECKSUMS);
    let text = read_limited(&path, TEXT_LIMIT_BYTES).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::new(&path, ErrorKind::Gone),
        _ => Error::new(&path, error),
    })?;
    Sums::parse(&text).ok_or_else(|| Error::new(&path, ErrorKind::Damaged))
}

/// Checks the format version of a manifest before the rest, whose form may differ in other
/// versions.
fn check_version(path: &Path, text: &[u8]) -> Result<(), Error> {
    #[derive(serde::Deserialize)]
    struct Version {
        format: u32,
    }
    let version: Version = serde_json::from_slice(text)
        .map_err(|error| Error::new(path, ErrorKind::Manifest(error)))?;
    if !(OLDEST_VERSION..=FORMAT_VERSION).contains(&version.format) {
        let kind = ErrorKind::Version { found: version.format, expected: FORMAT_VERSION };
        return Err(Error::new(path, kind));
    }
    Ok(())
}
