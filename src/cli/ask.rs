//! Opens a recording for a question about its whole history.

use super::Failure;
use super::found::Found;
use super::open::{path_of, say_what_cpu_lacks};
use crate::ask::{Asked, Recorded};
use crate::recording::{BackendName, Reader};
use std::path::Path;

/// Opens the recording that the user named. That of an exact one needs its path, which is made by a
/// replay, once, and kept in its directory.
pub(super) fn open(recording: Option<&Path>) -> Result<(Found, Asked), Failure> {
    let found = Found::new(recording)?;
    let reader = Reader::open(found.dir())?;
    let is_exact = reader.manifest().capture.backend == BackendName::Exact;
    let exact = is_exact.then(|| Reader::open(found.dir())).transpose()?;
    if let Some(exact) = &exact {
        say_what_cpu_lacks(exact);
    }
    let asked = Asked::open(Recorded { path: path_of(reader)?, exact })?;
    Ok((found, asked))
}
