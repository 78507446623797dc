//! Why a question has no answer.

use crate::common::{Addr, Tid};
use crate::{recording, replay, timeline, values};
use std::path::PathBuf;

/// An error of a question.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No code has this function name, line or address.
    #[error(
        "no code of {0:?}: give FUNCTION, FILE:LINE or an address such as 0x401136; lines need \
         debug information (compile with -g)"
    )]
    NoCode(String),
    /// The question needs values, and the recording is of the path only.
    #[error("this recording is of the path, which has no values")]
    NoValues,
    /// The value is optimized out or unavailable at the position.
    #[error("the value is optimized out or unavailable there, in {place}: give another position")]
    NotThere {
        /// The function and line of the position.
        place: String,
    },
    /// The value is neither in one register nor in one range of memory.
    #[error(
        "the value is in no single place of memory, and in no register: ask for what it is made of"
    )]
    NoPlace,
    /// The value is in a register of the outer frame with this number.
    #[error(
        "the value is in a register of frame {0}, which an inner function may have saved: give a \
         position in that function"
    )]
    OfOuterFrame(usize),
    /// The memory at this address cannot be read.
    #[error("there is no memory at {0}")]
    NoMemory(Addr),
    /// The value has more bytes than this maximum.
    #[error("values of up to {0} bytes are followed")]
    TooLarge(u64),
    /// The position is after the end of the run, whose last moment this is.
    #[error("the position is after the end of the run, which is in moment {0}")]
    AfterEnd(u64),
    /// This thread does not exist at the position.
    #[error("there is no thread {0} there")]
    NoThread(Tid),
    /// The call stack has no frame with this number.
    #[error("there is no frame {0}")]
    NoFrame(usize),
    /// This text cannot be parsed as a position.
    #[error("{0:?} is no position: give a number such as 1234, or 1234.5 in an exact recording")]
    NoPosition(String),
    /// An expression cannot be parsed or evaluated.
    #[error(transparent)]
    Value(#[from] values::Error),
    /// The replay failed.
    #[error(transparent)]
    Replay(#[from] replay::Error),
    /// The path cannot be read.
    #[error(transparent)]
    Timeline(#[from] timeline::Error),
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] recording::Error),
    /// A file or directory of a dataset, or a manifest for it, cannot be read, written or removed.
    #[error("{}: {why}", path.display())]
    Dataset {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The answer cannot be written.
    #[error(transparent)]
    Output(#[from] std::io::Error),
}
