//! Positions of a thread's instructions as its path is walked.
//!
//! In an exact recording, a position is a moment ([`Replay::moment`]) and the number of
//! instructions since it began ([`Position::exact`]). Each tick and each entry of the log begins
//! another moment: the path shows the ticks, and its places ([`PathPlace`]) show where the entries
//! are.

use crate::common::Tid;
use crate::recording::PathPlace;
use crate::replay::Replay;
use crate::session::Position;
use crate::timeline::Timeline;
use std::collections::HashMap;

/// The [`PathPlace`]s of all threads of an exact recording, with their moments.
#[derive(Debug, Default)]
pub(super) struct Places {
    of_threads: HashMap<Tid, Vec<TimedPlace>>,
}

/// A place of a thread's path: the number of the instruction that is next there, and the moment
/// ([`Replay::moment`]).
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedPlace {
    pub(super) index: u64,
    pub(super) moment: u64,
    /// True if the place is right after an entry of the log: then its instruction is the first of
    /// its tick. Elsewhere it may be any instruction of its tick.
    begins_tick: bool,
}

impl Places {
    pub(super) fn new(places: &[PathPlace], replay: &Replay) -> Self {
        let mut of_threads: HashMap<Tid, Vec<TimedPlace>> = HashMap::new();
        for place in places {
            let (entry, ticks) = (place.entry, place.ticks);
            let at = crate::replay::Position { entry, ticks, instructions: 0 };
            let moment = replay.moment(at);
            let timed = TimedPlace { index: place.index, moment, begins_tick: ticks == 0 };
            of_threads.entry(place.tid).or_default().push(timed);
        }
        Self { of_threads }
    }

    /// Returns the last place that begins a tick among those places of a thread for which
    /// `is_before` holds. The places for which it holds have to precede those for which it does
    /// not.
    pub(super) fn last_start(
        &self,
        tid: Tid,
        is_before: impl Fn(&TimedPlace) -> bool,
    ) -> Option<TimedPlace> {
        let places = self.of(tid);
        let before = &places[..places.partition_point(is_before)];
        before.iter().rfind(|place| place.begins_tick).copied()
    }

    /// Returns the first place of a thread after `moment` that begins a tick.
    pub(super) fn next_start(&self, tid: Tid, moment: u64) -> Option<TimedPlace> {
        let places = self.of(tid);
        let after = &places[places.partition_point(|place| place.moment <= moment)..];
        after.iter().find(|place| place.begins_tick).copied()
    }

    /// Returns the places of a thread, each as its moment and the number of the next instruction.
    pub(super) fn timed(&self, tid: Tid) -> impl Iterator<Item = (u64, u64)> {
        self.of(tid).iter().map(|place| (place.moment, place.index))
    }

    /// Returns the moments of the places of all threads, ascending. They include the places that
    /// begin no tick.
    pub(super) fn starts(&self) -> Vec<u64> {
        let all = self.of_threads.values().flatten();
        let mut starts: Vec<u64> = all.map(|place| place.moment).collect();
        starts.sort_unstable();
        starts
    }

    fn of(&self, tid: Tid) -> &[TimedPlace] {
        self.of_threads.get(&tid).map(Vec::as_slice).unwrap_or_default()
    }
}

/// A converter of a thread's instructions to positions, which follows a walk of its path.
#[derive(Debug)]
pub(super) enum Clock<'a> {
    /// Positions of an exact recording: the ticks are counted.
    Exact {
        /// The places that the walk has not reached.
        places: &'a [TimedPlace],
        /// The current moment.
        moment: u64,
        /// The number of the instruction with which the current tick begins.
        begins: u64,
    },
    /// Positions of a path: counts in the order of all threads.
    Path {
        /// The timeline of the recording.
        timeline: &'a Timeline,
        /// The thread.
        tid: Tid,
    },
}

impl<'a> Clock<'a> {
    pub(super) fn new(timeline: &'a Timeline, places: Option<&'a Places>, tid: Tid) -> Self {
        match places {
            Some(places) => Self::Exact { places: places.of(tid), moment: 0, begins: 0 },
            None => Self::Path { timeline, tid },
        }
    }

    /// Proceeds to instruction `index`, past all places up to it. Several places may be there: the
    /// last one counts. Does nothing for a path.
    pub(super) fn reach(&mut self, index: u64) {
        let Self::Exact { places, moment, begins } = self else { return };
        while let Some((next, rest)) = places.split_first()
            && next.index <= index
        {
            if next.begins_tick {
                (*moment, *begins) = (next.moment, next.index);
            }
            *places = rest;
        }
    }

    /// Counts a tick: the moment advances, and instructions are counted from `after` on. Does
    /// nothing for a path.
    pub(super) fn tick(&mut self, after: u64) {
        if let Self::Exact { moment, begins, .. } = self {
            (*moment, *begins) = (moment.saturating_add(1), after);
        }
    }

    /// Returns the position of the thread's instruction `index`, which has to be in the block that
    /// the walk is at.
    pub(super) fn position(&self, index: u64) -> u64 {
        match self {
            Self::Exact { places, moment, begins } => {
                // The next places may be inside the current block: an instruction with a hidden
                // input is an entry of the log, and ends no block.
                let inside = places.iter().take_while(|place| place.index <= index);
                let last = inside.filter(|place| place.begins_tick).last();
                let (moment, begins) = match last {
                    Some(place) => (place.moment, place.index),
                    None => (*moment, *begins),
                };
                Position::exact(moment, index.saturating_sub(begins))
            }
            Self::Path { timeline, tid } => {
                timeline.global_of(*tid, index).unwrap_or_else(|| timeline.total())
            }
        }
    }
}
