//! ELF program files: what they are, and the sections that the kernel makes of them.

mod file;
mod load;

#[cfg(test)]
mod tests;

pub use file::{DebugLink, Elf, FileType, Segment};
pub use load::load;

use crate::image::{Bytes, Error};

/// The loadable segments (`PT_LOAD`) of an ELF file, in the order of its program headers.
pub fn segments(bytes: &Bytes) -> Result<Vec<Segment>, Error> {
    Elf::parse(bytes).map(|elf| elf.segments)
}
