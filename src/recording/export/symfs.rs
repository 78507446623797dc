//! The program's files below a directory that represents the root, for perf's `--symfs`.

use super::super::error::{At, Error, ErrorKind};
use super::super::mapped::Mapped;
use super::super::reader::Reader;
use crate::sideband::ImageId;
use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

/// A directory of files by their paths on the machine of the recording.
#[derive(Debug)]
pub(super) struct Symfs {
    root: PathBuf,
}

impl Symfs {
    /// Creates the directory, which must not exist.
    pub(super) fn create(root: PathBuf) -> Result<Self, Error> {
        // The directory contains the program's code, so only its owner may read it.
        match DirBuilder::new().mode(0o700).create(&root) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(Error::new(&root, ErrorKind::ExportExists))
            }
            result => result.at(&root).map(|()| Self { root }),
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Stores a copy of an image of the recording below the root, under `path`, and returns its
    /// bytes, mapped. Fails if the image is missing or damaged, or `path` exists there already
    /// ([`Self::store`]).
    pub(super) fn store_image(
        &self,
        reader: &Reader,
        id: &ImageId,
        path: &str,
    ) -> Result<Mapped, Error> {
        let bytes = reader.image(id)?;
        self.store(path, bytes.as_ref())?;
        Ok(bytes)
    }

    /// Writes a new file below the root; fails if it exists. Parts of `path` other than names, like
    /// `..`, are dropped.
    pub(super) fn store(&self, path: &str, bytes: &[u8]) -> Result<(), Error> {
        let parts = Path::new(path).components();
        let parts = parts.filter(|part| matches!(part, Component::Normal(_)));
        let path = self.root.join(parts.collect::<PathBuf>());
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).at(dir)?;
        }
        File::create_new(&path).and_then(|mut file| file.write_all(bytes)).at(&path)
    }
}
