//! System calls and signals of the past, as places to stop at.

use super::{Catches, Direction, Found, StopReason};
use crate::common::{Addr, Tid};
use crate::timeline::{self, Delivery, KernelEntries, Timeline};
use std::cell::Cell;
use std::collections::BTreeSet;

const SIGTRAP: i32 = 5;

/// What a debugger wants to be stopped for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// These system calls.
    pub calls: Catches,
    /// Not these signals; signal 1 in bit 0.
    pub passed: u64,
}

impl Wanted {
    /// Whether a system call, of which perhaps not even the number is known, is wanted.
    pub fn call(&self, number: Option<u64>) -> bool {
        number.map_or(self.calls == Catches::All, |number| self.calls.has(number))
    }

    /// Whether a signal is. `SIGTRAP` is not: debuggers take it for the end of their own steps.
    pub fn signal(&self, number: i32) -> bool {
        if number == SIGTRAP {
            return false;
        }
        let bit = u32::try_from(number - 1).ok().and_then(|shift| 1_u64.checked_shl(shift));
        bit.is_none_or(|bit| self.passed & bit == 0)
    }
}

/// What happens to the thread that runs at a position, before its next instruction or by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happening {
    /// A system call is done; with its number, where that is known.
    pub returned: Option<Option<u64>>,
    /// The handler of this signal begins.
    pub signal: Option<i32>,
    /// A system call is about to be made.
    pub call: Option<Option<u64>>,
}

/// Where a stop stands among those of one position, as time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Before,
    Returned,
    Signal,
    Instruction,
    Call,
    After,
}

impl Rank {
    /// Of what was reported.
    pub(super) fn of(reason: StopReason) -> Self {
        match reason {
            StopReason::CallReturn(_) => Self::Returned,
            StopReason::Signal(_) => Self::Signal,
            StopReason::Call(_) => Self::Call,
            _ => Self::Instruction,
        }
    }
}

impl Happening {
    /// What comes next behind what was reported of the position.
    pub(super) fn next(self, told: Rank, direction: Direction) -> Option<(Rank, StopReason)> {
        let number = |number: Option<u64>| number.unwrap_or(StopReason::UNKNOWN_CALL);
        let mut all = [
            self.returned.map(|call| (Rank::Returned, StopReason::CallReturn(number(call)))),
            self.signal.map(|signal| (Rank::Signal, StopReason::Signal(signal))),
            self.call.map(|call| (Rank::Call, StopReason::Call(number(call)))),
        ];
        if direction == Direction::Backward {
            all.reverse();
        }
        all.into_iter().flatten().find(|(rank, _)| match direction {
            Direction::Forward => *rank > told,
            Direction::Backward => *rank < told,
        })
    }
}

/// A search for the nearest position at which something wanted happens.
#[derive(Clone, Copy, Debug)]
pub struct HappeningSearch<'a> {
    /// Where to start; this position itself is not looked at.
    pub from: u64,
    /// The last position to look at.
    pub until: u64,
    /// Which way to go.
    pub direction: Direction,
    /// Look only at this thread.
    pub only: Option<Tid>,
    /// What is wanted.
    pub wanted: &'a Wanted,
    /// Counts the system calls on the way that are none of [`Wanted::calls`] only because their
    /// number is not known.
    pub unknown: &'a Cell<u64>,
}

/// What of that which is wanted happens at a position to the thread that runs there.
pub(super) fn at(
    timeline: &Timeline,
    entries: &KernelEntries,
    position: u64,
    wanted: &Wanted,
) -> Happening {
    let Some(tid) = timeline.running_at(position) else { return Happening::default() };
    let index = timeline.index_of(tid, position);
    let call = |index: u64| {
        let is_call = wanted.calls != Catches::None && entries.is_call(timeline, tid, index);
        let number = is_call.then(|| entries.number(timeline, tid, index));
        number.filter(|number| wanted.call(*number))
    };
    let signal = entries.signal_at(position).filter(|signal| signal.tid == tid);
    let signal = signal.filter(|signal| wanted.signal(signal.number));
    Happening {
        returned: index.checked_sub(1).and_then(call),
        signal: signal.filter(|s| KernelEntries::is_handled(timeline, s)).map(|s| s.number),
        call: call(index),
    }
}

