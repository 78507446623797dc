//! Moves a replay to any position ([`Replay::seek`]), in these steps:
//! 1. If the position is in another program, or before the beginning of the replay's process,
//!    another process takes its place ([`Replay::load_before`]): one that was prepared
//!    ([`super::prepare`]), a *parked* one, which was left earlier ([`super::parked_processes`]),
//!    or a new one from the last *keyframe*, a copy of the program's state in the recording, or
//!    from the program's start.
//! 2. The replay begins at the nearest place before the position
//!    ([`Replay::switch_to_nearest_before`]): its own position, the last checkpoint of its
//!    process, or, if that saves much work, that of a parked process, or the last keyframe.
//! 3. If it has switched to another place in step 1 or 2, and the rest is long, it keeps *near*
//!    checkpoints on the way, close before the position ([`Replay::keep_near_checkpoints`]).
//! 4. It runs to the position's tick, and from there to its instruction.
//!
//! A process that is replaced by a parked one or a keyframe is parked; otherwise it ends. Distances
//! are in moments ([`Replay::moment`]): each tick and each entry of the log is one.

use super::checkpoint_timer::CheckpointTimer;
use super::error::Error;
use super::goals::{Goals, MoveEnd};
use super::loading_keyframe::LoadingKeyframe;
use super::one_cpu::PinGuard;
use super::parked::ParkedProcess;
use super::parked_processes::ParkedCheckpoint;
use super::position::Position;
use super::process::Replay;
use super::straight::StraightRun;
use super::watches::Watching;
use crate::common::Addr;
use crate::recording::log::{Cursor, PlaceInTick};
use std::collections::BTreeSet;

/// The distance of a target from the replay, in moments, from which on near checkpoints before the
/// target are worth their time.
const FAR: u64 = 5000;
/// The distance of such a checkpoint from the target at which no nearer one is kept.
const NEAR: u64 = 500;
/// The factor by which the distance to the target shrinks from one such checkpoint to the next.
const SHRINK_FACTOR: u64 = 6;
/// Moments between two reports of progress on the way to the end.
const REPORT_PERIOD: u64 = 20_000_000;
/// The minimum work of a replay, in ticks, that loading a keyframe must save.
const WORTH_A_KEYFRAME: u64 = 50_000_000;
/// The minimum work of a replay, in ticks, that a switch to a parked process must save.
const WORTH_A_SWITCH: u64 = 1_000_000;
/// The work of replaying an entry of the log, in ticks.
const TICKS_PER_ENTRY: u64 = 1000;
const NEVER: fn() -> bool = || false;

impl Replay {
    /// Moves to a position, and loads the thread that executes next there. A position at which a
    /// program is still being loaded, and nothing executes, is taken for that of its first
    /// instruction; one before [`Self::first`], for that. If the position's tick has fewer
    /// instructions, ends at its last one; if the run ends earlier, there. A diversion must have
    /// been ended.
    pub fn seek(&mut self, target: Position) -> Result<(), Error> {
        let _pinned = PinGuard::begin();
        self.is_at_end = false;
        let number = self.outline.epoch_of(target.entry.min(self.end));
        let target = target.max(self.outline.first_position_of(number));
        let is_elsewhere =
            number != self.number || target < Position::after_entries(self.epoch.begins);
        if is_elsewhere {
            self.load_before(number, target)?;
        }
        if self.switch_to_nearest_before(target)? || is_elsewhere {
            self.keep_near_checkpoints(target, &NEVER)?;
        }
        self.run_to_tick(target, &NEVER)?;
        self.switch_to_next_thread()?;
        if self.run_straight_to(target)? { Ok(()) } else { self.seek_by_steps(target) }
    }

    /// Executes the instructions of the loaded thread up to a later position in the replay's tick,
    /// several at a time. Does nothing, and returns true, if `target` is not later, or not in this
    /// tick. Returns false if the code changed on the way, so that the replay's position is
    /// unknown. Ends early, and returns true, at a hook, a fault or the end of the tick.
    fn run_straight_to(&mut self, target: Position) -> Result<bool, Error> {
        while self.position() < target && self.ticks == target.ticks {
            let left = target.instructions.saturating_sub(self.position().instructions);
            match self.run_straight(left, None)? {
                StraightRun::Lost => return Ok(false),
                StraightRun::Ran => {}
                StraightRun::NeedsSteps => {
                    if self.hook_here()?.is_some() || !self.step_insn()? {
                        break;
                    }
                }
            }
        }
        Ok(true)
    }

