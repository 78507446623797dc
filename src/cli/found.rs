//! The recording that a user named: a directory, or a packed recording, which is unpacked for as
//! long as the command runs.

use super::Failure;
use super::progress::Bar;
use super::temporary::Temporary;
use crate::recording::Store;
use crate::recording::pack::unpack;
use std::path::{Path, PathBuf};

/// A recording that was found, and unpacked if it was packed. The unpacked copy is removed on drop.
pub(super) struct NamedRecording {
    dir: PathBuf,
    /// The packed file, and the temporary directory with its contents; `None` if it was not packed.
    packed: Option<(PathBuf, Temporary)>,
}

impl NamedRecording {
    /// Finds the recording `name`, or the latest one of the store for `None`. Unpacks it into a
    /// temporary directory if it is packed. Fails if there is none, or if it cannot be unpacked.
    /// Does not open it.
    pub(super) fn find(name: Option<&Path>) -> Result<Self, Failure> {
        let path = Store::of_user().find(name)?;
        if !path.is_file() {
            return Ok(Self { dir: path, packed: None });
        }
        let temporary = Temporary::create()?;
        // The name of the directory shows in messages.
        let stem = path.file_stem().filter(|stem| *stem != "..").unwrap_or_default();
        let dir = temporary.dir().join(stem);
        let mut bar = Bar::new("unpacking");
        unpack(&path, &dir, &mut |done, total| {
            bar.show_part(done, total);
            true
        })?;
        Ok(Self { dir, packed: Some((path, temporary)) })
    }

    /// Returns the directory of the recording; if it was packed, that of the unpacked copy.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path that the user knows: that of the directory or of the packed file.
    pub(super) fn user_path(&self) -> &Path {
        self.packed.as_ref().map_or(&self.dir, |(path, _)| path)
    }
}
