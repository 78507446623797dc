//! Address to function, file, line and inline frames, and back. Opens no file: the caller's
//! [`Files`] does, so that a recording's own files and those of this machine serve alike.
//!
//! [`Symbols`] holds the modules of a process. What a module knows is read when first asked for:
//! its ELF symbols and PLT stubs, and the DWARF in it or in its separate debug file. Damaged
//! files are no error: what cannot be read is not known.

mod debug_file;
mod dwarf;
mod files;
mod lookup;
mod module;
mod names;
mod plt;
mod spans;
mod table;

#[cfg(test)]
mod tests;

pub use dwarf::{Frame, Location};
pub use files::Files;
pub use lookup::{Function, Symbols};
