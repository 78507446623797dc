//! Headers of a tar archive in GNU's format (GNU tar manual, "Basic Tar Format"): regular files,
//! long names, and files with holes.

use super::segments::{SEGMENTS_LIMIT, Segment, are_whole, stored_bytes};
use std::io::{self, Read};
use std::ops::Range;

/// The size of the blocks of which an archive consists.
pub(super) const BLOCK_BYTES: usize = 512;

type Block = [u8; BLOCK_BYTES];

const NAME: Range<usize> = 0..100;
const MODE: Range<usize> = 100..108;
const UID: Range<usize> = 108..116;
const GID: Range<usize> = 116..124;
const SIZE: Range<usize> = 124..136;
const MTIME: Range<usize> = 136..148;
const CHECKSUM: Range<usize> = 148..156;
const KIND: usize = 156;
const MAGIC: Range<usize> = 257..265;
const SPARSE: Range<usize> = 386..482;
const IS_EXTENDED: usize = 482;
const REAL_SIZE: Range<usize> = 483..495;

const SPARSE_OF_EXTENSION: Range<usize> = 0..504;
const EXTENSION_IS_EXTENDED: usize = 504;

/// The size of a segment in a header: its offset and its size.
const SEGMENT_BYTES: usize = 24;
const NUMBER_BYTES: usize = 12;

const REGULAR: u8 = b'0';
const LONG_NAME: u8 = b'L';
const HOLEY: u8 = b'S';
/// The name of a file whose contents are the name of the next file, if that is too long for a
/// header.
const LONG_NAME_FILE: &str = "././@LongLink";

/// Returns the header of a file, of one or more blocks. After it follow the `segments` of the file,
/// the parts of it that are not holes.
pub(super) fn header(name: &str, size_bytes: u64, segments: &[Segment]) -> Vec<u8> {
    let mut blocks = Vec::new();
    let truncated = name.as_bytes().get(NAME);
    if let Some(truncated) = truncated {
        let with_end = [name.as_bytes(), b"\0"].concat();
        blocks.extend(plain(LONG_NAME_FILE.as_bytes(), LONG_NAME, with_end.len() as u64));
        blocks.extend_from_slice(&with_end);
        blocks.resize(blocks.len().next_multiple_of(BLOCK_BYTES), 0);
        blocks.extend(of_file(truncated, size_bytes, segments));
    } else {
        blocks.extend(of_file(name.as_bytes(), size_bytes, segments));
    }
    blocks
}

/// Returns the header of a file whose name fits in one block: at most 100 bytes.
fn of_file(name: &[u8], size_bytes: u64, segments: &[Segment]) -> Vec<u8> {
    if are_whole(segments, size_bytes) {
        return plain(name, REGULAR, size_bytes).to_vec();
    }
    let stored = segments.iter().map(|segment| segment.size_bytes).sum();
    let mut block = plain(name, HOLEY, stored);
    put_number(&mut block[REAL_SIZE], size_bytes);
    // An empty segment at the end has the size of the file, which may end with a hole.
    let end = Segment { offset: size_bytes, size_bytes: 0 };
    let all = [segments, &[end]].concat();
    let in_block = all.len().min(SPARSE.len() / SEGMENT_BYTES);
    let (first, rest) = all.split_at(in_block);
    put_segments(&mut block[SPARSE], first);
    block[IS_EXTENDED] = u8::from(!rest.is_empty());
    seal(&mut block);
    let mut blocks = block.to_vec();
    let mut chunks = rest.chunks(SPARSE_OF_EXTENSION.len() / SEGMENT_BYTES).peekable();
    while let Some(chunk) = chunks.next() {
        let mut block = [0; BLOCK_BYTES];
        put_segments(&mut block[SPARSE_OF_EXTENSION], chunk);
        block[EXTENSION_IS_EXTENDED] = u8::from(chunks.peek().is_some());
        blocks.extend(block);
    }
    blocks
}

/// Returns a header block without segments, for a name of at most 100 bytes.
fn plain(name: &[u8], kind: u8, size_bytes: u64) -> Block {
    let mut block = [0; BLOCK_BYTES];
    block[..name.len()].copy_from_slice(name);
    block[MODE].copy_from_slice(b"0000600\0");
    block[UID].copy_from_slice(b"0000000\0");
    block[GID].copy_from_slice(b"0000000\0");
    put_number(&mut block[SIZE], size_bytes);
    put_number(&mut block[MTIME], 0);
    block[KIND] = kind;
    block[MAGIC].copy_from_slice(b"ustar  \0");
    seal(&mut block);
    block
}

