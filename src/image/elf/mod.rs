//! ELF program files: their headers, and the sections that the kernel maps from them.

mod exports;
mod file;
mod load;

#[cfg(test)]
mod tests;

pub use exports::exports;
pub use file::{DebugLink, Elf, FileType, Segment, segments};
pub use load::{load, load_at};
