//! Files beside the recordings of a store that make later ones faster. All may be removed at any
//! time.

use super::regular::replace_private;
use super::store::Store;
use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The name of the cache's directory in the store. It hides the directory from lists of recordings.
const DIRECTORY: &str = ".contraflow-cache";

/// Returns the directory for cached files of a kind; `None` if the store's directory is unknown.
pub(super) fn directory(store: &Store, kind: &str) -> Option<PathBuf> {
    store.path().map(|dir| dir.join(DIRECTORY).join(kind))
}

/// Writes or replaces a cached file atomically, in a directory that keeps at most `most` files.
/// Other recorders may write the same file at the same time.
pub(super) fn write(path: &Path, bytes: &[u8], most: usize) -> io::Result<()> {
    if !path.exists() {
        make_room(path.parent().unwrap_or(path), most)?;
    }
    let partial = path.with_extension(std::process::id().to_string());
    let mut file = replace_private(&partial)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

/// Creates a directory if needed. If it has `most` files or more, removes the `most / 4` that were
/// modified least recently.
fn make_room(dir: &Path, most: usize) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let age = |entry: fs::DirEntry| {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        (modified.unwrap_or(SystemTime::UNIX_EPOCH), entry.path())
    };
    let mut files: Vec<_> = fs::read_dir(dir)?.flatten().map(age).collect();
    if files.len() >= most {
        files.sort();
        files.iter().take(most / 4).try_for_each(|(_, path)| fs::remove_file(path))?;
    }
    Ok(())
}
