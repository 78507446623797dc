//! Payloads of the log's chunks: encoded entries, compressed.
//!
//! A *chunk* of the log is a sequence of whole entries. A *frame* is one chunk of the framed file
//! (`chunk.rs`), with a payload each. The two are the same, but for a chunk that is too large for
//! one frame: it continues in the next frame.
//!
//! The first byte of a payload is its kind. A chunk whose entries need more than
//! [`COMPRESSED_LIMIT_BYTES`] is not compressed, so a reader never allocates much more memory than
//! that, or than the size of the file.

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

/// The kind of a payload with plain entries.
const STORED: u8 = 0;
/// The kind of a payload with compressed entries: their size (32 bits, little-endian), and one LZ4
/// block.
const LZ4: u8 = 1;
/// The kind of a payload with plain entries of a chunk that continues in the next frame.
const CONTINUED: u8 = 2;

const LZ4_HEADER_BYTES: usize = 5;
/// The maximum size of the entries of a compressed chunk, in bytes before compression.
pub(super) const COMPRESSED_LIMIT_BYTES: usize = 4 << 20;
/// The size in bytes of the pieces of a chunk that one frame cannot hold.
pub(super) const PIECE_BYTES: usize = 16 << 20;

/// Compresses a chunk's encoded entries to one payload, or divides them into several plain ones if
/// that is not possible. Calls `write` with each payload in order, and returns its first error.
/// Without entries, writes nothing.
pub(super) fn pack_chunk<E>(
    entries: &[u8],
    mut write: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    if let Some(compressed) = compress(entries) {
        return write(&compressed);
    }
    let mut pieces = entries.chunks(PIECE_BYTES).peekable();
    while let Some(piece) = pieces.next() {
        let kind = if pieces.peek().is_some() { CONTINUED } else { STORED };
        write(&[&[kind], piece].concat())?;
    }
    Ok(())
}

/// Returns the payload with compressed entries; `None` if they are larger than
/// [`COMPRESSED_LIMIT_BYTES`], or do not get smaller.
fn compress(entries: &[u8]) -> Option<Vec<u8>> {
    if entries.len() > COMPRESSED_LIMIT_BYTES {
        return None;
    }
    let mut payload = vec![0; LZ4_HEADER_BYTES + get_maximum_output_size(entries.len())];
    let (header, block) = payload.split_first_chunk_mut::<LZ4_HEADER_BYTES>()?;
    let size_bytes = compress_into(entries, block).ok()?;
    header[0] = LZ4;
    header[1..].copy_from_slice(&u32::try_from(entries.len()).ok()?.to_le_bytes());
    payload.truncate(LZ4_HEADER_BYTES + size_bytes);
    (payload.len() <= entries.len()).then_some(payload)
}

/// Returns true if the chunk of a payload continues in the next frame.
pub(super) fn is_continued(payload: &[u8]) -> bool {
    payload.first() == Some(&CONTINUED)
}

/// Appends the encoded entries of a payload, decompressed. Returns `None` if the payload is
/// invalid; other bytes may then be appended.
pub(super) fn unpack_payload(payload: &[u8], entries: &mut Vec<u8>) -> Option<()> {
    match payload.split_first()? {
        (&(STORED | CONTINUED), rest) => entries.extend_from_slice(rest),
        (&LZ4, rest) => {
            let (size, block) = rest.split_first_chunk()?;
            let size = usize::try_from(u32::from_le_bytes(*size)).ok()?;
            if size > COMPRESSED_LIMIT_BYTES {
                return None;
            }
            let start = entries.len();
            entries.resize(start + size, 0);
            let written = decompress_into(block, entries.get_mut(start..)?).ok()?;
            (written == size).then_some(())?;
        }
        _ => return None,
    }
    Some(())
}