    /// Moves to a position in a tick that changes its own code: to the beginning of the tick, and
    /// from there by single steps. Ends early at a hook, a fault or the end of the tick.
    fn seek_by_steps(&mut self, target: Position) -> Result<(), Error> {
        // No recursion: to the first instruction of a tick, `seek` never needs single steps.
        self.seek(Position { instructions: 0, ..target })?;
        while self.position() < target && self.ticks == target.ticks {
            if self.hook_here()?.is_some() || !self.step_insn()? {
                break;
            }
        }
        Ok(())
    }

    /// Runs to the beginning of the tick of `target`, a position in a tick that does not begin
    /// before the replay's, or to the end of the run if that is earlier. Stays if the replay is in
    /// that tick already. Returns false if it was interrupted.
    pub(super) fn run_to_tick(
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
        let found = self.run_until(until, &goals, &mut Watching::default())?;
        Ok(found != MoveEnd::Interrupted)
    }

    /// Runs towards a position, if it is far, and keeps near checkpoints at distances from it that
    /// shrink, since a user who goes back once will do so again. Removes earlier near ones. Ends
    /// before the position, at the last of them. Does nothing if the position is near. Returns
    /// false if it was interrupted.
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
        self.epoch.checkpoints.remove_all_near();
        while distance > NEAR {
            distance /= SHRINK_FACTOR;
            let at = self.position_of_moment(goal - distance);
            let here = (self.cursor.index(), self.ticks);
            if (at.entry, at.ticks) > here && at < target {
                if !self.run_to_tick(at, interrupted)? {
                    return Ok(false);
                }
                if self.instructions == Some(0) {
                    let position = self.position();
                    self.epoch.keep_near_checkpoint(position, &self.cursor)?;
                    self.checkpoint_timer = CheckpointTimer::start(self.epoch.pid());
                }
            }
        }
        Ok(true)
    }

    /// Switches to the best place at or before a position of the loaded program: the replay's own
    /// position, if it is known and not after `target`, or the last checkpoint of its process,
    /// whichever is later; but a parked process or a keyframe if that saves much work. Without any
    /// of them, loads another process ([`Self::load_before`]). Returns false if the replay stays
    /// where it is.
    fn switch_to_nearest_before(&mut self, target: Position) -> Result<bool, Error> {
        let checkpoint = self.epoch.checkpoints.last_at_or_before(target);
        let here = self.position();
        // If the instructions were not counted, the next tick is the first known place.
        let is_known =
            self.instructions.is_some() || (here.entry, here.ticks) < (target.entry, target.ticks);
        let is_between = is_known && here <= target && checkpoint.is_none_or(|kept| kept <= here);
        // `None` is the beginning of the process.
        let own_place = if is_between { Some(here) } else { checkpoint };
        if self.skip_to_parked(own_place, target)? || self.skip_to_keyframe(own_place, target)? {
            return Ok(true);
        }
        if is_between {
            return Ok(false);
        }
        match checkpoint {
            Some(kept) => self.restore_checkpoint(kept)?,
            None => self.load_before(self.number, target)?,
        }
        Ok(true)
    }

    /// Continues in another process, at its position. Saves the code cache of the former one, and
    /// parks it.
    fn replace_process(&mut self, mut other: ParkedProcess) {
        self.swap_process(&mut other);
        // Processes that are loaded from now on have its translated code.
        other.epoch.save_code_cache();
        other.epoch.code_cache = None;
        self.parked.add(other);
    }

    /// Moves to a checkpoint of a parked process. The former process is parked.
    fn switch_to_parked_checkpoint(&mut self, checkpoint: ParkedCheckpoint) -> Result<(), Error> {
        let parked = self.parked.take(checkpoint);
        self.replace_process(parked);
        self.restore_checkpoint(checkpoint.position)?;
        self.checkpoint_timer = CheckpointTimer::start(self.epoch.pid());
        Ok(())
    }

    /// Moves to the last checkpoint of a parked process at or before a position of the loaded
    /// program, if that saves much work: it is far after `own_place`, the nearest position from
    /// which this process could continue; `None` for its beginning. Returns false, and does
    /// nothing, if it does not, or if a keyframe saves much more.
    fn skip_to_parked(
        &mut self,
        own_place: Option<Position>,
        target: Position,
    ) -> Result<bool, Error> {
        let nearest = own_place.unwrap_or(Position::after_entries(self.epoch.begins));
        let Some(checkpoint) = self.parked.last_at_or_before(self.number, target) else {
            return Ok(false);
        };
        let saved = self.work_between(nearest, checkpoint.position);
        if saved < WORTH_A_SWITCH
            || self.has_better_keyframe(self.number, checkpoint.position, target)
        {
            return Ok(false);
        }
        self.switch_to_parked_checkpoint(checkpoint)?;
        Ok(true)
    }

    /// Loads the last keyframe at or before a position of the loaded program, if that saves much
    /// work: it is far after `own_place`, the nearest position from which this process could
    /// continue; `None` for its beginning. Returns true if it loaded one. Forgets keyframes that
    /// cannot be loaded, and tries those before them.
    fn skip_to_keyframe(
        &mut self,
        own_place: Option<Position>,
        target: Position,
    ) -> Result<bool, Error> {
        let nearest = own_place.unwrap_or(Position::after_entries(self.epoch.begins));
        while self.has_better_keyframe(self.number, nearest, target)
            && let Some((entry, cursor)) = self.outline.keyframe_before(self.number, target)
        {
            if self.enter_keyframe(self.number, entry, cursor)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns true if program `number` has a keyframe at or before `target` that saves much work:
    /// it is far after `nearest`.
    fn has_better_keyframe(&self, number: usize, nearest: Position, target: Position) -> bool {
        let keyframe = self.outline.keyframe_before(number, target);
        keyframe.is_some_and(|(entry, _)| {
            self.work_between(nearest, Position::after_entries(entry)) >= WORTH_A_KEYFRAME
        })
    }

    /// Estimates the work of replaying the run from one position to another, in ticks; 0 if that is
    /// earlier.
    fn work_between(&self, start: Position, end: Position) -> u64 {
        self.work_before(end).saturating_sub(self.work_before(start))
    }

    /// Estimates the work of replaying the run from its beginning up to a position, in ticks: those
    /// executed, and [`TICKS_PER_ENTRY`] for each entry. Only differences count: dropped entries
    /// are included.
    fn work_before(&self, position: Position) -> u64 {
        let entries = position.entry.saturating_mul(TICKS_PER_ENTRY);
        self.ticks_before(position).saturating_add(entries)
    }

    /// Replaces the process by one of program `number` that begins at or before a position: that of
    /// a preparation, a parked one, or a new one at the last keyframe or at the program's start.
    /// The replay is then at the beginning of the new one, at the parked one's last checkpoint at
    /// or before the position, or where the preparation is, perhaps after the position. The former
    /// process is parked if a parked one or a keyframe replaces it; otherwise it ends.
    pub(super) fn load_before(&mut self, number: usize, target: Position) -> Result<(), Error> {
        if self.switch_to_prepared(number, target) {
            return Ok(());
        }
        let parked = self.parked.last_at_or_before(number, target);
        if let Some(checkpoint) = parked
            && !self.has_better_keyframe(number, checkpoint.position, target)
        {
            return self.switch_to_parked_checkpoint(checkpoint);
        }
        while let Some((entry, cursor)) = self.outline.keyframe_before(number, target) {
            if self.enter_keyframe(number, entry, cursor)? {
                return Ok(());
            }
        }
        self.enter_epoch(number)
    }

    /// Replaces the process, which is parked, by a keyframe of program `number`, after which the
    /// log continues at `cursor`. Moves there, and keeps a checkpoint. `entry` is the number of
    /// entries before it.
    /// Returns false, changes nothing and forgets the keyframe, if it cannot be loaded: the run can
    /// be replayed without it.
    fn enter_keyframe(&mut self, number: usize, entry: u64, cursor: Cursor) -> Result<bool, Error> {
        let reserved = self.outline.ranges_of(number);
        let Ok(epoch) = LoadingKeyframe::load(entry, &self.reader, self.code, reserved) else {
            self.outline.forget_keyframe(entry);
            return Ok(false);
        };
        self.replace_process(ParkedProcess {
            epoch,
            number,
            cursor,
            ticks: 0,
            instructions: Some(0),
        });
        self.keep_checkpoint_here()?;
        Ok(true)
    }

    /// Moves to the checkpoint at a position. If there is none, moves to the position from the
    /// program's start.
    pub(super) fn restore_checkpoint(&mut self, position: Position) -> Result<(), Error> {
        let Some(cursor) = self.epoch.restore_checkpoint(position)? else {
            self.enter_epoch(self.number)?;
            return self.seek(position);
        };
        self.cursor = cursor;
        (self.ticks, self.instructions) = (position.ticks, Some(position.instructions));
        Ok(())
    }

    /// Loads the registers of the thread of the log's next entry, which executes next, into the
    /// process. Loads none if the thread does not exist yet, or there is no next entry.
    pub(super) fn switch_to_next_thread(&mut self) -> Result<(), Error> {
        if let Some(tid) = self.next_thread()? {
            self.epoch.contexts.load(tid, self.epoch.thread.tracee)?;
        }
        Ok(())
    }

    /// Returns the current position, which [`Replay::position`] may know only up to the last tick.
    /// Then counts the instructions since that tick, by executing them again up to the present
    /// address. If the replay is amid a REP instruction, it is then before its first iteration.
    pub fn exact_position(&mut self) -> Result<Position, Error> {
        if self.instructions.is_none() {
            let ip = self.ip()?;
            let (entry, ticks) = (self.cursor.index(), self.ticks);
            self.seek(Position { entry, ticks, instructions: 0 })?;
            self.walk_to_ip(ip)?;
        }
        Ok(self.position())
    }

    /// Moves to a place of the next thread within the tick that begins at the position `tick`.
    /// Fails if the thread does not reach it. Within the iterations of a string instruction,
    /// [`Self::position`] is then only that of the tick.
    pub fn seek_place(&mut self, tick: Position, place: PlaceInTick) -> Result<(), Error> {
        self.seek(Position { instructions: 0, ..tick })?;
        let tid = self.next_thread()?.unwrap_or_default();
        self.walk_to(tid, place)?;
        if self.registers_of(tid)?.rcx != 0 && self.insn_at(place.ip).is_some_and(|insn| insn.rep) {
            // The thread may be between two iterations, which a position cannot express.
            self.instructions = None;
        }
        Ok(())
    }

    /// Executes instructions of the loaded thread up to an address that it reaches before its next
    /// tick. Fails if it does not.
    pub(super) fn walk_to_ip(&mut self, ip: Addr) -> Result<(), Error> {
        let ticks = self.ticks;
        while self.ip()? != ip {
            if self.run_straight(u64::MAX, Some(ip))? != StraightRun::NeedsSteps {
                continue;
            }
            let is_over = self.hook_here()?.is_some() || !self.step_insn()? || self.ticks != ticks;
            if is_over {
                let tid = self.next_thread()?.unwrap_or_default();
                return Err(self.diverged(tid, format!("it does not reach {ip}")));
            }
        }
        Ok(())
    }

    /// Moves to the end of the run: returns [`MoveEnd::NoMoreHistory`] there, or
    /// [`MoveEnd::Interrupted`] on the way.
    pub fn go_to_end(&mut self, interrupted: &dyn Fn() -> bool) -> Result<MoveEnd, Error> {
        let none = BTreeSet::new();
        let goals = Goals::at(&none, interrupted);
        self.switch_to_last_before_end()?;
        self.run_until(None, &goals, &mut Watching::default())
    }

    /// Switches to the last checkpoint or keyframe of the run, unless the replay is after it or
    /// that saves little.
    fn switch_to_last_before_end(&mut self) -> Result<(), Error> {
        let last = Position::after_entries(self.outline.end_entry().min(self.end));
        let number = self.outline.epoch_of(last.entry);
        if number != self.number {
            self.load_before(number, last)?;
        }
        if self.position() < last {
            self.switch_to_nearest_before(last)?;
        }
        Ok(())
    }

    /// Moves to the end of the run if nothing more executes before it; otherwise stays. To find
    /// that out, runs to the end, and moves back if it is elsewhere: [`Self::is_at_end`] is then
    /// false. The replay must be in the run's last moment ([`Self::moment`]), at an exact position.
    pub fn go_to_end_without_executing(&mut self) -> Result<(), Error> {
        let here = self.position();
        self.go_to_end(&NEVER)?;
        if self.exact_position()? == here { Ok(()) } else { self.seek(here) }
    }

    /// Moves to the end of the run. Regularly calls `report` with the ticks so far and those of the
    /// whole run.
    pub fn go_to_end_reporting(&mut self, report: &mut dyn FnMut(u64, u64)) -> Result<(), Error> {
        self.switch_to_last_before_end()?;
        let none = BTreeSet::new();
        let goals = Goals::at(&none, &NEVER);
        loop {
            let (here, last) = (self.moment(self.position()), self.last_moment());
            let next = here.saturating_add(REPORT_PERIOD);
            let next_report = self.position_of_moment(next);
            let until = (next < last).then_some((next_report.entry, next_report.ticks));
            if self.run_until(until, &goals, &mut Watching::default())? != MoveEnd::Target {
                return Ok(());
            }
            report(self.ticks_before(self.position()), self.total_ticks());
        }
    }
}
