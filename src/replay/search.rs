//! To any position, and backwards.

use super::error::Error;
use super::events::Site;
use super::position::Position;
use super::process::Replay;
use super::run::{Found, Goals};
use super::watches::{Watch, Watching};
use crate::common::{Addr, Tid};
use std::collections::BTreeSet;

/// A hit of a search: in the tick after so many entries and ticks, before the instruction at `ip`, or
/// after the one that accessed watched memory.
#[derive(Clone, Copy, Debug)]
struct Hit {
    entry: u64,
    ticks: u64,
    ip: Addr,
    found: Found,
}

/// The hits of a search that the user has not seen yet.
#[derive(Debug)]
pub(super) struct Hits {
    /// Where the user is.
    at: Position,
    /// The hits before that, in the order of the run, from `begin` on.
    before: Vec<Hit>,
    begin: Position,
    stops: BTreeSet<Addr>,
    key: u64,
    watches: Vec<Watch>,
}

impl Hits {
    fn new(at: Position, goals: &Goals<'_>, watches: &[Watch]) -> Self {
        let (stops, key) = (goals.stops.clone(), goals.key);
        Self { at, before: Vec::new(), begin: at, stops, key, watches: watches.to_vec() }
    }

    /// Returns true if these are the hits of such a search from here.
    fn are_of(&self, here: Position, goals: &Goals<'_>, watches: &[Watch]) -> bool {
        let same = self.at == here && self.key == goals.key;
        same && self.stops == *goals.stops && self.watches == watches
    }
}

/// The distance to a checkpoint from which on nearer ones are worth their time.
const FAR_TICKS: u64 = 5000;
/// The distance of the nearest of them.
const NEAR_TICKS: u64 = 500;
/// How much nearer each is than the one before.
const SHRINKS: u64 = 6;
const NEVER: fn() -> bool = || false;

impl<'a> Goals<'a> {
    /// Returns goals without a stop.
    pub(super) fn nothing(none: &'a BTreeSet<Addr>, interrupted: &'a dyn Fn() -> bool) -> Self {
        Self { stops: none, accepts: &|_| true, key: 0, interrupted }
    }
}

impl Replay {
    /// Moves to a position.
    pub fn seek(&mut self, target: Position) -> Result<(), Error> {
        self.is_at_end = false;
        if self.approach_from_before(target)? {
            self.leave_near_checkpoints(target)?;
        }
        self.travel_to_tick(target)?;
        self.load_next()?;
        while self.position() < target && self.ticks == target.ticks {
            if self.hook_here()?.is_some() || !self.step_one()? {
                break;
            }
        }
        Ok(())
    }

    /// Runs to the beginning of the tick of a position, which is not before this one.
    fn travel_to_tick(&mut self, target: Position) -> Result<(), Error> {
        if (self.cursor.index(), self.ticks) != (target.entry, target.ticks) {
            let none = BTreeSet::new();
            let goals = Goals::nothing(&none, &NEVER);
            let until = Some((target.entry, target.ticks));
            self.travel(until, &goals, &mut Watching::default())?;
        }
        Ok(())
    }

    /// Runs towards a position, and keeps checkpoints at distances from it that shrink: who goes back
    /// will go back further.
    fn leave_near_checkpoints(&mut self, target: Position) -> Result<(), Error> {
        let goal = self.ticks_before(target);
        let mut distance = goal.saturating_sub(self.ticks_before(self.position()));
        if distance < FAR_TICKS {
            return Ok(());
        }
        self.epoch.checkpoints.forget_near();
        while distance > NEAR_TICKS {
            distance /= SHRINKS;
            let at = self.position_of_ticks(goal - distance);
            let here = (self.cursor.index(), self.ticks);
            if (at.entry, at.ticks) > here && at < target {
                self.travel_to_tick(at)?;
                if self.instructions == Some(0) {
                    let position = self.position();
                    self.epoch.keep_near(position, &self.cursor)?;
                }
            }
        }
        Ok(())
    }

