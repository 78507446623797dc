//! Maps addresses to functions, files, lines and inline frames, and back. Opens no file: the
//! caller's [`Files`] does, so that files of a recording and of this machine are treated alike.
//!
//! [`Symbols`] contains the modules of a process. A module's data are read on first use: its ELF
//! symbols and PLT stubs, and the DWARF in it or in its separate debug file. Damaged files are no
//! error: unreadable data are treated as absent.

mod debug_file;
mod dwarf;
mod files;
mod inspect;
mod lookup;
mod machine;
mod module;
mod names;
mod plt;
mod spans;
mod table;
mod types;
mod unwind;

#[cfg(test)]
mod tests;

pub use dwarf::{Companions, Frame, Location, companions};
pub use files::Files;
pub use inspect::VariableLocation;
pub use lookup::{Function, Symbols};
pub use machine::{Home, Machine, Piece, RIP, RSP, XMM0};
pub use names::without_parameters;
pub use types::{
    FloatFormat, Kind, Language, Member, Signature, SourceLine, Type, TypeId, Variable, Variant,
};
pub use unwind::FrameRegisters;
