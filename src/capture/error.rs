//! The errors of recording a program.

use super::backend::Backend;
use crate::common::{Addr, Pid, Tid};
use crate::translate::TranslateError;
use crate::{engine, image, recording, tracee};
use nix::errno::Errno;
use std::path::PathBuf;

/// An error of recording a program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program cannot be recorded.
    #[error(transparent)]
    Program(#[from] tracee::ProgramError),
    /// A ptrace(2) request, or another system call of the recorder, failed.
    #[error(transparent)]
    Tracee(#[from] tracee::Error),
    /// The recording could not be created.
    #[error("{0}; the program was not run")]
    Destination(#[source] recording::Error),
    /// The recording could not be written. The program was detached, and runs on untraced.
    #[error("{0}; the program went on unrecorded, and the recording is cut")]
    Recording(#[from] recording::Error),
    /// The program's code could not be translated.
    #[error("{0}; the program went on unrecorded, and the recording is cut")]
    Translate(TranslateError),
    /// The CPU cannot trace, or not as requested.
    #[error(transparent)]
    Perf(#[from] super::perf_error::Error),
    /// The address space has no room for the memory that recorder and program share.
    #[error(
        "the program's address space, which may be limited, has no room for the recorder ({call}: \
         ENOMEM); the program went on unrecorded"
    )]
    AddressSpace {
        /// The system call that failed.
        call: &'static str,
    },
    /// A thread is at an unknown place of the code cache: a bug of the recorder.
    #[error("thread {tid} is at {at} in the code cache, where the program's state is unknown")]
    Inexact {
        /// The thread whose registers are unknown.
        tid: Tid,
        /// The thread's address in the code cache.
        at: Addr,
    },
    /// A single step executed more than one instruction: a bug of a hypervisor.
    #[error("a step of thread {tid} at {at} executed more than one instruction")]
    Overstepped {
        /// The thread that was stepped.
        tid: Tid,
        /// The address of the stepped instruction.
        at: Addr,
    },
    /// The filters need more ranges of code than a PT unit has.
    #[error(
        "the filters mean {count} ranges of code, and a PT unit has 4; FUNC@FILE selects \
         one function of that name; the program went on unrecorded"
    )]
    TooManyRanges {
        /// The number of ranges of the filters.
        count: usize,
    },
    /// The backend can only record a program that it launches, from its first instruction on.
    #[error(
        "the {backend} backend records programs from their first instruction on; the soft and perf ones \
         can begin later"
    )]
    FromStartOnly {
        /// The requested backend.
        backend: Backend,
    },
    /// The backend can only record all threads of a process.
    #[error(
        "the {backend} backend records whole processes (-p); the perf one can record one thread alone"
    )]
    WholeProcessOnly {
        /// The requested backend.
        backend: Backend,
    },
    /// A thread cannot be changed: it is gone, or at its exit stop.
    #[error("thread {tid} has ended, so its registers cannot be changed")]
    ThreadEnded {
        /// The thread that has ended.
        tid: Tid,
    },
    /// A child that shares its parent's memory is not recorded before its execve(2).
    #[error("process {pid} shares its parent's memory: it is recorded where it executes a program")]
    NotRecordedYet {
        /// The child's process.
        pid: Pid,
    },
    /// The program has no writable memory at an address.
    #[error("the program has no memory at {at} that can be changed")]
    NoMemory {
        /// The address to write to.
        at: Addr,
    },
    /// The code to write to is recorded as a file's, since the program itself cannot change it.
    #[error("the code at {at} is recorded as it is in its file, and cannot be changed")]
    FixedCode {
        /// The address to write to.
        at: Addr,
    },
    /// The program never executed the function at which its recording was to start.
    #[error("the program ended without reaching {name}: nothing is recorded")]
    NotReached {
        /// The function, as the request names it.
        name: String,
    },
    /// A snapshot is not possible: no recorder writes the recording, or no longer.
    #[error("{} is not being recorded (any more): all of it is on the disk", dir.display())]
    NotRecorded {
        /// The recording's directory.
        dir: PathBuf,
    },
    /// A snapshot is not needed: the recorder keeps no ring.
    #[error(
        "the recorder of {} keeps all of the history, which is on the disk a moment after it \
         happened: there is no ring to write",
        dir.display()
    )]
    KeepsAll {
        /// The recording's directory.
        dir: PathBuf,
    },
    /// A snapshot is not possible: the recorder runs on another machine, or cannot be seen from
    /// here.
    #[error("the recorder of {} is out of reach: in another container?", dir.display())]
    OutOfReach {
        /// The recording's directory.
        dir: PathBuf,
    },
    /// A snapshot is not possible: this process may not signal the recorder.
    #[error("the recorder, process {pid}, cannot be asked ({errno})")]
    AskRefused {
        /// The recorder's process.
        pid: Pid,
        /// The kernel's reason for the refusal.
        errno: Errno,
    },
    /// The recorder has not written the snapshot within the timeout.
    #[error(
        "the recorder, process {pid}, has not written a snapshot for {seconds} s, and may still do so"
    )]
    NoSnapshot {
        /// The recorder's process.
        pid: Pid,
        /// The timeout in seconds.
        seconds: u64,
    },
    /// The final state could not be written.
    #[error("the final state could not be written: {0}")]
    FinalState(#[from] image::Error),
}

impl From<engine::Error> for Error {
    fn from(error: engine::Error) -> Self {
        match error {
            engine::Error::Tracee(error) => Self::Tracee(error),
            engine::Error::Translate(error) => Self::Translate(error),
            engine::Error::NoRoom { call } => Self::AddressSpace { call },
            engine::Error::Inexact { tid, at } => Self::Inexact { tid, at },
        }
    }
}

impl Error {
    /// Returns true if the error occurred because a thread ended.
    pub(super) fn is_of_end(&self) -> bool {
        match self {
            Self::Tracee(tracee::Error::Disturbed { stop, .. }) => stop.is_end(),
            Self::Tracee(error) => error.is_gone(),
            _ => false,
        }
    }
}

/// Turns the error of a thread that is gone into success, since its end will be reported.
pub(super) fn gone_is_fine(result: Result<(), tracee::Error>) -> Result<(), Error> {
    match result {
        Err(error) if error.is_gone() => Ok(()),
        result => Ok(result?),
    }
}
