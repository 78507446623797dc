//! Why a program could not be recorded.

use crate::common::{Addr, Pid, Tid};
use crate::translate::TranslateError;
use crate::{engine, image, recording, tracee};
use nix::errno::Errno;
use std::path::PathBuf;

/// A fault of capture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program cannot be recorded.
    #[error(transparent)]
    Program(#[from] tracee::ProgramError),
    /// Tracing failed.
    #[error(transparent)]
    Tracee(#[from] tracee::Error),
    /// The recording could not be begun.
    #[error("{0}; the program was not run")]
    Destination(recording::Error),
    /// The recording could not be written. The program was let go and ran on untraced.
    #[error("{0}; the program went on unrecorded, and the recording is cut")]
    Recording(#[from] recording::Error),
    /// The program's code could not be translated.
    #[error("{0}; the program went on unrecorded, and the recording is cut")]
    Translate(TranslateError),
    /// The CPU cannot trace, or not so.
    #[error(transparent)]
    Perf(#[from] super::perf::Error),
    /// There is no room for what recorder and program share.
    #[error(
        "the program's address space has no room for the recorder ({call}: ENOMEM): is it limited \
         (ulimit -v)? The program went on unrecorded"
    )]
    AddressSpace {
        /// The system call that failed.
        call: &'static str,
    },
    /// A thread stands where its state is not known: a fault of the recorder.
    #[error("thread {tid} stands at {at} of the code cache, where the program's state is unknown")]
    Inexact {
        /// The thread.
        tid: Tid,
        /// The address in the cache.
        at: Addr,
    },
    /// The code that is to be traced is more than a PT unit can be told.
    #[error(
        "the filters mean {count} ranges of code, and a PT unit has 4; FUNC@FILE says which \
         function of that name; the program went on unrecorded"
    )]
    TooManyRanges {
        /// How many there are.
        count: usize,
    },
    /// The backend records what it launches, all of it.
    #[error(
        "the {backend} backend records programs from their first instruction on; the soft and perf ones \
         can begin later"
    )]
    FromStartOnly {
        /// Its name.
        backend: &'static str,
    },
    /// The backend records all threads of a process.
    #[error(
        "the {backend} backend records whole processes (-p); the perf one can record one thread alone"
    )]
    WholeProcessOnly {
        /// Its name.
        backend: &'static str,
    },
    /// A thread that is gone, or at its end.
    #[error("thread {tid} has come to its end, and its registers cannot be changed")]
    NotStanding {
        /// The thread.
        tid: Tid,
    },
    /// A child that shares its parent's memory.
    #[error("process {pid} shares its parent's memory: it is recorded where it executes a program")]
    NotRecordedYet {
        /// The child.
        pid: Pid,
    },
    /// The program has no memory there.
    #[error("the program has no memory at {at} that can be changed")]
    NoMemory {
        /// Where.
        at: Addr,
    },
    /// Code that the program itself cannot change.
    #[error("the code at {at} is recorded as it is in its file, and cannot be changed")]
    FixedCode {
        /// Where.
        at: Addr,
    },
    /// The program never executed the function where its recording was to begin.
    #[error("the program ended without coming to {name}: nothing is recorded")]
    NotReached {
        /// The function.
        name: String,
    },
    /// Nobody writes the recording, or not any more.
    #[error("{} is not being recorded (any more): all that there is of it is on the disk", dir.display())]
    NotRecorded {
        /// The recording.
        dir: PathBuf,
    },
    /// The recorder keeps no ring.
    #[error(
        "the recorder of {} keeps all of the history, which is on the disk a moment after it \
         happened: there is no ring to write",
        dir.display()
    )]
    KeepsAll {
        /// The recording.
        dir: PathBuf,
    },
    /// The recorder is none of this machine's, or none that can be seen.
    #[error("the recorder of {} is out of reach: in another container?", dir.display())]
    OutOfReach {
        /// The recording.
        dir: PathBuf,
    },
    /// The recorder may not be asked.
    #[error("the recorder, process {pid}, cannot be asked ({errno})")]
    AskRefused {
        /// The recorder.
        pid: Pid,
        /// Why.
        errno: Errno,
    },
    /// The recorder has not answered.
    #[error(
        "the recorder, process {pid}, has not written a snapshot for {seconds} s; it may do so yet \
         (--timeout waits longer)"
    )]
    NoSnapshot {
        /// The recorder.
        pid: Pid,
        /// How long it was waited for.
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
    /// Whether it came of a thread's end.
    pub(super) fn is_of_end(&self) -> bool {
        match self {
            Self::Tracee(tracee::Error::Disturbed { stop, .. }) => stop.is_end(),
            Self::Tracee(error) => error.is_gone(),
            _ => false,
        }
    }
}

/// A thread that somebody killed meanwhile is no fault: its end will be reported.
pub(super) fn gone_is_fine(result: Result<(), tracee::Error>) -> Result<(), Error> {
    match result {
        Err(error) if error.is_gone() => Ok(()),
        result => Ok(result?),
    }
}
