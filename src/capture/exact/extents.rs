//! The parts of a large file that have data, for copies without the file's holes.

use nix::unistd::{Whence, lseek};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The size of a page in bytes.
pub(super) const PAGE_BYTES: u64 = 4096;
/// The maximum size of a part of a file that is stored at once: 64 MiB.
pub(super) const LARGEST_STORED_BYTES: u64 = 64 << 20;

/// Returns true if a file is a regular one.
pub(super) fn is_regular(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file())
}

/// Splits `size_bytes` of a file, from offset `first` on, into parts with data (true) and holes
/// (false), in order and in whole pages. Parts with data have at most `LARGEST_STORED_BYTES`. All
/// after the end of the file is a hole.
pub(super) fn extents(file: &File, first: u64, size_bytes: u64) -> Vec<(Range<u64>, bool)> {
    let end = first.saturating_add(size_bytes);
    let mut parts = Vec::new();
    let mut at = first;
    while at < end {
        // lseek(2) fails where there is no more data.
        let data =
            seek(file, at, Whence::SeekData).unwrap_or(end).clamp(at, end) & !(PAGE_BYTES - 1);
        if data > at {
            parts.push((at..data, false));
            at = data;
            continue;
        }
        let hole = seek(file, at, Whence::SeekHole).unwrap_or(end);
        let hole = hole.checked_next_multiple_of(PAGE_BYTES).unwrap_or(end);
        let last = hole.clamp(at + PAGE_BYTES, at + LARGEST_STORED_BYTES).min(end);
        parts.push((at..last, true));
        at = last;
    }
    parts
}

/// Returns the offset to which lseek(2) seeks; `None` if it fails.
fn seek(file: &File, from: u64, whence: Whence) -> Option<u64> {
    let found = lseek(file, i64::try_from(from).ok()?, whence).ok()?;
    u64::try_from(found).ok()
}

/// Reads a file from `offset` on until `bytes` is full or the file ends. Returns the number of
/// bytes read.
pub(super) fn read_up_to(file: &File, bytes: &mut [u8], offset: u64) -> usize {
    let mut known = 0;
    while let Some(rest) = bytes.get_mut(known..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + known as u64) {
            Ok(0) | Err(_) => break,
            Ok(read) => known += read,
        }
    }
    known
}