/// Writes the checksum of a header: the sum of its bytes, with blanks in place of the checksum.
fn seal(block: &mut Block) {
    block[CHECKSUM].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn put_segments(field: &mut [u8], segments: &[Segment]) {
    for (place, segment) in field.chunks_exact_mut(SEGMENT_BYTES).zip(segments) {
        put_number(&mut place[..NUMBER_BYTES], segment.offset);
        put_number(&mut place[NUMBER_BYTES..], segment.size_bytes);
    }
}

/// Writes a number to a field of [`NUMBER_BYTES`]: as octal digits, or in base 256 if they do not
/// fit.
fn put_number(field: &mut [u8], number: u64) {
    let octal = format!("{number:011o}\0");
    if octal.len() == field.len() {
        field.copy_from_slice(octal.as_bytes());
    } else {
        field[0] = 0x80;
        field[NUMBER_BYTES - size_of::<u64>()..].copy_from_slice(&number.to_be_bytes());
    }
}

/// Parses a number as [`put_number`] writes it; `None` for other bytes.
fn number(field: &[u8]) -> Option<u64> {
    let (last, digits) = field.split_last()?;
    if field[0] == 0x80 {
        let number = field.last_chunk()?;
        return Some(u64::from_be_bytes(*number));
    }
    let is_octal = *last == 0 && digits.iter().all(|byte| (b'0'..=b'7').contains(byte));
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_octal)?;
    u64::from_str_radix(digits, 8).ok()
}

/// Reads the blocks before the data of the file `name`, and returns its segments; `None` unless
/// [`header`] returns exactly these blocks for the file. Fails if the input ends before.
pub(super) fn read_header(
    from: &mut impl Read,
    name: &str,
    size_bytes: u64,
) -> io::Result<Option<Vec<Segment>>> {
    let whole = [Segment { offset: 0, size_bytes }];
    let expected = header(name, size_bytes, if size_bytes == 0 { &[] } else { &whole });
    let mut found = vec![0; expected.len()];
    from.read_exact(&mut found)?;
    if found == expected {
        return Ok(Some(if size_bytes == 0 { Vec::new() } else { whole.to_vec() }));
    }
    let Some(block) = found.last_chunk::<BLOCK_BYTES>().copied() else { return Ok(None) };
    if block[KIND] != HOLEY {
        return Ok(None);
    }
    let mut segments = Vec::new();
    let mut is_extended = take_segments(&block[SPARSE], block[IS_EXTENDED], &mut segments);
    while is_extended == Some(true) && segments.len() <= SEGMENTS_LIMIT {
        let mut block = [0; BLOCK_BYTES];
        from.read_exact(&mut block)?;
        let mark = block[EXTENSION_IS_EXTENDED];
        is_extended = take_segments(&block[SPARSE_OF_EXTENSION], mark, &mut segments);
        found.extend(block);
    }
    // The last segment only has the size of the file.
    segments.pop();
    let is_sound = is_extended == Some(false) && stored_bytes(&segments, size_bytes).is_some();
    Ok((is_sound && found == header(name, size_bytes, &segments)).then_some(segments))
}

/// Appends the segments of a block. Returns true if another block of segments follows; `None` for
/// bytes that are not segments.
fn take_segments(field: &[u8], mark: u8, segments: &mut Vec<Segment>) -> Option<bool> {
    for place in field.chunks_exact(SEGMENT_BYTES).filter(|place| place[0] != 0) {
        let (offset, size) = place.split_at(NUMBER_BYTES);
        segments.push(Segment { offset: number(offset)?, size_bytes: number(size)? });
    }
    Some(mark != 0)
}

/// Reads the first header of a packed recording, and returns the size of its file; `None` unless it
/// is, byte for byte, the header that [`plain`] returns for a file `name`. So other programs'
/// archives of the same files are `None`, too. Fails if the input has no whole block.
pub(super) fn read_first(from: &mut impl Read, name: &str) -> io::Result<Option<u64>> {
    let mut block = [0; BLOCK_BYTES];
    from.read_exact(&mut block)?;
    let size_bytes = number(&block[SIZE]);
    Ok(size_bytes.filter(|size_bytes| block == plain(name.as_bytes(), REGULAR, *size_bytes)))
}
