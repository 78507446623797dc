//! Reads and saves the index of a recording: facts about its decoded traces, by which it opens
//! faster. The timeline defines the content; here it is a sequence of untrusted bytes.

use super::error::{At, Error};
use super::format::{IMAGE_DIR, INDEX, MANIFEST, SIDEBAND, TRACE_DIR, sums_name};
use super::mapped::Mapped;
use super::reader::Reader;
use super::regular::create_private;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::Write;
use std::path::Path;

impl Reader {
    /// Returns a hash over everything that decoding depends on: manifest, sideband, checksums of
    /// all traces, names and sizes of stored images. An index with another fingerprint is of other
    /// data. Returns `None` for a cut recording, which may still grow.
    pub fn fingerprint(&self) -> Result<Option<[u8; 32]>, Error> {
        if self.is_cut() {
            return Ok(None);
        }
        let mut hash = Sha256::new();
        let mut files = vec![self.dir().join(MANIFEST), self.dir().join(SIDEBAND)];
        let traces = self.dir().join(TRACE_DIR);
        files.extend(self.traces()?.into_iter().map(|trace| traces.join(sums_name(trace))));
        for path in files {
            let bytes = Mapped::open_without_link(&path).at(&path)?;
            hash.update((bytes.as_ref().len() as u64).to_le_bytes());
            hash.update(bytes.as_ref());
        }
        for (name, size_bytes) in images(&self.dir().join(IMAGE_DIR))? {
            hash.update(name);
            hash.update(size_bytes.to_le_bytes());
        }
        Ok(Some(hash.finalize().into()))
    }

    /// Returns the bytes of the saved index, still unchecked; `None` if there is no readable one.
    pub fn saved_index(&self) -> Option<Mapped> {
        Mapped::open_without_link(&self.dir().join(INDEX)).ok()
    }

    /// Saves an index beside the recording, and replaces an existing one.
    pub fn save_index(&self, bytes: &[u8]) -> Result<(), Error> {
        let path = self.dir().join(INDEX);
        let partial = self.dir().join(format!("{INDEX}.{}", std::process::id()));
        // Always a new file: the existing one could be a link to somewhere else.
        let written = create_private(&partial).and_then(|mut file| file.write_all(bytes));
        let renamed = written.and_then(|()| fs::rename(&partial, &path));
        if renamed.is_err() {
            // The original error is more important than this one.
            let _ = fs::remove_file(&partial);
        }
        renamed.at(&path)
    }
}

/// Returns the names and sizes of the stored images, in order of the names.
fn images(dir: &Path) -> Result<Vec<(Vec<u8>, u64)>, Error> {
    let mut images = Vec::new();
    for entry in fs::read_dir(dir).at(dir)? {
        let entry = entry.at(dir)?;
        let size_bytes = entry.metadata().at(dir)?.len();
        images.push((entry.file_name().into_encoded_bytes(), size_bytes));
    }
    images.sort_unstable();
    Ok(images)
}
