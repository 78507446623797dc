//! Files beside the recordings of a store that make later recordings faster: hashes, checksums and
//! code. All may be removed at any time.

use super::regular::replace_private;
use super::store::Store;
use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// The name of the cache's directory in the store. It hides the directory from lists of recordings.
const DIRECTORY: &str = ".contraflow-cache";

/// Returns the directory for cached files of a kind, which need not exist; `None` if the store's
/// directory is unknown.
pub(super) fn directory(store: &Store, kind: &str) -> Option<PathBuf> {
    store.path().map(|dir| dir.join(DIRECTORY).join(kind))
}

/// The number of files that this process has written or is writing: each has its own name until it
/// is whole.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// The maximum number of files in a directory, and of their bytes together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) files: usize,
    pub(super) bytes: u64,
}

impl Limits {
    /// Returns limits on the number of files only, for small files.
    pub(super) const fn of_number(files: usize) -> Self {
        Self { files, bytes: u64::MAX }
    }
}

/// Writes or replaces a cached file atomically, after [`make_room`] for it in its directory. Other
/// recorders may write the same file at the same time.
pub(super) fn write(path: &Path, bytes: &[u8], limits: Limits) -> io::Result<()> {
    write_parts(path, &[bytes], limits)
}

/// Writes or replaces a cached file, as [`write`] does, with these parts one after the other.
pub(super) fn write_parts(path: &Path, parts: &[&[u8]], limits: Limits) -> io::Result<()> {
    let replaces = path.exists();
    if !replaces || limits.bytes < u64::MAX {
        let size = parts.iter().map(|part| part.len() as u64).sum();
        let bytes = limits.bytes.saturating_sub(size);
        make_room(path.parent().unwrap_or(path), Limits { bytes, ..limits }, replaces)?;
    }
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let partial = path.with_extension(format!("{}-{number}", std::process::id()));
    let mut file = replace_private(&partial)?;
    let written = parts.iter().try_for_each(|part| file.write_all(part));
    let written = written.and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

/// Creates a directory if it is missing. Then removes the files that were modified least recently:
/// a quarter of the maximum number if there is no room for one more, unless that `replaces` one;
/// and as many as it takes until the rest has at most the maximum of bytes.
fn make_room(dir: &Path, limits: Limits, replaces: bool) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let described = |entry: fs::DirEntry| {
        let metadata = entry.metadata().ok();
        let modified = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
        let size = metadata.map_or(0, |metadata| metadata.len());
        (modified.unwrap_or(SystemTime::UNIX_EPOCH), entry.path(), size)
    };
    let mut files: Vec<_> = fs::read_dir(dir)?.flatten().map(described).collect();
    let are_many = files.len() >= limits.files && !replaces;
    let mut to_remove = if are_many { limits.files / 4 } else { 0 };
    let mut excess_bytes =
        files.iter().map(|(_, _, size)| size).sum::<u64>().saturating_sub(limits.bytes);
    files.sort();
    for (_, path, size) in files {
        if to_remove == 0 && excess_bytes == 0 {
            break;
        }
        match fs::remove_file(path) {
            // Another recorder made room, too.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result?,
        }
        to_remove = to_remove.saturating_sub(1);
        excess_bytes = excess_bytes.saturating_sub(size);
    }
    Ok(())
}
