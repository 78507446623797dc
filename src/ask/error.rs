//! Why a question has no answer.

use crate::common::{Addr, Tid};
use crate::{recording, replay, timeline, values};
use std::path::PathBuf;

/// An error of a question.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such code.
    #[error(
        "no code of {0:?}: give FUNCTION, FILE:LINE or an address such as 0x401136; lines need \
         debug information (compile with -g)"
    )]
    NoCode(String),
    /// There are no values.
    #[error("this recording is of the path, which has no values")]
    NoValues,
    /// The compiler did not keep a value there.
    #[error("the value is optimized out or unavailable there, in {place}: give another position")]
    NotThere {
        /// The function and line.
        place: String,
    },
    /// A value is in no single place.
    #[error(
        "the value is in no single place of memory, and in no register: ask for what it is made of"
    )]
    NoPlace,
    /// A variable of an outer frame is in a register.
    #[error(
        "the value is in a register of frame {0}, which an inner function may have saved: give a \
         position in that function"
    )]
    OfOuterFrame(usize),
    /// There is no such memory.
    #[error("there is no memory at {0}")]
    NoMemory(Addr),
    /// A value is too large.
    #[error("values of up to {0} bytes are followed")]
    TooLarge(u64),
    /// A position is after the end.
    #[error("the position is after the end of the run, which is in moment {0}")]
    AfterEnd(u64),
    /// There is no such thread at a position.
    #[error("there is no thread {0} there")]
    NoThread(Tid),
    /// There is no such frame.
    #[error("there is no frame {0}")]
    NoFrame(usize),
    /// A text is no position.
    #[error("{0:?} is no position: give a number such as 1234, or 1234.5 in an exact recording")]
    NoPosition(String),
    /// An expression has no meaning.
    #[error(transparent)]
    Value(#[from] values::Error),
    /// The replay ended before the run did.
    #[error(transparent)]
    Replay(#[from] replay::Error),
    /// The path cannot be read.
    #[error(transparent)]
    Timeline(#[from] timeline::Error),
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] recording::Error),
    /// A file of a dataset cannot be written, or not be removed.
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
