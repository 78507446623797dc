//! The memory of a keyframe at the run's end. The recording does not store it twice: it is that of
//! the final state, a core file. Large parts of it are mapped from that file, so that they take no
//! time before they are used; the rest is copied.

use super::epoch::Epoch;
use super::error::Error;
use crate::common::{Addr, AddrRange};
use crate::image::core::Core;
use crate::image::{Bytes, Section};
use crate::recording::log::{Content, Mapped, Start};
use crate::recording::{Reader, StoredCore};
use std::ops::Range;

/// Bytes that are written at once, unless all of them are zeros.
const PIECE_BYTES: usize = 64 << 10;
/// The minimum size of a part that is mapped. A process has some 65,000 mappings at most.
const MIN_MAPPED_BYTES: u64 = 1 << 20;
const PAGE_BYTES: u64 = 4096;

/// A part of a mapping's memory that the core file has: `range`, in both the mapping and the
/// section of the file.
#[derive(Clone, Copy)]
struct Part<'a> {
    mapping: &'a Mapped,
    section: &'a Section,
    range: AddrRange,
}

impl Epoch {
    /// Fills the private anonymous mappings of `start`, which are mapped and zeros so far, with
    /// their memory in the final state; what the core file does not store stays zeros. Adds to
    /// `final_bytes` and `mapped_from_core`. Fails if the recording has no readable core file, or a
    /// mapping overlaps the replay's own memory.
    pub(super) fn load_final_memory(
        &mut self,
        start: &Start,
        reader: &Reader,
    ) -> Result<(), Error> {
        let bad = |what| Error::BadLog { entry: 0, what };
        let state = reader.stored_core()?;
        let StoredCore { path, core, data } =
            state.ok_or_else(|| bad("a keyframe's memory is missing"))?;
        let core = Core::parse(&Bytes::new(core));
        let core = core.map_err(|_| bad("a keyframe's memory is not readable"))?;
        let is_private =
            |mapped: &&Mapped| mapped.content == Content::Zeros && mapped.shared.is_none();
        let mut mappings: Vec<_> = start.mappings.iter().filter(is_private).collect();
        mappings.sort_by_key(|mapping| mapping.range.start);
        mappings.iter().try_for_each(|mapping| self.check_is_programs(mapping.range))?;
        let mut parts = Vec::new();
        for section in core.memory().sections() {
            let first = mappings.partition_point(|m| m.range.end <= section.range.start);
            let overlapping = mappings.iter().skip(first);
            let overlapping = overlapping.take_while(|m| m.range.start < section.range.end);
            for mapping in overlapping {
                parts.extend(stored_parts(mapping, section, &data));
            }
        }
        self.with_open_file(&path, |epoch, file| {
            parts.iter().try_for_each(|part| epoch.load_part(*part, file))
        })?;
        self.mapped_from_core.sort_by_key(|range| range.start);
        self.refresh_mappings()
    }

    /// Maps the whole pages of a part, and copies the rest. Copies all of it if its whole pages
    /// have less than [`MIN_MAPPED_BYTES`], are code or a stack that may grow, or do not begin at a
    /// page of the file. `file` is the process's descriptor of the core file.
    fn load_part(&mut self, part: Part<'_>, file: u64) -> Result<(), Error> {
        let Part { mapping, range, .. } = part;
        let start = Addr(range.start.0.next_multiple_of(PAGE_BYTES)).min(range.end);
        let whole = AddrRange::new(start, range.end.page().max(start));
        let offset = part.offset_of(start);
        // Code that may change is known by its anonymous memory, and so are stacks that may grow.
        let is_data = !mapping.protection.execute && !mapping.grows_down;
        let is_aligned = offset.is_multiple_of(PAGE_BYTES);
        if !is_data || !is_aligned || whole.size_bytes() < MIN_MAPPED_BYTES {
            return self.copy_part(part);
        }
        self.map_file(whole, mapping.protection, file, offset)?;
        self.mapped_from_core.push(whole);
        self.final_bytes += whole.size_bytes();
        self.copy_part(Part { range: AddrRange::new(range.start, whole.start), ..part })?;
        self.copy_part(Part { range: AddrRange::new(whole.end, range.end), ..part })
    }

    /// Copies a part, but for pieces of zeros: the memory is zeros already. Adds the copied bytes
    /// to `final_bytes`.
    fn copy_part(&mut self, part: Part<'_>) -> Result<(), Error> {
        let Part { section, range, .. } = part;
        let bytes = slice(&section.bytes, part.offset_of(range.start)..part.offset_of(range.end));
        for (index, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            if piece.iter().any(|byte| *byte != 0) {
                self.write(range.start.wrapping_add((index * PIECE_BYTES) as u64), piece)?;
                self.final_bytes += piece.len() as u64;
            }
        }
        Ok(())
    }
}

impl Part<'_> {
    /// Returns the offset in the core file, and so in `Section::bytes` (the whole file), of an
    /// address of the section.
    fn offset_of(self, addr: Addr) -> u64 {
        self.section.offset.saturating_add(addr.0.saturating_sub(self.section.range.start.0))
    }
}

/// Returns the parts of a mapping that are in a section of the core file and stored. `data` are the
/// offsets in the file that are stored, and not holes of zeros.
fn stored_parts<'a>(
    mapping: &'a Mapped,
    section: &'a Section,
    data: &[Range<u64>],
) -> Vec<Part<'a>> {
    let (start, end) =
        (section.range.start.max(mapping.range.start), section.range.end.min(mapping.range.end));
    let whole = Part { mapping, section, range: AddrRange::new(start, end) };
    let (first, last) = (whole.offset_of(start), whole.offset_of(end));
    let begins = data.partition_point(|stored| stored.end <= first);
    let stored = data.iter().skip(begins).take_while(|stored| stored.start < last);
    let address_of = |offset: u64| start.wrapping_add(offset - first);
    let ranges = stored.map(|stored| {
        AddrRange::new(address_of(stored.start.max(first)), address_of(stored.end.min(last)))
    });
    ranges.map(|range| Part { range, ..whole }).collect()
}

/// Returns the bytes of a range, as far as they exist.
fn slice(bytes: &[u8], range: Range<u64>) -> &[u8] {
    let index = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    bytes.get(index(range.start)..index(range.end)).unwrap_or_default()
}
