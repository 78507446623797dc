//! Lists of the code that earlier runs executed, one for each program or library, kept in a store.
//! A run that executes the same files translates the listed code before it is needed.

use super::cache;
use super::chunk::{frame, parse_frames};
use super::regular::read_limited;
use super::store::Store;
use crate::common::{Addr, AddrRange};
use crate::sideband::ImageId;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

/// The maximum number of offsets in the list of a file.
const COUNT_LIMIT: usize = 1 << 16;
/// The maximum number of lists, and the maximum size of one in bytes: an offset takes at most 10.
const FILES_LIMIT: usize = 512;
const SIZE_LIMIT_BYTES: u64 = 1 << 20;
/// The length of an image's name: a SHA-256 in hexadecimal.
const NAME_BYTES: usize = 64;

/// The lists of executed code: for each file, the file offsets at which runs began to execute code,
/// in the order of first execution. The default value has none, and keeps none.
#[derive(Clone, Debug, Default)]
pub struct KnownCode {
    /// The directory of the lists; `None` if none are kept.
    dir: Option<PathBuf>,
}

impl KnownCode {
    /// Returns the lists that a store keeps; none, and keeps none, if its directory is unknown.
    /// Reads none yet.
    pub fn of(store: &Store) -> Self {
        Self { dir: cache::directory(store, "code") }
    }

    /// Returns the lists that the user's store keeps ([`Store::of_user`]).
    pub fn of_user() -> Self {
        Self::of(&Store::of_user())
    }

    /// Reads the list of a file, by the hash of its contents; empty if there is none, or it is
    /// damaged.
    pub fn load(&self, file: &ImageId) -> Vec<u64> {
        self.path_of(file).and_then(|path| read(&path).ok()).unwrap_or_default()
    }

    /// Adds offsets that are new to the end of the list of a file, up to its maximum length, and
    /// writes the list. Ignores errors, which only make the next run slower.
    pub fn add(&self, file: &ImageId, offsets: &[u64]) {
        let Some(path) = self.path_of(file) else { return };
        let mut all = read(&path).unwrap_or_default();
        let mut known: HashSet<u64> = all.iter().copied().collect();
        let before = all.len();
        all.extend(offsets.iter().copied().filter(|offset| known.insert(*offset)));
        all.truncate(COUNT_LIMIT);
        if all.len() > before {
            let _ = write(&path, &all);
        }
    }

    /// Returns the path of a file's list; `None` if none are kept, or the ID is not a hash.
    fn path_of(&self, file: &ImageId) -> Option<PathBuf> {
        let is_name = file.0.len() == NAME_BYTES && file.0.bytes().all(|b| b.is_ascii_hexdigit());
        self.dir.as_ref().filter(|_| is_name).map(|dir| dir.join(&file.0))
    }
}

/// Returns the addresses of file offsets in one mapping of the file: at `range`, from file offset
/// `from` on. Leaves out offsets that are not mapped there.
pub fn mapped_addresses(range: AddrRange, from: u64, offsets: &[u64]) -> impl Iterator<Item = u64> {
    let address = move |offset: &u64| range.start.0.checked_add(offset.checked_sub(from)?);
    let is_inside = move |addr: &u64| range.contains(Addr(*addr));
    offsets.iter().filter_map(address).filter(is_inside)
}

/// Reads a list; empty if it is damaged. Fails if the file is missing.
fn read(path: &Path) -> io::Result<Vec<u64>> {
    let bytes = read_limited(path, SIZE_LIMIT_BYTES)?;
    let (payloads, whole) = parse_frames(&bytes);
    let [payload] = &payloads[..] else { return Ok(Vec::new()) };
    let distances: Vec<i64> = postcard::from_bytes(&bytes[payload.clone()]).unwrap_or_default();
    if whole.broken || distances.len() > COUNT_LIMIT {
        return Ok(Vec::new());
    }
    let mut at = 0_u64;
    let offset = |distance: i64| {
        at = at.wrapping_add_signed(distance);
        at
    };
    Ok(distances.into_iter().map(offset).collect())
}

/// Writes a list as the differences of successive offsets.
fn write(path: &Path, offsets: &[u64]) -> io::Result<()> {
    let mut before = 0_u64;
    let distance = |offset: &u64| {
        let distance = offset.wrapping_sub(before).cast_signed();
        before = *offset;
        distance
    };
    let distances: Vec<i64> = offsets.iter().map(distance).collect();
    let payload = postcard::to_stdvec(&distances).map_err(io::Error::other)?;
    cache::write(path, &frame(&payload), cache::Limits::of_number(FILES_LIMIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn image(digit: char) -> ImageId {
        ImageId(digit.to_string().repeat(NAME_BYTES))
    }

    fn known_code() -> (tempfile::TempDir, KnownCode) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("s"));
        (dir, KnownCode::of(&store))
    }

    #[test]
    fn lists_keep_their_order_and_grow() {
        let (_dir, known) = known_code();
        assert!(known.load(&image('a')).is_empty());
        known.add(&image('a'), &[0x1000, 0x20, u64::MAX, 0x20]);
        known.add(&image('a'), &[7, 0x1000, 0]);
        known.add(&image('b'), &[1]);
        assert_eq!(known.load(&image('a')), [0x1000, 0x20, u64::MAX, 7, 0]);
        assert_eq!(known.load(&image('b')), [1]);
        let many: Vec<u64> = (0..2 * COUNT_LIMIT as u64).map(|n| n << 40).collect();
        known.add(&image('b'), &many);
        assert_eq!(known.load(&image('b')).len(), COUNT_LIMIT);
    }

    #[test]
    fn damage_and_foreign_names_give_nothing() {
        let (dir, known) = known_code();
        known.add(&image('a'), &[1, 2, 3]);
        let path = known.path_of(&image('a')).unwrap();
        let bytes = fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            fs::write(&path, changed).unwrap();
            assert!(known.load(&image('a')).is_empty(), "byte {at}");
            fs::write(&path, &bytes[..at]).unwrap();
            assert!(known.load(&image('a')).is_empty(), "cut at {at}");
        }
        let foreign = ImageId(format!("../{}", "a".repeat(NAME_BYTES - 3)));
        known.add(&foreign, &[1]);
        assert_eq!(fs::read_dir(dir.path().join("s")).unwrap().count(), 1);
        assert!(KnownCode::default().load(&image('a')).is_empty());
    }

    #[test]
    fn old_lists_make_room() {
        let (_dir, known) = known_code();
        for number in 0..FILES_LIMIT + 3 {
            known.add(&ImageId(format!("{number:064x}")), &[1]);
        }
        let dir = known.dir.as_ref().unwrap();
        assert_eq!(fs::read_dir(dir).unwrap().count(), FILES_LIMIT * 3 / 4 + 3);
    }
}
