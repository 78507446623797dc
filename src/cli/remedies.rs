//! Remedies that a user of the command line has for errors. Errors themselves state facts.

use crate::capture::{self, PerfError};
use crate::recording::{ErrorKind, import};
use crate::{ask, image, session};
use nix::errno::Errno;
use std::error::Error;
use std::iter::successors;

/// Returns the sentence of an error, with the remedy for it or for the first of its causes that has
/// one, or else with that for a note in the sentence. Without a remedy, it is the sentence alone.
pub(super) fn with_remedy(failure: &(dyn Error + 'static)) -> String {
    let mut causes =
        successors(Some(failure), |error: &&(dyn Error + 'static)| Error::source(*error));
    let said = failure.to_string();
    match causes.find_map(remedy) {
        Some(remedy) => format!("{said}; {remedy}"),
        // Clauses about what an exact recording does not support, which occur in errors and notes
        // alike.
        None => note_with_remedy(&said),
    }
}

/// Parts of recordings' notes, each with the remedy.
const NOTES: [(&str, &str); 5] = [
    (capture::OLDER_IS_OVERWRITTEN, "--full keeps all of it"),
    (capture::SLOW_DISK, "--filter, or a --pt-config with fewer packets, reduces the trace"),
    (capture::SMALL_BUFFER, "ulimit -l or /proc/sys/kernel/perf_event_mlock_kb make it larger"),
    (import::CHILDREN_LEFT_OUT, "--pid imports one of them"),
    (import::CODE_NOT_FOUND, "--symfs names a directory that has it"),
];

/// Returns a note of a recording, or the sentence of an error, with the remedy for it: the first of
/// [`NOTES`], or `record --path` for what only recordings of the path allow. Unchanged if there is
/// none, or if it ends with the remedy already.
pub(super) fn note_with_remedy(note: &str) -> String {
    let mut known = NOTES.iter().filter(|(part, _)| note.contains(part));
    let remedy = known.next().map(|(_, remedy)| *remedy);
    let is_only_in_paths = capture::ONLY_IN_PATHS.iter().any(|clause| note.contains(clause));
    let of_path = is_only_in_paths.then_some("`record --path` records that, too");
    match remedy.or(of_path) {
        Some(remedy) if !note.ends_with(remedy) => format!("{note}; {remedy}"),
        _ => note.to_owned(),
    }
}

/// Returns the remedy for an error itself, not for its causes.
fn remedy(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(kind) = error.downcast_ref() {
        return recording_remedy(kind);
    }
    if let Some(error) = error.downcast_ref() {
        return image_remedy(error);
    }
    match error.downcast_ref() {
        Some(capture::Error::Perf(PerfError::NoIntelPt)) => {
            return Some("--backend soft needs none");
        }
        Some(capture::Error::Perf(PerfError::Open { errno: Errno::EPERM, .. })) => {
            return Some("--ring makes the buffer smaller");
        }
        Some(capture::Error::AddressSpace { .. }) => return Some("`ulimit -v` shows the limit"),
        Some(capture::Error::NoSnapshot { .. }) => return Some("--timeout waits longer"),
        _ => {}
    }
    if let Some(ask::Error::NoValues) = error.downcast_ref() {
        return Some("record without --path");
    }
    if let Some(session::Error::NotRunAgain) = error.downcast_ref() {
        return Some("`contraflow serve` runs programs");
    }
    None
}

/// Returns the remedy for an error of a recording, if there is one.
fn recording_remedy(kind: &ErrorKind) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::Missing => "`contraflow list` shows all recordings",
        ErrorKind::Empty => "make one with `contraflow record PROGRAM`",
        ErrorKind::NoStore => "name a directory with -o, or set CONTRAFLOW_HOME",
        ErrorKind::Exists => "--force replaces it",
        ErrorKind::Beginning => "give another directory",
        ErrorKind::Occupied => "give a new or an empty directory",
        ErrorKind::ExportExists => "--force replaces an export",
        ErrorKind::Version { .. } => "record again, or use the contraflow that made it",
        ErrorKind::PerfDirectory => "record without --threads",
        ErrorKind::NoIntelPt | ErrorKind::TracesKernel => {
            "record with `perf record -e intel_pt//u`"
        }
        ErrorKind::NoSwitches(_) => "record with `perf record --per-thread`, or with a newer perf",
        ErrorKind::WhichProcess(_) => "choose one with --pid",
        ErrorKind::OtherBytes { .. } => "--any-binary accepts it",
        ErrorKind::OtherBinary => {
            "--symfs names a directory with the right one, and --any-binary accepts this one"
        }
        ErrorKind::Core(error) | ErrorKind::Module { error, .. } => return image_remedy(error),
        ErrorKind::NotPacked => "`contraflow pack` makes them",
        ErrorKind::IsFile => "`contraflow unpack` unpacks a packed recording",
        _ => return None,
    })
}

/// Returns the remedy for an error of an ELF or core file, if there is one.
fn image_remedy(error: &image::Error) -> Option<&'static str> {
    Some(match error {
        image::Error::NotElf { .. } => "give a program, library or core file",
        image::Error::DamagedElf { .. } => "fetch it again or record anew",
        image::Error::NotCore { .. } => "give a core file",
        image::Error::DamagedNote { .. } => "record anew",
        image::Error::Write(_) => "free some space or choose another place",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording;
    use std::path::PathBuf;

    #[test]
    fn causes_have_remedies_however_deep_they_are() {
        let error = || recording::Error { path: PathBuf::from("x"), kind: ErrorKind::Missing };
        let said = "x: no such recording; `contraflow list` shows all recordings";
        assert_eq!(with_remedy(&error()), said);
        assert_eq!(with_remedy(&ask::Error::Recording(error())), said);
        let cut = with_remedy(&capture::Error::Recording(error()));
        assert!(cut.ends_with("is cut; `contraflow list` shows all recordings"), "{cut}");
        let error = image::Error::NotCore { file_type: 2 };
        let said = "not a core file (type 4); give a core file";
        assert!(with_remedy(&error).ends_with(said));
        let kind = ErrorKind::Core(error);
        let of_import = recording::Error { path: PathBuf::from("x"), kind };
        assert!(with_remedy(&of_import).ends_with(said));
        let error = std::io::Error::other("full");
        assert_eq!(with_remedy(&error), "full");
    }

    #[test]
    fn notes_have_remedies() {
        let note = capture::OLDER_IS_OVERWRITTEN;
        let with = note_with_remedy(note);
        assert_eq!(with, format!("{note}; --full keeps all of it"));
        assert_eq!(note_with_remedy(&with), with);
        assert_eq!(note_with_remedy("a note"), "a note");
    }
}
