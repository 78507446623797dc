//! Opens a recording for a question about its whole history.

use super::Failure;
use super::found::NamedRecording;
use super::open::{path_recording_of, report_cpu_differences};
use super::remedies::with_remedy;
use crate::ask::{Asked, Recorded};
use crate::dap::OpenAsked;
use crate::recording::{BackendName, Reader};
use crate::replay;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Finds the recording that the user named, or the latest, and opens it for questions. The path of
/// an exact recording is made by a replay on first use, which Ctrl-C ends with an error, and kept
/// in the recording's directory. The first value must outlive the second: it removes an unpacked
/// copy on drop.
pub(super) fn open(recording: Option<&Path>) -> Result<(NamedRecording, Asked), Failure> {
    let found = NamedRecording::find(recording)?;
    let asked = open_found(&found)?;
    Ok((found, asked))
}

/// Opens a found recording for questions, as [`open`] does. Prints a message about CPU features
/// that a replay would lack. `found` must outlive the result.
pub(super) fn open_found(found: &NamedRecording) -> Result<Asked, Failure> {
    let reader = Reader::open(found.dir())?;
    let is_exact = reader.manifest().capture.backend == BackendName::Exact;
    let exact = is_exact.then(|| Reader::open(found.dir())).transpose()?;
    // Where no path is kept, `path_recording_of` reports them.
    if let Some(exact) = &exact
        && exact.kept_path().is_some()
    {
        report_cpu_differences(exact);
    }
    Ok(Asked::open(Recorded { path: path_recording_of(reader)?, exact })?)
}

/// Returns a function that opens the recording in a directory for questions, when another thread
/// calls it; each call opens it again. It prints nothing, and calls its `goes_on` as
/// [`replay::path_of`] does.
pub(super) fn open_later(dir: PathBuf) -> OpenAsked {
    Arc::new(move |goes_on| open_in(&dir, goes_on).map_err(|failure| with_remedy(failure.as_ref())))
}

/// Opens a recording for questions without any output. If `goes_on` returns false during the replay
/// of an exact one, fails.
fn open_in(dir: &Path, goes_on: &mut dyn FnMut(u64, u64) -> bool) -> Result<Asked, Failure> {
    let reader = Reader::open(dir)?;
    if reader.manifest().capture.backend != BackendName::Exact {
        return Ok(Asked::open(Recorded { path: reader, exact: None })?);
    }
    let path = replay::path_of(&reader, goes_on)?;
    Ok(Asked::open(Recorded { path, exact: Some(reader) })?)
}
