//! The numbers of perf.data, under perf's names: types of records, sections and flags.

pub(super) const MAGIC: &[u8; 8] = b"PERFILE2";
/// The magic number of a machine with the other byte order.
pub(super) const SWAPPED_MAGIC: &[u8; 8] = b"2ELIFREP";

/// `struct perf_file_header` and `struct perf_pipe_file_header`.
pub(super) const FILE_HEADER_BYTES: u64 = 104;
pub(super) const PIPE_HEADER_BYTES: u64 = 16;
/// `struct perf_event_header`: type, misc, size.
pub(super) const RECORD_HEADER_BYTES: usize = 8;

pub(super) const RECORD_MMAP: u32 = 1;
pub(super) const RECORD_LOST: u32 = 2;
pub(super) const RECORD_COMM: u32 = 3;
pub(super) const RECORD_EXIT: u32 = 4;
pub(super) const RECORD_FORK: u32 = 7;
pub(super) const RECORD_MMAP2: u32 = 10;
pub(super) const RECORD_AUX: u32 = 11;
pub(super) const RECORD_ITRACE_START: u32 = 12;
pub(super) const RECORD_LOST_SAMPLES: u32 = 13;
pub(super) const RECORD_SWITCH: u32 = 14;
pub(super) const RECORD_SWITCH_CPU_WIDE: u32 = 15;

pub(super) const RECORD_HEADER_ATTR: u32 = 64;
pub(super) const RECORD_HEADER_TRACING_DATA: u32 = 66;
pub(super) const RECORD_HEADER_BUILD_ID: u32 = 67;
pub(super) const RECORD_FINISHED_ROUND: u32 = 68;
pub(super) const RECORD_AUXTRACE_INFO: u32 = 70;
pub(super) const RECORD_AUXTRACE: u32 = 71;
pub(super) const RECORD_HEADER_FEATURE: u32 = 80;
pub(super) const RECORD_COMPRESSED: u32 = 81;
pub(super) const RECORD_COMPRESSED2: u32 = 83;

pub(super) const MISC_USER: u16 = 2;
pub(super) const MISC_MMAP_DATA: u16 = 1 << 13;
pub(super) const MISC_COMM_EXEC: u16 = 1 << 13;
pub(super) const MISC_SWITCH_OUT: u16 = 1 << 13;
pub(super) const MISC_MMAP_BUILD_ID: u16 = 1 << 14;
pub(super) const MISC_BUILD_ID_SIZE: u16 = 1 << 15;

pub(super) const FEATURE_BUILD_ID: u32 = 2;
pub(super) const FEATURE_ARCH: u32 = 6;
pub(super) const FEATURE_CPUID: u32 = 9;
pub(super) const FEATURE_EVENT_DESC: u32 = 12;
pub(super) const FEATURE_AUXTRACE: u32 = 18;
pub(super) const FEATURES: u32 = 256;

pub(super) const SAMPLE_IP: u64 = 1;
pub(super) const SAMPLE_TID: u64 = 1 << 1;
pub(super) const SAMPLE_TIME: u64 = 1 << 2;
pub(super) const SAMPLE_ID: u64 = 1 << 6;
pub(super) const SAMPLE_CPU: u64 = 1 << 7;
pub(super) const SAMPLE_STREAM_ID: u64 = 1 << 9;
pub(super) const SAMPLE_IDENTIFIER: u64 = 1 << 16;

pub(super) const ATTR_EXCLUDE_KERNEL: u64 = 1 << 5;
pub(super) const ATTR_EXCLUDE_HV: u64 = 1 << 6;
pub(super) const ATTR_MMAP: u64 = 1 << 8;
pub(super) const ATTR_COMM: u64 = 1 << 9;
pub(super) const ATTR_TASK: u64 = 1 << 13;
pub(super) const ATTR_SAMPLE_ID_ALL: u64 = 1 << 18;
pub(super) const ATTR_MMAP2: u64 = 1 << 23;
pub(super) const ATTR_COMM_EXEC: u64 = 1 << 24;
pub(super) const ATTR_CONTEXT_SWITCH: u64 = 1 << 26;

/// `AUXTRACE_INFO`'s type for Intel PT.
pub(super) const AUXTRACE_INTEL_PT: u32 = 1;
