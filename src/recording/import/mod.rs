//! Importers: a trace that somebody else took with a CPU's PT unit becomes a recording. Decodes
//! none of it: what the threads executed is found by whoever opens the recording.
//!
//! [`open_perf`] reads perf.data. [`Bundle`] reads the description of an LLDB trace bundle from memory, [`open_bundle`] the files
//! that it names; [`Imported`] is written as a recording, wherever it is from.

mod bundle;
mod fields;
mod files;
mod imported;
mod perf;
mod trace_bytes;

pub use bundle::{BadBundle, Bundle, BundleCpu, BundleThread, Module};
pub use files::open_bundle;
pub use imported::{Code, CpuSwitch, Imported, Told, Totals, What};
pub use perf::{Perf, open_perf};
pub use trace_bytes::{Part, TraceBytes};

#[cfg(test)]
mod tests;
