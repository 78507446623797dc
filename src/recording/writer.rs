//! Writes a recording. The capture room decides what is written, and when.
//! [`Writer::finish`] makes the recording complete; without it, it stays a cut one.
//!
//! Events of the operating system are the *sideband*. The contents of a mapped file are an *image*,
//! whose name is their hash, so equal contents are stored once.
//!
//! The order on disk lets a recording be opened whenever its recorder is killed: first the log, if
//! it is exact, then the starting manifest, then all else. A chunk of a trace comes after the
//! sideband before it. At the end come the checksums and the manifest.

use super::backend::BackendName;
use super::chunk::Appender;
use super::error::{At, Error};
use super::format::{
    CORE, IMAGE_DIR, KEYFRAME_DIR, PLACES, SIDEBAND, SIDEBAND_CHUNK_BYTES, STARTING,
    TRACE_CHUNK_BYTES, TRACE_DIR, TraceId, sums_name, trace_name,
};
use super::hexadecimal::hexadecimal;
use super::keyframe::{KeyframeWriter, keyframe_name};
use super::known_images::{FileState, KnownImages};
use super::log::{CpuPlacement, DeferredEntries, Entry, LogParts};
use super::manifest::{LogTotals, Manifest};
use super::manifest_file::{write_by_rename, write_manifest, write_starting};
use super::path_places::PathPlace;
use super::reader::Reader;
use super::regular::{Links, open_regular, replace_private};
use super::shared_images::{SharedImages, mark_intact};
use super::store::Store;
use super::sums::{Sum, Sums};
use super::trace_file::TraceFile;
use crate::common::Tid;
use crate::sideband::{ImageId, Record};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A recording that is being written.
#[derive(Debug)]
pub struct Writer {
    dir: PathBuf,
    sideband: Appender,
    /// The encoded records that are not written yet.
    pending_sideband: Vec<u8>,
    /// The log of an exact recording.
    log: Option<LogParts>,
    /// The places that the path of an exact recording passes, if this is such a path.
    places: Option<Appender>,
    /// The traces that have begun and not ended.
    traces: BTreeMap<TraceId, TraceFile>,
    /// The traces that are complete.
    ended: Vec<TraceId>,
    /// The hashes and the contents of images that earlier recordings stored.
    known_images: KnownImages,
    shared_images: SharedImages,
}

impl Writer {
    /// Starts a recording in `dir`, and writes its starting manifest. The caller makes sure that
    /// `dir` is empty or does not exist, which is not checked (`Destination` does that). Creates
    /// missing parent directories. A recording of the exact backend has a log and no traces.
    pub fn create(dir: &Path, starting: &Manifest) -> Result<Self, Error> {
        let mut builder = DirBuilder::new();
        // A recording contains the program's memory, so only its owner may read it.
        builder.recursive(true).mode(0o700).create(dir).at(dir)?;
        let is_exact = starting.capture.backend == BackendName::Exact;
        // Before the manifest: an exact recording that can be opened has a log, however early the
        // recorder is killed.
        let log = is_exact.then(|| LogParts::create(dir)).transpose()?;
        // Before all other files, so that the recording can be opened if the recorder is killed.
        write_starting(dir, starting)?;
        builder.recursive(false);
        for sub in [dir.join(TRACE_DIR), dir.join(IMAGE_DIR)] {
            builder.create(&sub).at(&sub)?;
        }
        let sideband = Appender::create(dir.join(SIDEBAND))?;
        Ok(Self {
            dir: dir.to_owned(),
            sideband,
            pending_sideband: Vec::new(),
            log,
            places: None,
            traces: BTreeMap::new(),
            ended: Vec::new(),
            known_images: KnownImages::default(),
            shared_images: SharedImages::default(),
        })
    }

    /// Makes later images reuse the hashes and the contents of files that earlier recordings of a
    /// store needed, and keeps new ones there for later recordings.
    pub fn use_known_images(&mut self, store: &Store) {
        self.known_images = KnownImages::of(store);
        self.shared_images = SharedImages::of(store);
    }

