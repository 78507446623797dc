//! Why a program could not be recorded.

use crate::{image, recording, tracee};

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
    /// The final state could not be written.
    #[error("the final state could not be written: {0}")]
    FinalState(#[from] image::Error),
}
