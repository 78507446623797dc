//! Reads and decompresses the DWARF sections of an ELF file that this room needs.

use super::data::Data;
use crate::image::Bytes;
use gimli::SectionId;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection};
use std::borrow::Cow;

/// The maximum ratio of a section's size to its compressed size, which is that of zlib.
const MAX_EXPANSION: u64 = 1032;

/// Returns true if the file is a 64-bit ELF file with entries of DWARF: with a `.debug_info` that
/// is not empty. Does not check that they can be read.
pub(in crate::symbols) fn has_dwarf(bytes: &Bytes) -> bool {
    ElfFile64::<Endianness>::parse(&**bytes).is_ok_and(|elf| {
        let section = elf.section_by_name(".debug_info");
        section.and_then(|section| section.data().ok()).is_some_and(|data| !data.is_empty())
    })
}

/// Loads the DWARF sections of a file, empty ones for those that are absent or damaged; `None` if
/// it is not a 64-bit little-endian ELF file.
pub(super) fn load(bytes: &Bytes) -> Option<gimli::Dwarf<Data>> {
    load_named(bytes, |id| Some(id.name()))
}

/// Loads the sections of a split DWARF file (`.dwo`); absent or damaged ones are empty, even if all
/// are. `None` if it is not a 64-bit little-endian ELF file.
pub(super) fn load_split(bytes: &Bytes) -> Option<gimli::Dwarf<Data>> {
    load_named(bytes, SectionId::dwo_name)
}

/// Loads the DWARF sections of a file, by the names that `name` returns for them, as [`load`] does.
fn load_named(
    bytes: &Bytes,
    name: impl Fn(SectionId) -> Option<&'static str>,
) -> Option<gimli::Dwarf<Data>> {
    let elf = ElfFile64::<Endianness>::parse(&**bytes).ok()?;
    if !elf.is_little_endian() {
        return None;
    }
    let load = |id: SectionId| -> Result<Data, gimli::Error> {
        let data = name(id).filter(|_| is_needed(id)).and_then(|name| section(&elf, bytes, name));
        Ok(data.unwrap_or_else(|| Data::new(Bytes::default(), 0..0)))
    };
    gimli::Dwarf::load(load).ok()
}

/// Returns the name and build ID of the supplement: the file that dwz made for DWARF data that
/// several debug files have in common. `None` if `bytes` does not refer to one, or is not a 64-bit
/// ELF file. The name may be relative, and the file need not exist.
pub(super) fn supplement_link(bytes: &Bytes) -> Option<(Vec<u8>, Vec<u8>)> {
    let elf = ElfFile64::<Endianness>::parse(&**bytes).ok()?;
    let (name, build_id) = elf.gnu_debugaltlink().ok()??;
    Some((name.to_vec(), build_id.to_vec()))
}

/// Returns true if this room reads the section: others are left empty.
const fn is_needed(id: SectionId) -> bool {
    matches!(
        id,
        SectionId::DebugAbbrev
            | SectionId::DebugAddr
            | SectionId::DebugInfo
            | SectionId::DebugLine
            | SectionId::DebugLineStr
            | SectionId::DebugLoc
            | SectionId::DebugLocLists
            | SectionId::DebugRanges
            | SectionId::DebugRngLists
            | SectionId::DebugStr
            | SectionId::DebugStrOffsets
    )
}

/// Returns the data of a section, decompressed if necessary; `None` if it is absent or damaged, or
/// claims a size that no compression reaches.
pub(in crate::symbols) fn section(
    elf: &ElfFile64<'_, Endianness>,
    file: &Bytes,
    name: &str,
) -> Option<Data> {
    let packed = elf.section_by_name(name)?.compressed_data().ok()?;
    let limit = MAX_EXPANSION.saturating_mul(packed.data.len() as u64).saturating_add(4096);
    if packed.uncompressed_size > limit {
        return None;
    }
    match packed.decompress().ok()? {
        Cow::Borrowed(data) => {
            let start = data.as_ptr().addr().checked_sub(file.as_ptr().addr())?;
            Some(Data::new(file.clone(), start..start.checked_add(data.len())?))
        }
        Cow::Owned(data) => {
            let window = 0..data.len();
            Some(Data::new(Bytes::from(data), window))
        }
    }
}
