//! The errors of reading ELF and core files, and of writing core files.

use crate::common::Addr;

/// The reason why an ELF or core file could not be read, or a core not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes do not start with the ELF magic number.
    #[error("not an ELF file: it begins with {start:02x?}")]
    NotElf {
        /// The first four bytes, or fewer.
        start: Vec<u8>,
    },
    /// The bytes start as an ELF file, but a header or a table is damaged or truncated.
    #[error("damaged ELF file: {reason}")]
    DamagedElf {
        /// The damage.
        reason: &'static str,
    },
    /// An intact ELF file without a loadable segment.
    #[error("has nothing to load")]
    NothingToLoad,
    /// A load address that is not page-aligned; the kernel maps files in whole pages.
    #[error("cannot have been loaded at {addr}, which is not the start of a page")]
    NotAPage {
        /// The requested load address.
        addr: Addr,
    },
    /// An intact ELF file, but not a core.
    #[error("an ELF file of type {file_type}, not a core file (type 4)")]
    NotCore {
        /// `e_type` of the ELF header.
        file_type: u16,
    },
    /// A core of a machine other than 64-bit x86.
    #[error(
        "a core of ELF machine {machine} and class {class}; only 64-bit x86 (62, 2) is supported"
    )]
    ForeignCore {
        /// `e_machine` of the ELF header.
        machine: u16,
        /// `EI_CLASS` of the ELF header: 1 for 32 bits, 2 for 64.
        class: u8,
    },
    /// A note of the core is too short for its type.
    #[error("note of type {kind:#x} at offset {offset:#x} of the core is damaged")]
    DamagedNote {
        /// `n_type` of the note.
        kind: u32,
        /// The file offset of the note's contents, in bytes.
        offset: u64,
    },
    /// The contents do not fit in a core file.
    #[error("cannot write the core: {reason} at {addr}")]
    Contents {
        /// The part that does not fit.
        reason: &'static str,
        /// The address concerned, or zero.
        addr: Addr,
    },
    /// Writing the core failed.
    #[error("cannot write the core: {0}")]
    Write(#[from] std::io::Error),
}
