//! Translates breakpoints and requested events of a session for a replay, and the replay's results
//! back to stops.

use super::{Access, Breakpoints, Conditions, KnownRegisters, StopReason, Wanted, Watchpoint};
use crate::common::{Addr, AddrRange};
use crate::replay::{KernelEvent, Replay, Watch, WatchKind};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Returns the stop reason for a system call or signal of a replay.
pub(super) fn event_stop(event: KernelEvent) -> StopReason {
    match event {
        KernelEvent::Call(number) => StopReason::Call(number),
        KernelEvent::Return(number) => StopReason::CallReturn(number),
        KernelEvent::Signal(number) => StopReason::Signal(number),
    }
}

/// Returns true if a debugger wants to stop at a system call or signal of a replay.
pub(super) fn wants(wanted: &Wanted, event: KernelEvent) -> bool {
    match event {
        KernelEvent::Call(number) | KernelEvent::Return(number) => wanted.call(Some(number)),
        KernelEvent::Signal(number) => wanted.signal(number),
    }
}

/// Returns a number that is equal for the same conditions, system calls and signals.
pub(super) fn key_of(conditions: &Conditions, wanted: &Wanted) -> u64 {
    let mut hash = DefaultHasher::new();
    (conditions.key(), wanted).hash(&mut hash);
    hash.finish()
}

/// Returns true if the thread that is about to execute stops at a breakpoint there, because the
/// conditions hold or there are none.
pub(super) fn holds(replay: &Replay, conditions: &Conditions) -> bool {
    if !conditions.exist() {
        return true;
    }
    let Some(thread) = replay.loaded() else { return true };
    let read = |addr: Addr, buf: &mut [u8]| replay.read(addr, buf) == buf.len();
    conditions.hold(Addr(thread.registers.rip), &KnownRegisters::of(&thread), &read)
}

/// Returns the watch of a replay for a watchpoint.
pub(super) fn watch(watchpoint: &Watchpoint) -> Watch {
    let kind = match watchpoint.access {
        Access::Write => WatchKind::Write,
        Access::Read => WatchKind::Read,
        Access::Any => WatchKind::Access,
    };
    Watch { range: AddrRange::sized(watchpoint.addr, watchpoint.size_bytes), kind }
}

/// Returns the stop reason for the watchpoint with index `number`.
pub(super) fn met(number: usize, breakpoints: &Breakpoints) -> StopReason {
    let watchpoint = breakpoints.watchpoints().get(number);
    watchpoint.map_or(StopReason::Step, |watchpoint| StopReason::Watchpoint(*watchpoint))
}
