//! System calls and signals of a recorded path as positions to stop at.
//!
//! A call is about to be made at the position of its instruction, and has returned at the thread's
//! next position. A signal is reported where its handler begins; one without a handler is not. So
//! several events may belong to one position, besides a breakpoint or a complete step. [`StopRank`]
//! is their order in time: a run stops there for each of them in turn, going forward or backward.

use super::{Catches, Direction, Found, Search, StopReason};
use crate::common::{Addr, Tid};
use crate::timeline::{Delivery, KernelEntries, Timeline};
use std::cell::Cell;
use std::collections::BTreeSet;

const SIGTRAP: i32 = 5;

/// The system calls and signals that a debugger wants to stop at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RequestedEvents {
    /// The requested system calls.
    pub calls: Catches,
    /// The signals that do not stop the run, as a bit set: signal 1 is bit 0. All others do, except
    /// for `SIGTRAP`.
    pub passed_signals: u64,
}

impl RequestedEvents {
    /// Returns true if the system call with this number was requested; for `None`, a call whose
    /// number is unknown, only if all calls were.
    pub fn includes_call(&self, number: Option<u64>) -> bool {
        number.map_or(self.calls == Catches::All, |number| self.calls.has(number))
    }

    /// Returns true if a signal was requested; never for `SIGTRAP`, which reports steps.
    pub fn includes_signal(&self, number: i32) -> bool {
        if number == SIGTRAP {
            return false;
        }
        let bit = u32::try_from(number - 1).ok().and_then(|shift| 1_u64.checked_shl(shift));
        bit.is_none_or(|bit| self.passed_signals & bit == 0)
    }
}

/// The requested events at a position, of the thread that executes there: those before its next
/// instruction, and the system call that this instruction makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventsAt {
    /// `Some` if a system call has returned, with its number if that is known.
    pub returned: Option<Option<u64>>,
    /// The handler of this signal begins.
    pub signal: Option<i32>,
    /// `Some` if a system call is about to be made, with its number if that is known.
    pub call: Option<Option<u64>>,
}

/// The rank of a stop among the stops at one position, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StopRank {
    /// Before all stops: on the way forward, nothing is reported here yet.
    Before,
    /// A system call has returned.
    Returned,
    /// The handler of a signal begins.
    Signal,
    /// A stop for the next instruction itself, such as a breakpoint or a complete step.
    Instruction,
    /// A system call is about to be made.
    Call,
    /// After all stops: on the way backward, nothing is reported here yet.
    After,
}

impl StopRank {
    /// Returns the rank of a stop for this reason. Reasons other than events count as stops for the
    /// instruction.
    pub(super) fn of(reason: StopReason) -> Self {
        match reason {
            StopReason::CallReturn(_) => Self::Returned,
            StopReason::Signal(_) => Self::Signal,
            StopReason::Call(_) => Self::Call,
            _ => Self::Instruction,
        }
    }
}

impl EventsAt {
    /// Returns the next event of this position in `direction`, given the rank of the stop that was
    /// reported here last; `None` if there is no other. A call with an unknown number has
    /// [`StopReason::UNKNOWN_CALL`].
    pub(super) fn next_after(
        self,
        reported: StopRank,
        direction: Direction,
    ) -> Option<(StopRank, StopReason)> {
        let number = |number: Option<u64>| number.unwrap_or(StopReason::UNKNOWN_CALL);
        let mut all = [
            self.returned.map(|call| (StopRank::Returned, StopReason::CallReturn(number(call)))),
            self.signal.map(|signal| (StopRank::Signal, StopReason::Signal(signal))),
            self.call.map(|call| (StopRank::Call, StopReason::Call(number(call)))),
        ];
        if direction == Direction::Backward {
            all.reverse();
        }
        all.into_iter().flatten().find(|(rank, _)| match direction {
            Direction::Forward => *rank > reported,
            Direction::Backward => *rank < reported,
        })
    }
}

/// A search for the nearest position with a requested event.
#[derive(Clone, Copy, Debug)]
pub struct EventSearch<'a> {
    /// The start of the search, excluded.
    pub from: u64,
    /// The last position of the search, included.
    pub until: u64,
    /// The direction of the search.
    pub direction: Direction,
    /// The only thread to search, if given.
    pub only: Option<Tid>,
    /// The requested events.
    pub wanted: &'a RequestedEvents,
    /// Counts the system calls in the range that did not match [`RequestedEvents::calls`] only
    /// because their numbers are unknown.
    pub unknown_calls: &'a Cell<u64>,
}

/// Returns the requested events at a position, of the thread that executes there; none if no thread
/// does.
pub(super) fn events_at(
    timeline: &Timeline,
    entries: &KernelEntries,
    position: u64,
    wanted: &RequestedEvents,
) -> EventsAt {
    let Some(tid) = timeline.running_at(position) else { return EventsAt::default() };
    let index = timeline.index_of(tid, position);
    let call = |index: u64| {
        let is_call = wanted.calls != Catches::None && entries.is_call(timeline, tid, index);
        let number = is_call.then(|| entries.number(timeline, tid, index));
        number.filter(|number| wanted.includes_call(*number))
    };
    let signal = entries.signal_at(position).filter(|signal| signal.tid == tid);
    let signal = signal.filter(|signal| wanted.includes_signal(signal.number));
    EventsAt {
        returned: index.checked_sub(1).and_then(call),
        signal: signal.filter(|s| KernelEntries::is_handled(timeline, s)).map(|s| s.number),
        call: call(index),
    }
}