    /// Turns to the last checkpoint before a position, unless the replay is between the two. Returns
    /// true if it did.
    fn approach_from_before(&mut self, target: Position) -> Result<bool, Error> {
        let number = self.outline.epoch_of(target.entry);
        if number != self.number {
            self.enter_epoch(number)?;
        }
        let checkpoint = self.epoch.checkpoints.before(target);
        let here = self.position();
        // Where the instructions were not counted, the next tick is the first known place.
        let is_known =
            self.instructions.is_some() || (here.entry, here.ticks) < (target.entry, target.ticks);
        let is_between = is_known && here <= target && checkpoint.is_none_or(|kept| kept <= here);
        if is_between {
            return Ok(false);
        }
        match checkpoint {
            Some(kept) => self.restore(kept)?,
            None => self.enter_epoch(number)?,
        }
        Ok(true)
    }

    fn restore(&mut self, position: Position) -> Result<(), Error> {
        let Some(cursor) = self.epoch.restore(position)? else { return Ok(()) };
        self.cursor = cursor;
        (self.ticks, self.instructions) = (position.ticks, Some(position.instructions));
        Ok(())
    }

    /// Loads the thread of the next entry.
    pub(super) fn load_next(&mut self) -> Result<(), Error> {
        if let Some(tid) = self.next_thread()? {
            self.epoch.contexts.load(tid, self.epoch.thread.tracee)?;
        }
        Ok(())
    }

    /// Counts the instructions since the last tick, if that was not done.
    pub fn settle(&mut self) -> Result<Position, Error> {
        if self.instructions.is_none() {
            let ip = self.ip()?;
            let (entry, ticks) = (self.cursor.index(), self.ticks);
            self.seek(Position { entry, ticks, instructions: 0 })?;
            self.walk_to_ip(ip)?;
        }
        Ok(self.position())
    }

    /// Executes instructions within a tick up to an address.
    fn walk_to_ip(&mut self, ip: Addr) -> Result<(), Error> {
        let ticks = self.ticks;
        while self.ip()? != ip {
            let is_over = self.hook_here()?.is_some() || !self.step_one()? || self.ticks != ticks;
            if is_over {
                let tid = self.next_thread()?.unwrap_or_default();
                return Err(self.diverged(tid, format!("it does not come to {ip}")));
            }
        }
        Ok(())
    }

    /// Moves to the end of the run.
    pub fn go_to_end(&mut self, interrupted: &dyn Fn() -> bool) -> Result<Found, Error> {
        let none = BTreeSet::new();
        let goals = Goals::nothing(&none, interrupted);
        self.travel(None, &goals, &mut Watching::default())
    }

    /// Runs forward to a goal, or to the end.
    pub fn run_forward(&mut self, goals: &Goals<'_>, watches: &[Watch]) -> Result<Found, Error> {
        let mut watching = self.epoch.watch(watches)?;
        let found = if watching.fits() {
            self.travel(None, goals, &mut watching)
        } else {
            self.travel_slowly(None, goals, &mut watching)
        };
        self.epoch.unwatch()?;
        let found = found?;
        if found != Found::End {
            self.settle()?;
        }
        Ok(found)
    }

    /// Executes one instruction of a thread, or lets happen what happens to it next. Other threads
    /// may run before that.
    pub fn step_forward(&mut self, tid: Tid, goals: &Goals<'_>) -> Result<Found, Error> {
        if let Some(found) = self.come_to_run(tid, goals)? {
            return Ok(found);
        }
        let Some(entry) = self.cursor.current()? else { return Ok(Found::End) };
        self.load_next()?;
        let is_at_site = self.ticks == entry.ticks
            && match self.site_of(&entry) {
                Site::Here => true,
                Site::Hook => self.hook_here()?.is_some(),
                Site::Place(place) => place.ip == self.ip()?,
            };
        if !is_at_site {
            if self.step_one()? {
                return Ok(Found::Goal);
            }
            return Err(self.diverged(tid, "it gets a signal that was not recorded"));
        }
        if let Site::Place(place) = self.site_of(&entry) {
            self.walk_to(tid, place, &mut |_| false)?;
        }
        if !self.happen()? {
            return Ok(Found::End);
        }
        if matches!(entry.happening, crate::recording::log::Happening::Switch { .. }) {
            return self.step_forward(tid, goals);
        }
        if self.epoch.contexts.get(tid).is_some_and(|context| context.call.is_some()) {
            // It comes out of the call later.
            if let Some(found) = self.come_to_run(tid, goals)? {
                return Ok(found);
            }
            self.happen()?;
        }
        Ok(Found::Goal)
    }

