//! What can go wrong with a recording on disk.

use super::import::BadBundle;
use crate::common::{Pid, Tid};
use crate::sideband::BadSwitches;
use crate::sideband::perf_data::BadPerfData;
use std::path::{Path, PathBuf};

/// A fault with the file that has it.
#[derive(Debug, thiserror::Error)]
#[error("{}: {kind}", path.display())]
pub struct Error {
    /// The file or directory.
    pub path: PathBuf,
    /// The fault.
    #[source]
    pub kind: ErrorKind,
}

/// The fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The system refused.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// There is no recording there.
    #[error("no such recording; `contraflow list` shows what there is")]
    Missing,
    /// There is something, but it is no recording.
    #[error("not a recording: it has neither manifest.json nor starting.json")]
    NotARecording,
    /// Nobody knows where recordings go.
    #[error(
        "there is no home directory to keep recordings in; name a directory with -o, or set \
         CONTRAFLOW_HOME"
    )]
    Homeless,
    /// Nothing has been recorded yet.
    #[error("no recordings yet; make one with `contraflow record PROGRAM`")]
    Empty,
    /// A recording would be written over another one.
    #[error("holds a recording already; --force replaces it")]
    Exists,
    /// A recording would be written among foreign files.
    #[error("not empty, and not a recording; give a new or an empty directory")]
    Occupied,
    /// The manifest does not read.
    #[error("the manifest does not read: {0}")]
    Manifest(serde_json::Error),
    /// The recording was made by a version with another format.
    #[error(
        "recording format {found}, but this contraflow reads format {expected}; record again, or \
         use the contraflow that made it"
    )]
    Version {
        /// The recording's format.
        found: u32,
        /// The format that this program reads.
        expected: u32,
    },
    /// A file's bytes differ from what was written.
    #[error("damaged: the checksum of the chunk at {offset:#x} does not match")]
    Checksum {
        /// Where the chunk starts in the file.
        offset: u64,
    },
    /// A file is shorter than the manifest says.
    #[error("truncated: {found} bytes of {expected}")]
    Truncated {
        /// Bytes there.
        found: u64,
        /// Bytes that should be there.
        expected: u64,
    },
    /// A file's bytes as a whole differ from what was written.
    #[error("damaged: its size or checksum is not the one that was written")]
    Damaged,
    /// A file of a complete recording is not there.
    #[error("gone, so the recording is damaged")]
    Gone,
    /// A file that no recorder wrote, or that the list of its recording has lost.
    #[error("the recording does not list it, so one of the two is damaged")]
    Unlisted,
    /// A record of the sideband does not read.
    #[error("damaged: a sideband record in the chunk at {offset:#x} does not read")]
    Record {
        /// Where the chunk starts in the file.
        offset: u64,
    },
    /// A file larger than any of its kind.
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// The largest size that is read.
        limit: u64,
    },
    /// The description of an LLDB trace bundle is not as LLDB writes it.
    #[error("{0}")]
    Bundle(BadBundle),
    /// A trace that a bundle names is not part of it.
    #[error("outside of the bundle's directory")]
    OutsideBundle,
    /// A bundle has no bytes of trace.
    #[error("all of its traces are empty")]
    NoTrace,
    /// Context switches of a bundle do not read.
    #[error("{0}")]
    Switches(BadSwitches),
    /// A CPU ran a thread of the process of which the bundle does not tell.
    #[error("thread {0} is in the context switches, but not among the threads")]
    ThreadNotListed(Tid),
    /// A module of a bundle does not load.
    #[error("the module {} {error}", path.display())]
    Module {
        /// The module.
        path: PathBuf,
        /// The fault.
        error: crate::image::Error,
    },
    /// An export would be written over something.
    #[error("is there already; --force replaces an export")]
    InTheWay,
    /// A file of perf's does not read.
    #[error("not a whole perf.data: {0}")]
    PerfData(BadPerfData),
    /// A recording of perf's is of several files.
    #[error("perf recorded into several files; record without --threads")]
    PerfDirectory,
    /// There is no Intel PT in a file of perf's.
    #[error("holds no Intel PT; take it with `perf record -e intel_pt//u`")]
    NoIntelPt,
    /// The trace is of the kernel, too.
    #[error("traces the kernel, too; take it with `perf record -e intel_pt//u`")]
    OfKernel,
    /// The traces are of CPUs, and nothing tells whom they ran.
    #[error(
        "has traces of CPUs, and {0}, so nobody can tell which thread executed what; take it with \
         `perf record --per-thread`, or with a newer perf"
    )]
    NoSwitches(&'static str),
    /// Pieces of a trace lie over each other.
    #[error("the AUX area at offset {offset:#x} begins before the end of the one before it")]
    Overlapping {
        /// Where the later one's record is in the file.
        offset: u64,
    },
    /// There are several processes.
    #[error("is of several processes; choose one with --pid: {0}")]
    WhichProcess(String),
    /// There is no such process.
    #[error("does not tell of process {0}; it tells of: {1}")]
    NoSuchProcess(Pid, String),
    /// A core is of another process.
    #[error("process {process} is wanted, but the core is of process {of_core}")]
    OtherCore {
        /// The core's.
        of_core: Pid,
        /// The one that is imported.
        process: Pid,
    },
    /// A file is not what was in memory.
    #[error(
        "is another file than the one that ran: the core holds other bytes at {addr}; \
         --any-binary takes it all the same"
    )]
    OtherBytes {
        /// The first byte that differs.
        addr: crate::common::Addr,
    },
    /// A file's build id is another.
    #[error(
        "its build id is not that of the file that ran; --symfs names a directory with the right \
         one, and --any-binary takes this one all the same"
    )]
    OtherBinary,
    /// A core does not read.
    #[error("{0}")]
    Core(crate::image::Error),
    /// A module is another than the one that ran.
    #[error("its build id is not that of the module that ran")]
    OtherModule,
    /// A stored image is gone.
    #[error("a stored image is gone; the code that it held shows as a gap")]
    ImageMissing,
    /// A stored image holds other bytes than were stored.
    #[error("a stored image is damaged; the code that it held shows as a gap")]
    ImageDamaged,
}

impl Error {
    pub(super) fn new(path: &Path, kind: impl Into<ErrorKind>) -> Self {
        Self { path: path.to_owned(), kind: kind.into() }
    }
}

/// Adds the path to an I/O result.
pub(super) trait At<T> {
    fn at(self, path: &Path) -> Result<T, Error>;
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, path: &Path) -> Result<T, Error> {
        self.map_err(|error| Error::new(path, error))
    }
}
