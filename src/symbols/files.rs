//! How this room asks for files. Opens none itself.

use crate::image::Bytes;
use std::path::Path;

/// Gives the contents of files: from a recording, from this machine, or from both.
pub trait Files: Send + Sync {
    /// The whole contents of the file at `path`; `None` when it cannot be had. A path may come
    /// from a hostile file: give regular files only, and only from where debug files may lie.
    fn open(&self, path: &Path) -> Option<Bytes>;
}

/// The contents of the file at `path`, where ELF tables can be read.
pub(super) fn open(files: &dyn Files, path: &Path) -> Option<Bytes> {
    files.open(path).map(Bytes::aligned)
}

impl<F: Fn(&Path) -> Option<Bytes> + Send + Sync> Files for F {
    fn open(&self, path: &Path) -> Option<Bytes> {
        self(path)
    }
}
