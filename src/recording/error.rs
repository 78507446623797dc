//! The errors of recordings on disk.

use super::import::BadBundle;
use crate::common::{Pid, Tid};
use crate::sideband::BadSwitches;
use crate::sideband::perf_data::BadPerfData;
use std::path::{Path, PathBuf};

/// An error of a file or directory.
#[derive(Debug, thiserror::Error)]
#[error("{}: {kind}", path.display())]
pub struct Error {
    /// The path of the file or directory.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub kind: ErrorKind,
}

impl Error {
    /// Returns true if the cause is that the file does not exist.
    pub(super) fn is_missing(&self) -> bool {
        matches!(&self.kind, ErrorKind::Io(error) if error.kind() == std::io::ErrorKind::NotFound)
    }
}

/// The cause of an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An I/O error.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The recording does not exist.
    #[error("no such recording")]
    Missing,
    /// The directory is not a recording.
    #[error("not a recording: it has neither manifest.json nor starting.json")]
    NotARecording,
    /// The store's directory is unknown, since there is no home directory.
    #[error("there is no home directory to keep recordings in")]
    NoStore,
    /// The store is empty.
    #[error("no recordings yet")]
    Empty,
    /// The destination is a recording already.
    #[error("holds a recording already")]
    Exists,
    /// Another command has chosen the destination, and its recording has not begun yet.
    #[error("another recording begins there")]
    Beginning,
    /// The destination contains other files.
    #[error("not empty, and not a recording")]
    Occupied,
    /// The manifest cannot be parsed.
    #[error("the manifest cannot be read: {0}")]
    Manifest(serde_json::Error),
    /// The recording has the format of another version.
    #[error("recording format {found}, but this contraflow reads format {expected}")]
    Version {
        /// The format version of the recording.
        found: u32,
        /// The current format version of this program.
        expected: u32,
    },
    /// The bytes of a chunk differ from those that were written.
    #[error("damaged: the checksum of the chunk at {offset:#x} does not match")]
    Checksum {
        /// Offset of the chunk in the file.
        offset: u64,
    },
    /// A file is shorter than the manifest states.
    #[error("truncated: {found} bytes of {expected}")]
    Truncated {
        /// The size of the file in bytes.
        found: u64,
        /// The size that the manifest states.
        expected: u64,
    },
    /// The bytes of a file differ from those that were written.
    #[error("damaged: its size or checksum is not the one that was written")]
    Damaged,
    /// A file of a complete recording is missing.
    #[error("missing, so the recording is damaged")]
    Gone,
    /// A file of a complete recording is not listed in its manifest or its checksums.
    #[error("the recording does not list it, so one of the two is damaged")]
    Unlisted,
    /// A record of the sideband cannot be decoded.
    #[error("damaged: a sideband record in the chunk at {offset:#x} cannot be read")]
    Record {
        /// Offset of the chunk in the file.
        offset: u64,
    },
    /// An entry of the log cannot be decoded.
    #[error("damaged: an entry of the log in the chunk at {offset:#x} cannot be read")]
    LogEntry {
        /// Offset of the chunk in the file.
        offset: u64,
    },
    /// A file exceeds the size limit of its kind.
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// The maximum allowed size in bytes.
        limit: u64,
    },
    /// The description of an LLDB trace bundle is invalid.
    #[error("{0}")]
    Bundle(BadBundle),
    /// A trace of a bundle is outside the bundle's directory.
    #[error("outside of the bundle's directory")]
    OutsideBundle,
    /// A bundle contains no bytes of trace.
    #[error("all of its traces are empty")]
    NoTrace,
    /// The context switches of a bundle are invalid.
    #[error("{0}")]
    Switches(BadSwitches),
    /// The context switches contain a thread of the process that the bundle does not list.
    #[error("thread {0} is in the context switches, but not among the threads")]
    ThreadNotListed(Tid),
    /// A module of a bundle cannot be loaded.
    #[error("the module {}: {error}", path.display())]
    Module {
        /// The path of the module.
        path: PathBuf,
        /// The cause.
        error: crate::image::Error,
    },
    /// The destination of an export exists.
    #[error("exists already")]
    ExportExists,
    /// A perf.data file is invalid or truncated.
    #[error("not a whole perf.data: {0}")]
    PerfData(BadPerfData),
    /// A recording of perf consists of several files (`perf record --threads`), which are not read.
    #[error("perf recorded into several files")]
    PerfDirectory,
    /// A perf.data file contains no Intel PT.
    #[error("has no Intel PT")]
    NoIntelPt,
    /// The trace includes the kernel.
    #[error("traces the kernel, too")]
    TracesKernel,
    /// The traces are of CPUs, and their threads cannot be determined, for the named reason.
    #[error("has traces of CPUs, but {0}, so their threads cannot be separated")]
    NoSwitches(&'static str),
    /// Two AUX areas of a perf.data file contain the same bytes of a trace.
    #[error("the AUX area at offset {offset:#x} begins before the end of the one before it")]
    Overlapping {
        /// The file offset of the later area's record.
        offset: u64,
    },
    /// A perf.data file has several processes, listed here, and none of them was chosen.
    #[error("has several processes: {0}")]
    WhichProcess(String),
    /// The perf.data file does not have the chosen process, only those listed.
    #[error("has no process {0}, but these: {1}")]
    NoSuchProcess(Pid, String),
    /// The core file is of another process.
    #[error("the core is of process {of_core}, not of process {process}")]
    OtherCore {
        /// The process of the core file.
        of_core: Pid,
        /// The imported process.
        process: Pid,
    },
    /// The contents of a file differ from the memory in the core file.
    #[error("differs from the file that ran: the core has other bytes at {addr}")]
    OtherBytes {
        /// The address of the first byte that differs.
        addr: crate::common::Addr,
    },
    /// The build ID of a file differs from that of the file that ran.
    #[error("its build id is not that of the file that ran")]
    OtherBinary,
    /// The core file is invalid.
    #[error("{0}")]
    Core(crate::image::Error),
    /// The build ID of a module differs from that of the module that ran.
    #[error("its build id is not that of the module that ran")]
    OtherModule,
    /// A stored image is missing.
    #[error("a stored image is missing; its code shows as a gap")]
    ImageMissing,
    /// The file is not a packed recording.
    #[error("not a packed recording")]
    NotPacked,
    /// A packed recording has the form of another version.
    #[error("a packed recording of version {found}, but this contraflow reads version {expected}")]
    PackVersion {
        /// The version of the packed recording.
        found: u32,
        /// The version that this program reads.
        expected: u32,
    },
    /// A packed recording contains a file that no recording has, or one file twice.
    #[error("not a packed recording: no recording has a file {0:?} there")]
    PackName(String),
    /// A packed recording ends too early.
    #[error("cut short: the rest of the packed recording is missing")]
    PackCut,
    /// The bytes of a packed recording are not those that were written.
    #[error("damaged: its bytes are not those of a packed recording")]
    PackDamaged,
    /// A file became shorter while it was packed.
    #[error("became shorter while it was packed")]
    Shrunk,
    /// The path of a recording is that of a file, not of a directory.
    #[error("a file, not a recording's directory")]
    IsFile,
    /// The contents of a stored image differ from what was stored.
    #[error("a stored image is damaged; its code shows as a gap")]
    ImageDamaged,
}

impl Error {
    pub(super) fn new(path: &Path, kind: impl Into<ErrorKind>) -> Self {
        Self { path: path.to_owned(), kind: kind.into() }
    }
}

/// An extension of I/O results that adds the path to an error.
pub(super) trait At<T> {
    /// Adds `path` to the error, if this is one.
    fn at(self, path: &Path) -> Result<T, Error>;
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, path: &Path) -> Result<T, Error> {
        self.map_err(|error| Error::new(path, error))
    }
}