/// Returns the nearest position with a requested event. If `interrupted` returns true, returns
/// [`Found::Interrupted`] with the start of the search, even if an event was found: a nearer one
/// may have been missed.
pub(super) fn find_nearest(
    timeline: &Timeline,
    entries: &KernelEntries,
    search: &EventSearch<'_>,
    interrupted: &dyn Fn() -> bool,
) -> Found {
    let (mut first, mut last) = match search.direction {
        Direction::Forward => (search.from.saturating_add(1), search.until),
        Direction::Backward => (search.until, search.from.saturating_sub(1)),
    };
    let mut found = Found::Nothing;
    let mut narrow = |position, first: &mut u64, last: &mut u64| {
        found = Found::At(position);
        match search.direction {
            Direction::Forward => *last = position,
            Direction::Backward => *first = position,
        }
    };
    if first > last || (search.direction == Direction::Backward && search.from == 0) {
        return Found::Nothing;
    }
    if let Some(signal) = nearest_signal(timeline, entries, search, first, last) {
        narrow(signal.position, &mut first, &mut last);
    }
    if search.wanted.calls == Catches::None {
        return found;
    }
    let addrs = entries.call_sites(timeline, |number| search.wanted.includes_call(number));
    let threads = timeline.threads().filter(|tid| search.only.is_none_or(|only| only == *tid));
    for tid in threads {
        let calls = CallSearch { timeline, entries, search, tid, addrs: &addrs };
        match calls.nearest(first, last, interrupted) {
            Found::At(position) => narrow(position, &mut first, &mut last),
            Found::Nothing => {}
            // The search up to here is incomplete, so no nearer hit is known.
            Found::Interrupted(_) => return Found::Interrupted(search.from),
        }
    }
    found
}

/// Returns the requested signal whose handler begins in `first..=last`, nearest to the start of the
/// search: of the search's thread, or of any if it has none.
fn nearest_signal(
    timeline: &Timeline,
    entries: &KernelEntries,
    search: &EventSearch<'_>,
    first: u64,
    last: u64,
) -> Option<Delivery> {
    let stops = |delivery: &&Delivery| {
        search.only.is_none_or(|only| only == delivery.tid)
            && search.wanted.includes_signal(delivery.number)
            && KernelEntries::is_handled(timeline, delivery)
    };
    let mut within = entries.signals_within(first, last).iter();
    match search.direction {
        Direction::Forward => within.find(stops).copied(),
        Direction::Backward => within.rfind(stops).copied(),
    }
}

/// A search for the system calls of one thread.
struct CallSearch<'a> {
    timeline: &'a Timeline,
    entries: &'a KernelEntries,
    search: &'a EventSearch<'a>,
    tid: Tid,
    /// The addresses of the instructions that make the calls that may match.
    addrs: &'a BTreeSet<Addr>,
}

impl CallSearch<'_> {
    /// Returns the nearest position in `first..=last` at which a requested system call of the
    /// thread begins or returns, in the direction of the search.
    fn nearest(&self, first: u64, last: u64, interrupted: &dyn Fn() -> bool) -> Found {
        // A call that returns in the range may have begun long before it, while other threads ran.
        let before = self.timeline.index_of(self.tid, first).checked_sub(1);
        let start = before.and_then(|index| self.timeline.global_of(self.tid, index));
        let mut within = start.unwrap_or(first)..last.saturating_add(1);
        loop {
            let search = Search {
                within: within.clone(),
                direction: self.search.direction,
                only: Some(self.tid),
                addrs: self.addrs,
            };
            let found = self.timeline.find(&search, interrupted);
            let Found::At(position) = found else { return found };
            if let Some(found) = self.requested_position(position, first, last) {
                return Found::At(found);
            }
            match self.search.direction {
                Direction::Forward => within.start = position + 1,
                Direction::Backward => within.end = position,
            }
            if interrupted() {
                return Found::Interrupted(position);
            }
        }
    }

    /// Returns the position in `first..=last` at which the call made at `position` begins or
    /// returns, the first of both in the direction of the search; `None` if neither is in the
    /// range, or the call was not requested. Counts a call that may have been requested, but whose
    /// number is unknown.
    fn requested_position(&self, position: u64, first: u64, last: u64) -> Option<u64> {
        let index = self.timeline.index_of(self.tid, position);
        if !self.entries.is_call(self.timeline, self.tid, index) {
            return None;
        }
        let done = self.timeline.global_of(self.tid, index + 1);
        let mut begin_and_return = [Some(position), done];
        if self.search.direction == Direction::Backward {
            begin_and_return.reverse();
        }
        let found =
            begin_and_return.into_iter().flatten().find(|found| (first..=last).contains(found))?;
        let number = self.entries.number(self.timeline, self.tid, index);
        let wanted = self.search.wanted.includes_call(number);
        if !wanted && number.is_none() {
            self.search.unknown_calls.set(self.search.unknown_calls.get() + 1);
        }
        wanted.then_some(found)
    }
}
