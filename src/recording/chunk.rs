//! Chunks with checksums, which keep growing files readable after their writer was killed: up to
//! the first chunk that is not whole.
//!
//! There are two forms. A *framed* file (the sideband, the log) is a sequence of *frames*: `length,
//! CRC-32, payload`, one for each chunk. A *summed* file (a trace) is raw, so that any PT decoder
//! can read it. A second file beside it has one entry per chunk: the offset of the chunk's end, the
//! CRC-32 of the chunk, and the CRC-32 of the entry.

use super::error::{At, Error, ErrorKind};
use super::format::CHUNK_LIMIT_BYTES;
use super::regular::{create_private, open_own_for_append};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

const FRAME_HEADER_BYTES: usize = 8;
const SUM_ENTRY_BYTES: usize = 16;

/// A file to which whole chunks are appended.
#[derive(Debug)]
pub(super) struct Appender {
    path: PathBuf,
    /// The open file; `None` while it is closed to save descriptors.
    file: Option<File>,
    size_bytes: u64,
}

impl Appender {
    /// Creates the file, which must not exist.
    pub(super) fn create(path: PathBuf) -> Result<Self, Error> {
        let file = create_private(&path).at(&path)?;
        Ok(Self { path, file: Some(file), size_bytes: 0 })
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Closes the file until the next append, which opens it again, to save a descriptor.
    pub(super) fn close_until_append(&mut self) {
        self.file = None;
    }

    /// Appends bytes, after reopening the file if it is closed.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(open_own_for_append(&self.path).at(&self.path)?),
        };
        file.write_all(bytes).at(&self.path)?;
        self.size_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Appends a chunk to a framed file: the length and the checksum of `payload`, then `payload`.
    pub(super) fn append_framed(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.append(&frame(payload))
    }
}

/// Returns a chunk of a framed file: the length and the checksum of `payload`, then `payload`.
/// Readers take one of more than [`CHUNK_LIMIT_BYTES`] for broken; this does not check it.
pub(super) fn frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(FRAME_HEADER_BYTES + payload.len());
    frame.extend_from_slice(&frame_header(payload));
    frame.extend_from_slice(payload);
    frame
}

/// Returns the header of a payload in a framed file: its length and its checksum.
pub(super) fn frame_header(payload: &[u8]) -> [u8; FRAME_HEADER_BYTES] {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let word = u64::from(length) | u64::from(crc32fast::hash(payload)) << 32;
    word.to_le_bytes()
}

/// Reads a framed file from its start: a payload at a time, or the bytes of all payloads. A read
/// after the last payload fails.
#[derive(Debug)]
pub(super) struct FrameReader {
    file: File,
    /// The payload of the last chunk that was read; empty once it was returned.
    payload: Vec<u8>,
    /// The number of bytes of the payload that were read by [`Read::read`].
    used: usize,
}

impl FrameReader {
    pub(super) fn new(file: File) -> Self {
        Self { file, payload: Vec::new(), used: 0 }
    }

    /// Reads the next chunk and returns its payload; drops the unread rest of the one before. Fails
    /// if the file ends before it, or the chunk is broken.
    pub(super) fn next_payload(&mut self) -> io::Result<Vec<u8>> {
        self.fill()?;
        Ok(std::mem::take(&mut self.payload))
    }

    /// Reads and checks the next chunk, whose payload replaces the current one.
    fn fill(&mut self) -> io::Result<()> {
        let mut header = [0; FRAME_HEADER_BYTES];
        self.file.read_exact(&mut header)?;
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let broken = || io::Error::from(io::ErrorKind::InvalidData);
        let left = self.file.metadata()?.len().saturating_sub(self.file.stream_position()?);
        if length as usize > CHUNK_LIMIT_BYTES || u64::from(length) > left {
            return Err(broken());
        }
        self.payload.clear();
        self.payload.reserve_exact(length as usize);
        (&self.file).take(length.into()).read_to_end(&mut self.payload)?;
        if frame_header(&self.payload) != header {
            return Err(broken());
        }
        self.used = 0;
        Ok(())
    }
}

impl Read for FrameReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.used >= self.payload.len() {
            self.fill()?;
        }
        let from = &self.payload[self.used..];
        let count = from.len().min(to.len());
        to[..count].copy_from_slice(&from[..count]);
        self.used += count;
        Ok(count)
    }
}

/// Returns the entry, in the file of checksums, for a chunk that ends at offset `end` of a summed
/// file.
pub(super) fn sum_entry(end: u64, chunk: &[u8]) -> [u8; SUM_ENTRY_BYTES] {
    let mut entry = [0; SUM_ENTRY_BYTES];
    entry[..8].copy_from_slice(&end.to_le_bytes());
    entry[8..12].copy_from_slice(&crc32fast::hash(chunk).to_le_bytes());
    let own = crc32fast::hash(&entry[..12]);
    entry[12..].copy_from_slice(&own.to_le_bytes());
    entry
}

/// The extent of the whole chunks at the start of a file: complete, and with the right checksum.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WholeChunks {
    /// The size of all whole chunks together, in bytes.
    pub(super) size_bytes: u64,
    /// True if something other than a whole chunk follows the whole ones.
    pub(super) broken: bool,
}

