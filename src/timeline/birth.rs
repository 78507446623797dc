//! Detection of paths that begin at the thread's birth, so that no frames of its call stack precede
//! the path.

use super::line::Timeline;
use crate::common::{Addr, Tid};
use crate::image::elf::Elf;
use crate::image::{CodeSource, Image};

const SYSCALL: [u8; 2] = [0x0f, 0x05];

impl Timeline {
    /// Returns true if a thread's path seems to begin at its birth: at the entry point of a program
    /// or dynamic linker, or right after a SYSCALL instruction, such as the one that created it.
    /// The path of a thread that existed before the recording begins elsewhere.
    pub(super) fn begins_at_birth(&self, tid: Tid) -> bool {
        let image = self.images().epochs().iter().map(|epoch| &epoch.image);
        let Some(pc) = self.pc(tid, 0) else { return false };
        image.into_iter().any(|image| is_entry(image, pc) || is_after_syscall(image, pc))
    }
}

/// Returns true if `pc` is the entry point of the ELF file that is mapped there.
fn is_entry(image: &Image, pc: Addr) -> bool {
    let entry = || {
        let section = image.section_at(pc)?;
        let elf = Elf::parse(&section.bytes).ok()?;
        Some(elf.bias(section.range.start, section.offset)?.wrapping_add(elf.entry.0))
    };
    entry() == Some(pc.0)
}

/// Returns true if a SYSCALL instruction precedes `pc`.
fn is_after_syscall(image: &Image, pc: Addr) -> bool {
    let mut before = [0; SYSCALL.len()];
    image.read(pc.wrapping_sub(before.len() as u64), &mut before) == before.len()
        && before == SYSCALL
}
