//! Why hardware cannot trace here, or not in the way that was asked for.

use crate::common::Tid;
use nix::errno::Errno;
use std::path::PathBuf;

/// A fault of the hardware backend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The CPU cannot.
    #[error(
        "this CPU has no Intel PT (bit 25 of EBX in CPUID leaf 7 is 0); --backend soft needs none"
    )]
    NoIntelPt,
    /// The kernel does not offer it.
    #[error(
        "the CPU has Intel PT, but the kernel offers no PMU for it ({path} is missing): a \
         hypervisor or the firmware hides it, or the kernel is built without it"
    )]
    NoPmu {
        /// What is not there.
        path: PathBuf,
    },
    /// What the kernel says of the PMU does not read.
    #[error("{path}: {why}")]
    Sysfs {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A term of the PT configuration.
    #[error("--pt-config: {0}")]
    Config(String),
    /// The CPU has fewer filter ranges.
    #[error("the filters mean {count} ranges of code, and this CPU has {ranges}")]
    TooManyRanges {
        /// How many were asked for.
        count: usize,
        /// How many there are.
        ranges: usize,
    },
    /// Code that the kernel cannot filter by.
    #[error("{range}: {why}")]
    Filter {
        /// The code.
        range: String,
        /// Why not.
        why: &'static str,
    },
    /// An event was refused.
    #[error("thread {tid} cannot be traced ({what}: {errno}){}", hint(*errno))]
    Open {
        /// The thread.
        tid: Tid,
        /// The system call and what it was for.
        what: &'static str,
        /// Why.
        errno: Errno,
    },
}

/// What helps.
fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::EACCES => {
            ": /proc/sys/kernel/perf_event_paranoid must be 2 or less, or the recorder needs \
             CAP_PERFMON"
        }
        Errno::EPERM => {
            ": the buffer is larger than RLIMIT_MEMLOCK and \
             /proc/sys/kernel/perf_event_mlock_kb allow (--ring makes it smaller), or the \
             recorder may not trace the program"
        }
        Errno::EBUSY => ": somebody else uses Intel PT on this CPU",
        Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP => ": the PMU does not do that",
        Errno::EINVAL => ": the kernel does not take this configuration",
        _ => "",
    }
}
