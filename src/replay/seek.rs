//! Moves a replay to any position: from the nearest place before it to its tick, then to its
//! instruction. Candidates are, in this order, the replay's own position, the last checkpoint of
//! its process, and the last keyframe, if that saves much work. If the process begins after the
//! target, another one is loaded: one that was prepared ([`super::ahead`]), from the last keyframe,
//! or from the program's start.

use super::epoch::Epoch;
use super::error::Error;
use super::goals::{Found, Goals};
use super::one_cpu::Span;
use super::pace::Pace;
use super::position::Position;
use super::process::Replay;
use super::straight::Straight;
use super::watches::Watching;
use crate::common::Addr;
use crate::recording::log::{Cursor, Place};
use std::collections::BTreeSet;

/// The distance of a target from the last checkpoint, in moments ([`Replay::moment`]), from which
/// on further ones before the target are worth their time.
const FAR: u64 = 5000;
/// The distance of such a checkpoint from the target at which no nearer one is kept.
const NEAR: u64 = 500;
/// The factor by which the distance shrinks from one checkpoint to the next.
const SHRINKS: u64 = 6;
/// Moments between two reports of progress on the way to the end.
const PIECE: u64 = 20_000_000;
/// The minimum work of a replay, in ticks, that loading a keyframe must save.
const WORTH_A_KEYFRAME: u64 = 50_000_000;
/// The work of replaying an entry of the log, in ticks.
const TICKS_PER_ENTRY: u64 = 1000;
const NEVER: fn() -> bool = || false;

impl Replay {
    /// Moves to a position. A position at which a program is still being loaded, and nothing
    /// executes, is taken for that of its first instruction.
    pub fn seek(&mut self, target: Position) -> Result<(), Error> {
        let _span = Span::begin();
        self.is_at_end = false;
        let number = self.outline.epoch_of(target.entry);
        let target = target.max(self.outline.first_of(number));
        let is_elsewhere =
            number != self.number || target < Position::after_entries(self.epoch.begins);
        if is_elsewhere {
            self.load_before(number, target)?;
        }
        if self.approach_from_before(target)? || is_elsewhere {
            self.keep_near_checkpoints(target, &NEVER)?;
        }
        self.travel_to_tick(target, &NEVER)?;
        self.switch_to_next_thread()?;
        if self.go_straight(target)? { Ok(()) } else { self.seek_by_steps(target) }
    }

    /// Executes the instructions of a tick up to a position in it. Returns false if the code
    /// changed on the way, so that the position is not known.
    fn go_straight(&mut self, target: Position) -> Result<bool, Error> {
        while self.position() < target && self.ticks == target.ticks {
            let left = target.instructions.saturating_sub(self.position().instructions);
            match self.run_straight(left, None)? {
                Straight::Lost => return Ok(false),
                Straight::Ran => {}
                Straight::Steps => {
                    if self.hook_here()?.is_some() || !self.step_one()? {
                        break;
                    }
                }
            }
        }
        Ok(true)
    }

    /// Moves by single steps to a position in a tick that changes its own code. Ends early at a
    /// hook or at the end of the tick.
    fn seek_by_steps(&mut self, target: Position) -> Result<(), Error> {
        // No recursion: to the first instruction of a tick, `seek` never needs single steps.
        self.seek(Position { instructions: 0, ..target })?;
        while self.position() < target && self.ticks == target.ticks {
            if self.hook_here()?.is_some() || !self.step_one()? {
                break;
            }
        }
        Ok(())
    }

    /// Runs to the beginning of the tick of `target`, a position that is not before the current
    /// one. Returns false if it was interrupted.
    pub(super) fn travel_to_tick(
        &mut self,
        target: Position,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        if (self.cursor.index(), self.ticks) == (target.entry, target.ticks) {
            return Ok(true);
        }
        let none = BTreeSet::new();
        let goals = Goals::at(&none, interrupted);
        let until = Some((target.entry, target.ticks));
        let found = self.travel(until, &goals, &mut Watching::default())?;
        Ok(found != Found::Interrupted)
    }

