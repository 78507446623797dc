//! Writes a core file that gdb opens. Buffers only a small part of the memory at a time.
//!
//! Layout: file header, notes, memory (each run of known bytes at a page boundary), program
//! headers. The file header is written last, so that a truncated core is not an ELF file.

use crate::common::{Addr, AddrRange};
use crate::image::core::{CoreContents, CoreSegment, notes};
use crate::image::{Error, PAGE_SIZE_BYTES};
use std::io::{Seek, SeekFrom, Write};

const HEADER_SIZE_BYTES: u64 = 64;
const PROGRAM_HEADER_SIZE_BYTES: u16 = 56;
const SECTION_HEADER_SIZE_BYTES: u16 = 64;
const BUFFER_SIZE_BYTES: usize = 1 << 18;
/// From this count on, the number of program headers is in the first section header instead.
const PN_XNUM: u32 = 0xffff;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;

/// The memory of the process whose core is written.
pub trait CoreMemory {
    /// Copies bytes from `addr` on into `buf`. Returns the number of bytes copied, up to the first
    /// unknown one.
    fn read(&mut self, addr: Addr, buf: &mut [u8]) -> usize;

    /// Returns the first run of whole pages in `range` that the process never touched; `None` if
    /// there is none, or if that is unknown. These pages are zero and need not be read.
    fn untouched(&mut self, _range: AddrRange) -> Option<AddrRange> {
        None
    }
}

impl<F: FnMut(Addr, &mut [u8]) -> usize> CoreMemory for F {
    fn read(&mut self, addr: Addr, buf: &mut [u8]) -> usize {
        self(addr, buf)
    }
}

/// Writes `contents` as a core file to `out`, which must be empty. A dumped segment becomes one
/// segment for each run of known bytes in it: each page is omitted from its first unknown byte on,
/// and a segment without known bytes altogether. One that is not dumped keeps its range, without
/// bytes. Pages of zeros become holes in the file. Segments begin and end at pages, which is not
/// checked; an empty one is an error.
pub fn write(
    out: &mut (impl Write + Seek),
    contents: &CoreContents,
    memory: &mut dyn CoreMemory,
) -> Result<(), Error> {
    let mut writer = Writer { out, position: HEADER_SIZE_BYTES, headers: Vec::new() };
    writer.write_notes(contents)?;
    let mut buffer = vec![0; BUFFER_SIZE_BYTES];
    for segment in &contents.segments {
        if segment.range.is_empty() {
            return Err(Error::Contents { reason: "an empty segment", addr: segment.range.start });
        }
        if segment.dumped {
            writer.dump_segment(segment, memory, &mut buffer)?;
        } else {
            writer.push_header(segment, segment.range, 0);
        }
    }
    writer.finish()
}

/// A core file that is being written.
struct Writer<'a, W> {
    out: &'a mut W,
    /// The offset in the file at which output continues. Skipped bytes are holes.
    position: u64,
    /// The program headers of what was written so far.
    headers: Vec<ProgramHeader>,
}

/// The fields of an `Elf64_Phdr` in use.
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    start: Addr,
    file_size_bytes: u64,
    memory_size_bytes: u64,
    align_bytes: u64,
}

