//! The contents of files that many recordings of a store need: programs and libraries. Each is one
//! file, with a hard link in every recording that has it, so a recording of a large program neither
//! copies nor reads it. The number of links shows whether a recording has the file.
//!
//! A file is *intact* if nothing has written to it since it was stored: [`mark_intact`] sets its
//! time of modification then, which any later write changes.

use super::cache;
use super::regular::read_limited;
use super::store::Store;
use super::sums::Sum;
use crate::sideband::ImageId;
use std::cell::Cell;
use std::fs::{self, DirBuilder, File, FileTimes, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The maximum size in bytes of all shared files together that no recording has.
const UNUSED_LIMIT_BYTES: u64 = 1 << 30;
/// The maximum number of files whose checksum is kept.
const SUMS_LIMIT: usize = 4096;
const SUM_LIMIT_BYTES: u64 = 64;
/// The time of modification of a file that nothing has written to since it was stored.
const INTACT: SystemTime = SystemTime::UNIX_EPOCH;

/// The contents of files that the recordings of a store share.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedImages {
    /// The directories of the shared files and of their checksums; `None` if nothing is shared.
    dirs: Option<(PathBuf, PathBuf)>,
    /// True once contents that no recording has were removed.
    is_pruned: Cell<bool>,
}

impl SharedImages {
    /// Returns the shared contents of a store; nothing is shared if its directory is unknown.
    pub(super) fn of(store: &Store) -> Self {
        let sums = cache::directory(store, "sums");
        let dirs = cache::directory(store, "contents").zip(sums);
        Self { dirs, is_pruned: Cell::new(false) }
    }

    /// Links the shared file of an image into a recording, as `target`. Returns false if the file
    /// is missing, was written to, has a size other than `size_bytes`, or cannot be linked.
    pub(super) fn link_into(&self, id: &ImageId, size_bytes: u64, target: &Path) -> bool {
        let Some((contents, _)) = &self.dirs else { return false };
        let shared = contents.join(&id.0);
        let is_intact = fs::symlink_metadata(&shared)
            .is_ok_and(|m| m.is_file() && m.len() == size_bytes && is_marked_intact(&m));
        // The link fails on another file system, or if the file has too many links.
        is_intact && fs::hard_link(&shared, target).is_ok()
    }

    /// Shares an image that a recording has stored at `stored` and marked as intact, by a hard
    /// link, for later recordings to link. The first call also removes unused contents. Ignores
    /// errors, which only make the next run slower.
    pub(super) fn share(&self, id: &ImageId, stored: &Path) {
        let Some((contents, _)) = &self.dirs else { return };
        let shared = contents.join(&id.0);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(contents);
        let is_first = !self.is_pruned.replace(true);
        let made = made.and_then(|()| if is_first { remove_unused(contents) } else { Ok(()) });
        // Another recorder may do the same. A shared file that exists already was written to, and
        // is replaced; or it is on another file system than the recording, and stays.
        let partial = shared.with_extension(std::process::id().to_string());
        let linked = made.and_then(|()| fs::hard_link(stored, &partial));
        if linked.and_then(|()| fs::rename(&partial, &shared)).is_err() {
            let _ = fs::remove_file(&partial);
        }
    }

    /// Returns true if `path` is a hard link to the shared file of an image, and intact by its time
    /// of modification ([`INTACT`]).
    fn is_intact_shared(&self, id: &ImageId, path: &Path) -> bool {
        let Some((contents, _)) = &self.dirs else { return false };
        let found = |path: &Path| fs::symlink_metadata(path).ok().filter(is_marked_intact);
        let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
        let shared = found(&contents.join(&id.0)).map(identity);
        shared.is_some() && shared == found(path).map(identity)
    }

    /// Returns the kept checksum of an image of a recording, if the file at `image` has the mark of
    /// an intact file ([`is_marked_intact`]) and the size of then; else `None`. Does not read the
    /// file.
    pub(super) fn known_sum(&self, id: &str, image: &Path) -> Option<Sum> {
        let (_, sums) = self.dirs.as_ref()?;
        let metadata = fs::symlink_metadata(image).ok().filter(is_marked_intact)?;
        let text = String::from_utf8(read_limited(&sums.join(id), SUM_LIMIT_BYTES).ok()?).ok()?;
        let (size, crc32) = text.split_once(' ')?;
        let crc32 = u32::from_str_radix(crc32, 16).ok()?;
        let size_bytes = size.parse().ok().filter(|size| *size == metadata.len())?;
        Some(Sum { size_bytes, crc32 })
    }

    /// Keeps the checksum of an image for later recordings. Ignores errors.
    pub(super) fn remember_sum(&self, id: &str, sum: Sum) {
        let Some((_, sums)) = &self.dirs else { return };
        let text = format!("{} {:08x}", sum.size_bytes, sum.crc32);
        // An error only makes the next run slower.
        let _ = cache::write(&sums.join(id), text.as_bytes(), cache::Limits::of_number(SUMS_LIMIT));
    }
}

