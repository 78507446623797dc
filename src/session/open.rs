//! Opens a recording from its directory: its path, and its *final state*, the registers and memory
//! at the end of the run.

use super::recording::Recording;
use crate::image::Bytes;
use crate::recording::{self, BackendName, Reader};
use crate::state::FinalState;
use crate::timeline::{self, Options, Timeline};
use crate::{image, replay};
use std::path::{Path, PathBuf};

/// The reason why a recording cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The files of the recording cannot be read.
    #[error(transparent)]
    Recording(#[from] recording::Error),
    /// The path of the recording cannot be indexed.
    #[error(transparent)]
    Timeline(#[from] timeline::Error),
    /// The recording is exact, and the replay that makes its path failed.
    #[error(transparent)]
    Replay(#[from] replay::Error),
    /// The core file is damaged.
    #[error("{}: {error}", path.display())]
    FinalState {
        /// The path of the core file.
        path: PathBuf,
        /// The fault.
        #[source]
        error: image::Error,
    },
}

impl Recording {
    /// Opens the path and the final state of the recording in a directory. The path of an exact
    /// recording is made by a replay, once, and kept in the directory: that may take as long as the
    /// run. The final state of an exact recording is that of its kept path.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        let mut reader = Reader::open(dir)?;
        if reader.manifest().capture.backend == BackendName::Exact {
            reader = replay::path_of(&reader, &mut |_, _| true)?;
        }
        let state = final_state(&reader)?;
        Ok(Self::new(Timeline::open(reader, Options::default())?, state))
    }
}

/// Returns the final state of a recording, from its core file; empty if it has none, because its
/// recorder was killed or is still running.
pub fn final_state(reader: &Reader) -> Result<FinalState, OpenError> {
    let Some(core) = reader.core()? else { return Ok(FinalState::default()) };
    FinalState::of_core(&Bytes::new(core)).map_err(|error| {
        let path = reader.dir().join("core");
        OpenError::FinalState { path, error }
    })
}