    /// Writes the starting manifest again, with values that are known since the process started.
    pub fn rewrite_starting(&self, starting: &Manifest) -> Result<(), Error> {
        write_starting(&self.dir, starting)
    }

    /// Returns the directory of the recording.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts the trace of a thread, unless it is started already. Fails if it has ended. Does
    /// nothing in an exact recording, which has no traces.
    pub fn start_thread(&mut self, tid: Tid) -> Result<(), Error> {
        if self.log.is_some() { Ok(()) } else { self.start_trace(TraceId::Thread(tid)) }
    }

    fn start_trace(&mut self, trace: TraceId) -> Result<(), Error> {
        if !self.traces.contains_key(&trace) {
            let dir = self.dir.join(TRACE_DIR);
            let bytes = Appender::create(dir.join(trace_name(trace)))?;
            let sums = Appender::create(dir.join(sums_name(trace)))?;
            let mut file = TraceFile { bytes, sums, pending: Vec::new() };
            file.close_if_many(self.traces.len());
            self.traces.insert(trace, file);
        }
        Ok(())
    }

    /// Appends whole packets to a thread's trace, and starts it if there is none. Not for an exact
    /// recording.
    pub fn trace(&mut self, tid: Tid, packets: &[u8]) -> Result<(), Error> {
        self.append(TraceId::Thread(tid), packets)
    }

    /// Appends bytes to a trace that another tool took, and starts it if there is none, even
    /// without bytes. Calls `progress` with the number of these bytes appended so far.
    pub fn append_imported(
        &mut self,
        trace: TraceId,
        bytes: &[u8],
        progress: &mut dyn FnMut(usize),
    ) -> Result<(), Error> {
        self.start_trace(trace)?;
        let mut done = 0;
        bytes.chunks(TRACE_CHUNK_BYTES).try_for_each(|chunk| {
            self.append(trace, chunk)?;
            done += chunk.len();
            progress(done);
            Ok(())
        })
    }

    /// Writes out a trace and closes its files: there may be more traces than a process can have
    /// open files. Does nothing if the trace was not started. Nothing may be appended to it later.
    pub fn end_trace(&mut self, trace: TraceId) -> Result<(), Error> {
        if let Some(mut file) = self.traces.remove(&trace) {
            flush_sideband(&mut self.sideband, &mut self.pending_sideband)?;
            file.flush()?;
            self.ended.push(trace);
        }
        Ok(())
    }

    /// Appends packets to a trace, which it starts if there is none. Writes out a full chunk, and
    /// the sideband before it.
    fn append(&mut self, trace: TraceId, packets: &[u8]) -> Result<(), Error> {
        self.start_trace(trace)?;
        let count = self.traces.len();
        let Some(trace) = self.traces.get_mut(&trace) else { return Ok(()) };
        trace.pending.extend_from_slice(packets);
        if trace.pending.len() < TRACE_CHUNK_BYTES {
            return Ok(());
        }
        // A trace on disk must never refer to code that is not in the sideband on disk.
        flush_sideband(&mut self.sideband, &mut self.pending_sideband)?;
        trace.flush()?;
        trace.close_if_many(count);
        Ok(())
    }

    /// Appends an event of the operating system. It is written with the next full chunk, or by a
    /// flush.
    pub fn sideband(&mut self, record: &Record) -> Result<(), Error> {
        // A record is plain data without maps or floats, and writes to memory cannot fail.
        if let Ok(bytes) = postcard::to_stdvec(record) {
            self.pending_sideband.extend_from_slice(&bytes);
        }
        if self.pending_sideband.len() >= SIDEBAND_CHUNK_BYTES {
            flush_sideband(&mut self.sideband, &mut self.pending_sideband)?;
        }
        Ok(())
    }

    /// Sets the function by which the thread that writes the log moves to a CPU. The thread starts
    /// when there is much to write; it calls `place` at its start and after each flush. Has no
    /// effect on a thread that runs already, or without a log.
    pub fn place_log_thread(&mut self, place: impl Fn() + Send + Sync + 'static) {
        let place = CpuPlacement(Some(Arc::new(place)));
        self.log.iter_mut().for_each(|log| log.set_placement(place.clone()));
    }

