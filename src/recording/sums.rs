//! The list of sizes and checksums of a complete recording's files, one line per file. It is made
//! at the end of the recording, over whole files. Files that grow during a run also have checksums
//! of their chunks (`chunk`); traces have only those.

use super::error::{At, Error, ErrorKind};
use super::regular::{Links, open_regular};
use crc32fast::Hasher;
use nix::errno::Errno;
use nix::unistd::{Whence, lseek};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

const BUFFER_BYTES: usize = 256 << 10;
/// The name under which the file of checksums lists itself, at its end.
const OWN_NAME: &str = "checksums";

/// The size of a file and the CRC-32 of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) size_bytes: u64,
    pub(super) crc32: u32,
}

impl Sum {
    pub(super) fn of_bytes(bytes: &[u8]) -> Self {
        Self { size_bytes: bytes.len() as u64, crc32: crc32fast::hash(bytes) }
    }

    /// Returns the size and checksum of a whole file. Does not read its holes: a core file may have
    /// terabytes of them. Moves the file's offset.
    pub(super) fn of_file(file: &File) -> io::Result<Self> {
        let size_bytes = file.metadata()?.len();
        let mut hasher = Hasher::new();
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut at = 0;
        for Range { start, end } in data_ranges_of(file)? {
            hasher.combine(&crc_of_zeros(start - at));
            at = start;
            while at < end {
                let count = usize::try_from(end - at).unwrap_or(BUFFER_BYTES).min(BUFFER_BYTES);
                file.read_exact_at(&mut buffer[..count], at)?;
                hasher.update(&buffer[..count]);
                at += count as u64;
            }
        }
        hasher.combine(&crc_of_zeros(size_bytes.saturating_sub(at)));
        Ok(Self { size_bytes, crc32: hasher.finalize() })
    }
}

/// Returns the ranges of a file that are not holes, in order. Moves the file's offset.
pub(super) fn data_ranges_of(file: &File) -> io::Result<Vec<Range<u64>>> {
    let size_bytes = file.metadata()?.len();
    let (mut all, mut at) = (Vec::new(), 0);
    while at < size_bytes {
        let start = seek_data_or_hole(file, at, Whence::SeekData, size_bytes)?;
        at = seek_data_or_hole(file, start, Whence::SeekHole, size_bytes)?;
        if start < at {
            all.push(start..at);
        }
    }
    Ok(all)
}

/// Returns the offset of the next data or hole of a file of `size_bytes`, from `at` on;
/// `size_bytes` if there is none. Moves the file's own offset.
pub(super) fn seek_data_or_hole(
    file: &File,
    at: u64,
    what: Whence,
    size_bytes: u64,
) -> io::Result<u64> {
    let from = i64::try_from(at).map_err(io::Error::other)?;
    match lseek(file, from, what) {
        // No data up to the end.
        Err(Errno::ENXIO) => Ok(size_bytes),
        // A file system without holes: everything is data.
        Err(Errno::EINVAL) => Ok(if matches!(what, Whence::SeekData) { at } else { size_bytes }),
        // The file may be growing.
        result => Ok(result?.cast_unsigned().clamp(at, size_bytes)),
    }
}

/// Returns the CRC-32 state over `count` zero bytes, in as many steps as `count` has bits.
fn crc_of_zeros(mut count: u64) -> Hasher {
    let mut all = Hasher::new();
    let mut power = Hasher::new();
    power.update(&[0]);
    while count > 0 {
        if count & 1 == 1 {
            all.combine(&power);
        }
        let same = power.clone();
        power.combine(&same);
        count >>= 1;
    }
    all
}

/// The sizes and checksums of a recording's files, by their paths in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums(BTreeMap<String, Sum>);

