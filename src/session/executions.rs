//! The last executions of some code, and the last change of memory, in an exact recording: found by
//! running backwards.

use super::replayed::Replayed;
use super::source::{Source, symbols_of};
use super::{Execution, ExecutionSearch, ExecutionSink, LastChange, Position, SearchEnd};
use crate::common::{Addr, AddrRange};
use crate::replay::{self, Goals, MoveEnd, Watch, WatchKind};
use crate::timeline::Images;
use std::collections::BTreeSet;

impl Replayed {
    /// Returns the symbols of the code, which are read on first use.
    pub(super) fn source(&self) -> &Source {
        self.source.get(|| {
            let replay = self.replay.borrow();
            let reader = replay.reader();
            // Code of files that are missing or damaged has no names.
            let records = reader.sideband().unwrap_or_default();
            let images = Images::load(reader, &records);
            symbols_of(&images.map(|(images, _)| images).unwrap_or_default())
        })
    }

    /// Searches backwards for executions of instructions, then returns to the current position.
    pub(super) fn search(
        &mut self,
        search: &ExecutionSearch<'_>,
        sink: ExecutionSink<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<SearchEnd, replay::Error> {
        let replay = self.replay.get_mut();
        replay.end_diversion()?;
        let (here, was_at_end) = (replay.exact_position()?, replay.is_at_end());
        let end = if self.begin_search(search.from, interrupted)? {
            self.search_back(search, sink, interrupted)?
        } else {
            SearchEnd::Interrupted
        };
        self.come_back(here, was_at_end)?;
        Ok(end)
    }

    /// Moves to position `from`, where a search begins, or to the end of the run. Returns false if
    /// the user interrupted the move.
    fn begin_search(
        &mut self,
        from: Option<u64>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<bool, replay::Error> {
        let replay = self.replay.get_mut();
        let from = from.map(Position::parts).filter(|(moment, _)| *moment <= replay.last_moment());
        let Some((moment, instructions)) = from else {
            return Ok(replay.go_to_end(interrupted)? != MoveEnd::Interrupted);
        };
        replay.seek(replay::Position { instructions, ..replay.position_of_moment(moment) })?;
        Ok(true)
    }

    /// Runs backwards from here, and passes each execution to `sink`, up to the requested number.
    fn search_back(
        &mut self,
        search: &ExecutionSearch<'_>,
        sink: ExecutionSink<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<SearchEnd, replay::Error> {
        let goals = Goals::at(search.addrs, interrupted);
        let mut found = 0;
        loop {
            match self.replay.get_mut().run_back(&goals, &[])? {
                MoveEnd::Stop if found == search.count => return Ok(SearchEnd::HasMore),
                MoveEnd::Stop => {
                    if let Some(execution) = self.execution()? {
                        found += 1;
                        sink(self, execution);
                    }
                }
                MoveEnd::Interrupted => return Ok(SearchEnd::Interrupted),
                _ => return Ok(SearchEnd::Complete),
            }
        }
    }

    /// Moves back to the last change of a memory range. Returns to the current position if there is
    /// none, or if the user interrupts the search.
    pub(super) fn search_last_change(
        &mut self,
        range: AddrRange,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<LastChange, replay::Error> {
        let replay = self.replay.get_mut();
        replay.end_diversion()?;
        let (here, was_at_end) = (replay.exact_position()?, replay.is_at_end());
        let (stops, watch) = (BTreeSet::new(), Watch { range, kind: WatchKind::Write });
        let found = match replay.run_back(&Goals::at(&stops, interrupted), &[watch])? {
            MoveEnd::Watch(_) => return Ok(LastChange::Here),
            MoveEnd::Interrupted => LastChange::Interrupted,
            _ => LastChange::Nowhere,
        };
        self.come_back(here, was_at_end)?;
        Ok(found)
    }

    /// Moves back to the position at which a search was requested.
    fn come_back(&mut self, here: replay::Position, was_at_end: bool) -> Result<(), replay::Error> {
        let replay = self.replay.get_mut();
        replay.seek(here)?;
        if was_at_end {
            replay.go_to_end(&|| false)?;
        }
        Ok(())
    }

    /// Returns the execution of the instruction that is about to execute; `None` if no thread runs.
    fn execution(&self) -> Result<Option<Execution>, replay::Error> {
        let mut replay = self.replay.borrow_mut();
        let position = replay.position();
        let at = Position::exact(replay.moment(position), position.instructions);
        let Some(tid) = replay.running() else { return Ok(None) };
        let Some(thread) = replay.thread(tid)? else { return Ok(None) };
        let (pc, mut word) = (Addr(thread.registers.rip), [0; 8]);
        let is_known = replay.read(Addr(thread.registers.rsp), &mut word) == word.len();
        let begins = self.source().place(pc).is_some_and(|place| place.offset == 0);
        let returns_to = (is_known && begins).then(|| Addr(u64::from_le_bytes(word)));
        Ok(Some(Execution { at, tid, pc, returns_to }))
    }
}
