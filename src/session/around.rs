//! The function calls around a position of a recording: which functions a thread entered or
//! returned to shortly before and shortly after it.

use crate::common::{Addr, Tid};
use crate::timeline::{Arrival, ArrivalKind, CallTrace, Timeline, Visit};
use std::ops::ControlFlow;

/// One arrival of a thread in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// The position of the first instruction after the arrival.
    pub position: u64,
    /// The call depth. The outermost of the calls that are returned together has depth 0.
    pub depth: usize,
    /// The address of the first instruction after the arrival.
    pub ip: Addr,
    /// The kind of arrival.
    pub how: Arrived,
}

/// The kind of a thread's arrival in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// The path begins here, or continues here after a gap.
    Start,
    /// A call.
    Call,
    /// A return to a function whose call was not seen in the searched range.
    Return,
    /// A signal.
    Signal,
}

/// The number of instructions before the position that are searched at first.
const FIRST_REACH: u64 = 0x1000;
/// The factor by which the number of searched instructions grows if too few calls were found.
const FARTHER: u64 = 8;
/// The maximum number of instructions searched, both before and after the position.
const LARGEST_REACH: u64 = 1 << 24;

/// Returns up to `count` functions that a thread reached before its instruction `index`, and up to
/// `count` from there on. Searches at most about [`LARGEST_REACH`] instructions on either side.
pub(super) fn calls_around(timeline: &Timeline, tid: Tid, index: u64, count: usize) -> Vec<Called> {
    let mut reach = FIRST_REACH;
    loop {
        let (before, after) = look(timeline, tid, index, reach, count);
        let enough = before.len() >= count || index <= reach;
        if !enough && reach < LARGEST_REACH {
            reach *= FARTHER;
            continue;
        }
        let first = before.len().saturating_sub(count);
        let shown = before.into_iter().skip(first).chain(after);
        let called = |arrival: Arrival| {
            let how = match arrival.kind {
                ArrivalKind::Start => Arrived::Start,
                ArrivalKind::Call => Arrived::Call,
                ArrivalKind::Return => Arrived::Return,
                ArrivalKind::Signal => Arrived::Signal,
            };
            let position = timeline.global_of(tid, arrival.index)?;
            Some(Called { position, depth: arrival.depth, ip: arrival.ip, how })
        };
        let mut shown: Vec<Called> = shown.filter_map(called).collect();
        let outermost = shown.iter().map(|called| called.depth).min().unwrap_or(0);
        for called in &mut shown {
            called.depth -= outermost;
        }
        return shown;
    }
}

/// Returns the arrivals before `index`, from about `reach` instructions before it or somewhat
/// earlier, and up to `count` arrivals from `index` on.
fn look(
    timeline: &Timeline,
    tid: Tid,
    index: u64,
    reach: u64,
    count: usize,
) -> (Vec<Arrival>, Vec<Arrival>) {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut trace = CallTrace::default();
    let end = index.saturating_add(LARGEST_REACH);
    let _: ControlFlow<()> = timeline.visit(tid, index.saturating_sub(reach), &mut |visit| {
        let (Visit::Block { index: at, .. }
        | Visit::Event { index: at, .. }
        | Visit::Gap { index: at, .. }) = visit;
        match trace.visit(&visit) {
            Some(arrival) if arrival.index < index => before.push(arrival),
            Some(arrival) => after.push(arrival),
            None => {}
        }
        if after.len() >= count || at > end {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    (before, after)
}