    /// Runs until the next entry is one of a thread.
    fn come_to_run(&mut self, tid: Tid, goals: &Goals<'_>) -> Result<Option<Found>, Error> {
        while self.next_thread()? != Some(tid) {
            let next = self.outline.next_of(tid, self.cursor.index());
            let Some(next) = next else {
                // It executes nothing any more.
                return self.run_forward(goals, &[]).map(Some);
            };
            match self.travel(Some((next, 0)), goals, &mut Watching::default())? {
                Found::Goal => {}
                found => return Ok(Some(found)),
            }
        }
        Ok(None)
    }

    /// Moves one instruction of a thread back. Returns false at its first one.
    pub fn step_back(&mut self, tid: Tid) -> Result<bool, Error> {
        self.is_at_end = false;
        let here = self.settle()?;
        let is_running = self.next_thread()? == Some(tid);
        if is_running && (here.ticks, here.instructions) > (0, 0) && self.undo_one(here)? {
            return Ok(true);
        }
        let target = if is_running && (here.ticks, here.instructions) > (0, 0) {
            self.instruction_before(here)?
        } else {
            match self.outline.last_of(tid, here.entry) {
                Some(entry) if entry >= self.first().entry => self.last_place_before(entry)?,
                _ => None,
            }
        };
        match target {
            Some(target) => self.seek(target).map(|()| true),
            None => self.seek(here).map(|()| false),
        }
    }

    /// Returns the position of the instruction before one, in the same interval.
    fn instruction_before(&mut self, here: Position) -> Result<Option<Position>, Error> {
        if here.instructions > 0 {
            let instructions = here.instructions - 1;
            return Ok(Some(Position { instructions, ..here }));
        }
        // The tick itself: the last instruction of the tick before.
        let ticks = here.ticks - 1;
        self.seek(Position { ticks, ..here })?;
        let mut count = 0;
        while !self.is_tick_here()? {
            if !self.step_one()? {
                return Ok(None);
            }
            count += 1;
        }
        Ok(Some(Position { entry: here.entry, ticks, instructions: count }))
    }

    /// Returns the position where a thread was when an entry happened to it. None: it was nowhere.
    fn last_place_before(&mut self, entry: u64) -> Result<Option<Position>, Error> {
        self.seek(Position::after_entries(entry))?;
        let Some(next) = self.cursor.current()? else { return Ok(None) };
        let site = self.site_of(&next);
        if site == Site::Here {
            let in_call = self.epoch.contexts.get(next.tid).is_some_and(|c| c.call.is_some());
            // A call that it entered before others ran.
            let entered = self.outline.last_of(next.tid, entry).filter(|_| in_call);
            return entered.map_or(Ok(None), |entered| self.last_place_before(entered));
        }
        self.seek(Position { entry, ticks: next.ticks, instructions: 0 })?;
        match site {
            Site::Place(place) => {
                self.walk_to(next.tid, place, &mut |_| false)?;
            }
            _ => {
                while self.hook_here()?.is_none() {
                    if !self.step_one()? {
                        return Ok(None);
                    }
                }
            }
        }
        let at = self.position();
        let is_switch = matches!(next.happening, crate::recording::log::Happening::Switch { .. });
        if !is_switch {
            return Ok(Some(at));
        }
        // It has not executed the instruction there: the one before.
        if (at.ticks, at.instructions) > (0, 0) {
            return self.instruction_before(at);
        }
        match self.outline.last_of(next.tid, entry) {
            Some(before) => self.last_place_before(before),
            None => Ok(None),
        }
    }

    /// Runs backwards to a goal, or to the beginning.
    pub fn run_back(&mut self, goals: &Goals<'_>, watches: &[Watch]) -> Result<Found, Error> {
        let here = self.settle()?;
        if goals.stops.is_empty() && watches.is_empty() {
            self.seek(self.first())?;
            return Ok(Found::End);
        }
        let known = self.hits.take().filter(|hits| hits.are_of(here, goals, watches));
        let mut hits = known.unwrap_or_else(|| Hits::new(here, goals, watches));
        loop {
            if let Some(hit) = hits.before.pop() {
                self.go_to_hit(&hit)?;
                hits.at = self.position();
                self.hits = Some(hits);
                return Ok(hit.found);
            }
            let end = hits.begin;
            let begin = self.checkpoint_before(end)?;
            if end <= self.first() {
                self.seek(self.first())?;
                return Ok(Found::End);
            }
            self.seek(begin)?;
            let Ok(found) = self.hits_until(end, goals, watches)? else {
                self.seek(end)?;
                return Ok(Found::Interrupted);
            };
            (hits.before, hits.begin) = (found, begin);
        }
    }

