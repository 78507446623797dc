//! The files of a machine in a directory: `/`, or a tree made for a test. Writes nothing.

use std::fs;
use std::path::{Path, PathBuf};

/// The directory that contains a machine's files, used as its root directory.
#[derive(Clone, Debug)]
pub struct Root {
    dir: PathBuf,
}

impl Root {
    /// Returns the root of this machine.
    #[must_use]
    pub fn here() -> Self {
        Self::at(Path::new("/"))
    }

    /// Returns the root of the machine whose files are below `dir`.
    #[must_use]
    pub fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Returns the path on this machine of the file that has the absolute path `path` on the
    /// machine.
    pub(super) fn path(&self, path: &Path) -> PathBuf {
        self.dir.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns true if there is a file or directory at `path`.
    pub(super) fn has(&self, path: &str) -> bool {
        self.path(Path::new(path)).exists()
    }

    /// Returns a file's text without surrounding whitespace; `None` if it cannot be read.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let bytes = fs::read(self.path(Path::new(path))).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Reads a decimal number from a file; `None` if it cannot be read.
    pub(super) fn number<N: std::str::FromStr>(&self, path: &str) -> Option<N> {
        self.text(path)?.parse().ok()
    }

    /// Returns the names in a directory, sorted; none if it cannot be read.
    pub(super) fn names(&self, path: &Path) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}
