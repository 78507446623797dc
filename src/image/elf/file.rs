//! The description of an ELF file by its headers, notes and links. Reads no symbols and no DWARF.

use crate::common::Addr;
use crate::image::{Bytes, Error, PAGE_SIZE_BYTES};
use object::elf::{self as raw, FileHeader32, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, SectionTable};
use object::{Endian, Endianness, FileKind};

const PAGE_MASK: u64 = !(PAGE_SIZE_BYTES - 1);
/// The size of the identification with which a file begins (`EI_NIDENT`).
const IDENTIFICATION_BYTES: usize = 16;

/// The description of an ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// The kind of file.
    pub file_type: FileType,
    /// `e_machine`: 62 for x86-64, 3 for 32-bit x86.
    pub machine: u16,
    /// True for the 64-bit class.
    pub is_64: bool,
    /// The entry point, before the load bias; zero if there is none.
    pub entry: Addr,
    /// True for a position-independent executable; false for one at fixed addresses, and for a
    /// library.
    pub is_pie: bool,
    /// The loadable segments, in the order of the program headers.
    pub segments: Vec<Segment>,
    /// The file offset of the program headers, and their number.
    pub program_headers: (u64, u64),
    /// The address of the dynamic section, before the load bias; `None` if there is none.
    pub dynamic: Option<Addr>,
    /// The path of the dynamic linker; `None` if the file names none.
    pub interpreter: Option<Vec<u8>>,
    /// The GNU build ID, by which the same build is recognized; `None` if the file has none.
    pub build_id: Option<Vec<u8>>,
    /// The name of the separate debug file; `None` if the file names none.
    pub debug_link: Option<DebugLink>,
}

/// The kind of an ELF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    /// `ET_REL`: an object file to be linked.
    Relocatable,
    /// `ET_EXEC`: an executable at fixed addresses.
    Executable,
    /// `ET_DYN`: a library, or an executable that runs at any bias.
    Dynamic,
    /// `ET_CORE`: a core file.
    Core,
    /// Another value of `e_type`.
    Other(u16),
}

/// A segment that is loaded into memory (`PT_LOAD`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The address of the segment, before the load bias.
    pub start: Addr,
    /// The file offset of the segment's bytes.
    pub offset: u64,
    /// The size of the segment in the file.
    pub file_size_bytes: u64,
    /// The size of the segment in memory: bytes beyond its size in the file are zero.
    pub memory_size_bytes: u64,
    /// True if the segment may be read.
    pub readable: bool,
    /// True if the segment may be written.
    pub writable: bool,
    /// True if the segment may be executed.
    pub executable: bool,
}

impl Segment {
    /// Returns the load bias (address in memory minus address in the file) if `offset` of the file
    /// is mapped at `at`. `offset` is not before the segment's first page.
    const fn bias(&self, at: Addr, offset: u64) -> u64 {
        let from_first_page = offset - (self.offset & PAGE_MASK);
        at.0.wrapping_sub((self.start.0 & PAGE_MASK).wrapping_add(from_first_page))
    }
}

/// A separate debug file by name (section `.gnu_debuglink`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugLink {
    /// The name of the debug file, without a directory.
    pub file_name: Vec<u8>,
    /// The CRC-32 of the debug file.
    pub crc: u32,
}

/// Returns the loadable segments (`PT_LOAD`) of an ELF file, in the order of its program headers.
pub fn segments(bytes: &Bytes) -> Result<Vec<Segment>, Error> {
    Elf::parse(bytes).map(|elf| elf.segments)
}

impl Elf {
    /// Returns the most likely load bias of the file (address in memory minus address in the file)
    /// if code at `offset` of it is mapped at `at`; `None` if no segment has this offset.
    pub fn bias(&self, at: Addr, offset: u64) -> Option<u64> {
        self.biases(at, offset, true).first().copied()
    }

    /// Returns the possible load biases if `offset` of the file is mapped at `at`, the most likely
    /// first; none if no segment has this offset. `executable` is true if that mapping is
    /// executable. Segments may share a page of the file, as lld places them; the kernel maps that
    /// page once for each.
    pub fn biases(&self, at: Addr, offset: u64, executable: bool) -> Vec<u64> {
        let covers = |segment: &&Segment| {
            let end = segment.offset.saturating_add(segment.file_size_bytes);
            (segment.offset & PAGE_MASK..end).contains(&offset)
        };
        let mut segments: Vec<&Segment> = self.segments.iter().filter(covers).collect();
        segments.sort_by_key(|segment| {
            let has_other_protection = segment.executable != executable;
            let starts_elsewhere = segment.offset & PAGE_MASK != offset;
            (has_other_protection, starts_elsewhere)
        });
        segments.into_iter().map(|segment| segment.bias(at, offset)).collect()
    }

    /// Reads the headers of `bytes`. A damaged note or link reads as absent; damaged headers are an
    /// error.
    pub fn parse(bytes: &Bytes) -> Result<Self, Error> {
        let bytes = bytes.clone().aligned();
        let data: &[u8] = &bytes;
        if !data.starts_with(&raw::ELFMAG) {
            return Err(Error::NotElf { start: data.iter().take(4).copied().collect() });
        }
        match FileKind::parse(data) {
            Ok(FileKind::Elf64) => parse_class::<FileHeader64<Endianness>>(data),
            Ok(FileKind::Elf32) => parse_class::<FileHeader32<Endianness>>(data),
            _ if data.len() < IDENTIFICATION_BYTES => Err(damaged("the file header is cut off")),
            _ => Err(damaged("its class is neither 32 nor 64 bits")),
        }
    }
}

