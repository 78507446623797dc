//! A process with the memory of a program at its first instruction.

use super::contexts::{Context, Contexts};
use super::epoch::Epoch;
use super::error::Error;
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::engine::{CodeKind, Place, TranslatedProcess, TranslatedThread};
use crate::recording::Reader;
use crate::recording::log::{Cursor, Happening, MapChange, Mapped, Start};
use crate::tracee::{Tracee, end, start_empty};

/// Code that counts writes no records.
const COUNTING_BUFFER_BYTES: u64 = 4096;
const BUFFER_BYTES: u64 = 256 << 10;
/// A stack may grow by as much.
const STACK_BYTES: u64 = 64 << 20;
/// The bytes left free below a stack (`stack_guard_gap` in the kernel).
const STACK_GAP_BYTES: u64 = 1 << 20;

/// A process without memory.
struct Empty {
    pid: Pid,
    page: Addr,
    code: CodeKind,
    /// The addresses that are kept free for the program.
    reserved: Vec<AddrRange>,
}

impl Epoch {
    /// Loads the program that begins at `cursor`, and moves the cursor past its memory.
    pub(super) fn load(
        cursor: &mut Cursor,
        reader: &Reader,
        code: CodeKind,
    ) -> Result<Self, Error> {
        let entry = cursor.index();
        let bad = |what| Error::BadLog { entry, what };
        let missing = || if entry == 0 { Error::EmptyLog } else { bad("a program is missing") };
        let first = cursor.read()?.ok_or_else(missing)?;
        let Happening::Start(start) = first.happening else {
            return Err(bad("a program begins without its start"));
        };
        let reserved = ranges_of_program(&start, cursor.clone())?;
        let (pid, page) = start_empty(&reserved)?;
        let process = Empty { pid, page, code, reserved };
        let loaded = Self::fill(process, &start, first.tid, cursor, reader);
        if loaded.is_err() {
            end(pid);
        }
        loaded
    }

    fn fill(
        process: Empty,
        start: &Start,
        tid: Tid,
        cursor: &mut Cursor,
        reader: &Reader,
    ) -> Result<Self, Error> {
        let Empty { pid, page, code, mut reserved } = process;
        let tracee = Tracee(Tid(pid.0));
        let stacks: Vec<Mapped> = start
            .mappings
            .iter()
            .map(|mapped| if mapped.grows_down { grown(mapped, &reserved) } else { mapped.clone() })
            .collect();
        reserved.extend(stacks.iter().map(|mapped| mapped.range));
        let seen = std::iter::empty();
        let buffer_bytes = match code {
            CodeKind::Counting | CodeKind::Logging => COUNTING_BUFFER_BYTES,
            CodeKind::Recording | CodeKind::Rerecording => BUFFER_BYTES,
        };
        let mut engine =
            TranslatedProcess::open_beside(tracee, pid, code, buffer_bytes, seen, reserved)?;
        engine.prepare_area(tracee)?;
        engine.keep_promise();
        let area = engine.take_area().ok_or(Error::Killed)?;
        let thread = TranslatedThread::new(tracee.0, pid, area, Place::Program);
        let mut contexts = Contexts::default();
        contexts.add(tid, Context::new(&start.state));
        let begun = cursor.index();
        let mut epoch = Self::new(engine, thread, page, contexts, begun);
        for mapped in &stacks {
            epoch.map(mapped, reader)?;
        }
        epoch.look_at_mappings()?;
        while cursor.peek()?.is_some_and(|entry| entry.happening.may_follow_start()) {
            let Some(entry) = cursor.read()? else { break };
            epoch.happen(entry.tid, &entry.happening, reader)?;
        }
        epoch.begins = cursor.index();
        epoch.contexts.load(tid, tracee)?;
        Ok(epoch)
    }
}

/// Returns all addresses that a program ever has something at.
pub(super) fn ranges_of_program(
    start: &Start,
    mut cursor: Cursor,
) -> Result<Vec<AddrRange>, Error> {
    let mut ranges: Vec<AddrRange> = start.mappings.iter().map(|mapped| mapped.range).collect();
    while let Some(entry) = cursor.read()? {
        let maps = match entry.happening {
            Happening::Start(_) => break,
            Happening::Call { done, .. } | Happening::Returns { done } => done.maps,
            _ => continue,
        };
        ranges.extend(maps.iter().filter_map(|change| match change {
            MapChange::Map(mapped) => Some(mapped.range),
            MapChange::Move { to, .. } => Some(*to),
            MapChange::Unmap(_) | MapChange::Protect { .. } | MapChange::Discard(_) => None,
        }));
    }
    ranges.sort_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let joins = next.start <= last.end;
        if joins {
            last.end = last.end.max(next.end);
        }
        joins
    });
    Ok(ranges)
}

/// Returns a stack as large as it may become: the kernel lets it grow as it is used.
fn grown(stack: &Mapped, reserved: &[AddrRange]) -> Mapped {
    let below = reserved.iter().filter(|range| range.end <= stack.range.start);
    let lowest = below.map(|range| range.end.0.saturating_add(STACK_GAP_BYTES)).max().unwrap_or(0);
    let start = stack.range.start.0.saturating_sub(STACK_BYTES).max(lowest);
    let whole = start.checked_next_multiple_of(4096).unwrap_or(u64::MAX);
    let start = whole.min(stack.range.start.0);
    Mapped { range: AddrRange::new(Addr(start), stack.range.end), ..stack.clone() }
}