impl Store {
    /// Returns true if the image of a recording at `path` is a file that a recorder of this store
    /// made, and that nothing has written to since, so that its contents need no check. Returns
    /// false for the same contents from elsewhere, which were not checked.
    pub fn is_intact_image(&self, id: &ImageId, path: &Path) -> bool {
        SharedImages::of(self).is_intact_shared(id, path)
    }
}

/// Marks a file as intact, by setting its time of modification to [`INTACT`].
pub(super) fn mark_intact(file: &File) -> io::Result<()> {
    file.set_times(FileTimes::new().set_modified(INTACT))
}

/// Returns true if a file is marked as intact ([`INTACT`]): nothing has written to it since it was
/// stored, unless it set that time again.
fn is_marked_intact(metadata: &Metadata) -> bool {
    metadata.modified().is_ok_and(|modified| modified == INTACT)
}

/// Removes the least recently used contents that no recording has, until the others have at most
/// [`UNUSED_LIMIT_BYTES`].
fn remove_unused(contents: &Path) -> io::Result<()> {
    let mut unused = Vec::new();
    for entry in fs::read_dir(contents)?.flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        // Making or removing a link sets this time.
        let used = Duration::new(u64::try_from(metadata.ctime()).unwrap_or(0), 0);
        if metadata.nlink() == 1 {
            unused.push((used, metadata.len(), entry.path()));
        }
    }
    let mut total: u64 = unused.iter().map(|(_, size, _)| size).sum();
    unused.sort();
    for (_, size, path) in unused {
        if total <= UNUSED_LIMIT_BYTES {
            break;
        }
        fs::remove_file(path)?;
        total -= size;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    struct Scene {
        dir: tempfile::TempDir,
        shared: SharedImages,
        id: ImageId,
    }

    impl Scene {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let shared = SharedImages::of(&Store::new(dir.path().join("store")));
            Self { dir, shared, id: ImageId("ab".repeat(32)) }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn stored(&self, name: &str, bytes: &[u8]) -> PathBuf {
            fs::write(self.path(name), bytes).unwrap();
            mark_intact(&File::options().write(true).open(self.path(name)).unwrap()).unwrap();
            self.path(name)
        }
    }

    #[test]
    fn a_content_is_shared_until_somebody_writes_to_it() {
        let scene = Scene::new();
        let (shared, id) = (&scene.shared, &scene.id);
        assert!(!shared.link_into(id, 4, &scene.path("none")));
        let first = scene.stored("first", b"code");
        shared.share(id, &first);
        assert!(!shared.link_into(id, 5, &scene.path("short")), "another size");
        assert!(shared.link_into(id, 4, &scene.path("second")));
        assert_eq!(fs::read(scene.path("second")).unwrap(), b"code");
        assert_eq!(fs::metadata(&first).unwrap().nlink(), 3);
        assert!(
            shared.is_intact_shared(id, &first)
                && shared.is_intact_shared(id, &scene.path("second"))
        );
        assert!(!shared.is_intact_shared(id, &scene.stored("copy", b"code")), "from elsewhere");
        File::options().append(true).open(&first).unwrap().write_all(b"").unwrap();
        assert!(shared.link_into(id, 4, &scene.path("third")), "nothing was written");
        fs::write(&first, b"evil").unwrap();
        assert!(
            !shared.link_into(id, 4, &scene.path("fourth")) && !shared.is_intact_shared(id, &first)
        );
        // A recording that stores the contents again shares them again.
        shared.share(id, &scene.stored("fifth", b"code"));
        assert!(shared.link_into(id, 4, &scene.path("sixth")));
        assert_eq!(fs::read(scene.path("sixth")).unwrap(), b"code");
        assert!(!SharedImages::default().link_into(id, 4, &scene.path("seventh")));
    }

    #[test]
    fn a_checksum_is_that_of_an_intact_image() {
        let scene = Scene::new();
        let (shared, id) = (&scene.shared, &scene.id.0);
        let image = scene.stored("image", b"code");
        let sum = Sum::of_bytes(b"code");
        assert_eq!(shared.known_sum(id, &image), None);
        shared.remember_sum(id, sum);
        assert_eq!(shared.known_sum(id, &image), Some(sum));
        assert_eq!(shared.known_sum(id, &scene.stored("longer", b"codes")), None);
        fs::write(&image, b"evil").unwrap();
        assert_eq!(shared.known_sum(id, &image), None);
    }

    #[test]
    fn the_unused_are_removed_when_they_are_large() {
        let scene = Scene::new();
        let contents = scene.path("contents");
        fs::create_dir(&contents).unwrap();
        let make = |name: &str| {
            let file = File::create(contents.join(name)).unwrap();
            file.set_len(UNUSED_LIMIT_BYTES / 2 + 1).unwrap();
        };
        make("used");
        fs::hard_link(contents.join("used"), scene.path("image")).unwrap();
        make("one");
        remove_unused(&contents).unwrap();
        assert!(contents.join("one").exists());
        std::thread::sleep(Duration::from_millis(1100));
        make("two");
        remove_unused(&contents).unwrap();
        let there = ["used", "one", "two"].map(|name| contents.join(name).exists());
        assert_eq!(there, [true, false, true]);
    }
}
