//! The errors of the hardware backend.

use crate::common::Tid;
use nix::errno::Errno;
use std::path::PathBuf;

/// An error of tracing with hardware.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The CPU has no PT unit.
    #[error("this CPU has no Intel PT (bit 25 of EBX in CPUID leaf 7 is 0)")]
    NoIntelPt,
    /// The kernel does not offer the PT unit.
    #[error(
        "the CPU has Intel PT, but the kernel offers no PMU for it ({path} is missing): a \
         hypervisor or the firmware hides it, or the kernel is built without it"
    )]
    NoPmu {
        /// The missing path.
        path: PathBuf,
    },
    /// The kernel's description of the PMU cannot be read.
    #[error("{path}: {why}")]
    Sysfs {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A term of the PT configuration is invalid.
    #[error("the PT configuration: {0}")]
    Config(String),
    /// The filters need more ranges than the CPU has.
    #[error("the filters mean {count} ranges of code, and this CPU has {ranges}")]
    TooManyRanges {
        /// The number of ranges needed.
        count: usize,
        /// The number of ranges of the CPU.
        ranges: usize,
    },
    /// The kernel cannot filter by this code.
    #[error("{range}: {why}")]
    Filter {
        /// The code.
        range: String,
        /// The reason.
        why: &'static str,
    },
    /// The kernel refused an event.
    #[error("thread {tid} cannot be traced ({what}: {errno}){}", hint(*errno))]
    Open {
        /// The thread.
        tid: Tid,
        /// The system call and its purpose.
        what: &'static str,
        /// The kernel's reason.
        errno: Errno,
    },
}

/// Returns a likely cause, as a clause.
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
