//! The path of an exact recording, and where its instructions are in a replay.
//!
//! A path numbers the instructions of each thread. A replay counts entries of the log (events such
//! as system calls), *ticks* (branches) since the last entry, and instructions since the last tick.
//! While the path was made, some places were noted with both counts ([`PathPlace`]): always the
//! first after an entry, with `ticks` 0; others, right after a run in the replay, may be several
//! instructions after their last tick. Other places are found from the nearest noted one before
//! them, by counting ticks along the path.

use super::around::calls_around;
use super::{FunctionArrival, Position, Recording};
use crate::common::{Addr, Tid};
use crate::recording::{PathPlace, Reader};
use crate::replay::{self, Position as ReplayPosition, Replay, path_of};
use crate::state::FinalState;
use crate::timeline::{Options, Timeline, Visit};
use crate::translate::is_tick;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// The maximum length of an instruction in bytes.
const MAX_INSN_BYTES: usize = 15;

/// The path of an exact recording.
#[derive(Debug)]
pub(super) struct ReplayPath {
    recording: Recording,
    /// The noted places of each thread, in the order of the run.
    places: BTreeMap<Tid, Vec<PathPlace>>,
}

impl ReplayPath {
    /// Opens the path that is kept with a recording. If there is none, makes it by a replay and
    /// keeps it, or waits for another process that is making it; fails if it cannot be kept. While
    /// it does so, calls `goes_on` with the ticks done and those of the whole run, or with (0, 1)
    /// while it waits; fails if that returns false. An error is a sentence for the user. The opened
    /// recording has no final state, so it knows no values.
    pub(super) fn open(
        reader: &Reader,
        goes_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Self, String> {
        let kept = path_of(reader, goes_on).map_err(|error| match error {
            replay::Error::Interrupted => error.to_string(),
            error => format!("the path cannot be made: {error}"),
        })?;
        let mut places: BTreeMap<Tid, Vec<PathPlace>> = BTreeMap::new();
        for place in kept.path_places().map_err(|error| error.to_string())? {
            places.entry(place.tid).or_default().push(place);
        }
        let opened = Timeline::open(kept, Options::default());
        let timeline = opened.map_err(|error| error.to_string())?;
        // If it cannot be saved, the next open builds it again.
        let _ = timeline.save_index();
        Ok(Self { recording: Recording::new(timeline, FinalState::default()), places })
    }

    /// Returns the timeline of the path.
    pub(super) fn timeline(&self) -> &Timeline {
        self.recording.timeline()
    }

    /// Returns the number of instructions that a thread executed before a position of the replay,
    /// at which it or another thread is about to execute. Returns 0 for a thread without a path.
    pub(super) fn index_of(&self, tid: Tid, at: ReplayPosition) -> u64 {
        let places = self.places.get(&tid).map(Vec::as_slice).unwrap_or_default();
        let is_before = |place: &PathPlace| {
            place.entry < at.entry
                || (place.entry == at.entry && (place.ticks < at.ticks || place.ticks == 0))
        };
        let next = places.partition_point(is_before);
        let last = next.checked_sub(1).and_then(|last| places.get(last));
        let Some(from) = last.filter(|place| place.entry == at.entry) else {
            // The thread does not run in this interval, so it is before its next noted place.
            let of_next = places.get(next).map(|place| place.index);
            return of_next.unwrap_or_else(|| self.timeline().instructions(tid));
        };
        let (mut index, mut ticks) = (from.index, from.ticks);
        if ticks < at.ticks {
            self.follow_ticks(tid, from.index, &mut |next| {
                (index, ticks) = (next, ticks + 1);
                ticks < at.ticks
            });
        }
        index + at.instructions
    }

    /// Returns the position of the replay at which a thread is about to execute its instruction
    /// `index`; `None` if no place of the thread is noted before that.
    pub(super) fn position_of(&self, tid: Tid, index: u64) -> Option<ReplayPosition> {
        let places = self.places.get(&tid)?;
        let mut next = places.partition_point(|place| place.index <= index);
        loop {
            next = next.checked_sub(1)?;
            let from = places.get(next)?;
            let (mut ticks, mut begins) = (from.ticks, (from.ticks == 0).then_some(from.index));
            self.follow_ticks(tid, from.index, &mut |after| {
                if after <= index {
                    (ticks, begins) = (ticks + 1, Some(after));
                }
                after < index
            });
            // At other noted places it is unknown at which instruction their last tick was.
            if let Some(begins) = begins {
                let instructions = index - begins;
                return Some(ReplayPosition { entry: from.entry, ticks, instructions });
            }
        }
    }

    /// Follows the path of a thread from its instruction `from` on. After each tick, calls
    /// `on_tick` with the index of the instruction that follows. Stops when `on_tick` returns
    /// false, or at the end of the path.
    fn follow_ticks(&self, tid: Tid, from: u64, on_tick: &mut dyn FnMut(u64) -> bool) {
        let timeline = self.timeline();
        let _: ControlFlow<()> = timeline.visit(tid, from, &mut |visit| {
            let Visit::Block { index, span, code, .. } = visit else {
                return ControlFlow::Continue(());
            };
            let after = index + u64::from(span.insns);
            let is_tick_at = |ip: Addr| {
                let mut bytes = [0; MAX_INSN_BYTES];
                let count = code.read(ip, &mut bytes);
                bytes.get(..count).is_some_and(|bytes| is_tick(bytes, ip.0))
            };
            if after > from && is_tick_at(span.last) && !on_tick(after) {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
    }

    /// Returns the last `count` arrivals of a thread in functions before its instruction `index`,
    /// and the first `count` from there on, with their positions as numbers of [`Position::exact`].
    /// Leaves out those whose position in the replay is unknown.
    pub(super) fn calls_around(
        &self,
        replay: &Replay,
        tid: Tid,
        index: u64,
        count: usize,
    ) -> Vec<FunctionArrival> {
        let called = calls_around(self.timeline(), tid, index, count);
        let placed = |called: FunctionArrival| {
            let index = self.timeline().index_of(tid, called.position);
            let at = self.position_of(tid, index)?;
            let position = Position::exact(replay.moment(at), at.instructions);
            Some(FunctionArrival { position, ..called })
        };
        called.into_iter().filter_map(placed).collect()
    }
}
