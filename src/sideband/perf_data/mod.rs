//! perf.data, the file of Linux perf: its reader, from memory, and its twin that writes one.
//! Layouts are those of the kernel's `include/uapi/linux/perf_event.h` and of perf's
//! `tools/perf/Documentation/perf.data-file-format.txt`.
//!
//! Read is what concerns control flow: the events' attributes, what happened to processes and
//! mappings, context switches, losses, the AUX areas' places in the file and how they were taken.
//! Samples and all else are passed over. Opens no file and believes nothing: what does not read is
//! refused with its offset, and nothing grows far beyond the file.

mod attr;
mod aux;
mod compressed;
mod fields;
mod file;
mod header;
mod numbers;
mod record;
mod write;

pub use attr::{Attr, SampleId};
pub use aux::{AuxInfo, AuxTrace, PerfClock};
pub use fields::BadPerfData;
pub use file::PerfData;
pub use header::BuildId;
pub use record::{PerfEvent, PerfMap, PerfRecord, PerfRecords};
pub use write::PerfWriter;

/// Whether a file begins as perf's do, of whichever byte order.
#[must_use]
pub fn is_perf_data(bytes: &[u8]) -> bool {
    bytes.starts_with(numbers::MAGIC) || bytes.starts_with(numbers::SWAPPED_MAGIC)
}

#[cfg(test)]
mod tests;
