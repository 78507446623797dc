//! The calls around a position of a recording: which functions a thread came to shortly before and
//! shortly after it.

use crate::common::{Addr, Tid};
use crate::timeline::{Arrival, CallTrace, How, Timeline, Visit};
use std::ops::ControlFlow;

/// A function that a thread came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// The position of its first instruction there.
    pub position: u64,
    /// How deep it is, in calls that have not returned; the outermost of a list is 0.
    pub depth: usize,
    /// That instruction.
    pub ip: Addr,
    /// How it came there.
    pub how: Arrived,
}

/// How a thread came to a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// Its path begins there, or goes on there behind a gap.
    Start,
    /// By a call.
    Call,
    /// By a return to a function whose call is not among those that were looked at.
    Return,
    /// By a signal.
    Signal,
}

/// Instructions that are looked at first, before and behind the position.
const FIRST_REACH: u64 = 0x1000;
/// How much farther it is looked if there were too few calls.
const FARTHER: u64 = 8;
/// Instructions that are looked at, at most.
const LARGEST_REACH: u64 = 1 << 24;

/// Up to `count` functions that a thread came to before its instruction `index`, and as many from
/// there on.
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
            let how = match arrival.how {
                How::Start => Arrived::Start,
                How::Call => Arrived::Call,
                How::Return => Arrived::Return,
                How::Signal => Arrived::Signal,
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

/// The arrivals before `index` and from it on, within `reach` instructions.
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
