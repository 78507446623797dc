//! The sections that the kernel's loader maps from an ELF file's segments. Loads no interpreter and
//! applies no relocation.

use crate::common::{Addr, AddrRange};
use crate::image::elf::{Elf, Segment};
use crate::image::{Bytes, Error, PAGE_SIZE_BYTES, Section};
use std::sync::Arc;

static ZERO_PAGE: [u8; 4096] = [0; 4096];

/// Returns the sections of an ELF file loaded with `bias` added to its addresses, in the order in
/// which the kernel maps them: where they share a page, the later one covers the earlier one. Fails
/// if the headers cannot be read.
///
/// Maps whole pages, as the kernel does: the bytes of the file around a segment are visible too,
/// but if a segment is larger in memory than in the file, the rest of its last page is zero.
/// Further pages have no bytes in the file: no section covers them. Leaves out segments that the
/// kernel would reject, which are all of them if `bias` is not a multiple of a page; the result may
/// be empty.
pub fn load(bytes: &Bytes, bias: u64, name: &str) -> Result<Vec<Section>, Error> {
    let elf = Elf::parse(bytes)?;
    let whole = Section {
        bytes: bytes.clone(),
        name: name.into(),
        build_id: elf.build_id.as_deref().map(Arc::from),
        ..Section::default()
    };
    Ok(elf.segments.iter().flat_map(|segment| load_segment(&whole, segment, bias)).collect())
}

/// Returns the sections as [`load`] does, with the file's lowest page at `addr`; at its linked
/// address if `addr` is `None`. Fails if `addr` is not the start of a page, or if the file has no
/// segment. The result is still empty if no segment can be mapped.
pub fn load_at(bytes: &Bytes, addr: Option<Addr>, name: &str) -> Result<Vec<Section>, Error> {
    let elf = Elf::parse(bytes)?;
    let lowest = elf.segments.iter().map(|segment| segment.start.page()).min();
    let lowest = lowest.ok_or(Error::NothingToLoad)?;
    let addr = addr.unwrap_or(lowest);
    let bias = addr.0.wrapping_sub(lowest.0);
    if !bias.is_multiple_of(PAGE_SIZE_BYTES) {
        return Err(Error::NotAPage { addr });
    }
    load(bytes, bias, name)
}

/// Returns the whole pages of the file with the segment, as the kernel maps them; if the segment is
/// larger in memory than in the file, the bytes up to its end in the file, and zeros from there to
/// the end of that page. None for a segment that the kernel rejects, that has no bytes in the file,
/// or that reaches past the last address.
fn load_segment(whole: &Section, segment: &Segment, bias: u64) -> Vec<Section> {
    let start = segment.start.wrapping_add(bias);
    let Some(file_end) = start.0.checked_add(segment.file_size_bytes).map(Addr) else {
        return Vec::new();
    };
    let Some(page_end) = file_end.0.checked_next_multiple_of(PAGE_SIZE_BYTES).map(Addr) else {
        return Vec::new();
    };
    // The kernel rejects a segment whose address and offset differ within the page.
    let into_page = start.0 - start.page().0;
    let Some(offset) = segment.offset.checked_sub(into_page).filter(|at| at % PAGE_SIZE_BYTES == 0)
    else {
        return Vec::new();
    };
    let Segment { writable, executable, .. } = *segment;
    let file = Section { offset, writable, executable, ..whole.clone() };
    if segment.file_size_bytes == 0 {
        return Vec::new();
    }
    let has_zeros = segment.memory_size_bytes > segment.file_size_bytes;
    let end = if has_zeros { file_end } else { page_end };
    let zeros = Section {
        range: AddrRange::new(file_end, if has_zeros { page_end } else { file_end }),
        bytes: Bytes::from(&ZERO_PAGE[..]),
        offset: 0,
        ..file.clone()
    };
    let sections = [Section { range: AddrRange::new(start.page(), end), ..file }, zeros];
    sections.into_iter().filter(|section| !section.range.is_empty()).collect()
}
