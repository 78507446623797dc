//! What can be wrong with the files that this room reads and writes.

use crate::common::Addr;

/// Why a file could not be read as an ELF file or as a core file, or a core not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes do not begin with the ELF magic number.
    #[error("not an ELF file: it begins with {start:02x?}; give a program, library or core file")]
    NotElf {
        /// The first four bytes, or fewer.
        start: Vec<u8>,
    },
    /// It begins as an ELF file, but a header or a table is damaged or cut off.
    #[error("damaged ELF file: {reason}; fetch it again or record anew")]
    DamagedElf {
        /// What is wrong.
        reason: &'static str,
    },
    /// A whole ELF file without a segment that is loaded.
    #[error("has nothing to load")]
    NothingToLoad,
    /// Files are mapped in whole pages.
    #[error("cannot have been loaded at {addr}, which is no page's start")]
    NotAPage {
        /// Where it is said to have been.
        addr: Addr,
    },
    /// A whole ELF file, but not a core.
    #[error("an ELF file of type {file_type}, not a core file (type 4); give a core file")]
    NotCore {
        /// `e_type` of the ELF header.
        file_type: u16,
    },
    /// A core of another kind of machine.
    #[error("a core of ELF machine {machine} and class {class}; only 64-bit x86 (62, 2) is known")]
    ForeignCore {
        /// `e_machine` of the ELF header.
        machine: u16,
        /// `EI_CLASS` of the ELF header: 1 for 32 bits, 2 for 64.
        class: u8,
    },
    /// A note of the core is shorter than its kind demands.
    #[error("note of type {kind:#x} at offset {offset:#x} of the core is damaged; record anew")]
    DamagedNote {
        /// `n_type` of the note.
        kind: u32,
        /// Where its contents lie in the file, in bytes.
        offset: u64,
    },
    /// What is to be written does not fit a core file.
    #[error("cannot write the core: {reason} at {addr}")]
    Contents {
        /// What does not fit.
        reason: &'static str,
        /// The address it concerns; zero when it concerns none.
        addr: Addr,
    },
    /// Writing failed.
    #[error("cannot write the core: {0}; free some space or choose another place")]
    Write(#[from] std::io::Error),
}
