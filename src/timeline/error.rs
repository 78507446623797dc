//! Why a recording does not become a timeline. What is wrong *in* a trace is a gap and no error.

use crate::recording;

/// A fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recording does not open.
    #[error(transparent)]
    Recording(#[from] recording::Error),
}
