//! Images: whatever a program file or a core claims of itself, reading it stays within its bytes.

use crate::traits::Traits;
use contraflow::common::Addr;
use contraflow::image::core::Core;
use contraflow::image::elf::{self, Elf};
use contraflow::image::{Bytes, CodeSource, Error, Image};
use std::mem::discriminant;
use std::path::Path;

/// Of ELF headers: kinds of notes, names of sections and notes.
pub(crate) const WORDS: &[&[u8]] = &[
    b"\x7fELF\x02\x01\x01",
    b"CORE\0\0\0\0",
    b"LINUX\0\0\0",
    b"GNU\0",
    &[1, 0, 0, 0],
    &[2, 0, 0, 0],
    &[3, 0, 0, 0],
    &[4, 0, 0, 0],
    &[6, 0, 0, 0],
    &[7, 0, 0, 0],
    b"FILE",
    b"IGIS",
    &[0x02, 0x02, 0, 0],
    b".gnu_debuglink\0",
    b".symtab\0",
    b".note.gnu.build-id\0",
];

pub(crate) fn feed(bytes: &[u8], _: &Path, traits: &mut Traits) {
    let bytes = Bytes::from(bytes.to_vec());
    match Elf::parse(&bytes) {
        Ok(elf) => loaded(&bytes, &elf, traits),
        Err(error) => refused("no ELF", &error, traits),
    }
    match Core::parse(&bytes) {
        Ok(core) => core_read(&core, traits),
        Err(error) => refused("no core", &error, traits),
    }
}

fn refused(what: &str, error: &Error, traits: &mut Traits) {
    match error {
        Error::DamagedElf { reason } => traits.note((what, reason)),
        error => traits.note((what, discriminant(error))),
    }
}

fn loaded(bytes: &Bytes, elf: &Elf, traits: &mut Traits) {
    traits.note(("ELF", discriminant(&elf.file_type), elf.is_64, elf.is_pie));
    let has = (elf.interpreter.is_some(), elf.build_id.is_some(), elf.debug_link.is_some());
    traits.note(("has", has));
    traits.magnitude("segments", elf.segments.len());
    let sections = [
        elf::load(bytes, 0x5555_0000_0000, "fuzzed"),
        elf::load_at(bytes, Some(Addr(0xffff_ffff_ffff_f000)), "fuzzed"),
    ];
    for sections in sections {
        let Ok(sections) = sections else { continue };
        traits.magnitude("sections", sections.len());
        within(&Image::new(sections));
    }
}

fn core_read(core: &Core, traits: &mut Traits) {
    let contents = &core.contents;
    traits.magnitude("threads", contents.threads.len());
    traits.magnitude("mappings", contents.mappings.len());
    for thread in contents.threads.iter().take(8) {
        let sets = (thread.fpregs.is_some(), thread.xstate.is_some(), thread.siginfo.is_some());
        traits.note(("registers", sets));
    }
    within(core.memory());
}

/// A section reads as its bytes from its offset on, and as zero behind them in their last page.
fn within(image: &Image) {
    let mut buf = [0; 64];
    for section in image.sections().take(64) {
        let offset = usize::try_from(section.offset).ok();
        let known = offset.and_then(|at| section.bytes.get(at..)).unwrap_or_default();
        let read = section.read(section.range.start, &mut buf);
        assert!(read as u64 <= section.range.size_bytes());
        let (bytes, zeros) = buf[..read].split_at(read.min(known.len()));
        assert_eq!(bytes, &known[..bytes.len()]);
        assert!(zeros.iter().all(|byte| *byte == 0));
        let last = section.range.end.wrapping_sub(1);
        assert!(image.read(last, &mut buf) <= buf.len());
    }
}
