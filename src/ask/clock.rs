//! Positions of a thread's instructions as its path is walked.
//!
//! In an exact recording, a position is a moment ([`Replay::moment`]) and the number of
//! instructions since it began ([`Position::exact`]). Each tick (a branch that is counted when the
//! run is repeated) and each entry of the log begins another moment. The path shows the ticks. Its
//! places ([`PathPlace`], stored with the path) are points whose moment is known; they show where
//! the entries are. A walk moves its [`Clock`] on: at the start of each block it passes the places
//! up to there; after a block that ends in a tick, those up to the tick, and then the tick.

use crate::common::Tid;
use crate::recording::PathPlace;
use crate::replay::Replay;
use crate::session::Position;
use crate::timeline::Timeline;
use std::collections::HashMap;

/// The [`PathPlace`]s of all threads of an exact recording, with their moments.
#[derive(Debug, Default)]
pub(super) struct TimedPlaces {
    of_threads: HashMap<Tid, Vec<TimedPlace>>,
}

/// A place of a thread's path, with its moment ([`Replay::moment`]).
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedPlace {
    /// The number of the instruction that is next there, counted per thread.
    pub(super) index: u64,
    pub(super) moment: u64,
    /// True if the place is right after an entry of the log: then its instruction is the first of
    /// its moment. Elsewhere it may be any instruction of its moment.
    begins_moment: bool,
}

impl TimedPlaces {
    /// Returns these places with their moments. They must be in the order of the run.
    pub(super) fn new(places: &[PathPlace], replay: &Replay) -> Self {
        let mut of_threads: HashMap<Tid, Vec<TimedPlace>> = HashMap::new();
        for place in places {
            let (entry, ticks) = (place.entry, place.ticks);
            let at = crate::replay::Position { entry, ticks, instructions: 0 };
            let moment = replay.moment(at);
            let timed = TimedPlace { index: place.index, moment, begins_moment: ticks == 0 };
            of_threads.entry(place.tid).or_default().push(timed);
        }
        Self { of_threads }
    }

    /// Returns the last place that begins a moment among those places of a thread for which
    /// `is_before` holds; `None` if there is none. The places for which it holds have to precede
    /// those for which it does not.
    pub(super) fn last_moment_start(
        &self,
        tid: Tid,
        is_before: impl Fn(&TimedPlace) -> bool,
    ) -> Option<TimedPlace> {
        let places = self.of(tid);
        let before = &places[..places.partition_point(is_before)];
        before.iter().rfind(|place| place.begins_moment).copied()
    }

    /// Returns the first place of a thread that is in a later moment than `moment` and begins that;
    /// `None` if there is none.
    pub(super) fn next_moment_start(&self, tid: Tid, moment: u64) -> Option<TimedPlace> {
        let places = self.of(tid);
        let after = &places[places.partition_point(|place| place.moment <= moment)..];
        after.iter().find(|place| place.begins_moment).copied()
    }

    /// Returns the places of a thread, ascending, each as its moment and the number of the next
    /// instruction. They include the places that begin no moment.
    pub(super) fn moments_and_indexes(&self, tid: Tid) -> impl Iterator<Item = (u64, u64)> {
        self.of(tid).iter().map(|place| (place.moment, place.index))
    }

    /// Returns the moments of the places of all threads, ascending. They include the places that
    /// begin no moment.
    pub(super) fn moments(&self) -> Vec<u64> {
        let all = self.of_threads.values().flatten();
        let mut starts: Vec<u64> = all.map(|place| place.moment).collect();
        starts.sort_unstable();
        starts
    }

    /// Returns the places of a thread, ascending; empty if it has none.
    fn of(&self, tid: Tid) -> &[TimedPlace] {
        self.of_threads.get(&tid).map(Vec::as_slice).unwrap_or_default()
    }
}

/// A converter of a thread's instructions to positions, which follows a walk of its path.
#[derive(Debug)]
pub(super) enum Clock<'a> {
    /// For an exact recording: counts the ticks since the last place that begins a moment.
    Exact {
        /// The places that the walk has not reached.
        places: &'a [TimedPlace],
        /// The current moment.
        moment: u64,
        /// The number of the instruction with which the current moment begins.
        moment_start: u64,
    },
    /// For a path recording, where a position is the number of an instruction in the order of all
    /// threads.
    Path {
        /// The timeline of the recording.
        timeline: &'a Timeline,
        /// The thread.
        tid: Tid,
    },
}

impl<'a> Clock<'a> {
    pub(super) fn new(timeline: &'a Timeline, places: Option<&'a TimedPlaces>, tid: Tid) -> Self {
        match places {
            Some(places) => Self::Exact { places: places.of(tid), moment: 0, moment_start: 0 },
            None => Self::Path { timeline, tid },
        }
    }

    /// Proceeds to instruction `index`, past all places up to it. Several places may be there: the
    /// last one counts. Does nothing for a path.
    pub(super) fn advance_to(&mut self, index: u64) {
        let Self::Exact { places, moment, moment_start } = self else { return };
        while let Some((next, rest)) = places.split_first()
            && next.index <= index
        {
            if next.begins_moment {
                (*moment, *moment_start) = (next.moment, next.index);
            }
            *places = rest;
        }
    }

    /// Counts a tick, after which the thread's instruction `after` is next: the moment advances,
    /// and instructions are counted from there on. Does nothing for a path.
    pub(super) fn count_tick(&mut self, after: u64) {
        if let Self::Exact { moment, moment_start, .. } = self {
            (*moment, *moment_start) = (moment.saturating_add(1), after);
        }
    }

    /// Returns the position at which the thread executes its instruction `index`: after the entries
    /// of the log there. The instruction has to be in the block that the walk is at; of a path
    /// recording, any instruction will do. After the thread's last one in a path recording, returns
    /// the number of all instructions.
    pub(super) fn position(&self, index: u64) -> u64 {
        self.position_after_entries(index, |place| place.index <= index)
    }

    /// Returns the position at which the thread reached its instruction `index`: before the entries
    /// of the log there, which include a signal that interrupts the instruction. The same as
    /// [`Self::position`] if there are none, and for a path recording; has the same conditions.
    pub(super) fn position_before_entries(&self, index: u64) -> u64 {
        self.position_after_entries(index, |place| place.index < index)
    }

    /// Returns the position of instruction `index`, after the entries for which `is_before` holds.
    fn position_after_entries(&self, index: u64, is_before: impl Fn(&TimedPlace) -> bool) -> u64 {
        match self {
            Self::Exact { places, moment, moment_start } => {
                // The next places may be inside the current block: an instruction with a hidden
                // input is an entry of the log, and ends no block.
                let inside = places.iter().take_while(|place| is_before(place));
                let last = inside.filter(|place| place.begins_moment).last();
                let (moment, moment_start) = match last {
                    Some(place) => (place.moment, place.index),
                    None => (*moment, *moment_start),
                };
                Position::exact(moment, index.saturating_sub(moment_start))
            }
            Self::Path { timeline, tid } => {
                timeline.global_of(*tid, index).unwrap_or_else(|| timeline.total())
            }
        }
    }
}
