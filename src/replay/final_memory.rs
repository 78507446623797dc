//! The memory of a keyframe at the run's end. The recording does not store it twice: it is that of
//! the final state, a core file.

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

impl Epoch {
    /// Copies the memory of the private anonymous mappings of `start`, which are mapped and zeros
    /// so far, from the final state. Adds to `final_bytes`.
    pub(super) fn load_final_memory(
        &mut self,
        start: &Start,
        reader: &Reader,
    ) -> Result<(), Error> {
        let bad = |what| Error::BadLog { entry: 0, what };
        let state = reader.stored_core()?;
        let StoredCore { core, data } =
            state.ok_or_else(|| bad("a keyframe's memory is missing"))?;
        let core = Core::parse(&Bytes::new(core));
        let core = core.map_err(|_| bad("a keyframe's memory is not readable"))?;
        let is_private =
            |mapped: &&Mapped| mapped.content == Content::Zeros && mapped.shared.is_none();
        let mut ranges: Vec<_> =
            start.mappings.iter().filter(is_private).map(|m| m.range).collect();
        ranges.sort_by_key(|range| range.start);
        ranges.iter().try_for_each(|range| self.check_is_programs(*range))?;
        for section in core.memory().sections() {
            let first = ranges.partition_point(|range| range.end <= section.range.start);
            let overlapping = ranges.iter().skip(first);
            let overlapping = overlapping.take_while(|range| range.start < section.range.end);
            overlapping.copied().try_for_each(|range| self.write_section(section, range, &data))?;
        }
        Ok(())
    }

    /// Writes the bytes of a core file's section that are in the address range `within`. `data` are
    /// the offsets in the core file that are stored, and not holes of zeros.
    fn write_section(
        &mut self,
        section: &Section,
        within: AddrRange,
        data: &[Range<u64>],
    ) -> Result<(), Error> {
        let (start, end) =
            (section.range.start.max(within.start), section.range.end.min(within.end));
        let offset_of = |addr: Addr| section.offset.saturating_add(addr.0 - section.range.start.0);
        let (first, last) = (offset_of(start), offset_of(end));
        let begins = data.partition_point(|stored| stored.end <= first);
        let stored = data.iter().skip(begins).take_while(|stored| stored.start < last);
        for Range { start: from, end: to } in stored.cloned() {
            let (from, to) = (from.max(first), to.min(last));
            let bytes = slice(&section.bytes, from..to);
            for (index, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
                if piece.iter().any(|byte| *byte != 0) {
                    let at = from - first + (index * PIECE_BYTES) as u64;
                    self.write(start.wrapping_add(at), piece)?;
                    self.final_bytes += piece.len() as u64;
                }
            }
        }
        Ok(())
    }
}

/// Returns the bytes of a range, as far as they exist.
fn slice(bytes: &[u8], range: Range<u64>) -> &[u8] {
    let index = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    bytes.get(index(range.start)..index(range.end)).unwrap_or_default()
}
