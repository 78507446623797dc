//! Why a question has no answer.

use crate::{recording, replay, timeline, values};

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
    /// The answer cannot be written.
    #[error(transparent)]
    Output(#[from] std::io::Error),
}
