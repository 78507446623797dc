//! Moves forward: to goals, by single instructions, and past entries of the log.
//!
//! The next entry of the log is of the thread that executes now: the thread executes up to the
//! entry's *site*, a place in its code, where the entry happens. This part of the run, before an
//! entry, is the entry's *interval*.
//!
//! - [`Replay::run_forward`] runs to a goal or a watch: by ticks ([`Replay::run_until`]), or one
//!   instruction at a time if the watches need that.
//! - [`Replay::step_forward`] moves one thread by one instruction or entry.
//! - [`Replay::step_in_order`] moves whichever thread is next.
//!
//! One instruction or entry is [`Replay::advance`]. A run may end after the access that met a
//! watch: it is then looked for, and the replay moves back to it ([`Replay::seek_after_access`]).

use super::error::Error;
use super::events::Site;
use super::goals::{Goals, MoveEnd};
use super::outline::KernelEvent;
use super::position::Position;
use super::process::Replay;
use super::watches::{InsnAccesses, Watch, Watching};
use crate::common::Tid;
use crate::recording::log::{Entry, LogEvent, SharedEntry};
use std::ops::Range;

/// The result of the smallest move, [`Replay::advance`]: an instruction, or an entry of the log.
pub(super) enum Advanced {
    /// The thread executed an instruction.
    Executed,
    /// An entry of the log happened.
    Happened(SharedEntry),
    /// An entry or an instruction met the watch with this index.
    Watch(usize),
    /// The run has no more instructions.
    End,
}

impl Replay {
    /// Runs forward to a goal, to right after an access that meets a watch, or to the end. Does not
    /// stop at a stop where it begins. Returns which, or [`MoveEnd::Interrupted`]. The position is
    /// then exact, except perhaps at the end ([`Self::exact_position`]).
    pub fn run_forward(&mut self, goals: &Goals<'_>, watches: &[Watch]) -> Result<MoveEnd, Error> {
        let found = self.with_watches(watches, |replay, watching| {
            replay.run_until_watched(None, goals, watching)
        })?;
        self.complete_move(found, watches)?;
        Ok(found)
    }

    /// Calls `act` while memory is watched, then clears the debug registers, also if `act` fails.
    /// Returns its result.
    fn with_watches<T>(
        &mut self,
        watches: &[Watch],
        act: impl FnOnce(&mut Self, &mut Watching) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut watching = self.epoch.watch(watches)?;
        let result = act(self, &mut watching);
        let unwatched = self.epoch.unwatch();
        result.and_then(|result| unwatched.map(|()| result))
    }

    /// Makes the position exact after a move that ended with `found`: counts the instructions since
    /// the last tick, or, after a watch, moves to right after the access. Does nothing at the end
    /// of the run.
    fn complete_move(&mut self, found: MoveEnd, watches: &[Watch]) -> Result<(), Error> {
        match found {
            MoveEnd::NoMoreHistory => Ok(()),
            MoveEnd::Watch(_) => self.seek_after_access(watches),
            _ => self.exact_position().map(|_| ()),
        }
    }

    /// Moves back to right after the last instruction that met a watch, if it is in the current
    /// tick or the one before it; stays if there is none, or if an entry of the log was last.
    /// Called after a run that ended at a watch: it may have gone on from the access, since the
    /// program's state is not exact within a translated branch.
    pub(super) fn seek_after_access(&mut self, watches: &[Watch]) -> Result<(), Error> {
        let end = self.exact_position()?;
        let last = self.last_access_before(end, watches)?.map_or(end, |access| access.end);
        if self.position() == last { Ok(()) } else { self.seek(last) }
    }

    /// Returns the positions before and after the last instruction before `end` that met a watch,
    /// searched from the beginning of the tick before that of `end` on, but not past an entry of
    /// the log; `None` if there is none, or if an entry was last. `end` is the current position.
    /// Moves the replay, perhaps past `end` by the REP instruction there.
    pub(super) fn last_access_before(
        &mut self,
        end: Position,
        watches: &[Watch],
    ) -> Result<Option<Range<Position>>, Error> {
        if (end.ticks, end.instructions) == (0, 0) {
            // An entry of the log wrote there.
            return Ok(None);
        }
        let ticks = end.ticks.saturating_sub(1);
        self.seek(Position { ticks, instructions: 0, ..end })?;
        self.with_watches(watches, |replay, watching| {
            let mut last = None;
            while replay.position() < end && replay.hook_here()?.is_none() {
                let before = replay.position();
                if let Advanced::Watch(_) = replay.advance(watching)? {
                    last = Some(before..replay.position());
                }
            }
            // A debug register ends a REP instruction after the iteration that it is met by. Then
            // `end` is amid that instruction: its finished iterations do not count in the position,
            // so the loop ended before it. Repeats it up to the iteration that meets the watch.
            let repeats = || Ok::<_, Error>(replay.insn_at(replay.ip()?).is_some_and(|i| i.rep));
            let before = replay.position();
            if last.is_none()
                && repeats()?
                && replay.hook_here()?.is_none()
                && let Advanced::Watch(_) = replay.advance(watching)?
            {
                last = Some(before..replay.position());
            }
            Ok(last)
        })
    }

