//! Names and numbers of the format. Increment the version after a change of the layout.

use crate::common::Tid;
use std::fmt;

/// The format version in every new manifest.
pub const FORMAT_VERSION: u32 = 5;
/// The first version whose exact recordings have no entries for XSAVEC without x87: its result
/// follows from the program's state.
pub const COMPLETED_SAVES_VERSION: u32 = 4;
/// The oldest format version that readers know. It has no logs.
pub(super) const OLDEST_VERSION: u32 = 2;

/// The manifest of a complete recording.
pub(super) const MANIFEST: &str = "manifest.json";
/// The manifest with the values known at the start. It is the only one during the run, and remains
/// so if the recorder is killed.
pub(super) const STARTING: &str = "starting.json";
/// A file that the recording process locks while it writes; removed at the end.
pub const RECORDER: &str = "recorder";
/// The sizes and checksums of a complete recording's files.
pub(super) const CHECKSUMS: &str = "checksums";
/// The events of the operating system.
pub(super) const SIDEBAND: &str = "sideband.bin";
/// The log of an exact recording; if the log has several parts, the first one.
pub(super) const LOG: &str = "log.bin";
/// The places of an exact recording that its path passes ([`PathPlace`](super::PathPlace)); only in
/// the recording of a path that a replay made.
pub(super) const PLACES: &str = "places.bin";
/// The final state as an ELF core file.
pub(super) const CORE: &str = "core";
/// The index of the decoded traces; optional, and never trusted.
pub(super) const INDEX: &str = "index.bin";
/// The directory of raw PT bytes.
pub(super) const TRACE_DIR: &str = "trace";
/// The directory with the path of an exact recording, itself a recording, once a replay has made
/// it.
pub(super) const PATH_DIR: &str = "path";
/// The directory of an exact recording's keyframes. Their names are the numbers of log entries
/// before them.
pub(super) const KEYFRAME_DIR: &str = "keyframes";
/// The directory of mapped files, named by content.
pub(super) const IMAGE_DIR: &str = "images";
/// The directory of separate debug files, by build ID; packed recordings only.
pub const DEBUG_DIR: &str = "debug";
/// The directory of source files, by their paths; packed recordings only.
pub const SOURCE_DIR: &str = "sources";
/// The file in [`SOURCE_DIR`] with the list of the source directories that debug information names.
pub const SOURCE_LIST: &str = ".directories";

/// The number of buffered bytes at which a chunk of trace is written.
pub(super) const TRACE_CHUNK_BYTES: usize = 64 << 10;
/// The number of buffered bytes at which a chunk of sideband is written.
pub(super) const SIDEBAND_CHUNK_BYTES: usize = 64 << 10;
/// The maximum size of a chunk that readers accept, in bytes.
pub(super) const CHUNK_LIMIT_BYTES: usize = 64 << 20;
/// The maximum number of log entries of a run.
const LOG_ENTRIES_LIMIT: u64 = 1 << 62;
/// The maximum size of a manifest or list of checksums that readers accept, in bytes.
pub(super) const TEXT_LIMIT_BYTES: u64 = 64 << 20;

/// The ID of a trace: the thread or the CPU whose PT bytes it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TraceId {
    /// A thread.
    Thread(Tid),
    /// A CPU, with the bytes of all threads that it ran.
    Cpu(u32),
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(tid) => tid.fmt(f),
            Self::Cpu(cpu) => write!(f, "cpu{cpu}"),
        }
    }
}

/// Returns the file name of the part of a log that begins after `first` entries of the run.
pub(super) fn log_name(first: u64) -> String {
    if first == 0 { LOG.to_owned() } else { format!("log-{first}.bin") }
}

/// Returns the number of entries of the run before the part of a log with this file name; `None`
/// for other files.
pub(super) fn first_entry_in_name(name: &str) -> Option<u64> {
    let number = name.strip_prefix("log-").and_then(|rest| rest.strip_suffix(".bin"));
    let first = number.map_or(0, |number| number.parse().unwrap_or(0));
    (first <= LOG_ENTRIES_LIMIT && log_name(first) == name).then_some(first)
}

/// Returns the name of the file with a trace's raw PT bytes.
pub(super) fn trace_name(trace: TraceId) -> String {
    format!("{trace}.pt")
}

/// Returns the name of the file with the checksums of a trace.
pub(super) fn sums_name(trace: TraceId) -> String {
    format!("{trace}.sum")
}
