//! The exact recording of a program that still runs: opened at its start, then extended each time
//! that more was written to it. The session of the live program uses it as the program's past.

use super::RequestedEvents;
use super::replayed::Replayed;
use super::source::LazySymbols;
use crate::common::Tid;
use crate::recording::Reader;
use crate::replay::{self, MoveEnd, Replay};
use std::cell::{Cell, OnceCell, RefCell};

impl Replayed {
    /// Opens a recording, perhaps of a program that still runs, at the program's first instruction.
    /// Replays nothing.
    pub(super) fn at_start(reader: Reader) -> Result<Self, replay::Error> {
        let replay = Replay::open(reader)?;
        let last_thread = Tid(replay.pid().0);
        Ok(Self {
            replay: RefCell::new(replay),
            symbols: LazySymbols::default(),
            last_thread,
            wanted: RequestedEvents::default(),
            reported_signal: None,
            failure: None,
            noted_end: Cell::new(0),
            path: OnceCell::new(),
        })
    }

    /// Continues with the same recording after more was written to it; stays at its position.
    /// Forgets failures, symbols and the path, which may have changed. Returns false if that is not
    /// possible: the caller drops this run, and opens the recording anew.
    pub(super) fn extend(&mut self, reader: Reader) -> Result<bool, replay::Error> {
        (self.failure, self.symbols) = (None, LazySymbols::default());
        self.path = OnceCell::new();
        self.replay.get_mut().extend(reader)
    }

    /// Moves to the end of the recording if only one log entry is left, and that entry only records
    /// where the program stopped, which is here. Otherwise stays.
    pub(super) fn meet_end(&mut self) -> Result<(), replay::Error> {
        self.replay.get_mut().pass_last_switch()
    }

    /// Moves to the end of the recording, unless it is there. Ends a diversion first. Returns false
    /// if the user interrupted the move; the run is then on the way, and can go on from there.
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
        self.last_thread = self.running_thread().unwrap_or(self.last_thread);
        Ok(found != MoveEnd::Interrupted)
    }
}