    /// Appends an entry to the log; does nothing unless this is an exact recording. Another thread
    /// may write it: an error is that of an earlier entry. It is returned once, by this or another
    /// function of the log; later calls succeed, but write nothing to the same part of the log.
    pub fn log(&mut self, entry: &Entry) -> Result<(), Error> {
        self.log.as_mut().map_or(Ok(()), |log| log.append(entry))
    }

    /// Appends entries that are made where the log is written ([`DeferredEntries`]), as
    /// [`Self::log`] does.
    pub fn log_later(&mut self, later: DeferredEntries) -> Result<(), Error> {
        self.log.as_mut().map_or(Ok(()), |log| log.append_later(later))
    }

    /// Writes out the log, waits for that, and ends the thread that writes it. The thread starts
    /// again when there is much to write.
    pub fn pause_log_thread(&mut self) -> Result<(), Error> {
        self.log.as_mut().map_or(Ok(()), LogParts::pause_thread)
    }

    /// Creates the file for places, in a recording that is the path of an exact one.
    pub fn start_places(&mut self) -> Result<(), Error> {
        self.places = Some(Appender::create(self.dir.join(PLACES))?);
        Ok(())
    }

    /// Appends places, if [`Self::start_places`] was called; else does nothing.
    pub fn append_places(&mut self, places: &[PathPlace]) -> Result<(), Error> {
        let bytes: Vec<u8> = places.iter().flat_map(|place| place.to_bytes()).collect();
        self.places.as_mut().map_or(Ok(()), |file| file.append(&bytes))
    }

    /// Writes out the log, and returns the totals of the parts that are kept; `None` without a log.
    pub fn log_totals(&mut self) -> Result<Option<LogTotals>, Error> {
        self.log.as_mut().map_or(Ok(()), LogParts::flush)?;
        Ok(self.log.as_ref().map(LogParts::kept_totals))
    }

    /// Returns the number of entries and ticks of the log since the beginning of the run, and the
    /// size of the parts that are kept; zeros without a log.
    pub fn log_so_far(&self) -> LogTotals {
        self.log.as_ref().map_or_else(LogTotals::default, LogParts::totals_since_start)
    }

    /// Begins another part of the log, in its own file, with the next entry: at the place of a
    /// keyframe that was just written. Fails if the last part has no entries. Does nothing without
    /// a log.
    pub fn begin_log_part(&mut self) -> Result<(), Error> {
        self.log.as_mut().map_or(Ok(()), LogParts::begin_part)
    }

    /// Removes the files of the parts of the log that begin before entry `first`, but not the part
    /// that is being written. Does nothing without a log.
    pub fn drop_log_before(&mut self, first: u64) -> Result<(), Error> {
        self.log.as_mut().map_or(Ok(()), |log| log.drop_before(first))
    }

    /// Begins the keyframe after `entry` entries of the log, which the returned writer writes.
    pub fn begin_keyframe(&self, entry: u64) -> Result<KeyframeWriter, Error> {
        KeyframeWriter::create(&self.dir, entry)
    }

    /// Removes the keyframe after `entry` entries of the log. Fails if there is none.
    pub fn remove_keyframe(&self, entry: u64) -> Result<(), Error> {
        let path = self.dir.join(KEYFRAME_DIR).join(keyframe_name(entry));
        fs::remove_file(&path).at(&path)
    }

    /// Writes out all buffered data, and waits for the thread that writes the log, so that they
    /// survive the end of this process.
    pub fn flush(&mut self) -> Result<(), Error> {
        flush_sideband(&mut self.sideband, &mut self.pending_sideband)?;
        self.log.as_mut().map_or(Ok(()), LogParts::flush)?;
        let count = self.traces.len();
        self.traces.values_mut().try_for_each(|trace| {
            trace.flush()?;
            trace.close_if_many(count);
            Ok(())
        })
    }

    /// Returns the size of a thread's trace so far, in bytes; 0 if it was not started or has ended.
    pub fn trace_bytes(&self, tid: Tid) -> u64 {
        let trace = self.traces.get(&TraceId::Thread(tid));
        trace.map_or(0, |t| t.bytes.size_bytes() + t.pending.len() as u64)
    }

