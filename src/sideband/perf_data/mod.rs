//! perf.data, the file format of Linux perf: a reader, from memory, and a writer. The layouts are
//! those of the kernel's `include/uapi/linux/perf_event.h` and of perf's
//! `tools/perf/Documentation/perf.data-file-format.txt`.
//!
//! Reads everything about control flow: the attributes of events, records of processes and
//! mappings, context switches, losses, and the AUX areas' settings and positions in the file. Skips
//! samples and all other records. Opens no file and trusts no input: a fault is an error with its
//! offset, and memory use is bounded by a multiple of the file size.

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

/// Returns true if a file starts like perf.data, in either byte order.
#[must_use]
pub fn is_perf_data(bytes: &[u8]) -> bool {
    bytes.starts_with(numbers::MAGIC) || bytes.starts_with(numbers::SWAPPED_MAGIC)
}

#[cfg(test)]
mod tests;
