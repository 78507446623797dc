//! A check of a whole recording for damage. Other readers check only what they open.

use super::error::{At, Error, ErrorKind};
use super::format::{IMAGE_DIR, TRACE_DIR};
use super::reader::Reader;
use crate::sideband::ImageId;
use std::fs;
use std::io;

impl Reader {
    /// Reads and checks all files of this recording, without the index and the kept path, which are
    /// made later; of a cut recording, only sideband, log, traces and images. Returns the damage:
    /// one error per damaged file, in the order of the checks; none for an intact recording.
    /// Changes nothing.
    pub fn find_damage(&self) -> Vec<Error> {
        let mut damage = Vec::new();
        damage.extend(self.listed_damage());
        damage.extend(self.sideband().err());
        damage.extend(self.log_totals().err());
        match self.traces() {
            Ok(ids) => damage.extend(ids.into_iter().filter_map(|id| self.trace(id).err())),
            Err(error) => damage.push(error),
        }
        match self.image_ids() {
            Ok(ids) => {
                damage.extend(ids.iter().filter_map(|id| self.image_checked_by_id(id).err()));
            }
            Err(error) => damage.push(error),
        }
        // A file can have several faults; the first one is enough.
        let mut seen = std::collections::BTreeSet::new();
        damage.retain(|error| seen.insert(error.path.clone()));
        damage
    }

    /// Returns an error for each file in the list of checksums that is missing, or whose size or
    /// checksum has changed; empty if there is no list.
    fn listed_damage(&self) -> Vec<Error> {
        let Some(sums) = self.sums() else { return Vec::new() };
        sums.names().filter_map(|name| sums.check_file(self.dir(), name).err()).collect()
    }

    /// Returns the names of all files in the directory of images, as IDs, in order. A name that is
    /// no ID is damage, which the caller finds when it opens the image. Of a cut recording, leaves
    /// out partial images, and returns none if there is no directory.
    fn image_ids(&self) -> Result<Vec<ImageId>, Error> {
        let dir = self.dir().join(IMAGE_DIR);
        let mut ids = Vec::new();
        let entries = match fs::read_dir(&dir) {
            // The recorder was killed before it made the directory.
            Err(error) if self.is_cut() && error.kind() == io::ErrorKind::NotFound => {
                return Ok(ids);
            }
            entries => entries.at(&dir)?,
        };
        for entry in entries {
            let name = entry.at(&dir)?.file_name().to_string_lossy().into_owned();
            // A killed recorder may have left a partial image.
            if !(self.is_cut() && name.ends_with("partial")) {
                ids.push(ImageId(name));
            }
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// Fails if a thread has a trace file, but the manifest of a complete recording does not list
    /// the thread.
    pub(super) fn check_threads_are_listed(&self) -> Result<(), Error> {
        let Some(end) = &self.manifest().end else { return Ok(()) };
        let dir = self.dir().join(TRACE_DIR);
        match self
            .threads_with_trace()?
            .iter()
            .find(|tid| end.threads.iter().all(|t| t.tid != **tid))
        {
            Some(tid) => Err(Error::new(&dir.join(format!("{tid}.pt")), ErrorKind::Unlisted)),
            None => Ok(()),
        }
    }
}
