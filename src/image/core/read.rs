//! Reads a core file. Knows no debugger and no process.

use crate::common::{Addr, AddrRange};
use crate::image::core::{CoreContents, CoreSegment, Thread, notes};
use crate::image::elf::{Elf, FileType, Segment};
use crate::image::{Bytes, CodeSource, Error, Image, Section};
use object::read::elf::{FileHeader, Note, ProgramHeader};
use object::{Endianness, elf as raw};

type Header = raw::FileHeader64<Endianness>;

const EM_X86_64: u16 = 62;

/// A parsed core file.
#[derive(Clone, Debug)]
pub struct Core {
    /// The contents of the core file besides the bytes of memory.
    pub contents: CoreContents,
    /// The bytes of the segments, as far as the core has them.
    memory: Image,
}

impl Core {
    /// Reads the headers and notes of a core of a 64-bit x86 process. Keeps the bytes of the whole
    /// file for the memory, and copies them only if they are unaligned. Fails for another file, and
    /// if a header or note is damaged. Of memory that is cut off at the end of the file, only the
    /// bytes there are known.
    pub fn parse(bytes: &Bytes) -> Result<Self, Error> {
        // The parser of `object` needs aligned tables.
        let bytes = &bytes.clone().aligned();
        let elf = Elf::parse(bytes)?;
        check_kind(&elf)?;
        let mut contents = parse_notes(bytes)?;
        contents.segments = elf.segments.iter().map(core_segment).collect();
        let memory = elf.segments.iter().filter_map(|segment| known_part(bytes, segment)).collect();
        Ok(Self { contents, memory })
    }

    /// Copies memory from `addr` on into `buf`. Returns the number of bytes copied, up to the first
    /// that is not in the core: 0 if that is the one at `addr`.
    pub fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        self.memory.read(addr, buf)
    }

    /// Returns the memory in the core. Its sections have no names.
    pub fn memory(&self) -> &Image {
        &self.memory
    }
}

/// Fails unless a file is a core of a 64-bit x86 process. Does not check the byte order.
fn check_kind(elf: &Elf) -> Result<(), Error> {
    let file_type = match elf.file_type {
        FileType::Core if elf.machine == EM_X86_64 && elf.is_64 => return Ok(()),
        FileType::Core => {
            let class = if elf.is_64 { 2 } else { 1 };
            return Err(Error::ForeignCore { machine: elf.machine, class });
        }
        other => other.to_raw(),
    };
    Err(Error::NotCore { file_type })
}

/// Converts a loadable segment to one of a core. It counts as dumped if the file should have bytes
/// of it, even if the file is cut off before them.
fn core_segment(segment: &Segment) -> CoreSegment {
    CoreSegment {
        range: AddrRange::sized(segment.start, segment.memory_size_bytes),
        readable: segment.readable,
        writable: segment.writable,
        executable: segment.executable,
        dumped: segment.file_size_bytes > 0,
    }
}

/// Returns the part of the segment that the file contains, which is smaller in a truncated core,
/// and empty if the core has only the segment's range; `None` if the file ends before the segment.
fn known_part(bytes: &Bytes, segment: &Segment) -> Option<Section> {
    let held = (bytes.len() as u64).checked_sub(segment.offset)?.min(segment.file_size_bytes);
    Some(Section {
        range: AddrRange::sized(segment.start, held),
        bytes: bytes.clone(),
        offset: segment.offset,
        writable: segment.writable,
        executable: segment.executable,
        // Not the bytes of a mapped file.
        altered: true,
        ..Section::default()
    })
}

/// Reads the contents that are in notes: all but the segments. Fails if one is cut off or too short
/// for its type.
fn parse_notes(bytes: &Bytes) -> Result<CoreContents, Error> {
    let damaged = |_| Error::DamagedElf { reason: "the notes of the core are cut off" };
    let data: &[u8] = bytes;
    let header = Header::parse(data).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    let mut contents = CoreContents::default();
    for program in header.program_headers(endian, data).map_err(damaged)? {
        let Some(notes) = program.notes(endian, data).map_err(damaged)? else { continue };
        for note in notes {
            let note = note.map_err(damaged)?;
            let kind = note.n_type(endian).0;
            add_note(&mut contents, kind, &note).ok_or_else(|| Error::DamagedNote {
                kind,
                offset: (note.desc().as_ptr().addr() - data.as_ptr().addr()) as u64,
            })?;
        }
    }
    Ok(contents)
}

/// Adds a note to `contents`; `None` if it is damaged. Notes of a thread belong to the status
/// before them. Ignores those without one, and notes of unknown types.
fn add_note(contents: &mut CoreContents, kind: u32, note: &Note<'_, Header>) -> Option<()> {
    let bytes = note.desc();
    let thread = contents.threads.last_mut();
    match (note.name(), kind) {
        (b"CORE", notes::NT_PRSTATUS) => add_thread(contents, bytes)?,
        (b"CORE", notes::NT_PRPSINFO) => contents.process = notes::decode_process(bytes)?,
        (b"CORE", notes::NT_AUXV) => contents.auxv = bytes.to_vec(),
        (b"CORE", notes::NT_FILE) => contents.mappings = notes::decode_mappings(bytes)?,
        (b"CORE", notes::NT_FPREGSET) => set_bytes(thread, |of| &mut of.fpregs, bytes),
        (b"LINUX", notes::NT_X86_XSTATE) => set_bytes(thread, |of| &mut of.xstate, bytes),
        (b"CORE", notes::NT_SIGINFO) => set_bytes(thread, |of| &mut of.siginfo, bytes),
        _ => {}
    }
    Some(())
}

/// Adds a thread. The core's signal is the one in the first thread's status: the kernel writes the
/// thread that died of it first. Returns `None` if the note is damaged.
fn add_thread(contents: &mut CoreContents, bytes: &[u8]) -> Option<()> {
    let (thread, signal) = notes::decode_status(bytes)?;
    if contents.threads.is_empty() {
        contents.signal = signal;
    }
    contents.threads.push(thread);
    Some(())
}

/// Sets a field of a thread to `bytes`; does nothing if there is no thread.
fn set_bytes(
    thread: Option<&mut Thread>,
    field: impl Fn(&mut Thread) -> &mut Option<Vec<u8>>,
    bytes: &[u8],
) {
    if let Some(thread) = thread {
        *field(thread) = Some(bytes.to_vec());
    }
}
