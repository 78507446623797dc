//! ELF program files: what they are, and the sections that the kernel makes of them.

mod file;
mod load;

#[cfg(test)]
mod tests;

pub use file::{DebugLink, Elf, FileType, Segment, segments};
pub use load::{load, load_at};
