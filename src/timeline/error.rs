//! Errors of opening a recording as a timeline. A fault *in* a trace is a gap and not an error.

use crate::recording;

/// An error of opening a timeline.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recording cannot be opened.
    #[error(transparent)]
    Recording(#[from] recording::Error),
}
