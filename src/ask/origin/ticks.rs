//! Conversion between positions and the instructions of a thread's path: by counting ticks from the
//! nearer end of the interval between two entries of the log.
//!
//! A position is a moment and the instructions since it began; a moment is a count of ticks
//! (counted branches) and log entries, each of which begins another one. A tick is named by the
//! number of the instruction after it, with which its moment begins.

use super::scan::ExactPath;
use crate::ask::Asked;
use crate::ask::blocks::ends_in_tick;
use crate::common::Tid;
use crate::session::Position;
use crate::timeline::Visit;
use std::ops::{ControlFlow, Range};

/// A converter between positions and the instructions of one thread.
pub(super) struct TickConverter<'a> {
    pub(super) path: &'a ExactPath<'a>,
    /// The first moments of the intervals of the log, ascending.
    pub(super) interval_starts: &'a [u64],
}

/// An interval of a thread: the instructions that it executes between two entries of the log.
struct Interval {
    /// The numbers of its instructions, up to the thread's next interval.
    range: Range<u64>,
    /// The first moment of the interval.
    first: u64,
    /// The last moment of the interval: before the next entry of any thread, or the last one of the
    /// run. The interval starts end with the moment after the run, so each instruction of the path
    /// has one.
    last: u64,
}

impl Asked {
    /// Returns the position of a thread's instruction `index`. `None` if the path is shorter, or,
    /// in an exact recording, if the thread's first known place is later.
    pub fn position_of_instruction(&self, tid: Tid, index: u64) -> Option<u64> {
        if index >= self.timeline.instructions(tid) {
            return None;
        }
        let (Some(places), Some(replay)) = (&self.places, &self.replay) else {
            return self.timeline.global_of(tid, index);
        };
        let (timeline, interval_starts) = (&self.timeline, replay.interval_starts());
        let path = ExactPath { timeline, places, tid };
        TickConverter { path: &path, interval_starts: &interval_starts }.position_of(index)
    }
}

impl TickConverter<'_> {
    /// Returns the number of instructions that the thread executed before a position: its next
    /// instruction there. At most the length of its path; 0 if its first known place is later.
    pub(super) fn index_of(&self, position: u64) -> u64 {
        let (moment, instructions) = Position::parts(position);
        let count = self.path.timeline.instructions(self.path.tid);
        let start = self.path.places.last_moment_start(self.path.tid, |at| at.moment <= moment);
        let Some(interval) = start.map(|at| self.interval(at.index, at.moment)) else { return 0 };
        let moment_start = if moment > interval.last {
            // The thread executes nothing from the end of the interval to the position.
            interval.range.end
        } else if moment - interval.first <= interval.last - moment {
            self.index_after_ticks(&interval, moment - interval.first)
        } else {
            self.index_before_last_ticks(&interval, interval.last - moment)
        };
        moment_start.saturating_add(instructions).min(count)
    }

    /// Returns the position of instruction `index` of the thread; `None` if its first known place
    /// is later.
    pub(super) fn position_of(&self, index: u64) -> Option<u64> {
        let at = self.path.places.last_moment_start(self.path.tid, |at| at.index <= index)?;
        let interval = self.interval(at.index, at.moment);
        let (mut moment, mut moment_start) = (interval.first, interval.range.start);
        if index - interval.range.start <= interval.range.end.saturating_sub(index) {
            self.each_tick(&interval, &mut |after| {
                if after > index {
                    return ControlFlow::Break(());
                }
                (moment, moment_start) = (moment + 1, after);
                ControlFlow::Continue(())
            });
        } else {
            moment = interval.last;
            self.each_tick_backward(&interval, &mut |after| {
                if after > index {
                    moment -= 1;
                    return ControlFlow::Continue(());
                }
                moment_start = after;
                ControlFlow::Break(())
            });
        }
        Some(Position::exact(moment, index - moment_start))
    }

    /// Returns the interval that begins at instruction `start`, in moment `first`.
    fn interval(&self, start: u64, first: u64) -> Interval {
        let next = self.path.places.next_moment_start(self.path.tid, first);
        let end =
            next.map_or_else(|| self.path.timeline.instructions(self.path.tid), |next| next.index);
        let after = self.interval_starts.partition_point(|start| *start <= first);
        let last = self.interval_starts.get(after).map_or(u64::MAX, |next| next - 1);
        Interval { range: start..end.max(start), first, last }
    }

    /// Returns the number, in the thread's path, of the first instruction after the first `ticks`
    /// ticks of an interval; after all its ticks if there are fewer. Decodes the interval from its
    /// start: for ticks near its end, use [`Self::index_before_last_ticks`].
    fn index_after_ticks(&self, interval: &Interval, ticks: u64) -> u64 {
        let (mut left, mut moment_start) = (ticks, interval.range.start);
        self.each_tick(interval, &mut |after| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            (left, moment_start) = (left - 1, after);
            ControlFlow::Continue(())
        });
        moment_start
    }

    /// Skips the last `ticks` ticks of an interval, from its end. Returns the number, in the
    /// thread's path, of the instruction after the tick before them; that of the interval's first
    /// instruction if there is no such tick.
    fn index_before_last_ticks(&self, interval: &Interval, ticks: u64) -> u64 {
        let (mut left, mut moment_start) = (ticks, interval.range.start);
        self.each_tick_backward(interval, &mut |after| {
            if left > 0 {
                left -= 1;
                return ControlFlow::Continue(());
            }
            moment_start = after;
            ControlFlow::Break(())
        });
        moment_start
    }

    /// Calls `visitor` for each tick of an interval, with the number of the instruction after it,
    /// until it breaks.
    fn each_tick(&self, interval: &Interval, visitor: &mut dyn FnMut(u64) -> ControlFlow<()>) {
        let _ = self.visit_ticks(&interval.range, interval.range.start, visitor);
    }

    /// Calls `visitor` for each tick of an interval, from the last one to the first, with the
    /// number of the instruction after it, until it breaks.
    fn each_tick_backward(
        &self,
        interval: &Interval,
        visitor: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) {
        let mut until = interval.range.end;
        while until > interval.range.start {
            let (first, ticks) = self.ticks_of_segment(interval, until);
            if ticks.into_iter().rev().try_for_each(&mut *visitor).is_break() || first >= until {
                return;
            }
            until = first;
        }
    }

    /// Visits the segment that contains instruction `until - 1`. Returns the number of its first
    /// instruction in the interval, and for each tick the number of the instruction after it.
    fn ticks_of_segment(&self, interval: &Interval, until: u64) -> (u64, Vec<u64>) {
        let mut ticks = Vec::new();
        let range = interval.range.start..until;
        let first = self.visit_ticks(&range, until - 1, &mut |after| {
            ticks.push(after);
            ControlFlow::Continue(())
        });
        (first.max(interval.range.start), ticks)
    }

    /// Calls `visitor` for each tick in a range, with the number of the instruction after it, from
    /// the segment that contains instruction `from` on, until it breaks. A tick is in the range if
    /// that number is after the range's start, and at most its end. Returns the number of this
    /// segment's first instruction, which may be before the range: a path can be decoded only from
    /// the start of a segment (the part from one PSB to the next).
    fn visit_ticks(
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
