//! Makes a process with the memory and threads of a program at its first instruction, and one
//! without the memory for a *keyframe*, a copy of the program's state in the recording. Both begin
//! with a process that has only the replay's own page. It gets the code cache, and then the
//! program's mappings. Page and code cache stay out of the *reserved* ranges, which the program
//! maps at some time. Stacks get at once the *room* into which they may grow ([`super::maps`]).

use super::contexts::{Context, Contexts, NT_X86_XSTATE};
use super::epoch::Epoch;
use super::error::Error;
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::engine::{CodeKind, Place, TranslatedProcess, TranslatedThread};
use crate::recording::log::{Cursor, LogEvent, Mapped, Start};
use crate::recording::{COMPLETED_SAVES_VERSION, Reader};
use crate::tracee::{Tracee, kill_and_reap, start_empty};
use crate::translate::Components;

/// Bytes of a trace buffer. Few are enough, as code that counts writes no records.
const BUFFER_BYTES: u64 = 256 << 10;
/// The size, in bytes, to which a stack may grow.
pub(super) const STACK_BYTES: u64 = 64 << 20;
/// The bytes left free below a stack (`stack_guard_gap` in the kernel).
pub(super) const STACK_GAP_BYTES: u64 = 1 << 20;

/// A process that has none of the program's memory yet.
struct EmptyProcess {
    pid: Pid,
    /// The page with the replay's own code.
    page: Addr,
    /// The kind of translated code that it will run.
    code: CodeKind,
    /// The addresses that are kept free for the program's mappings.
    reserved: Vec<AddrRange>,
}

impl Epoch {
    /// Loads the program whose [`LogEvent::Start`] is at `cursor` in the log, and its thread. Moves
    /// the cursor past the entries that belong to the start.
    pub(super) fn load_start(
        cursor: &mut Cursor,
        reader: &Reader,
        code: CodeKind,
        reserved: Vec<AddrRange>,
    ) -> Result<Self, Error> {
        let entry = cursor.index();
        let bad = |what| Error::BadLog { entry, what };
        let missing = || if entry == 0 { Error::EmptyLog } else { bad("a program is missing") };
        let first = cursor.read()?.ok_or_else(missing)?;
        let LogEvent::Start(start) = first.event else {
            return Err(bad("a program begins without its start"));
        };
        let mut epoch = Self::make_process(&start, first.tid, reader, code, reserved)?;
        while cursor.peek()?.is_some_and(|entry| entry.event.may_follow_start()) {
            let Some(entry) = cursor.read()? else { break };
            epoch.apply_entry(entry.tid, &entry.event, reader)?;
        }
        epoch.begins = cursor.index();
        epoch.contexts.load(first.tid, epoch.thread.tracee)?;
        Ok(epoch)
    }

    /// Makes a process with the mappings and the thread of a program's start: `tid`, which is not
    /// loaded yet. The entries after the start have the rest of its memory and threads.
    pub(super) fn make_process(
        start: &Start,
        tid: Tid,
        reader: &Reader,
        code: CodeKind,
        reserved: Vec<AddrRange>,
    ) -> Result<Self, Error> {
        let (pid, page) = start_empty(&reserved)?;
        let process = EmptyProcess { pid, page, code, reserved };
        let filled = Self::fill_process(process, start, tid, reader);
        if filled.is_err() {
            kill_and_reap(pid);
        }
        filled
    }

    /// Does what [`Self::make_process`] does, in an empty process. If this fails, the caller ends
    /// the process.
    fn fill_process(
        process: EmptyProcess,
        start: &Start,
        tid: Tid,
        reader: &Reader,
    ) -> Result<Self, Error> {
        let EmptyProcess { pid, page, code, mut reserved } = process;
        let tracee = Tracee(Tid(pid.0));
        let stacks: Vec<Mapped> =
            start
                .mappings
                .iter()
                .map(|mapped| {
                    if mapped.grows_down {
                        with_full_size(mapped, &reserved)
                    } else {
                        mapped.clone()
                    }
                })
                .collect();
        reserved.extend(stacks.iter().map(|mapped| mapped.range));
        let seen = std::iter::empty();
        let near = TranslatedProcess::usual_cache_address(&start.auxv.0);
        let mut engine =
            TranslatedProcess::open_beside(tracee, pid, code, BUFFER_BYTES, seen, reserved, near)?;
        if reader.manifest().format >= COMPLETED_SAVES_VERSION {
            let host = Components::of(&tracee.register_set(NT_X86_XSTATE)?);
            engine.complete_saves(Components::of(&start.state.extended.0), host);
        }
        engine.prepare_area(tracee)?;
        engine.settle_prepared_area();
        let area = engine.take_area().ok_or(Error::Killed)?;
        let thread = TranslatedThread::new(tracee.0, pid, area, Place::Program);
        let mut contexts = Contexts::new(page);
        contexts.add(tid, Context::new(&start.state));
        let mut epoch = Self::new(engine, thread, page, contexts);
        for (mapped, first) in stacks.iter().zip(&start.mappings) {
            epoch.map(mapped, reader)?;
            if mapped.grows_down {
                epoch.stack_room.push(AddrRange::new(mapped.range.start, first.range.start));
            }
        }
        epoch.refresh_mappings()?;
        epoch.load_code_cache(start, reader)?;
        epoch.permit_earlier_requests(&start.state.registers.into())?;
        Ok(epoch)
    }
}

/// Returns a stack's mapping, extended downwards to 64 MiB in all, or to the gap that the kernel
/// keeps above the next reserved range; never cut. The kernel lets it grow as it is used, but here
/// it has its final size from the beginning.
fn with_full_size(stack: &Mapped, reserved: &[AddrRange]) -> Mapped {
    let below = reserved.iter().filter(|range| range.end <= stack.range.start);
    let lowest = below.map(|range| range.end.0.saturating_add(STACK_GAP_BYTES)).max().unwrap_or(0);
    // Counted from the stack's end, which stays where it is: a keyframe's stack has grown.
    let start = stack.range.end.0.saturating_sub(STACK_BYTES).max(lowest);
    let whole = start.checked_next_multiple_of(4096).unwrap_or(u64::MAX);
    let start = whole.min(stack.range.start.0);
    Mapped { range: AddrRange::new(Addr(start), stack.range.end), ..stack.clone() }
}