    /// Moves a thread forward by one instruction or one entry of the log. A system call that it
    /// enters is executed to its return. Other threads may run before and during that. Ends early
    /// at a goal or a watch, but not at a stop of this thread, nor before a call that it makes. If
    /// it executes nothing any more, moves to the end of the run.
    pub fn step_forward(
        &mut self,
        tid: Tid,
        goals: &Goals<'_>,
        watches: &[Watch],
    ) -> Result<MoveEnd, Error> {
        let found = self
            .with_watches(watches, |replay, watching| replay.step_watched(tid, goals, watching))?;
        self.complete_move(found, watches)?;
        Ok(found)
    }

    /// Steps as [`Self::step_forward`], but does not make the position exact. Passes entries that
    /// only interrupt the thread, such as a switch to another one, before the step.
    fn step_watched(
        &mut self,
        tid: Tid,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<MoveEnd, Error> {
        loop {
            if let Some(found) = self.run_until_thread_is_next(tid, goals, watching)? {
                return Ok(found);
            }
            if let Some(event) = self.signal_ahead(goals)? {
                return Ok(MoveEnd::Event(event));
            }
            let advanced = self.advance(watching)?;
            match advanced {
                Advanced::End => return Ok(MoveEnd::NoMoreHistory),
                Advanced::Watch(number) => return Ok(MoveEnd::Watch(number)),
                Advanced::Happened(entry)
                    if matches!(
                        entry.event,
                        LogEvent::Switch { .. }
                            | LogEvent::Changed { .. }
                            | LogEvent::Foreign { .. }
                    ) => {}
                Advanced::Happened(_) => {
                    if let Some(event) = self.event_passed(goals) {
                        return Ok(MoveEnd::Event(event));
                    }
                    break;
                }
                Advanced::Executed => break,
            }
        }
        while self.epoch.contexts.get(tid).is_some_and(|context| context.call.is_some()) {
            // The thread returns from the call later.
            if let Some(found) = self.run_until_thread_is_next(tid, goals, watching)? {
                return Ok(found);
            }
            if let Some(event) = self.signal_ahead(goals)? {
                return Ok(MoveEnd::Event(event));
            }
            match self.advance(watching)? {
                Advanced::End => return Ok(MoveEnd::NoMoreHistory),
                Advanced::Watch(number) => return Ok(MoveEnd::Watch(number)),
                Advanced::Happened(_) => {
                    if let Some(event) = self.event_passed(goals) {
                        return Ok(MoveEnd::Event(event));
                    }
                }
                Advanced::Executed => {}
            }
        }
        Ok(MoveEnd::Target)
    }

    /// Returns the signal that the next entry delivers, if it is a goal and the entry's thread is
    /// at the entry's site: a step ends there.
    fn signal_ahead(&mut self, goals: &Goals<'_>) -> Result<Option<KernelEvent>, Error> {
        let signal = |event: &KernelEvent| matches!(event, KernelEvent::Signal(_));
        let Some(event) = self.event_ahead(goals).filter(signal) else { return Ok(None) };
        let Some(entry) = self.cursor.current()? else { return Ok(None) };
        Ok(if self.is_at_site(&entry)? { Some(event) } else { None })
    }

    /// Executes one instruction of the thread that is next in the order of the run, or applies the
    /// next entry of the log. Returns [`MoveEnd::Target`], a watch that was met, or the end.
    pub fn step_in_order(&mut self, watches: &[Watch]) -> Result<MoveEnd, Error> {
        let advanced = self.with_watches(watches, Self::advance)?;
        Ok(match advanced {
            Advanced::End => MoveEnd::NoMoreHistory,
            Advanced::Watch(number) => MoveEnd::Watch(number),
            Advanced::Executed | Advanced::Happened(_) => MoveEnd::Target,
        })
    }

    /// Executes one instruction of the thread of the next entry, or, if it is at the entry's site,
    /// applies the entry; if that begins another program, watches its process. Loads that thread.
    /// Fails if the thread gets a signal that was not recorded.
    pub(super) fn advance(&mut self, watching: &mut Watching) -> Result<Advanced, Error> {
        let Some(entry) = self.cursor.current()? else { return Ok(Advanced::End) };
        self.switch_to_next_thread()?;
        if !self.is_at_site(&entry)? {
            let before = self.epoch.thread.tracee.registers()?;
            let code = self.bytes_at(before.rip.into());
            if !self.step_insn()? && !self.is_at_site(&entry)? {
                return Err(self.diverged(entry.tid, "it gets a signal that was not recorded"));
            }
            let met = self.epoch.first_met(watching)?;
            let read = if watching.needs_decoding() {
                let after = self.epoch.thread.tracee.registers()?;
                watching.first_access_by(&InsnAccesses::of(&code, &before, &after))
            } else {
                None
            };
            return Ok(met.or(read).map_or(Advanced::Executed, Advanced::Watch));
        }
        if let Site::Place(place) = self.site_of(&entry) {
            self.walk_to(entry.tid, place)?;
        }
        let number = self.number;
        if !self.apply_next_entry()? {
            return Ok(Advanced::End);
        }
        if self.number != number {
            *watching = self.epoch.watch(&watching.watches())?;
        }
        let met = self.epoch.first_met_by_entry(&entry.event, watching)?;
        Ok(met.map_or(Advanced::Happened(entry), Advanced::Watch))
    }

    /// Returns true if the loaded thread, that of `entry`, is where this next entry happens to it:
    /// at the entry's site, after the entry's ticks. Amid a REP instruction, iterations before the
    /// entry may still be left ([`Self::walk_to`]).
    pub(super) fn is_at_site(&self, entry: &Entry) -> Result<bool, Error> {
        let is_there = match self.site_of(entry) {
            Site::Anywhere => true,
            Site::Hook => self.hook_here()?.is_some(),
            Site::Place(place) => place.ip == self.ip()?,
        };
        Ok(is_there && self.ticks == entry.ticks)
    }

    /// Runs until the next entry of the log is one of thread `tid`, so that it executes next.
    /// Returns what ended the run before that, if something did; for a thread that executes nothing
    /// any more, the end of the run.
    fn run_until_thread_is_next(
        &mut self,
        tid: Tid,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<Option<MoveEnd>, Error> {
        while self.next_thread()? != Some(tid) {
            // None: it executes nothing any more.
            let next = self.outline.next_entry_of(tid, self.cursor.index());
            match self.run_until_watched(next.map(|next| (next, 0)), goals, watching)? {
                MoveEnd::Target => {}
                found => return Ok(Some(found)),
            }
        }
        Ok(None)
    }

    /// Returns the thread that executed the last instruction, or to which the last entry happened;
    /// `None` if the log does not have that entry, as at the first position of a recording whose
    /// beginning was dropped.
    pub fn last_to_advance(&mut self) -> Result<Option<Tid>, Error> {
        let here = self.position();
        if (here.ticks, here.instructions) == (0, 0) {
            return Ok(self.outline.thread_of(here.entry.saturating_sub(1)));
        }
        self.next_thread()
    }

    /// Runs as [`Replay::run_until`], or instruction by instruction if watches need that.
    pub(super) fn run_until_watched(
        &mut self,
        until: Option<(u64, u64)>,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<MoveEnd, Error> {
        if watching.needs_decoding() {
            self.step_until(until, goals, watching)
        } else {
            self.run_until(until, goals, watching)
        }
    }

    /// Runs as [`Replay::run_until`], but instruction by instruction, and compares the watched
    /// memory after each. Keeps no checkpoints.
    fn step_until(
        &mut self,
        until: Option<(u64, u64)>,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<MoveEnd, Error> {
        // An earlier run may have left the decision of other goals.
        self.glance_verdict = None;
        let mut count = 0_u32;
        loop {
            if until == Some((self.cursor.index(), self.ticks)) {
                return Ok(MoveEnd::Target);
            }
            if let Some(entry) = self.cursor.current()?
                && self.is_at_site(&entry)?
                && let Some(event) = self.event_ahead(goals)
            {
                return Ok(MoveEnd::Event(event));
            }
            match self.advance(watching)? {
                Advanced::End => return Ok(MoveEnd::NoMoreHistory),
                Advanced::Watch(number) => return Ok(MoveEnd::Watch(number)),
                Advanced::Happened(_) => {
                    if let Some(event) = self.event_passed(goals) {
                        return Ok(MoveEnd::Event(event));
                    }
                }
                Advanced::Executed => {}
            }
            if self.is_at_stop(goals.stops)? && self.is_accepted(goals)? {
                return Ok(MoveEnd::Stop);
            }
            count = count.wrapping_add(1);
            if count.is_multiple_of(4096) && (goals.interrupted)() {
                return Ok(MoveEnd::Interrupted);
            }
        }
    }
}