    /// Returns the size in bytes of the files that grow during a run, with buffered data: sideband,
    /// parts of the log that are kept, and traces that have not ended.
    pub fn grown_bytes(&self) -> u64 {
        let of_trace = |trace: &TraceFile| {
            let pending = trace.pending.len() as u64;
            trace.bytes.size_bytes() + trace.sums.size_bytes() + pending
        };
        let sideband = self.sideband.size_bytes() + self.pending_sideband.len() as u64;
        let log = self.log.as_ref().map_or(0, |log| log.totals_since_start().size_bytes);
        sideband + log + self.traces.values().map(of_trace).sum::<u64>()
    }

    /// Stores a file's contents as an image, unless it is stored: by a link to the image of an
    /// earlier recording ([`Self::use_known_images`]), else by reflink if the file system supports
    /// it, else by a copy. `source` must be at its start. Returns the image's ID.
    pub fn image_from_file(&self, source: &mut File) -> Result<ImageId, Error> {
        let state = self.known_images.state_of(source);
        if let Some(id) = self.shared_image(source, state.as_ref()) {
            return Ok(id);
        }
        let partial = self.dir.join(IMAGE_DIR).join("partial");
        let mut copy = replace_private(&partial).at(&partial)?;
        retry_interrupted(|| io::copy(source, &mut copy)).at(&partial)?;
        // The source may change during the copy; the name must match the stored bytes.
        let state = state.filter(|state| state.is_same(source, &self.known_images));
        let id = if let Some(id) = state.as_ref().and_then(FileState::known_id) {
            id
        } else {
            let id = image_id(&copy).at(&partial)?;
            if let Some(state) = state {
                state.remember(&id);
            }
            id
        };
        let target = self.dir.join(IMAGE_DIR).join(&id.0);
        let is_marked = mark_intact(&copy).is_ok();
        fs::rename(&partial, &target).at(&target)?;
        if is_marked {
            self.shared_images.share(&id, &target);
        }
        Ok(id)
    }

    /// Links the image that an earlier recording stored of a file, if the file has not changed, and
    /// returns its ID; only returns it if this recording has the image already. `None` if there is
    /// no such image, or it cannot be linked.
    fn shared_image(&self, source: &File, state: Option<&FileState>) -> Option<ImageId> {
        let id = state?.known_id()?;
        let target = self.dir.join(IMAGE_DIR).join(&id.0);
        let is_there = target.exists();
        let size_bytes = source.metadata().ok()?.len();
        (is_there || self.shared_images.link_into(&id, size_bytes, &target)).then_some(id)
    }

    /// Stores bytes as an image, unless it is stored, and returns its ID.
    pub fn image_from_bytes(&self, bytes: &[u8]) -> Result<ImageId, Error> {
        let id = ImageId(hexadecimal(&Sha256::digest(bytes)));
        let target = self.dir.join(IMAGE_DIR).join(&id.0);
        if !target.exists() {
            write_by_rename(&target, bytes)?;
        }
        Ok(id)
    }

    /// Returns the path of the image with this ID, whether it is stored or not.
    pub fn image_path(&self, id: &ImageId) -> PathBuf {
        self.dir.join(IMAGE_DIR).join(&id.0)
    }

    /// Stores an image of another recording, after a check of its bytes. The two recordings share
    /// the file if a hard link can be made.
    pub fn store_image_of(&self, reader: &Reader, id: &ImageId) -> Result<(), Error> {
        let source = reader.image_path(id)?;
        let target = self.dir.join(IMAGE_DIR).join(&id.0);
        if fs::hard_link(&source, &target).is_err() && !target.exists() {
            self.image_from_file(&mut open_regular(&source, Links::Refuse).at(&source)?)?;
        }
        Ok(())
    }

    /// Stores the core file of another recording, unchecked, if it has one: by a link or a copy.
    pub fn store_core_of(&self, reader: &Reader) -> Result<(), Error> {
        if !reader.has_core() {
            return Ok(());
        }
        let (source, target) = (reader.dir().join(CORE), self.core_partial());
        if fs::hard_link(&source, &target).is_err() {
            let mut source = open_regular(&source, Links::Refuse).at(&source)?;
            let mut copy = self.core_file()?;
            retry_interrupted(|| io::copy(&mut source, &mut copy)).at(&target)?;
        }
        Ok(())
    }

