//! Errors of a replay.

use super::position::Position;
use crate::common::{Addr, AddrRange, Tid};
use crate::{engine, recording, tracee};

/// An error of a replay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recording has no log.
    #[error("the recording has no log: only exact recordings can be replayed")]
    NoLog,
    /// The recorder was killed before it wrote the log's first entries.
    #[error("the log is empty: the recorder was killed as the program began; record again")]
    EmptyLog,
    /// The recording could not be read.
    #[error(transparent)]
    Recording(#[from] recording::Error),
    /// The process of the replay could not be controlled.
    #[error("the replay's process: {0}")]
    Tracee(#[from] tracee::Error),
    /// The program's code could not be run.
    #[error("the replay's process: {0}")]
    Engine(#[from] engine::Error),
    /// The log ends in the middle of something, or makes no sense.
    #[error("the log makes no sense at entry {entry}: {what}")]
    BadLog {
        /// The number of the log entry.
        entry: u64,
        /// A description of the fault.
        what: &'static str,
    },
    /// The log writes to, or maps, memory that the replay itself has.
    #[error("the log changes the memory at {range}, which the program cannot have had")]
    NotOfProgram {
        /// The range of that memory.
        range: AddrRange,
    },
    /// The run was not the recorded one.
    #[error(
        "the replay differs from the recording at {position}, in thread {tid} at {ip}: {what}; what \
         comes before is exact"
    )]
    Diverged {
        /// The position where the difference was found.
        position: Position,
        /// The thread that the log says executes there.
        tid: Tid,
        /// The thread's instruction pointer.
        ip: Addr,
        /// A description of the difference.
        what: String,
    },
    /// The caller interrupted the writing of the path.
    #[error("interrupted")]
    Interrupted,
    /// Somebody killed the process of the replay, or it did something unexpected.
    #[error("the replay's process was killed")]
    Killed,
}
