//! Imports of traces that other tools recorded with a CPU's PT unit. Nothing is decoded: the
//! executed instructions are found when the recording is opened.
//!
//! [`open_perf`] reads perf.data. [`Bundle`] parses the description of an LLDB trace bundle from
//! memory, and [`open_bundle`] reads its files. [`Imported`] holds the result of either and writes
//! it as a recording.

mod bundle;
mod fields;
mod files;
mod imported;
mod perf;
mod trace_bytes;

pub use bundle::{Bundle, BundleCpu, BundleThread, Module};
pub use fields::BadBundle;
pub use files::open_bundle;
pub use imported::{CpuSwitch, Imported, ImportedEvent, ImportedEventKind, MappedCode, Totals};
pub use perf::{CHILDREN_LEFT_OUT, CODE_NOT_FOUND, PerfOptions, open_perf};
pub use trace_bytes::{TraceBytes, TracePart};

#[cfg(test)]
mod tests;
