//! Encodes entries, and makes chunks of them.

use super::super::chunk::frame;
use super::entry::Entry;
use super::pack::pack_chunk;
use std::convert::Infallible;

/// The number of encoded bytes at which a chunk is written.
pub(in crate::recording) const CHUNK_BYTES: usize = 256 << 10;

/// The maximum encoded size in bytes of entries that are encoded on the stack.
const SMALL_BYTES: usize = 256;

/// Returns the bytes of a log file with these entries, in chunks.
pub fn encode<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<u8> {
    let (mut log, mut pending) = (Vec::new(), Vec::new());
    for entry in entries {
        encode_entry(entry, &mut pending);
        if pending.len() >= CHUNK_BYTES {
            log.extend(framed(&pending));
            pending.clear();
        }
    }
    log.extend(framed(&pending));
    log
}

/// Returns a chunk of encoded entries as it is in a log file: compressed, and framed with
/// checksums.
pub(in crate::recording) fn framed(chunk: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    let Ok(()) = pack_chunk(chunk, |payload| {
        frames.extend_from_slice(&frame(payload));
        Ok::<(), Infallible>(())
    });
    frames
}

/// Encodes an entry in postcard's format and appends it to `pending`.
pub(in crate::recording) fn encode_entry(entry: &Entry, pending: &mut Vec<u8>) {
    // Most entries are small, and need no allocation.
    let mut small = [0; SMALL_BYTES];
    if let Ok(bytes) = postcard::to_slice(entry, &mut small) {
        pending.extend_from_slice(bytes);
        return;
    }
    // An entry is plain data without maps or floats, and writes to memory cannot fail.
    if let Ok(bytes) = postcard::to_stdvec(entry) {
        pending.extend_from_slice(&bytes);
    }
}
