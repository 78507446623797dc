//! `contraflow record --keep-if-fails`: removes recordings of runs that did not fail.

use super::Failure;
use crate::capture::Outcome;
use crate::recording::{Exit, Manifest, Reader, Store};

/// Removes the recordings of processes that did not fail, wherever they are (also a directory that
/// the user named), and takes them out of `outcome`: all recordings if the program itself did not
/// fail; otherwise those that cannot be opened are kept. Returns true if the program failed. An end
/// other than status 0, or an unknown end, is a failure. After an error, `outcome` names no
/// recordings.
pub(super) fn keep_only_failures(outcome: &mut Outcome, store: &Store) -> Result<bool, Failure> {
    let is_failure = !has_succeeded(&outcome.manifest);
    let mut kept = Vec::new();
    for (number, recording) in std::mem::take(&mut outcome.recordings).into_iter().enumerate() {
        // The recording of a child that cannot be opened may be the one that is needed.
        let has_failed = || {
            let opened = Reader::open(&recording);
            opened.map_or(true, |reader| !has_succeeded(reader.manifest()))
        };
        let is_kept = is_failure && (number == 0 || has_failed());
        if is_kept {
            kept.push(recording);
        } else {
            store.remove(&recording)?;
        }
    }
    outcome.recordings = kept;
    Ok(is_failure)
}

/// Returns true if a process is known to have ended with the status 0.
fn has_succeeded(manifest: &Manifest) -> bool {
    manifest.end.as_ref().and_then(|end| end.exit) == Some(Exit::Code(0))
}