/// The nearest position at which something wanted happens.
pub(super) fn find(
    timeline: &Timeline,
    entries: &KernelEntries,
    search: &HappeningSearch<'_>,
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
    let addrs = entries.calls(timeline, |number| search.wanted.call(number));
    let threads = timeline.threads().filter(|tid| search.only.is_none_or(|only| only == *tid));
    for tid in threads {
        let calls = Calls { timeline, entries, search, tid, addrs: &addrs };
        match calls.nearest(first, last, interrupted) {
            Found::At(position) => narrow(position, &mut first, &mut last),
            Found::Nothing => {}
            // Nearer than this nothing is known of.
            Found::Interrupted(_) => return Found::Interrupted(search.from),
        }
    }
    found
}

fn nearest_signal(
    timeline: &Timeline,
    entries: &KernelEntries,
    search: &HappeningSearch<'_>,
    first: u64,
    last: u64,
) -> Option<Delivery> {
    let stops = |delivery: &&Delivery| {
        search.only.is_none_or(|only| only == delivery.tid)
            && search.wanted.signal(delivery.number)
            && KernelEntries::is_handled(timeline, delivery)
    };
    let mut within = entries.signals_within(first, last).iter();
    match search.direction {
        Direction::Forward => within.find(stops).copied(),
        Direction::Backward => within.rfind(stops).copied(),
    }
}

/// The system calls of one thread.
struct Calls<'a> {
    timeline: &'a Timeline,
    entries: &'a KernelEntries,
    search: &'a HappeningSearch<'a>,
    tid: Tid,
    addrs: &'a BTreeSet<Addr>,
}

impl Calls<'_> {
    /// The nearest position from `first` to `last` at which a wanted call begins or is done.
    fn nearest(&self, first: u64, last: u64, interrupted: &dyn Fn() -> bool) -> Found {
        // A call that is done there may have begun long before, while other threads ran.
        let before = self.timeline.index_of(self.tid, first).checked_sub(1);
        let start = before.and_then(|index| self.timeline.global_of(self.tid, index));
        let mut within = start.unwrap_or(first)..last.saturating_add(1);
        let direction = match self.search.direction {
            Direction::Forward => timeline::Direction::Forward,
            Direction::Backward => timeline::Direction::Backward,
        };
        loop {
            let search = timeline::Search {
                within: within.clone(),
                direction,
                only: Some(self.tid),
                addrs: self.addrs,
            };
            let position = match self.timeline.find(&search, interrupted) {
                timeline::Found::At(position) => position,
                timeline::Found::Nothing => return Found::Nothing,
                timeline::Found::Interrupted(position) => return Found::Interrupted(position),
            };
            if let Some(place) = self.place(position, first, last) {
                return Found::At(place);
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

    /// Where, from `first` to `last`, the call that is made at a position begins or is done, if it
    /// is wanted.
    fn place(&self, position: u64, first: u64, last: u64) -> Option<u64> {
        let index = self.timeline.index_of(self.tid, position);
        if !self.entries.is_call(self.timeline, self.tid, index) {
            return None;
        }
        let done = self.timeline.global_of(self.tid, index + 1);
        let mut places = [Some(position), done];
        if self.search.direction == Direction::Backward {
            places.reverse();
        }
        let place = places.into_iter().flatten().find(|place| (first..=last).contains(place))?;
        let number = self.entries.number(self.timeline, self.tid, index);
        let wanted = self.search.wanted.call(number);
        if !wanted && number.is_none() {
            self.search.unknown.set(self.search.unknown.get() + 1);
        }
        wanted.then_some(place)
    }
}
