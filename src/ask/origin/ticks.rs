//! From positions to the instructions of a thread's path, and back: by counting ticks from the
//! nearer end of the interval.

use super::scan::Path;
use crate::ask::Asked;
use crate::ask::walk::ends_in_tick;
use crate::common::Tid;
use crate::session::Position;
use crate::timeline::Visit;
use std::ops::{ControlFlow, Range};

/// The ticks of a thread's path.
pub(super) struct Ticks<'a> {
    pub(super) path: &'a Path<'a>,
    /// The moments with which the intervals of the log begin.
    pub(super) starts: &'a [u64],
}

/// An interval of a thread: what it executes between two entries of the log.
struct Interval {
    /// Its instructions.
    range: Range<u64>,
    /// Its moments.
    first: u64,
    last: u64,
}

impl Asked {
    /// Returns the position of a thread's instruction `index`.
    pub fn position_of_instruction(&self, tid: Tid, index: u64) -> Option<u64> {
        if index >= self.timeline.instructions(tid) {
            return None;
        }
        let (Some(places), Some(replay)) = (&self.places, &self.replay) else {
            return self.timeline.global_of(tid, index);
        };
        let (timeline, starts) = (&self.timeline, replay.interval_starts());
        let path = Path { timeline, places, tid };
        Ticks { path: &path, starts: &starts }.position_of(index)
    }
}

impl Ticks<'_> {
    /// Returns the number of the thread's instruction at a position.
    pub(super) fn index_of(&self, position: u64) -> u64 {
        let (moment, instructions) = Position::parts(position);
        let count = self.path.timeline.instructions(self.path.tid);
        let start = self.path.places.last_start(self.path.tid, |at| at.moment <= moment);
        let Some(interval) = start.map(|at| self.interval(at.index, at.moment)) else { return 0 };
        let begins = if moment > interval.last {
            // An entry without instructions.
            interval.range.end
        } else if moment - interval.first <= interval.last - moment {
            self.forward(&interval, moment - interval.first)
        } else {
            self.back(&interval, interval.last - moment)
        };
        begins.saturating_add(instructions).min(count)
    }

    /// Returns the position of an instruction of the thread.
    pub(super) fn position_of(&self, index: u64) -> Option<u64> {
        let at = self.path.places.last_start(self.path.tid, |at| at.index <= index)?;
        let interval = self.interval(at.index, at.moment);
        let (mut moment, mut begins) = (interval.first, interval.range.start);
        if index - interval.range.start <= interval.range.end.saturating_sub(index) {
            self.each_forward(&interval, &mut |after| {
                if after > index {
                    return ControlFlow::Break(());
                }
                (moment, begins) = (moment + 1, after);
                ControlFlow::Continue(())
            });
        } else {
            moment = interval.last;
            self.each_back(&interval, &mut |after| {
                if after > index {
                    moment -= 1;
                    return ControlFlow::Continue(());
                }
                begins = after;
                ControlFlow::Break(())
            });
        }
        Some(Position::exact(moment, index - begins))
    }

    fn interval(&self, start: u64, first: u64) -> Interval {
        let next = self.path.places.next_start(self.path.tid, first);
        let end =
            next.map_or_else(|| self.path.timeline.instructions(self.path.tid), |next| next.index);
        let after = self.starts.partition_point(|start| *start <= first);
        let last = self.starts.get(after).map_or(u64::MAX, |next| next - 1);
        Interval { range: start..end.max(start), first, last }
    }

    /// Returns the number of the instruction after so many ticks of an interval.
    fn forward(&self, interval: &Interval, ticks: u64) -> u64 {
        let (mut left, mut begins) = (ticks, interval.range.start);
        self.each_forward(interval, &mut |after| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            (left, begins) = (left - 1, after);
            ControlFlow::Continue(())
        });
        begins
    }

    /// Returns the number of the instruction with which the tick begins that so many are after.
    fn back(&self, interval: &Interval, ticks: u64) -> u64 {
        let (mut left, mut begins) = (ticks, interval.range.start);
        self.each_back(interval, &mut |after| {
            if left > 0 {
                left -= 1;
                return ControlFlow::Continue(());
            }
            begins = after;
            ControlFlow::Break(())
        });
        begins
    }

    /// Visits the ticks of an interval, by the number of the instruction after each.
    fn each_forward(&self, interval: &Interval, visitor: &mut dyn FnMut(u64) -> ControlFlow<()>) {
        let _ = self.visit(&interval.range, interval.range.start, visitor);
    }

    /// Visits them from the last one on.
    fn each_back(&self, interval: &Interval, visitor: &mut dyn FnMut(u64) -> ControlFlow<()>) {
        let mut until = interval.range.end;
        while until > interval.range.start {
            let (first, ticks) = self.segment(interval, until);
            if ticks.into_iter().rev().try_for_each(&mut *visitor).is_break() || first >= until {
                return;
            }
            until = first;
        }
    }

    /// Returns the ticks of an interval in the segment before instruction `until`, and the number
    /// of the segment's first instruction.
    fn segment(&self, interval: &Interval, until: u64) -> (u64, Vec<u64>) {
        let mut ticks = Vec::new();
        let range = interval.range.start..until;
        let first = self.visit(&range, until - 1, &mut |after| {
            ticks.push(after);
            ControlFlow::Continue(())
        });
        (first.max(interval.range.start), ticks)
    }

    /// Visits the ticks in a range, from the segment of an instruction on. Returns the number of
    /// the first instruction of the segment.
    fn visit(
        &self,
        range: &Range<u64>,
        from: u64,
        visitor: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> u64 {
        let mut first = from;
        let _: ControlFlow<()> = self.path.timeline.visit(self.path.tid, from, &mut |visit| {
            let Visit::Block { index, span, code, .. } = &visit else {
                return ControlFlow::Continue(());
            };
            first = first.min(*index);
            if *index >= range.end {
                return ControlFlow::Break(());
            }
            let after = index + u64::from(span.insns);
            let is_inside = after > range.start && after <= range.end;
            if is_inside && ends_in_tick(span.exit, span.last, code) {
                visitor(after)
            } else {
                ControlFlow::Continue(())
            }
        });
        first
    }
}