/// Reads the headers of a file of class `H`: 32 or 64 bits.
fn parse_class<H: FileHeader<Endian = Endianness>>(data: &[u8]) -> Result<Elf, Error> {
    let header = H::parse(data).map_err(|_| damaged("the file header is cut off"))?;
    let endian = header.endian().map_err(|_| damaged("its byte order is unknown"))?;
    let programs = header
        .program_headers(endian, data)
        .map_err(|_| damaged("the program headers are cut off"))?;
    let dynamic = Dynamic::read(programs, endian, data);
    let interpreter = programs
        .iter()
        .find_map(|program| program.interpreter(endian, data).ok().flatten())
        .map(<[u8]>::to_vec);
    // Section headers are not loaded, so a file copied from memory has none.
    let sections = header.sections(endian, data).unwrap_or_default();
    let file_type = FileType::from_raw(header.e_type(endian).0);
    Ok(Elf {
        file_type,
        machine: header.e_machine(endian).0,
        is_64: header.is_class_64(),
        entry: Addr(header.e_entry(endian).into()),
        is_pie: file_type == FileType::Dynamic
            && (dynamic.has_pie_flag || interpreter.is_some() && !dynamic.has_name),
        segments: programs.iter().filter_map(|program| segment(program, endian)).collect(),
        program_headers: (header.e_phoff(endian).into(), programs.len() as u64),
        dynamic: programs
            .iter()
            .find(|program| program.p_type(endian) == raw::PT_DYNAMIC)
            .map(|program| Addr(program.p_vaddr(endian).into())),
        interpreter,
        build_id: build_id(programs, &sections, endian, data),
        debug_link: debug_link(&sections, endian, data),
    })
}

fn damaged(reason: &'static str) -> Error {
    Error::DamagedElf { reason }
}

impl FileType {
    fn from_raw(e_type: u16) -> Self {
        match raw::FileType(e_type) {
            raw::ET_REL => Self::Relocatable,
            raw::ET_EXEC => Self::Executable,
            raw::ET_DYN => Self::Dynamic,
            raw::ET_CORE => Self::Core,
            raw::FileType(other) => Self::Other(other),
        }
    }

    /// Returns `e_type` of the file header.
    pub const fn to_raw(self) -> u16 {
        match self {
            Self::Relocatable => 1,
            Self::Executable => 2,
            Self::Dynamic => 3,
            Self::Core => 4,
            Self::Other(other) => other,
        }
    }
}

/// Returns the segment of a program header; `None` unless it is loadable.
fn segment<P: ProgramHeader>(program: &P, endian: P::Endian) -> Option<Segment> {
    let flags = program.p_flags(endian);
    (program.p_type(endian) == raw::PT_LOAD).then(|| Segment {
        start: Addr(program.p_vaddr(endian).into()),
        offset: program.p_offset(endian).into(),
        file_size_bytes: program.p_filesz(endian).into(),
        memory_size_bytes: program.p_memsz(endian).into(),
        readable: flags.contains(raw::PF_R),
        writable: flags.contains(raw::PF_W),
        executable: flags.contains(raw::PF_X),
    })
}

/// The entries of the dynamic table that distinguish executables from libraries. Executables that
/// run at any bias have a flag (`DF_1_PIE`); old ones lack it, but have an interpreter and no name.
/// An executable C library has an interpreter and a name.
#[derive(Default)]
struct Dynamic {
    has_pie_flag: bool,
    has_name: bool,
}

const DF_1_PIE: u64 = 0x0800_0000;

impl Dynamic {
    /// Reads the dynamic tables of all program headers; a damaged one reads as absent.
    fn read<P: ProgramHeader>(programs: &[P], endian: P::Endian, data: &[u8]) -> Self {
        let mut dynamic = Self::default();
        let tables = programs.iter().filter_map(|each| each.dynamic(endian, data).ok().flatten());
        for entry in tables.flatten() {
            let value: u64 = entry.d_val(endian).into();
            match entry.d_tag(endian) {
                raw::DT_FLAGS_1 => dynamic.has_pie_flag |= value & DF_1_PIE != 0,
                raw::DT_SONAME => dynamic.has_name = true,
                _ => {}
            }
        }
        dynamic
    }
}

/// Returns the GNU build ID, from the notes of program headers or else of sections; `None` if it is
/// absent, empty or damaged.
fn build_id<H: FileHeader>(
    programs: &[H::ProgramHeader],
    sections: &SectionTable<'_, H>,
    endian: H::Endian,
    data: &[u8],
) -> Option<Vec<u8>> {
    let of_programs = programs.iter().filter_map(|program| program.notes(endian, data).ok()?);
    let of_sections = sections.iter().filter_map(|section| section.notes(endian, data).ok()?);
    of_programs
        .chain(of_sections)
        .flat_map(|notes| notes.map_while(Result::ok))
        .find(|note| {
            note.name() == raw::ELF_NOTE_GNU && note.n_type(endian) == raw::NT_GNU_BUILD_ID
        })
        .map(|note| note.desc().to_vec())
        .filter(|id| !id.is_empty())
}

/// Reads the section `.gnu_debuglink`: a name with its NUL, padded to four bytes, and a CRC. `None`
/// if it is absent or damaged.
fn debug_link<H: FileHeader>(
    sections: &SectionTable<'_, H>,
    endian: H::Endian,
    data: &[u8],
) -> Option<DebugLink> {
    let (_, section) = sections.section_by_name(endian, b".gnu_debuglink")?;
    let bytes = section.data(endian, data).ok()?;
    let file_name = bytes.split(|byte| *byte == 0).next()?.to_vec();
    let crc_at = (file_name.len() + 1).next_multiple_of(4);
    let crc = endian.read_u32(*bytes.get(crc_at..)?.first_chunk()?);
    (!file_name.is_empty()).then_some(DebugLink { file_name, crc })
}
