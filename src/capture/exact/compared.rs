//! Changes of the mappings that are found by comparing their lists before and after a call, for
//! calls that may make any change: unknown ones, those whose child had the memory of its parent,
//! and shmdt(2), which does not name the pages.

use super::maps::mapped_from;
use super::process::{EVERYWHERE, Process};
use super::thread::Thread;
use crate::capture::Error;
use crate::common::{Addr, AddrRange};
use crate::engine::PROGRAM_END;
use crate::recording::log::{Content, MapChange};
use crate::sideband::Mapping;

/// A range, its mapping before the call, and its mapping now; `None` where there is none.
type DifferingPart<'a> = (AddrRange, Option<&'a Mapping>, Option<&'a Mapping>);

impl Process {
    /// Reads the mappings again, and returns their changes since they were `before`, with the
    /// contents of new ones of files. New memory of no file is described as zeros: the caller logs
    /// its contents as writes (`MemoryBefore::changes`). Notes a changed end of the heap. Drops the
    /// translated code of what changed.
    pub(super) fn mapping_changes_since(
        &mut self,
        thread: &Thread,
        before: &[Mapping],
    ) -> Result<Vec<MapChange>, Error> {
        self.refresh_mappings_in(&[EVERYWHERE], thread.tid())?;
        // The vsyscall page, which lies above, never changes, and is not in all lists.
        let is_of_program = |mapping: &&Mapping| mapping.range.start.0 < PROGRAM_END;
        let now = self.engine.space.mappings().filter(is_of_program).cloned().collect::<Vec<_>>();
        let before = before.iter().filter(is_of_program).cloned().collect::<Vec<_>>();
        let mut changes = Vec::new();
        for (range, before, now) in differing_parts(&before, &now) {
            self.engine.space.note_replaced(range);
            self.engine.forget_code(range);
            let Some(now) = now else {
                changes.push(MapChange::Unmap(range));
                continue;
            };
            if now.name == "[heap]" {
                self.heap_end = now.range.end.0;
            }
            let protection = now.protection;
            changes.push(match before {
                Some(before) if shows_the_same(before, now, range.start) => {
                    MapChange::Protect { range, protection }
                }
                // Memory of no file: the log has its contents as writes, which follow the changes.
                _ if now.inode == 0 => MapChange::Map(mapped_from(now, range, Content::Zeros)),
                _ => MapChange::Map(mapped_from(now, range, self.content_of(now, range)?)),
            });
        }
        Ok(changes)
    }
}

/// Returns the parts of the address space whose mappings differ between two lists, which are sorted
/// by address.
fn differing_parts<'a>(before: &'a [Mapping], now: &'a [Mapping]) -> Vec<DifferingPart<'a>> {
    let all = before.iter().chain(now);
    let mut bounds: Vec<Addr> = all.flat_map(|m| [m.range.start, m.range.end]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let at = |mappings: &'a [Mapping], addr: Addr| {
        let next = mappings.partition_point(|m| m.range.start <= addr);
        mappings[..next].last().filter(|m| m.range.contains(addr))
    };
    let ranges = bounds.windows(2).map(|pair| AddrRange::new(pair[0], pair[1]));
    let parts = ranges.map(|range| (range, at(before, range.start), at(now, range.start)));
    parts.filter(|(range, before, now)| differ(*before, *now, range.start)).collect()
}

/// Returns true if two mappings at an address differ in protection or in what they show.
fn differ(before: Option<&Mapping>, now: Option<&Mapping>, at: Addr) -> bool {
    match (before, now) {
        (None, None) => false,
        (Some(before), Some(now)) => {
            before.protection != now.protection || !shows_the_same(before, now, at)
        }
        _ => true,
    }
}

/// Returns true if two mappings, both shared or both private, show the same part of a file at an
/// address, or both memory of no file.
fn shows_the_same(one: &Mapping, other: &Mapping, at: Addr) -> bool {
    let part = |m: &Mapping| m.offset.wrapping_add(at.0 - m.range.start.0);
    one.is_same_file(other)
        && one.protection.shared == other.protection.shared
        && (one.inode == 0 || part(one) == part(other))
}
