//! The system calls before which threads stop in the code cache. All others run without a stop.

use crate::capture::unrecordable::LEAVING_CALLS;
use crate::tracee::call_numbers::{
    ARCH_PRCTL, CLONE, CLONE3, MMAP, MPROTECT, MREMAP, MUNMAP, PKEY_MPROTECT, REMAP_FILE_PAGES,
    RSEQ, RT_SIGACTION, RT_SIGPROCMASK, RT_SIGRETURN, SCHED_GETAFFINITY, SCHED_SETAFFINITY, SHMAT,
    SHMDT,
};

/// The system calls that `calls` handles: threads stop before them.
pub(super) const HANDLED_CALLS: [u64; 17] = [
    MMAP,
    MPROTECT,
    MUNMAP,
    RT_SIGACTION,
    RT_SIGPROCMASK,
    RT_SIGRETURN,
    MREMAP,
    SHMAT,
    CLONE,
    SHMDT,
    ARCH_PRCTL,
    SCHED_SETAFFINITY,
    SCHED_GETAFFINITY,
    REMAP_FILE_PAGES,
    PKEY_MPROTECT,
    RSEQ,
    CLONE3,
];

/// Returns the system calls before which threads of a new process stop: those that `calls` handles,
/// and those after which a process may have to be left.
pub(super) fn stopping_calls() -> impl Iterator<Item = u64> {
    HANDLED_CALLS.into_iter().chain(LEAVING_CALLS)
}
