//! Conversion between a thread's instructions and positions, for drawings. In an exact recording it
//! is an estimate: linear between two places ([`TimedPlaces`]) whose positions are known.

use super::clock::TimedPlaces;
use super::opened::Asked;
use crate::common::Tid;
use crate::session::Position;
use crate::timeline::Timeline;

/// A part of a thread's path, in which it executes without another thread in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    /// The position of the interval's first instruction.
    position: u64,
    /// The position at which the next interval of any thread begins.
    end: u64,
    /// The number of the interval's first instruction, counted per thread.
    index: u64,
}

/// A converter between the instructions of one thread and positions.
pub(super) enum Scale<'a> {
    /// For an exact recording: the intervals of the thread, in order, and the number of its
    /// instructions.
    Exact { intervals: Vec<Interval>, count: u64 },
    /// For a path, whose positions are exact.
    Path { timeline: &'a Timeline, tid: Tid },
}

impl Asked {
    /// Returns a converter between a thread's instruction numbers and positions. `moments` are the
    /// moments at which the intervals of all threads begin ([`TimedPlaces::moments`]).
    pub(super) fn scale(&self, tid: Tid, moments: &[u64]) -> Scale<'_> {
        let (timeline, count) = (&self.timeline, self.timeline.instructions(tid));
        let Some(places) = &self.places else { return Scale::Path { timeline, tid } };
        let last = Position::parts(self.last_position()).0;
        let interval = |(moment, index)| {
            let after = moments.partition_point(|start| *start <= moment);
            let end = moments.get(after).copied().unwrap_or(last.max(moment));
            let [position, end] = [moment, end].map(|moment| Position::exact(moment, 0));
            Interval { position, end, index }
        };
        Scale::Exact { intervals: places.moments_and_indexes(tid).map(interval).collect(), count }
    }

    /// Returns the moments of all places, ascending; empty for a path recording.
    pub(super) fn place_moments(&self) -> Vec<u64> {
        self.places.as_ref().map(TimedPlaces::moments).unwrap_or_default()
    }
}

impl Scale<'_> {
    /// Returns the position of the thread's instruction `index`, or that after its last instruction
    /// if `index` is the number of its instructions; of a path recording, the end of the run if the
    /// thread has none. In an exact recording, an estimate: an instruction before the first known
    /// place gets the position of that, 0 if there is no place.
    pub(super) fn position_of(&self, index: u64) -> u64 {
        match self {
            Self::Exact { intervals, count } => {
                let next = intervals.partition_point(|interval| interval.index <= index);
                let Some(at) = next.checked_sub(1).and_then(|at| intervals.get(at)) else {
                    return intervals.first().map_or(0, |first| first.position);
                };
                let end = intervals.get(next).map_or(*count, |next| next.index);
                at.position + proportion(index - at.index, end - at.index, at.end - at.position)
            }
            Self::Path { timeline, tid } => {
                let before = || timeline.global_of(*tid, index.checked_sub(1)?);
                let at = timeline.global_of(*tid, index);
                at.or_else(|| Some(before()? + 1)).unwrap_or_else(|| timeline.total())
            }
        }
    }

    /// Returns the number of instructions that the thread executed before a position; in an exact
    /// recording an estimate, which stays the same while other threads execute.
    pub(super) fn index_of(&self, position: u64) -> u64 {
        match self {
            Self::Exact { intervals, count } => {
                let next = intervals.partition_point(|interval| interval.position <= position);
                let Some(at) = next.checked_sub(1).and_then(|at| intervals.get(at)) else {
                    return 0;
                };
                let end = intervals.get(next).map_or(*count, |next| next.index);
                at.index + proportion(position - at.position, at.end - at.position, end - at.index)
            }
            Self::Path { timeline, tid } => timeline.index_of(*tid, position),
        }
    }

    /// Returns the position at which the thread begins, and that after its last instruction; zeros
    /// if an exact recording has no place of the thread. Both are the end of the run if a path
    /// recording has no instruction of the thread.
    pub(super) fn start_and_end(&self) -> (u64, u64) {
        match self {
            Self::Exact { intervals, .. } => (
                intervals.first().map_or(0, |first| first.position),
                intervals.last().map_or(0, |last| last.end),
            ),
            Self::Path { timeline, tid } => {
                (self.position_of(0), self.position_of(timeline.instructions(*tid)))
            }
        }
    }
}

/// Returns `whole * done / of`, at most `whole`; `whole` if `of` is 0.
fn proportion(done: u64, of: u64, whole: u64) -> u64 {
    if of == 0 {
        return whole;
    }
    let proportion = u128::from(done.min(of)) * u128::from(whole) / u128::from(of);
    u64::try_from(proportion).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_and_positions_lead_to_each_other() {
        let interval = |position, end, index| Interval { position, end, index };
        let intervals = vec![interval(100, 200, 0), interval(500, 700, 50), interval(700, 750, 60)];
        let scale = Scale::Exact { intervals, count: 110 };
        assert_eq!(scale.start_and_end(), (100, 750));
        for (index, position) in [(0, 100), (25, 150), (50, 500), (55, 600), (60, 700), (110, 750)]
        {
            assert_eq!((scale.position_of(index), scale.index_of(position)), (position, index));
        }
        // Before its birth, while another thread executes, and after its end.
        assert_eq!([0, 99, 200, 499, 1000].map(|at| scale.index_of(at)), [0, 0, 50, 50, 110]);
    }
}
