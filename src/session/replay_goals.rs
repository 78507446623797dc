//! Translates breakpoints, watchpoints and requested events of a session to the *goals* and watches
//! of a replay, at which its runs end, and the replay's results back to stop reasons.

use super::{
    Access, Breakpoints, Conditions, KnownRegisters, RequestedEvents, StopReason, Watchpoint,
};
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

/// Returns true if the debugger requested stops at this system call or signal of a replay.
pub(super) fn is_requested(wanted: &RequestedEvents, event: KernelEvent) -> bool {
    match event {
        KernelEvent::Call(number) | KernelEvent::Return(number) => {
            wanted.includes_call(Some(number))
        }
        KernelEvent::Signal(number) => wanted.includes_signal(number),
    }
}

/// Returns a number that is equal for the same conditions, system calls and signals: a replay
/// remembers the results of searches by it ([`crate::replay::Goals`]).
pub(super) fn key_of(conditions: &Conditions, wanted: &RequestedEvents) -> u64 {
    let mut hash = DefaultHasher::new();
    (conditions.key(), wanted).hash(&mut hash);
    hash.finish()
}

/// Returns true if the thread that is about to execute, whose registers the replay's process has
/// ([`Replay::loaded`]), stops at the breakpoint at its address: there are no conditions, no thread
/// is loaded, or they hold for the thread's registers and memory. Only its general registers are
/// known to them. Whether there is a breakpoint is not checked.
pub(super) fn conditions_hold(replay: &Replay, conditions: &Conditions) -> bool {
    if !conditions.exist() {
        return true;
    }
    // Without registers nothing can be evaluated, so the thread stops.
    let Some(thread) = replay.loaded() else { return true };
    let read = |addr: Addr, buf: &mut [u8]| replay.read(addr, buf) == buf.len();
    conditions.hold(Addr(thread.registers.rip), &KnownRegisters::of(&thread), &read)
}

/// Returns a watchpoint in the form of a replay.
pub(super) fn watch_of(watchpoint: &Watchpoint) -> Watch {
    let kind = match watchpoint.access {
        Access::Write => WatchKind::Write,
        Access::Read => WatchKind::Read,
        Access::Any => WatchKind::Access,
    };
    Watch { range: AddrRange::sized(watchpoint.addr, watchpoint.size_bytes), kind }
}

/// Returns the stop reason for the watchpoint with index `number`: a step if it does not exist.
pub(super) fn watchpoint_stop(number: usize, breakpoints: &Breakpoints) -> StopReason {
    let watchpoint = breakpoints.watchpoints().get(number);
    watchpoint.map_or(StopReason::Step, |watchpoint| StopReason::Watchpoint(*watchpoint))
}
