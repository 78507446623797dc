//! The list of recordings and notes of a program's children: a file without a name (memfd),
//! inherited by all recorders, to which each appends. The program's recorder reads it at the end.

use crate::capture::Error;
use crate::tracee;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const RECORDING: u8 = b'R';
const NOTE: u8 = b'N';
/// The size of an entry's header: its kind, and the size of its text.
const HEADER_BYTES: usize = 5;

/// The file that the recorders of a program and of its children share.
#[derive(Debug)]
pub(super) struct Family(File);

/// The recordings and notes of the children.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FamilyReport {
    /// The recordings, in the order in which they began.
    pub(super) recordings: Vec<PathBuf>,
    /// Sentences for the user.
    pub(super) notes: Vec<String>,
}

impl Family {
    /// Creates the file, which is empty.
    pub(super) fn new() -> Result<Self, Error> {
        let fail = |call| move |errno| Error::from(tracee::Error::System { call, errno });
        let file = memfd_create("contraflow", MFdFlags::MFD_CLOEXEC).map_err(fail("memfd_create"));
        let file = File::from(file?);
        // Each entry is appended as a whole.
        let flags = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_APPEND);
        nix::fcntl::fcntl(&file, flags).map_err(fail("fcntl"))?;
        Ok(Self(file))
    }

    /// Returns the file's descriptor.
    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Adds the directory of a recording that has begun.
    pub(super) fn add_recording(&self, dir: &Path) {
        self.add(RECORDING, dir.as_os_str().as_bytes());
    }

    /// Adds a sentence for the user.
    pub(super) fn add_note(&self, note: &str) {
        self.add(NOTE, note.as_bytes());
    }

    /// Appends an entry. Ignores failures.
    fn add(&self, kind: u8, text: &[u8]) {
        let Ok(size) = u32::try_from(text.len()) else { return };
        let entry = [&[kind][..], &size.to_le_bytes(), text].concat();
        // This fails only without memory, and the recording itself is not affected.
        let _ = (&self.0).write_all(&entry);
    }

    /// Reads all recordings and notes that were added so far; none if the file cannot be read.
    pub(super) fn read_report(&self) -> FamilyReport {
        let size = self.0.metadata().map_or(0, |metadata| metadata.len());
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        if self.0.read_exact_at(&mut bytes, 0).is_err() {
            return FamilyReport::default();
        }
        parse(&bytes)
    }
}

/// Parses the file's entries. Leaves out an incomplete one at the end, and repeated notes.
fn parse(mut bytes: &[u8]) -> FamilyReport {
    let mut report = FamilyReport::default();
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        let [kind, size @ ..] = *header;
        let size = usize::try_from(u32::from_le_bytes(size)).unwrap_or(usize::MAX);
        let Some((text, after)) = rest.split_at_checked(size) else { break };
        match kind {
            RECORDING => report.recordings.push(OsString::from_vec(text.to_vec()).into()),
            _ => report.notes.push(String::from_utf8_lossy(text).into_owned()),
        }
        bytes = after;
    }
    let mut known = BTreeSet::new();
    report.notes.retain(|note| known.insert(note.clone()));
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read_in_order() {
        let family = Family::new().unwrap();
        assert_eq!(family.read_report(), FamilyReport::default());
        family.add_recording(Path::new("/a\nb"));
        family.add_note("one");
        family.add_note("one");
        family.add_recording(Path::new("/c"));
        let recordings = vec![PathBuf::from("/a\nb"), PathBuf::from("/c")];
        assert_eq!(
            family.read_report(),
            FamilyReport { recordings, notes: vec!["one".to_owned()] }
        );
    }

    #[test]
    fn an_entry_that_is_cut_is_left_out() {
        assert_eq!(parse(b"N\x02\0\0\0hiR\x09\0\0\0/x").notes, ["hi"]);
    }
}
