//! Names and numbers of the format. Changed the layout? Bump the version.

use crate::common::Tid;
use std::fmt;

/// The version in every manifest. Readers refuse others.
pub const FORMAT_VERSION: u32 = 2;

/// The manifest of a recording that is complete.
pub(super) const MANIFEST: &str = "manifest.json";
/// The manifest as it was known at the start; stands alone while the run goes on, and for ever
/// where the recorder was killed.
pub(super) const STARTING: &str = "starting.json";
/// Locked by the process that writes the recording, while it does; removed at the end.
pub const RECORDER: &str = "recorder";
/// Sizes and checksums of a complete recording's files.
pub(super) const CHECKSUMS: &str = "checksums";
/// What the operating system did.
pub(super) const SIDEBAND: &str = "sideband.bin";
/// The final state as an ELF core file.
pub(super) const CORE: &str = "core";
/// The index that walking a recording made; may be missing, and is never trusted.
pub(super) const INDEX: &str = "index.bin";
/// Directory of raw PT bytes.
pub(super) const TRACE_DIR: &str = "trace";
/// Directory of mapped files, by content.
pub(super) const IMAGE_DIR: &str = "images";

/// A chunk of trace is written when this many bytes have come together.
pub(super) const TRACE_CHUNK_BYTES: usize = 64 << 10;
/// A chunk of sideband likewise.
pub(super) const SIDEBAND_CHUNK_BYTES: usize = 64 << 10;
/// No reader takes a chunk larger than this for real.
pub(super) const CHUNK_LIMIT_BYTES: usize = 64 << 20;
/// No manifest and no list of checksums is larger than this.
pub(super) const TEXT_LIMIT_BYTES: u64 = 64 << 20;

/// Whose PT bytes a trace has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TraceId {
    /// A thread's.
    Thread(Tid),
    /// A CPU's: those of all threads that it ran.
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

/// The raw PT bytes of a trace.
pub(super) fn trace_name(trace: TraceId) -> String {
    format!("{trace}.pt")
}

/// The checksums of its bytes.
pub(super) fn sums_name(trace: TraceId) -> String {
    format!("{trace}.sum")
}
