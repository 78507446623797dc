//! The memory of a keyframe at the run's end, which the recording stores in its final state.

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
    /// Copies the private anonymous memory among the mappings of `start`, which is zeros so far,
    /// from the final state.
    pub(super) fn take_final_memory(
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
        let is_taken =
            |mapped: &&Mapped| mapped.content == Content::Zeros && mapped.shared.is_none();
        let mut taken: Vec<_> = start.mappings.iter().filter(is_taken).map(|m| m.range).collect();
        taken.sort_by_key(|range| range.start);
        taken.iter().try_for_each(|range| self.must_be_of_program(*range))?;
        for section in core.memory().sections() {
            let first = taken.partition_point(|range| range.end <= section.range.start);
            let overlapping = taken.iter().skip(first);
            let overlapping = overlapping.take_while(|range| range.start < section.range.end);
            overlapping.copied().try_for_each(|range| self.write_section(section, range, &data))?;
        }
        Ok(())
    }

    /// Writes the bytes of a section that are in the range `within`, and in one of the ranges
    /// `data` of the core file, which are stored.
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
