//! The hashes of files that were stored before: large programs need not be hashed for each
//! recording of them. A hash is found by the file's device and inode, and counts only while the
//! file's size and times are the same. A wrong hash would show as damage of the recording.

use super::cache;
use super::regular::read_limited;
use super::store::Store;
use crate::sideband::ImageId;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// The maximum number of files whose hash is kept.
const FILES_LIMIT: usize = 2048;
/// The maximum size in bytes of a file with a hash.
const SIZE_LIMIT_BYTES: u64 = 256;
/// Times do not show whether a file that changed this recently changed again.
const RECENT: Duration = Duration::from_secs(2);

/// The hashes of files, by device and inode. The default value has none, and keeps none.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownImages {
    /// The directory of the hashes; `None` if none are kept.
    dir: Option<PathBuf>,
}

/// The identity and the state of a file at some time, by which its hash is found.
#[derive(Debug)]
pub(super) struct FileState {
    /// The path of the hash, which is named after the file's device and inode.
    path: PathBuf,
    /// The size, and the times of modification and status change. They change with the content, and
    /// programs cannot set the time of status change.
    stamp: String,
}

impl KnownImages {
    /// Returns access to the hashes in the cache of a store; to none if the store's directory is
    /// unknown. Reads none yet: one that is remembered later is found, too.
    pub(super) fn of(store: &Store) -> Self {
        Self { dir: cache::directory(store, "images") }
    }

    /// Returns the present state of a file; `None` if the file changed recently ([`RECENT`]), or no
    /// hashes are kept.
    pub(super) fn state_of(&self, file: &File) -> Option<FileState> {
        self.state_at(&file.metadata().ok()?, SystemTime::now())
    }

    fn state_at(&self, m: &Metadata, now: SystemTime) -> Option<FileState> {
        let secs = u64::try_from(m.ctime()).ok()?;
        let nanos = u32::try_from(m.ctime_nsec()).ok()?;
        let changed = SystemTime::UNIX_EPOCH + Duration::new(secs, nanos);
        let is_old = now.duration_since(changed).is_ok_and(|age| age > RECENT);
        let path = self.dir.as_ref()?.join(format!("{:x}-{:x}", m.dev(), m.ino()));
        let (mtime, ctime) = ((m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec()));
        is_old.then(|| FileState { path, stamp: format!("{} {mtime:?} {ctime:?} ", m.len()) })
    }
}

impl FileState {
    /// Returns the hash of the file in this state, as an image ID; `None` if it is unknown.
    pub(super) fn known_id(&self) -> Option<ImageId> {
        let text = String::from_utf8(read_limited(&self.path, SIZE_LIMIT_BYTES).ok()?).ok()?;
        let id = text.strip_prefix(&self.stamp)?;
        let is_hash = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hash.then(|| ImageId(id.to_owned()))
    }

    /// Returns true if `file` is this file, in the same state.
    pub(super) fn is_same(&self, file: &File, known: &KnownImages) -> bool {
        known.state_of(file).is_some_and(|now| now.path == self.path && now.stamp == self.stamp)
    }

    /// Keeps the hash of the file in this state for later runs. Ignores errors, which only make
    /// these slower.
    pub(super) fn remember(&self, id: &ImageId) {
        let text = format!("{}{}", self.stamp, id.0);
        let _ = cache::write(&self.path, text.as_bytes(), cache::Limits::of_number(FILES_LIMIT));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_hash_is_known_until_the_file_changes() {
        let dir = tempfile::tempdir().unwrap();
        let known = KnownImages::of(&Store::new(dir.path().join("s")));
        let path = dir.path().join("f");
        fs::write(&path, "one").unwrap();
        let later = SystemTime::now() + 2 * RECENT;
        let see = |now| known.state_at(&fs::metadata(&path).unwrap(), now);
        assert!(see(SystemTime::now()).is_none(), "it may change again at the same time");
        let id = ImageId("ab".repeat(32));
        assert_eq!(see(later).unwrap().known_id(), None);
        see(later).unwrap().remember(&id);
        assert_eq!(see(later).unwrap().known_id(), Some(id.clone()));
        fs::write(see(later).unwrap().path, "damaged").unwrap();
        assert_eq!(see(later).unwrap().known_id(), None);
        see(later).unwrap().remember(&id);
        std::thread::sleep(Duration::from_millis(20));
        fs::write(&path, "two").unwrap();
        assert_eq!(see(later).unwrap().known_id(), None);
        assert!(KnownImages::default().state_of(&File::open(&path).unwrap()).is_none());
    }
}