    /// Returns the last position with a checkpoint before a position.
    fn checkpoint_before(&mut self, end: Position) -> Result<Position, Error> {
        let mut number = self.outline.epoch_of(end.entry);
        if number != self.number {
            self.enter_epoch(number)?;
        }
        let before = self.epoch.checkpoints.strictly_before(end);
        if before.is_none() && number > 0 && end.entry <= self.epoch.begins {
            // The program before this one.
            number -= 1;
            self.enter_epoch(number)?;
            return Ok(self.epoch.checkpoints.strictly_before(end).unwrap_or(self.first()));
        }
        Ok(before.unwrap_or(Position::after_entries(self.epoch.begins)))
    }

    /// Returns the hits from here to a position. Err: the user had enough.
    fn hits_until(
        &mut self,
        end: Position,
        goals: &Goals<'_>,
        watches: &[Watch],
    ) -> Result<Result<Vec<Hit>, ()>, Error> {
        let mut watching = self.epoch.watch(watches)?;
        self.load_next()?;
        let ip = self.ip()?;
        let mut hits = Vec::new();
        if self.position() < end && goals.stops.contains(&ip) && self.is_accepted(goals) {
            hits.push(self.hit(Found::Stop)?);
        }
        let until = Some((end.entry, end.ticks));
        loop {
            let found = if watching.fits() {
                self.travel(until, goals, &mut watching)?
            } else {
                self.travel_slowly(until, goals, &mut watching)?
            };
            match found {
                Found::Goal | Found::End => break,
                Found::Interrupted => {
                    self.epoch.unwatch()?;
                    return Ok(Err(()));
                }
                found => hits.push(self.hit(found)?),
            }
        }
        self.load_next()?;
        while self.position() < end && self.ticks == end.ticks && self.cursor.index() == end.entry {
            let ip = self.ip()?;
            if goals.stops.contains(&ip) && self.is_accepted(goals) {
                hits.push(self.hit(Found::Stop)?);
            }
            if self.hook_here()?.is_some() || !self.step_one()? {
                break;
            }
            if let Some(number) = self.epoch.changed(&mut watching).first() {
                hits.push(self.hit(Found::Watch(*number))?);
            }
        }
        self.epoch.unwatch()?;
        Ok(Ok(hits))
    }

    fn hit(&mut self, found: Found) -> Result<Hit, Error> {
        self.load_next()?;
        Ok(Hit { entry: self.cursor.index(), ticks: self.ticks, ip: self.ip()?, found })
    }

    /// Moves to a hit: before the instruction that stops, or that accessed watched memory.
    fn go_to_hit(&mut self, hit: &Hit) -> Result<(), Error> {
        let at = Position { entry: hit.entry, ticks: hit.ticks, instructions: 0 };
        self.seek(at)?;
        self.walk_to_ip(hit.ip)?;
        if let Found::Watch(_) = hit.found {
            let here = self.position();
            let tid = match (here.ticks, here.instructions) {
                // An event wrote there.
                (0, 0) => self.outline.thread_of(here.entry.saturating_sub(1)),
                _ => self.next_thread()?,
            };
            if let Some(tid) = tid {
                self.step_back(tid)?;
            }
        }
        Ok(())
    }

    /// Travels instruction by instruction, and compares what is watched after each.
    fn travel_slowly(
        &mut self,
        until: Option<(u64, u64)>,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<Found, Error> {
        let mut count = 0_u32;
        loop {
            if until == Some((self.cursor.index(), self.ticks)) {
                return Ok(Found::Goal);
            }
            let Some(tid) = self.next_thread()? else { return Ok(Found::End) };
            match self.step_forward(tid, goals)? {
                Found::Goal => {}
                found => return Ok(found),
            }
            if let Some(number) = self.epoch.changed(watching).first() {
                return Ok(Found::Watch(*number));
            }
            self.load_next()?;
            if goals.stops.contains(&self.ip()?) {
                return Ok(Found::Stop);
            }
            count = count.wrapping_add(1);
            if count.is_multiple_of(4096) && (goals.interrupted)() {
                return Ok(Found::Interrupted);
            }
        }
    }
}
