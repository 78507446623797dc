//! Core files: the state of a process as the kernel dumps it, read and written. The layouts are the
//! kernel's for x86-64 (`elf_prstatus`, `elf_prpsinfo`, `user_regs_struct`); gdb opens the cores
//! written here. Queries no process: the caller supplies registers and memory.

mod contents;
mod notes;
mod read;
mod write;

#[cfg(test)]
mod tests;

pub use contents::{CoreContents, CoreSegment, FileMapping, ProcessInfo, Thread};
pub use read::Core;
pub use write::{CoreMemory, write};
