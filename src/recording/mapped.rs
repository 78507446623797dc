//! The only place that maps files into memory, for traces and images too large to copy.

use super::regular::{Links, open_regular};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

/// The bytes of a file mapped read-only, or bytes held in memory instead. (A mapping of the
/// recorded program is a `log::Mapped`.)
#[derive(Debug)]
pub struct Mapped(Kind);

#[derive(Debug)]
enum Kind {
    Map(memmap2::Mmap),
    /// Also used for empty files, which cannot be mapped.
    Held(Vec<u8>),
}

impl Mapped {
    /// Maps a whole file, which may be named by a link. Fails unless it is a regular file.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::of_file(&open_regular(path, Links::Follow)?)
    }

    /// Maps a file of a recording. Fails if its last component is a link, or it is not a regular
    /// file.
    pub(super) fn open_without_link(path: &Path) -> io::Result<Self> {
        Self::of_file(&open_regular(path, Links::Refuse)?)
    }

    /// Holds bytes in memory, in place of a file.
    pub(super) fn held(bytes: Vec<u8>) -> Self {
        Self(Kind::Held(bytes))
    }

    /// Maps the whole of an open file, as long as it is now; it may be empty.
    pub(super) fn of_file(file: &File) -> io::Result<Self> {
        if file.metadata()?.len() == 0 {
            return Ok(Self(Kind::Held(Vec::new())));
        }
        // SAFETY: the bytes must not change while they are borrowed. Files of a recording are
        // only ever appended to, by their recorder, and this mapping does not grow. Other files
        // (debug information) are replaced by rename by their package managers. A user who
        // truncates one under a running reader gets SIGBUS, as from any tool that maps files.
        Ok(Self(Kind::Map(unsafe { memmap2::Mmap::map(file)? })))
    }

    /// Returns the memory of the bytes in a range to the system, until they are read again. A
    /// sequential reader of a file larger than memory calls this for the bytes that it has read.
    /// Does nothing for bytes held in memory.
    pub fn release(&self, range: Range<usize>) {
        let Kind::Map(map) = &self.0 else { return };
        let Some(size_bytes) = range.end.min(map.len()).checked_sub(range.start) else { return };
        // SAFETY: MADV_DONTNEED drops pages of this process. They belong to a read-only shared
        // mapping of a file, so the next access reads the same bytes from the file again.
        let advised = unsafe {
            map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, size_bytes)
        };
        // The advice is optional: without it the pages stay.
        drop(advised);
    }
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            Kind::Map(map) => map,
            Kind::Held(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for Mapped {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Kind::Held(bytes))
    }
}
