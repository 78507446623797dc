//! The one place that maps files into memory, for traces and images larger than is good to copy.

use std::fs::File;
use std::io;
use std::path::Path;

/// A file's bytes, mapped read-only; or none for an empty file, which cannot be mapped.
#[derive(Debug)]
pub struct Mapped(Option<memmap2::Mmap>);

impl Mapped {
    /// Maps the whole file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if file.metadata()?.len() == 0 {
            return Ok(Self(None));
        }
        // SAFETY: the bytes must not change while they are borrowed. Files of a recording are
        // only ever appended to, by their recorder, and this mapping does not grow; other files
        // that come here (debug information) are replaced by rename by their package managers.
        // A user who truncates one under a running reader gets SIGBUS, as from any tool that maps.
        Ok(Self(Some(unsafe { memmap2::Mmap::map(&file)? })))
    }
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(&[])
    }
}
