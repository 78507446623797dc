//! The function calls around a position of a recording: the *arrivals* of a thread in functions, by
//! calls, returns and signals, shortly before and shortly after it.
//!
//! An *arrival* ([`ArrivalKind`]) is a call, a signal handler, the start of a path or of its rest
//! after a gap, or a return to a function whose call was not searched; a return to a known caller
//! is none.

use crate::common::{Addr, Tid};
use crate::timeline::{Arrival, ArrivalKind, CallTrace, Timeline, Visit};
use std::ops::ControlFlow;

/// One arrival of a thread in a function, by a call, a return or a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionArrival {
    /// The position of the first instruction after the arrival.
    pub position: u64,
    /// The call depth, relative to the outermost of the arrivals that are returned together, which
    /// has depth 0.
    pub depth: usize,
    /// The address of the first instruction after the arrival.
    pub ip: Addr,
    /// The kind of arrival. A return is to a function whose call was not in the searched range.
    pub kind: ArrivalKind,
}

/// The number of instructions before the position that are searched at first.
const FIRST_REACH: u64 = 0x1000;
/// The factor by which the number of searched instructions grows if too few calls were found.
const REACH_FACTOR: u64 = 8;
/// The maximum number of instructions searched, both before and after the position.
const MAX_REACH: u64 = 1 << 24;

/// Returns the last `count` arrivals of a thread in functions before its instruction `index`, and
/// the first `count` from there on, in the order of the path; fewer if the path or the searched
/// range has fewer. Searches at most about [`MAX_REACH`] instructions on either side, and both
/// sides again with each larger reach before `index`. Leaves out an arrival after the thread's last
/// instruction, which has no position.
pub(super) fn calls_around(
    timeline: &Timeline,
    tid: Tid,
    index: u64,
    count: usize,
) -> Vec<FunctionArrival> {
    let mut reach = FIRST_REACH;
    loop {
        let (before, after) = arrivals_around(timeline, tid, index, reach, count);
        let is_enough = before.len() >= count || index <= reach;
        if !is_enough && reach < MAX_REACH {
            reach *= REACH_FACTOR;
            continue;
        }
        let first = before.len().saturating_sub(count);
        let shown = before.into_iter().skip(first).chain(after);
        let converted = |arrival: Arrival| {
            let position = timeline.global_of(tid, arrival.index)?;
            Some(FunctionArrival {
                position,
                depth: arrival.depth,
                ip: arrival.ip,
                kind: arrival.kind,
            })
        };
        let mut shown: Vec<FunctionArrival> = shown.filter_map(converted).collect();
        let outermost = shown.iter().map(|arrival| arrival.depth).min().unwrap_or(0);
        for arrival in &mut shown {
            arrival.depth -= outermost;
        }
        return shown;
    }
}

/// Returns all arrivals in the `reach` instructions before `index`, or somewhat more, and up to
/// `count` arrivals from `index` on, in at most about [`MAX_REACH`] instructions.
fn arrivals_around(
    timeline: &Timeline,
    tid: Tid,
    index: u64,
    reach: u64,
    count: usize,
) -> (Vec<Arrival>, Vec<Arrival>) {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut trace = CallTrace::default();
    let end = index.saturating_add(MAX_REACH);
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
