//! The exact recording of a program that still runs.

use super::Wanted;
use super::replayed::Replayed;
use super::source::RecordedSource;
use crate::common::Tid;
use crate::recording::Reader;
use crate::replay::{self, MoveEnd, Replay};
use std::cell::{Cell, OnceCell, RefCell};

impl Replayed {
    /// Opens the recording of a program that still runs, at its first instruction.
    pub(super) fn at_start(reader: Reader) -> Result<Self, replay::Error> {
        let replay = Replay::open(reader)?;
        let shown = Tid(replay.pid().0);
        Ok(Self {
            replay: RefCell::new(replay),
            source: RecordedSource::default(),
            shown,
            wanted: Wanted::default(),
            reported_signal: None,
            failure: None,
            end: Cell::new(0),
            path: OnceCell::new(),
        })
    }

    /// Continues with the same recording after more was written to it. Returns false if the
    /// recording has to be opened anew.
    pub(super) fn extend(&mut self, reader: Reader) -> Result<bool, replay::Error> {
        (self.failure, self.source) = (None, RecordedSource::default());
        self.path = OnceCell::new();
        self.replay.get_mut().extend(reader)
    }

    /// Moves past the last entry of the log of a program that still runs, if that entry only
    /// records where the program is, and this position is there already.
    pub(super) fn meet_end(&mut self) -> Result<(), replay::Error> {
        self.replay.get_mut().pass_last_switch()
    }

    /// Moves to the end of the recording. Returns false if the user interrupted the move.
    pub(super) fn go_to_end(
        &mut self,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<bool, replay::Error> {
        let replay = self.replay.get_mut();
        replay.end_diversion()?;
        if replay.is_at_end() {
            return Ok(true);
        }
        let found = replay.go_to_end(interrupted)?;
        self.shown = self.running().unwrap_or(self.shown);
        Ok(found != MoveEnd::Interrupted)
    }
}