    /// Runs towards a position, if it is far, and keeps checkpoints at distances from it that
    /// shrink, since a user who goes back once will do so again. Returns false if it was
    /// interrupted.
    pub(super) fn keep_near_checkpoints(
        &mut self,
        target: Position,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        let goal = self.moment(target);
        let mut distance = goal.saturating_sub(self.moment(self.position()));
        if distance < FAR {
            return Ok(true);
        }
        self.epoch.checkpoints.forget_near();
        while distance > NEAR {
            distance /= SHRINKS;
            let at = self.position_of_moment(goal - distance);
            let here = (self.cursor.index(), self.ticks);
            if (at.entry, at.ticks) > here && at < target {
                if !self.travel_to_tick(at, interrupted)? {
                    return Ok(false);
                }
                if self.instructions == Some(0) {
                    let position = self.position();
                    self.epoch.keep_near(position, &self.cursor)?;
                    self.pace = Pace::from(self.epoch.pid());
                }
            }
        }
        Ok(true)
    }

    /// Switches to the last checkpoint or keyframe before a position, unless the replay is between
    /// the two. Returns true if it switched.
    fn approach_from_before(&mut self, target: Position) -> Result<bool, Error> {
        let checkpoint = self.epoch.checkpoints.before(target);
        let here = self.position();
        // If the instructions were not counted, the next tick is the first known place.
        let is_known =
            self.instructions.is_some() || (here.entry, here.ticks) < (target.entry, target.ticks);
        let is_between = is_known && here <= target && checkpoint.is_none_or(|kept| kept <= here);
        let nearest = if is_between { Some(here) } else { checkpoint };
        if self.skip_to_keyframe(nearest, target)? {
            return Ok(true);
        }
        if is_between {
            return Ok(false);
        }
        match checkpoint {
            Some(kept) => self.restore(kept)?,
            None => self.load_before(self.number, target)?,
        }
        Ok(true)
    }

