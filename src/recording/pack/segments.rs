//! The parts of a file with holes that are stored: a core file may have terabytes of holes.

use super::super::sums::seek_data_or_hole;
use nix::unistd::Whence;
use std::fs::File;
use std::io;

/// The minimum size of a hole that is left out, in bytes.
const LEAST_HOLE_BYTES: u64 = 64 << 10;
/// The minimum size of a hole that is left out, as a fraction of the file: 1/2^16. So at most 2^16
/// holes are left out.
const LEAST_HOLE_SHIFT: u32 = 16;
/// The maximum number of segments that a reader accepts; a writer makes at most half as many.
pub(super) const SEGMENTS_LIMIT: usize = 2 << LEAST_HOLE_SHIFT;

/// A part of a file; the bytes around it are zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) offset: u64,
    pub(super) size_bytes: u64,
}

/// Returns the parts of the first `size_bytes` of a file between its holes, in order. Small holes
/// count as data.
pub(super) fn segments_of(file: &File, size_bytes: u64) -> io::Result<Vec<Segment>> {
    let least = LEAST_HOLE_BYTES.max(size_bytes >> LEAST_HOLE_SHIFT);
    let mut segments: Vec<Segment> = Vec::new();
    let mut at = 0;
    while at < size_bytes {
        let data = seek_data_or_hole(file, at, Whence::SeekData, size_bytes)?;
        let hole = seek_data_or_hole(file, data, Whence::SeekHole, size_bytes)?;
        match segments.last_mut() {
            // The hole is too small: this segment joins the one before it.
            Some(before) if data - at < least => before.size_bytes = hole - before.offset,
            // The hole at the start is too small.
            None if data < least => segments.push(Segment { offset: 0, size_bytes: hole }),
            // A new segment.
            _ if hole > data => segments.push(Segment { offset: data, size_bytes: hole - data }),
            _ => {}
        }
        // Without progress, the file is shrinking, which shows when it is read.
        if hole == at {
            break;
        }
        at = hole;
    }
    Ok(segments)
}

/// Returns true if one segment is the whole file, or if the file is empty and has none.
pub(super) fn are_whole(segments: &[Segment], size_bytes: u64) -> bool {
    match segments {
        [] => size_bytes == 0,
        [one] => *one == Segment { offset: 0, size_bytes },
        _ => false,
    }
}

/// Returns the number of bytes in all segments; `None` unless each has bytes, and they are in
/// order, do not overlap, and are inside a file of `size_bytes`.
pub(super) fn stored_bytes(segments: &[Segment], size_bytes: u64) -> Option<u64> {
    let (mut end, mut stored) = (0, 0);
    for segment in segments {
        if segment.offset < end || segment.size_bytes == 0 {
            return None;
        }
        end = segment.offset.checked_add(segment.size_bytes)?;
        stored += segment.size_bytes;
    }
    (end <= size_bytes).then_some(stored)
}
