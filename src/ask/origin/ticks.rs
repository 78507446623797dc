//! Conversion between positions and the instructions of a thread's path: by counting ticks from the
//! nearer end of the interval between two entries of the log. A position is a moment and the
//! instructions since it began; a moment is a count of ticks and entries, each of which begins
//! another one.

use super::scan::Path;
use crate::ask::Asked;
use crate::ask::blocks::ends_in_tick;
use crate::common::Tid;
use crate::session::Position;
use crate::timeline::Visit;
use std::ops::{ControlFlow, Range};

/// A thread's path, and the moments at which the intervals of the log begin.
pub(super) struct Ticks<'a> {
    pub(super) path: &'a Path<'a>,
    /// The first moments of the intervals of the log, ascending.
    pub(super) starts: &'a [u64],
}

/// An interval of a thread: what it executes between two entries of the log.
struct Interval {
    /// The numbers of its instructions, up to the thread's next interval.
    range: Range<u64>,
    /// The first moment of the interval.
    first: u64,
    /// The last moment before the next entry of any thread; `u64::MAX` if none follows.
    last: u64,
}

impl Asked {
    /// Returns the position of a thread's instruction `index`; `None` if the path is shorter.
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
    /// Returns the number of instructions that the thread executed before a position.
    pub(super) fn index_of(&self, position: u64) -> u64 {
        let (moment, instructions) = Position::parts(position);
        let count = self.path.timeline.instructions(self.path.tid);
        let start = self.path.places.last_tick_start(self.path.tid, |at| at.moment <= moment);
        let Some(interval) = start.map(|at| self.interval(at.index, at.moment)) else { return 0 };
        let begins = if moment > interval.last {
            // The thread executes nothing from the end of the interval to the position.
            interval.range.end
        } else if moment - interval.first <= interval.last - moment {
            self.forward(&interval, moment - interval.first)
        } else {
            self.back(&interval, interval.last - moment)
        };
        begins.saturating_add(instructions).min(count)
    }

    /// Returns the position of instruction `index` of the thread; `None` before its first interval.
    pub(super) fn position_of(&self, index: u64) -> Option<u64> {
        let at = self.path.places.last_tick_start(self.path.tid, |at| at.index <= index)?;
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

    /// Returns the interval that begins at instruction `start`, in moment `first`.
    fn interval(&self, start: u64, first: u64) -> Interval {
        let next = self.path.places.next_tick_start(self.path.tid, first);
        let end =
            next.map_or_else(|| self.path.timeline.instructions(self.path.tid), |next| next.index);
        let after = self.starts.partition_point(|start| *start <= first);
        let last = self.starts.get(after).map_or(u64::MAX, |next| next - 1);
        Interval { range: start..end.max(start), first, last }
    }

    /// Returns the number of the first instruction after the first `ticks` ticks of an interval, or
    /// after all its ticks if there are fewer.
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

    /// Returns the number of the first instruction after the tick before the last `ticks` ticks of
    /// an interval; that of the interval's first instruction if there is no such tick.
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

    /// Calls `visitor` for each tick of an interval, with the number of the instruction after it,
    /// until it breaks.
    fn each_forward(&self, interval: &Interval, visitor: &mut dyn FnMut(u64) -> ControlFlow<()>) {
        let _ = self.visit(&interval.range, interval.range.start, visitor);
    }

    /// Does the same as [`Self::each_forward`], from the last tick to the first.
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

    /// Visits the segment that contains instruction `until - 1`. Returns the number of its first
    /// instruction in the interval, and for each tick the number of the instruction after it.
    fn segment(&self, interval: &Interval, until: u64) -> (u64, Vec<u64>) {
        let mut ticks = Vec::new();
        let range = interval.range.start..until;
        let first = self.visit(&range, until - 1, &mut |after| {
            ticks.push(after);
            ControlFlow::Continue(())
        });
        (first.max(interval.range.start), ticks)
    }

    /// Calls `visitor` for each tick in a range of instructions, from the segment that contains
    /// instruction `from` on. Returns the number of this segment's first instruction, which may be
    /// before the range: a path can be decoded only from the start of a segment.
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
            if is_inside && ends_in_tick(span, code) {
                visitor(after)
            } else {
                ControlFlow::Continue(())
            }
        });
        first
    }
}
