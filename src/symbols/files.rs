//! The interface through which this room opens files.

use crate::image::Bytes;
use std::path::Path;

/// A source of files: a recording, this machine, or both.
pub trait Files: Send + Sync {
    /// Returns the whole contents of the file at `path`; `None` if it is not available. A path may
    /// come from a hostile file: return regular files only, and only from locations of debug files.
    fn open(&self, path: &Path) -> Option<Bytes>;
}

/// Opens the file at `path`, aligned as required to read ELF tables; `None` if it is not available.
pub(super) fn open(files: &dyn Files, path: &Path) -> Option<Bytes> {
    files.open(path).map(Bytes::aligned)
}

impl<F: Fn(&Path) -> Option<Bytes> + Send + Sync> Files for F {
    fn open(&self, path: &Path) -> Option<Bytes> {
        self(path)
    }
}