    /// Creates the core file under a temporary name, in place of that of an earlier call. The
    /// caller writes it; [`Self::finish`] gives it its final name.
    pub fn core_file(&self) -> Result<File, Error> {
        let path = self.core_partial();
        replace_private(&path).at(&path)
    }

    fn core_partial(&self) -> PathBuf {
        self.dir.join(CORE).with_extension("partial")
    }

    /// Completes the recording: writes buffered data, gives the core file its final name, writes
    /// the checksums and then the manifest, and removes the starting manifest. Returns the
    /// directory.
    pub fn finish(mut self, manifest: &Manifest) -> Result<PathBuf, Error> {
        self.flush()?;
        let partial = self.core_partial();
        if partial.exists() {
            let core = self.dir.join(CORE);
            fs::rename(&partial, &core).at(&core)?;
        }
        let sums = self.sums()?;
        write_manifest(&self.dir, manifest, sums)?;
        let starting = self.dir.join(STARTING);
        fs::remove_file(&starting).at(&starting)?;
        Ok(self.dir)
    }

    /// Returns the checksums of all files but the manifest and the traces, which have `.sum` files.
    fn sums(&self) -> Result<Sums, Error> {
        let mut names = vec![SIDEBAND.to_owned()];
        names.extend(self.log.iter().flat_map(LogParts::names));
        names.extend(self.places.is_some().then(|| PLACES.to_owned()));
        let traces = self.traces.keys().chain(&self.ended);
        names.extend(traces.map(|trace| format!("{TRACE_DIR}/{}", sums_name(*trace))));
        for listed in [IMAGE_DIR, KEYFRAME_DIR] {
            let dir = self.dir.join(listed);
            if listed == KEYFRAME_DIR && !dir.exists() {
                continue;
            }
            for entry in fs::read_dir(&dir).at(&dir)? {
                let name = entry.at(&dir)?.file_name();
                names.push(format!("{listed}/{}", name.display()));
            }
        }
        let has_core = self.dir.join(CORE).exists();
        names.extend(has_core.then(|| CORE.to_owned()));
        let mut sums = Sums::default();
        for name in names {
            let sum = self.sum_of(&name)?;
            sums.add(name, sum);
        }
        Ok(sums)
    }

    /// Returns the checksum of the file `name` of the recording. That of an image may be known from
    /// an earlier recording, or else is kept for later ones.
    fn sum_of(&self, name: &str) -> Result<Sum, Error> {
        let path = self.dir.join(name);
        let image = Path::new(name).strip_prefix(IMAGE_DIR).ok().and_then(Path::to_str);
        if let Some(sum) = image.and_then(|image| self.shared_images.known_sum(image, &path)) {
            return Ok(sum);
        }
        let sum = open_regular(&path, Links::Refuse).and_then(|file| Sum::of_file(&file));
        let sum = sum.at(&path)?;
        if let Some(image) = image {
            self.shared_images.remember_sum(image, sum);
        }
        Ok(sum)
    }
}

fn flush_sideband(file: &mut Appender, pending: &mut Vec<u8>) -> Result<(), Error> {
    if !pending.is_empty() {
        file.append_framed(pending)?;
        pending.clear();
    }
    Ok(())
}

/// Calls `act` again while a signal of the recorder interrupts it. The bytes that it has copied are
/// not lost: both file offsets are after them.
fn retry_interrupted<T>(mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match act() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Returns the ID under which a file's contents are stored: their SHA-256 in hexadecimal.
pub fn image_id(file: &File) -> io::Result<ImageId> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    let mut at = 0;
    loop {
        match retry_interrupted(|| file.read_at(&mut buffer, at))? {
            0 => return Ok(ImageId(hexadecimal(&hash.finalize()))),
            n => {
                hash.update(&buffer[..n]);
                at += n as u64;
            }
        }
    }
}