    /// Loads the last keyframe before a position of this program, if that is far after the nearest
    /// place from which the replay could continue. Returns true if it loaded one.
    fn skip_to_keyframe(
        &mut self,
        nearest: Option<Position>,
        target: Position,
    ) -> Result<bool, Error> {
        let nearest = nearest.unwrap_or(Position::after_entries(self.epoch.begins));
        while let Some((entry, cursor)) = self.outline.keyframe_before(self.number, target) {
            let gain = self.work_before(Position::after_entries(entry));
            if gain.saturating_sub(self.work_before(nearest)) < WORTH_A_KEYFRAME {
                return Ok(false);
            }
            if self.enter_keyframe(self.number, entry, cursor)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the work of replaying the run up to a position, in ticks.
    fn work_before(&self, position: Position) -> u64 {
        let entries = position.entry.saturating_mul(TICKS_PER_ENTRY);
        self.ticks_before(position).saturating_add(entries)
    }

    /// Loads the last keyframe of a program at or before a position, or the program's start, or
    /// switches to the process that was prepared before that position.
    pub(super) fn load_before(&mut self, number: usize, target: Position) -> Result<(), Error> {
        if self.turn_to_part(number, target) {
            return Ok(());
        }
        while let Some((entry, cursor)) = self.outline.keyframe_before(number, target) {
            if self.enter_keyframe(number, entry, cursor)? {
                return Ok(());
            }
        }
        self.enter_epoch(number)
    }

    /// Loads a keyframe, after which the log continues at `cursor`. Returns false, and forgets the
    /// keyframe, if it cannot be loaded: the run can be replayed without it.
    fn enter_keyframe(&mut self, number: usize, entry: u64, cursor: Cursor) -> Result<bool, Error> {
        let reserved = self.outline.ranges_of(number);
        let Ok(epoch) = Epoch::load_keyframe(entry, &self.reader, self.code, reserved) else {
            self.outline.forget_keyframe(entry);
            return Ok(false);
        };
        self.epoch = epoch;
        (self.number, self.cursor) = (number, cursor);
        (self.ticks, self.instructions) = (0, Some(0));
        self.keep_here()?;
        Ok(true)
    }

    /// Restores the checkpoint at a position. Replays from the program's start if it is lost.
    pub(super) fn restore(&mut self, position: Position) -> Result<(), Error> {
        let Some(cursor) = self.epoch.restore(position)? else {
            self.enter_epoch(self.number)?;
            return self.seek(position);
        };
        self.cursor = cursor;
        (self.ticks, self.instructions) = (position.ticks, Some(position.instructions));
        Ok(())
    }

    /// Loads the registers of the thread of the log's next entry into the process.
    pub(super) fn switch_to_next_thread(&mut self) -> Result<(), Error> {
        if let Some(tid) = self.next_thread()? {
            self.epoch.contexts.load(tid, self.epoch.thread.tracee)?;
        }
        Ok(())
    }

    /// Counts the instructions since the last tick, by executing them again, if they are not known.
    /// Returns the position.
    pub fn settle(&mut self) -> Result<Position, Error> {
        if self.instructions.is_none() {
            let ip = self.ip()?;
            let (entry, ticks) = (self.cursor.index(), self.ticks);
            self.seek(Position { entry, ticks, instructions: 0 })?;
            self.walk_to_ip(ip)?;
        }
        Ok(self.position())
    }

    /// Moves to a place within the tick that begins at the position `tick`. Within the iterations
    /// of a string instruction, [`Self::position`] is then only that of the tick.
    pub fn seek_place(&mut self, tick: Position, place: Place) -> Result<(), Error> {
        self.seek(Position { instructions: 0, ..tick })?;
        let tid = self.next_thread()?.unwrap_or_default();
        self.walk_to(tid, place)?;
        if self.registers_of(tid)?.rcx != 0 && self.insn_at(place.ip).is_some_and(|insn| insn.rep) {
            // The thread may be between two iterations, which a position cannot express.
            self.instructions = None;
        }
        Ok(())
    }

    /// Executes instructions up to an address that is reached before the next tick.
    pub(super) fn walk_to_ip(&mut self, ip: Addr) -> Result<(), Error> {
        let ticks = self.ticks;
        while self.ip()? != ip {
            if self.run_straight(u64::MAX, Some(ip))? != Straight::Steps {
                continue;
            }
            let is_over = self.hook_here()?.is_some() || !self.step_one()? || self.ticks != ticks;
            if is_over {
                let tid = self.next_thread()?.unwrap_or_default();
                return Err(self.diverged(tid, format!("it does not reach {ip}")));
            }
        }
        Ok(())
    }

    /// Moves to the end of the run, unless it is interrupted.
    pub fn go_to_end(&mut self, interrupted: &dyn Fn() -> bool) -> Result<Found, Error> {
        let none = BTreeSet::new();
        let goals = Goals::at(&none, interrupted);
        self.approach_end()?;
        self.travel(None, &goals, &mut Watching::default())
    }

    /// Switches to the last checkpoint or keyframe of the run, unless the replay is after it.
    fn approach_end(&mut self) -> Result<(), Error> {
        let last = Position::after_entries(self.outline.last());
        let number = self.outline.epoch_of(last.entry);
        if number != self.number {
            self.load_before(number, last)?;
        }
        if self.position() < last {
            self.approach_from_before(last)?;
        }
        Ok(())
    }

    /// Moves to the end of the run if no instruction executes before it; otherwise stays. The
    /// replay must be in the run's last moment.
    pub fn reach_end(&mut self) -> Result<(), Error> {
        let here = self.position();
        self.go_to_end(&NEVER)?;
        if self.settle()? == here { Ok(()) } else { self.seek(here) }
    }

    /// Moves to the end of the run. Calls `passed` with the ticks so far and of the whole run.
    pub fn go_to_end_watched(&mut self, passed: &mut dyn FnMut(u64, u64)) -> Result<(), Error> {
        self.approach_end()?;
        let none = BTreeSet::new();
        let goals = Goals::at(&none, &NEVER);
        loop {
            let (here, last) = (self.moment(self.position()), self.last_moment());
            let next = here.saturating_add(PIECE);
            let piece = self.position_of_moment(next);
            let until = (next < last).then_some((piece.entry, piece.ticks));
            if self.travel(until, &goals, &mut Watching::default())? != Found::Goal {
                return Ok(());
            }
            passed(self.ticks_before(self.position()), self.total_ticks());
        }
    }
}