/// Checks the bytes of a summed file against `sums`, the entries of its chunks, in order. Calls
/// `progress` with the number of bytes checked so far, after each whole chunk.
pub(super) fn check_summed(
    bytes: &[u8],
    sums: &[u8],
    progress: &mut dyn FnMut(usize),
) -> WholeChunks {
    let mut start = 0;
    for entry in sums.chunks(SUM_ENTRY_BYTES) {
        let Some(end) = summed_chunk_end(bytes, start, entry) else {
            return WholeChunks { size_bytes: start as u64, broken: true };
        };
        start = end;
        progress(start);
    }
    WholeChunks { size_bytes: start as u64, broken: start != bytes.len() }
}

/// Returns the end of the chunk of a summed file that starts at `start`, by its entry in the file
/// of checksums; `None` unless the chunk is whole.
fn summed_chunk_end(bytes: &[u8], start: usize, entry: &[u8]) -> Option<usize> {
    let entry: &[u8; SUM_ENTRY_BYTES] = entry.try_into().ok()?;
    let end = u64::from_le_bytes(entry[..8].try_into().ok()?);
    let chunk = bytes.get(start..usize::try_from(end).ok()?)?;
    (sum_entry(end, chunk) == *entry).then_some(start + chunk.len())
}

/// Returns the payloads of a framed file, as ranges of its bytes, up to the first broken chunk, and
/// the extent of their chunks.
pub(super) fn parse_frames(bytes: &[u8]) -> (Vec<Range<usize>>, WholeChunks) {
    let mut payloads = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        let Some(payload) = frame_payload(bytes, start) else { break };
        start = payload.end;
        payloads.push(payload);
    }
    (payloads, WholeChunks { size_bytes: start as u64, broken: start != bytes.len() })
}

/// Returns the payload of the chunk of a framed file that starts at `start`, as a range of the
/// file's bytes; `None` unless the chunk is whole.
fn frame_payload(bytes: &[u8], start: usize) -> Option<Range<usize>> {
    let header = bytes.get(start..start + FRAME_HEADER_BYTES)?;
    let length = u32::from_le_bytes(header[..4].try_into().ok()?) as usize;
    if length > CHUNK_LIMIT_BYTES {
        return None;
    }
    let from = start + FRAME_HEADER_BYTES;
    let payload = bytes.get(from..from + length)?;
    let sum = u32::from_le_bytes(header[4..].try_into().ok()?);
    (crc32fast::hash(payload) == sum).then_some(from..from + length)
}

/// Returns the error for a file of a complete recording that has a broken chunk after the `whole`
/// ones: truncated if its size `found` is less than the `expected` one, else a wrong checksum.
pub(super) fn broken_file_error(
    path: &Path,
    whole: &WholeChunks,
    expected: Option<u64>,
    found: u64,
) -> Error {
    match expected {
        Some(expected) if found < expected => {
            Error::new(path, ErrorKind::Truncated { found, expected })
        }
        _ => Error::new(path, ErrorKind::Checksum { offset: whole.size_bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn framed(chunks: &[Vec<u8>]) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut file = Appender::create(path.clone()).unwrap();
        for chunk in chunks {
            file.append_framed(chunk).unwrap();
        }
        std::fs::read(path).unwrap()
    }

    #[test]
    fn a_file_goes_on_where_it_rested() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut file = Appender::create(path.clone()).unwrap();
        for chunk in [b"one", b"two"] {
            file.append(chunk).unwrap();
            file.close_until_append();
        }
        assert_eq!(
            (std::fs::read(&path).unwrap().as_slice(), file.size_bytes()),
            (&b"onetwo"[..], 6)
        );
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        assert!(file.append(b"three").is_err());
    }

    proptest! {
        #[test]
        fn a_cut_file_gives_its_whole_chunks(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..8),
            cut in any::<proptest::sample::Index>(),
        ) {
            let bytes = framed(&chunks);
            let cut = cut.index(bytes.len() + 1);
            let (payloads, whole) = parse_frames(&bytes[..cut]);
            for (range, chunk) in payloads.iter().zip(&chunks) {
                prop_assert_eq!(&bytes[range.clone()], chunk.as_slice());
            }
            prop_assert!(whole.size_bytes <= cut as u64);
            prop_assert_eq!(whole.broken, whole.size_bytes != cut as u64);
            if cut == bytes.len() {
                prop_assert_eq!(payloads.len(), chunks.len());
            }
        }

        #[test]
        fn a_changed_byte_ends_a_summed_file(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 1..8),
            at in any::<proptest::sample::Index>(),
        ) {
            let (mut bytes, mut sums) = (Vec::new(), Vec::new());
            for chunk in &chunks {
                bytes.extend_from_slice(chunk);
                sums.extend_from_slice(&sum_entry(bytes.len() as u64, chunk));
            }
            let all = WholeChunks { size_bytes: bytes.len() as u64, broken: false };
            prop_assert_eq!(check_summed(&bytes, &sums, &mut |_| ()), all);
            let at = at.index(bytes.len());
            bytes[at] ^= 1;
            let whole = check_summed(&bytes, &sums, &mut |_| ());
            prop_assert!(whole.broken && whole.size_bytes <= at as u64);
        }
    }
}
