//! The last executions of some code, and the last change of memory, in an exact recording: found by
//! running the replay backwards. A search moves the replay; unless it is to end elsewhere, it then
//! moves back to the position at which it was requested. Each search first ends a *diversion*, the
//! state that the debugger has changed.

use super::replayed::Replayed;
use super::source::{CodeSymbols, symbols_of};
use super::{Execution, ExecutionSearch, ExecutionSink, LastChange, Position, SearchEnd};
use crate::common::{Addr, AddrRange};
use crate::replay::{self, Goals, MoveEnd, Position as ReplayPosition, Watch, WatchKind};
use crate::timeline::Images;
use std::collections::BTreeSet;

impl Replayed {
    /// Returns the symbols of the code, which are read on first use.
    pub(super) fn code_symbols(&self) -> &CodeSymbols {
        self.symbols.get(|| {
            let replay = self.replay.borrow();
            let reader = replay.reader();
            // Code of files that are missing or damaged has no names.
            let records = reader.sideband().unwrap_or_default();
            let images = Images::load(reader, &records);
            symbols_of(&images.map(|(images, _)| images).unwrap_or_default())
        })
    }

    /// Searches backwards for executions of instructions, and calls `sink` for each with the run at
    /// its position. Then moves back to the current position, also if the user interrupts the
    /// search; after an error, the run may be elsewhere. Ends a diversion.
    pub(super) fn search_executions(
        &mut self,
        search: &ExecutionSearch<'_>,
        sink: ExecutionSink<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<SearchEnd, replay::Error> {
        let replay = self.replay.get_mut();
        replay.end_diversion()?;
        let (here, was_at_end) = (replay.exact_position()?, replay.is_at_end());
        let end = if self.go_to_search_start(search.from, interrupted)? {
            self.pass_executions_back(search, sink, interrupted)?
        } else {
            SearchEnd::Interrupted
        };
        self.return_to(here, was_at_end)?;
        Ok(end)
    }

    /// Moves to position `from`, where a search begins; to the end of the run for `None`, or if
    /// `from` is after the end. Returns false if the user interrupted the move to the end.
    fn go_to_search_start(
        &mut self,
        from: Option<u64>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<bool, replay::Error> {
        let replay = self.replay.get_mut();
        let from = from.map(Position::parts).filter(|(moment, _)| *moment <= replay.last_moment());
        let Some((moment, instructions)) = from else {
            return Ok(replay.go_to_end(interrupted)? != MoveEnd::Interrupted);
        };
        replay.seek(ReplayPosition { instructions, ..replay.position_of_moment(moment) })?;
        Ok(true)
    }

    /// Runs backwards from here, and passes each execution to `sink`, up to the requested number.
    /// Stays where it stops. After the requested number, searches for one more, so that
    /// [`SearchEnd::HasMore`] is certain.
    fn pass_executions_back(
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
                    if let Some(execution) = self.execution_here()? {
                        found += 1;
                        sink(self, execution);
                    }
                }
                MoveEnd::Interrupted => return Ok(SearchEnd::Interrupted),
                _ => return Ok(SearchEnd::Complete),
            }
        }
    }

    /// Moves back to the last write that changed a memory range ([`WatchKind::Write`]): its
    /// instruction is about to execute. Returns to the current position if there is none, or if the
    /// user interrupts the search; after an error, the run may be elsewhere. Ends a diversion.
    pub(super) fn move_to_last_change(
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
        self.return_to(here, was_at_end)?;
        Ok(found)
    }

    /// Moves to `here`, the position at which a search was requested; `was_at_end` if it was the
    /// end of the run.
    fn return_to(&mut self, here: ReplayPosition, was_at_end: bool) -> Result<(), replay::Error> {
        let replay = self.replay.get_mut();
        replay.seek(here)?;
        if was_at_end {
            replay.go_to_end(&|| false)?;
        }
        Ok(())
    }

    /// Returns the execution of the instruction that is about to execute; `None` if no thread runs.
    /// Reads the return address from the stack if the instruction is a function's first.
    fn execution_here(&self) -> Result<Option<Execution>, replay::Error> {
        let mut replay = self.replay.borrow_mut();
        let position = replay.position();
        let at = Position::exact(replay.moment(position), position.instructions);
        let Some(tid) = replay.running() else { return Ok(None) };
        let Some(thread) = replay.thread(tid)? else { return Ok(None) };
        let (pc, mut word) = (Addr(thread.registers.rip), [0; 8]);
        let is_known = replay.read(Addr(thread.registers.rsp), &mut word) == word.len();
        let location = self.code_symbols().location_of(pc);
        let is_first = location.is_some_and(|location| location.offset == 0);
        let returns_to = (is_known && is_first).then(|| Addr(u64::from_le_bytes(word)));
        Ok(Some(Execution { at, tid, pc, returns_to }))
    }
}