impl Sums {
    pub(super) fn add(&mut self, name: String, sum: Sum) {
        self.0.insert(name, sum);
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(super) fn lists(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Checks that the list has the size and checksum `found` for the file `name`. The error names
    /// `path`: the file is truncated, damaged, or not listed.
    pub(super) fn check(&self, name: &str, path: &Path, found: Sum) -> Result<(), Error> {
        let kind = match self.0.get(name) {
            Some(expected) if *expected == found => return Ok(()),
            Some(expected) if found.size_bytes < expected.size_bytes => {
                ErrorKind::Truncated { found: found.size_bytes, expected: expected.size_bytes }
            }
            Some(_) => ErrorKind::Damaged,
            None => ErrorKind::Unlisted,
        };
        Err(Error::new(path, kind))
    }

    /// Opens the file `name` of the recording in `dir`, reads all of it for a check against the
    /// list, and returns it.
    pub(super) fn check_file(&self, dir: &Path, name: &str) -> Result<File, Error> {
        let path = dir.join(name);
        let file = open_regular(&path, Links::Refuse);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::new(&path, ErrorKind::Gone),
            _ => Error::new(&path, error),
        })?;
        self.check(name, &path, Sum::of_file(&file).at(&path)?)?;
        Ok(file)
    }

    /// Returns the list as text. The last line has the size and checksum of the lines before it.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for (name, sum) in &self.0 {
            push_line(&mut text, *sum, name);
        }
        let own = Sum::of_bytes(text.as_bytes());
        push_line(&mut text, own, OWN_NAME);
        text
    }

    /// Parses the list; `None` unless these are the bytes that [`Self::to_text`] returns for it, so
    /// that any changed byte is noticed.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut sums = Self::default();
        for line in text.lines() {
            let mut fields = line.splitn(3, ' ');
            let crc32 = u32::from_str_radix(fields.next()?, 16).ok()?;
            let size_bytes = fields.next()?.parse().ok()?;
            sums.add(fields.next()?.to_owned(), Sum { size_bytes, crc32 });
        }
        sums.0.remove(OWN_NAME)?;
        (sums.to_text() == text).then_some(sums)
    }
}

fn push_line(text: &mut String, sum: Sum, name: &str) {
    // Writes to a string cannot fail.
    let _ = writeln!(text, "{:08x} {} {name}", sum.crc32, sum.size_bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn holes_count_as_the_zeros_that_they_are() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(3 << 20).unwrap();
        file.write_all_at(b"data", 1 << 20).unwrap();
        file.write_all_at(b"more", (2 << 20) + 5).unwrap();
        let mut bytes = vec![0; 3 << 20];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(Sum::of_file(&file).unwrap(), Sum::of_bytes(&bytes));
        file.set_len(0).unwrap();
        assert_eq!(Sum::of_file(&file).unwrap(), Sum::of_bytes(b""));
        // A file too large to be read as a whole.
        file.set_len(1 << 42).unwrap();
        assert_eq!(Sum::of_file(&file).unwrap().size_bytes, 1 << 42);
    }

    proptest! {
        #[test]
        fn zeros_in_few_steps_are_zeros(count in 0_u64..100_000, before in any::<Vec<u8>>()) {
            let mut bytes = before.clone();
            bytes.resize(before.len() + usize::try_from(count).unwrap(), 0);
            let mut hasher = Hasher::new();
            hasher.update(&before);
            hasher.combine(&crc_of_zeros(count));
            prop_assert_eq!(hasher.finalize(), crc32fast::hash(&bytes));
        }

        #[test]
        fn a_changed_byte_makes_the_list_unreadable(
            files in proptest::collection::btree_map("[a-z/]{1,12}", any::<(u64, u32)>(), 0..5),
            at in any::<proptest::sample::Index>(),
        ) {
            let mut sums = Sums::default();
            for (name, (size_bytes, crc32)) in files {
                sums.add(name, Sum { size_bytes, crc32 });
            }
            let mut bytes = sums.to_text().into_bytes();
            prop_assert_eq!(Sums::parse(&bytes), Some(sums));
            let at = at.index(bytes.len());
            prop_assert_eq!(Sums::parse(&bytes[..at]), None);
            bytes[at] ^= 1;
            prop_assert_eq!(Sums::parse(&bytes), None);
        }
    }
}
