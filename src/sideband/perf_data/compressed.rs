//! Decompresses records that perf compressed (`perf record -z`). All of them together are one zstd
//! stream, which perf flushes at each record and never ends. The decompressed records may cross the
//! boundaries of the compressed ones.

use super::fields::BadPerfData;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, Read};

/// The limit on the decompressed size, as a multiple of the file size.
const GROWTH_LIMIT: u64 = 64;
const SMALLEST_LIMIT_BYTES: u64 = 1 << 20;
/// The limit on the window; perf uses some megabytes at most.
const WINDOW_LIMIT_BYTES: u64 = 8 << 20;

/// The end of a stream, which perf never writes: an empty last block, and room for a checksum. The
/// decoder keeps the last decompressed bytes back until it has read an end.
const END: &[u8] = &[1, 0, 0, 0, 0, 0, 0];

/// The compressed parts of a file, one after the other, and [`END`] after them.
struct CompressedStream<'a> {
    parts: Vec<(u64, &'a [u8])>,
    /// The index of the part that is being read, and the offset in it.
    part: usize,
    at: usize,
}

impl<'a> CompressedStream<'a> {
    /// Creates the stream of these parts, each with the file offset of its record.
    fn new(parts: &[(u64, &'a [u8])]) -> Self {
        let end = parts.last().map_or(0, |(offset, _)| *offset);
        let parts = parts.iter().copied().chain([(end, END)]).collect();
        Self { parts, part: 0, at: 0 }
    }

    /// Returns the file offset of the compressed record that is being read.
    fn offset(&self) -> u64 {
        let part = self.parts.get(self.part).or(self.parts.last());
        part.map_or(0, |(offset, _)| *offset)
    }

    /// Returns true if all records were read. `END`, which was appended to them, may be left.
    fn is_over(&mut self) -> bool {
        self.skip_read_parts();
        self.part + 1 >= self.parts.len()
    }

    /// Skips parts that have been read.
    fn skip_read_parts(&mut self) {
        while self.parts.get(self.part).is_some_and(|(_, bytes)| self.at >= bytes.len()) {
            self.part += 1;
            self.at = 0;
        }
    }
}

impl Read for CompressedStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.skip_read_parts();
        let rest = self.parts.get(self.part).and_then(|(_, bytes)| bytes.get(self.at..));
        let rest = rest.unwrap_or_default();
        let size = rest.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(rest) {
            *to = *from;
        }
        self.at += size;
        Ok(size)
    }
}

/// Decompresses `parts`, each with the file offset of its record, and passes the result to
/// `receive` in pieces of any size. Fails if the parts are damaged, if the result is too large to
/// come from a file of `file_bytes` bytes, and if `receive` fails.
pub(super) fn decompress(
    parts: &[(u64, &[u8])],
    file_bytes: usize,
    receive: &mut dyn FnMut(&[u8]) -> Result<(), BadPerfData>,
) -> Result<(), BadPerfData> {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(WINDOW_LIMIT_BYTES);
    let mut left = (file_bytes as u64).saturating_mul(GROWTH_LIMIT).max(SMALLEST_LIMIT_BYTES);
    let mut stream = CompressedStream::new(parts);
    // One round for each stream. The only one of perf ends at the appended `END`. If other programs
    // end theirs, more may follow, and `END` is not read.
    while !stream.is_over() {
        let bad = |offset| BadPerfData { offset, what: "the compressed records are damaged" };
        decoder.init(&mut stream).map_err(|_| bad(stream.offset()))?;
        while !decoder.is_finished() {
            let one = BlockDecodingStrategy::UptoBlocks(1);
            decoder.decode_blocks(&mut stream, one).map_err(|_| bad(stream.offset()))?;
            let bytes = decoder.collect().unwrap_or_default();
            let what = "the compressed records are too large for their file";
            let too_large = BadPerfData { offset: stream.offset(), what };
            left = left.checked_sub(bytes.len() as u64).ok_or(too_large)?;
            receive(&bytes)?;
        }
    }
    Ok(())
}
