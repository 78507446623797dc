//! The errors of the hardware backend.

use crate::common::Tid;
use nix::errno::Errno;
use std::path::PathBuf;

/// An error of recording with the CPU's PT unit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The CPU has no PT unit.
    #[error("this CPU has no Intel PT (bit 25 of EBX in CPUID leaf 7 is 0)")]
    NoIntelPt,
    /// The kernel has no PMU for the CPU's PT unit.
    #[error(
        "the CPU has Intel PT, but the kernel offers no PMU for it ({path} is missing): a \
         hypervisor or the firmware hides it, or the kernel is built without it"
    )]
    NoPmu {
        /// The directory of the PMU, which is missing.
        path: PathBuf,
    },
    /// The kernel's description of the PMU cannot be read.
    #[error("{path}: {why}")]
    Sysfs {
        /// The file in sysfs.
        path: PathBuf,
        /// The reason why it cannot be read.
        why: String,
    },
    /// A term of the PT configuration is invalid, for this reason.
    #[error("the PT configuration: {0}")]
    Config(String),
    /// The filters need more ranges of code than the CPU has.
    #[error("the filters mean {count} ranges of code, and this CPU has {ranges}")]
    TooManyRanges {
        /// The number of ranges that the filters need.
        count: usize,
        /// The number of ranges that the CPU has.
        ranges: usize,
    },
    /// The kernel cannot filter by a range of code.
    #[error("{range}: {why}")]
    Filter {
        /// The range of addresses.
        range: String,
        /// The reason why the kernel cannot.
        why: &'static str,
    },
    /// The kernel refused to open or configure a perf event.
    #[error("thread {tid} cannot be traced ({what}: {errno}){}", hint(*errno))]
    Open {
        /// The thread to trace.
        tid: Tid,
        /// The system call that failed, and its purpose.
        what: &'static str,
        /// The kernel's reason for the refusal.
        errno: Errno,
    },
}

/// Returns the likely cause of an error as the end of a message, with `: ` before it; an empty text
/// if unknown.
fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::EACCES => {
            ": /proc/sys/kernel/perf_event_paranoid must be 2 or less, or the recorder needs \
             CAP_PERFMON"
        }
        Errno::EPERM => {
            ": the buffer is larger than RLIMIT_MEMLOCK and \
             /proc/sys/kernel/perf_event_mlock_kb allow, or the recorder may not trace the \
             program"
        }
        Errno::EBUSY => ": another program uses Intel PT on this CPU",
        Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP => ": the PMU does not do that",
        Errno::EINVAL => ": the kernel rejects this configuration",
        _ => "",
    }
}
