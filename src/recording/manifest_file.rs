//! Writes the manifest of a recording, at its start and at its end, and replaces that of a complete
//! one. A recording can be opened wherever its recorder is killed on the way.

use super::error::{At, Error, ErrorKind};
use super::format::{CHECKSUMS, MANIFEST, STARTING};
use super::manifest::Manifest;
use super::regular::replace_private;
use super::sums::{Sum, Sums};
use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Writes the manifest with the values known at the start of a recording.
pub(super) fn write_starting(dir: &Path, starting: &Manifest) -> Result<(), Error> {
    let path = dir.join(STARTING);
    write_by_rename(&path, &json(&path, starting)?)
}

/// Writes the list of checksums with that of the manifest, then the manifest, which makes a
/// recording complete.
pub(super) fn write_manifest(dir: &Path, manifest: &Manifest, mut sums: Sums) -> Result<(), Error> {
    let path = dir.join(MANIFEST);
    let manifest = json(&path, manifest)?;
    sums.add(MANIFEST.to_owned(), Sum::of_bytes(&manifest));
    write_sums(dir, &sums)?;
    write_by_rename(&path, &manifest)
}

/// Replaces the manifest and the list of checksums `sums` of a complete recording. Meanwhile the
/// list lacks the manifest, so that the old one and the new one are valid.
pub(super) fn replace_manifest(
    dir: &Path,
    manifest: &Manifest,
    mut sums: Sums,
) -> Result<(), Error> {
    let path = dir.join(MANIFEST);
    let manifest = json(&path, manifest)?;
    sums.remove(MANIFEST);
    write_sums(dir, &sums)?;
    write_by_rename(&path, &manifest)?;
    sums.add(MANIFEST.to_owned(), Sum::of_bytes(&manifest));
    write_sums(dir, &sums)
}

fn write_sums(dir: &Path, sums: &Sums) -> Result<(), Error> {
    write_by_rename(&dir.join(CHECKSUMS), sums.to_text().as_bytes())
}

fn json(path: &Path, manifest: &Manifest) -> Result<Vec<u8>, Error> {
    let mut text = serde_json::to_vec_pretty(manifest)
        .map_err(|error| Error::new(path, ErrorKind::Manifest(error)))?;
    text.push(b'\n');
    Ok(text)
}

/// Writes a file under a temporary name and renames it, so that no reader sees a part of it, even
/// if the recorder is killed. Does not wait for the disk: after a power failure, the file may be
/// empty or a part. If it fails, a file under the temporary name may be left.
pub(super) fn write_by_rename(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let partial = path.with_extension("partial");
    let mut file = BufWriter::new(replace_private(&partial).at(&partial)?);
    file.write_all(bytes).and_then(|()| file.flush()).at(&partial)?;
    fs::rename(&partial, path).at(path)
}