impl<W: Write + Seek> Writer<'_, W> {
    /// Writes the notes and adds their program header.
    fn write_notes(&mut self, contents: &CoreContents) -> Result<(), Error> {
        let notes = notes::encode(contents);
        self.headers.push(ProgramHeader {
            kind: PT_NOTE,
            flags: 4,
            offset: self.position,
            start: Addr(0),
            file_size_bytes: notes.len() as u64,
            memory_size_bytes: 0,
            align_bytes: 4,
        });
        self.write_at_position(&notes)
    }

    /// Writes the known runs of a segment, with one program header each. A run ends at an unknown
    /// byte, and the next one begins at the page after it. Pages that were never touched
    /// ([`CoreMemory::untouched`]), and pages of zeros, are part of a run, as holes in the file.
    fn dump_segment(
        &mut self,
        segment: &CoreSegment,
        memory: &mut dyn CoreMemory,
        buffer: &mut [u8],
    ) -> Result<(), Error> {
        let AddrRange { start, end } = segment.range;
        let (mut run, mut at) = (start, start);
        self.align(PAGE_SIZE_BYTES);
        while at < end {
            let window = AddrRange::sized(at, (end.0 - at.0).min(buffer.len() as u64));
            let untouched = memory.untouched(window).filter(|pages| !pages.is_empty());
            if let Some(pages) = untouched.filter(|pages| pages.start == at) {
                // A hole in the file, but part of the run. The file offset of a run is the position
                // at its end minus its size (`end_run`), so each of its bytes moves the position.
                self.position += pages.size_bytes();
                at = pages.end;
                continue;
            }
            let until = untouched.map_or(window.end, |pages| pages.start);
            let left = usize::try_from(until.0 - at.0).unwrap_or(usize::MAX);
            let chunk = buffer.get_mut(..left).unwrap_or_default();
            let known = memory.read(at, chunk).min(left);
            self.write_pages(chunk.get(..known).unwrap_or_default())?;
            at = at.wrapping_add(known as u64);
            if known < left {
                self.end_run(segment, AddrRange::new(run, at));
                at = Addr(at.page().0.saturating_add(PAGE_SIZE_BYTES));
                run = at;
            }
        }
        // Empty if the segment ends in an unknown page.
        self.end_run(segment, AddrRange::new(run, end));
        Ok(())
    }

    /// Adds the program header of `run`, whose bytes, holes included, end at the current position,
    /// and moves to the next page of the file. Does nothing for an empty run.
    fn end_run(&mut self, segment: &CoreSegment, run: AddrRange) {
        if !run.is_empty() {
            self.push_header(segment, run, run.size_bytes());
            self.align(PAGE_SIZE_BYTES);
        }
    }

    /// Adds the `PT_LOAD` header of `range`. Its bytes in the file are the `file_size_bytes` before
    /// the current position; 0 for a segment that is not dumped.
    fn push_header(&mut self, segment: &CoreSegment, range: AddrRange, file_size_bytes: u64) {
        let flag = |set, bit: u32| if set { bit } else { 0 };
        self.headers.push(ProgramHeader {
            kind: PT_LOAD,
            flags: flag(segment.executable, 1)
                | flag(segment.writable, 2)
                | flag(segment.readable, 4),
            offset: self.position - file_size_bytes,
            start: range.start,
            file_size_bytes,
            memory_size_bytes: range.size_bytes(),
            align_bytes: PAGE_SIZE_BYTES,
        });
    }

    /// Moves to the next multiple of `align_bytes` in the file.
    fn align(&mut self, align_bytes: u64) {
        self.position = self.position.next_multiple_of(align_bytes);
    }

    /// Writes memory, but leaves a hole for each page of zeros. `bytes` begins at a page; its last
    /// one may be a part.
    fn write_pages(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let is_zero = |page: &&[u8]| page.iter().all(|byte| *byte == 0);
        let pages: Vec<&[u8]> = bytes.chunks(4096).collect();
        let mut rest = bytes;
        for run in pages.chunk_by(|a, b| is_zero(a) == is_zero(b)) {
            let size: usize = run.iter().map(|page| page.len()).sum();
            let (these, after) = rest.split_at(size);
            rest = after;
            if run.first().is_some_and(is_zero) {
                self.position += size as u64;
            } else {
                self.write_at_position(these)?;
            }
        }
        Ok(())
    }

    fn write_at_position(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.out.seek(SeekFrom::Start(self.position))?;
        self.out.write_all(bytes)?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    /// Writes the program headers after the memory, then the file header, and moves to the end of
    /// the file. Fails for 2^32 headers or more.
    fn finish(mut self) -> Result<(), Error> {
        self.align(8);
        let table_at = self.position;
        let table: Vec<u8> = self.headers.iter().flat_map(ProgramHeader::encode).collect();
        self.write_at_position(&table)?;
        let count = u32::try_from(self.headers.len())
            .map_err(|_| Error::Contents { reason: "too many segments", addr: Addr(0) })?;
        let mut sections_at = 0;
        if count >= PN_XNUM {
            sections_at = self.position;
            self.write_at_position(&first_section_header(count))?;
        }
        self.position = 0;
        self.write_at_position(&file_header(table_at, count, sections_at))?;
        self.out.seek(SeekFrom::End(0))?;
        self.out.flush()?;
        Ok(())
    }
}

impl ProgramHeader {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.kind.to_le_bytes());
        bytes.extend(self.flags.to_le_bytes());
        let sizes = [self.file_size_bytes, self.memory_size_bytes, self.align_bytes];
        for word in [self.offset, self.start.0, 0].into_iter().chain(sizes) {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }
}

/// Encodes the `Elf64_Ehdr` of a little-endian x86-64 core. From [`PN_XNUM`] program headers on,
/// `sections_at` is the offset of [`first_section_header`], which has their number; it is 0 for
/// fewer.
fn file_header(programs_at: u64, programs: u32, sections_at: u64) -> Vec<u8> {
    let extended = sections_at != 0;
    let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let short = |bytes: &mut Vec<u8>, value: u16| bytes.extend(value.to_le_bytes());
    short(&mut bytes, 4); // ET_CORE
    short(&mut bytes, 62); // EM_X86_64
    bytes.extend(1_u32.to_le_bytes()); // EV_CURRENT
    for word in [0, programs_at, sections_at] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(0_u32.to_le_bytes());
    short(&mut bytes, 64); // e_ehsize
    short(&mut bytes, PROGRAM_HEADER_SIZE_BYTES);
    short(&mut bytes, u16::try_from(programs.min(PN_XNUM)).unwrap_or(u16::MAX));
    short(&mut bytes, if extended { SECTION_HEADER_SIZE_BYTES } else { 0 });
    short(&mut bytes, u16::from(extended));
    short(&mut bytes, 0);
    bytes
}

/// Encodes the section header that contains the number of program headers in `sh_info`.
fn first_section_header(programs: u32) -> Vec<u8> {
    let mut bytes = vec![0; SECTION_HEADER_SIZE_BYTES.into()];
    for (to, from) in bytes.iter_mut().skip(32).zip(1_u64.to_le_bytes()) {
        *to = from; // sh_size: one section
    }
    for (to, from) in bytes.iter_mut().skip(44).zip(programs.to_le_bytes()) {
        *to = from;
    }
    bytes
}
