//! Forward through the run: by ticks, in the engine's counting code, from event to event.

use super::error::Error;
use super::events::Site;
use super::process::Replay;
use super::watches::Watching;
use crate::common::{Addr, Tid};
use crate::engine::{Distance, Ran, Run, RunEnd};
use crate::recording::log::Happening;
use crate::tracee::{SiginfoBytes, siginfo};
use crate::translate::Bound;
use std::collections::BTreeSet;
use std::time::Duration;

/// Ticks between two looks at whether the user has had enough.
const CHUNK_TICKS: u64 = 20_000_000;
/// The budget near an instruction with a hook.
const FEW_TICKS: u64 = 1000;
/// The time between two checkpoints on the way.
const CHECKPOINT_PERIOD: Duration = Duration::from_millis(300);

/// The reasons to end a run on its way.
#[derive(Clone, Copy)]
pub struct Goals<'a> {
    /// Instructions before which it ends.
    pub stops: &'a BTreeSet<Addr>,
    /// Asked at each of them; false passes it.
    pub accepts: &'a dyn Fn(&Replay) -> bool,
    /// Equal for equal answers of that.
    pub key: u64,
    /// Asked regularly; true ends it.
    pub interrupted: &'a dyn Fn() -> bool,
}

/// The reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is where it was to go.
    Goal,
    /// The run has no more instructions.
    End,
    /// A thread is about to execute an instruction that is a goal.
    Stop,
    /// Watched memory was accessed: the number of the watch. The access is done.
    Watch(usize),
    /// The user had enough.
    Interrupted,
    /// The next event happened to this thread, and is a goal.
    Event(Tid),
}

/// The reason why a piece of a run ended.
pub(super) enum Met {
    /// It executed what it should.
    Nothing,
    /// The thread is at an instruction with a hook.
    Hook,
    /// A stop.
    Stop,
    /// An access to watched memory.
    Watch,
    /// A fault.
    Fault(Box<SiginfoBytes>),
}

impl Replay {
    /// Runs to a place between two ticks: `entry` entries, and `ticks` of the next one's thread.
    /// Ends before that at a goal, unless that is where it begins.
    pub(super) fn travel(
        &mut self,
        until: Option<(u64, u64)>,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<Found, Error> {
        self.set_stops(goals);
        let found = loop {
            match self.travel_to(until, goals, watching) {
                Ok(Found::Stop) if !self.is_accepted(goals) => {
                    if (goals.interrupted)() {
                        break Ok(Found::Interrupted);
                    }
                }
                found => break found,
            }
        };
        self.epoch.engine.set_stops(&BTreeSet::new());
        found
    }

    fn set_stops(&mut self, goals: &Goals<'_>) {
        let stops: BTreeSet<u64> = goals.stops.iter().map(|addr| addr.0).collect();
        self.epoch.engine.set_stops(&stops);
    }

    /// Sets stops and watches in the process of another program of the run.
    fn begin_goals(&mut self, goals: &Goals<'_>, watching: &mut Watching) -> Result<(), Error> {
        self.set_stops(goals);
        let watches = watching.watches();
        *watching = self.epoch.watch(&watches)?;
        Ok(())
    }

    /// Returns true if the thread that is about to execute stops here.
    pub(super) fn is_accepted(&mut self, goals: &Goals<'_>) -> bool {
        let is_there = self.load_next().is_ok();
        is_there && (goals.accepts)(self)
    }

    fn travel_to(
        &mut self,
        until: Option<(u64, u64)>,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<Found, Error> {
        loop {
            if until == Some((self.cursor.index(), self.ticks)) {
                return Ok(Found::Goal);
            }
            if let Some(found) = self.interval(until, goals, watching)? {
                let is_there = until == Some((self.cursor.index(), self.ticks));
                return Ok(if found == Found::Stop && is_there { Found::Goal } else { found });
            }
            if until == Some((self.cursor.index(), self.ticks)) {
                return Ok(Found::Goal);
            }
            let number = self.number;
            if !self.happen()? {
                return Ok(Found::End);
            }
            if self.number != number {
                self.begin_goals(goals, watching)?;
            }
            if let Some(number) = self.epoch.changed(watching).first() {
                return Ok(Found::Watch(*number));
            }
            if (goals.interrupted)() {
                return Ok(Found::Interrupted);
            }
            if self.kept.elapsed() > CHECKPOINT_PERIOD && until.is_none_or(|u| u.1 > 0) {
                self.keep_here()?;
            }
            if self.stands_at(goals.stops)? {
                return Ok(Found::Stop);
            }
        }
    }

    /// Returns true if the thread that executes next is at a stop, at the start of its interval.
    fn stands_at(&mut self, stops: &BTreeSet<Addr>) -> Result<bool, Error> {
        let Some(entry) = self.cursor.peek()? else { return Ok(false) };
        let (tid, executes) = (entry.tid, !matches!(entry.happening, Happening::Start(_)));
        let in_call = self.epoch.contexts.get(tid).is_none_or(|c| c.call.is_some());
        if stops.is_empty() || in_call || !executes {
            return Ok(false);
        }
        Ok(stops.contains(&Addr(self.registers_of(tid)?.rip)))
    }

    /// Runs the thread of the next entry up to where that happens, or to `until`.
    fn interval(
        &mut self,
        until: Option<(u64, u64)>,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<Option<Found>, Error> {
        let here = self.cursor.index();
        let Some(entry) = self.cursor.current()? else { return Ok(Some(Found::End)) };
        let site = self.site_of(&entry);
        if site == Site::Here {
            return Ok(None);
        }
        let tid = entry.tid;
        if !self.epoch.contexts.load(tid, self.epoch.thread.tracee)? {
            return Err(Error::BadLog { entry: here, what: "it is of a thread that is not there" });
        }
        let until = until.filter(|until| until.0 == here).map(|until| until.1);
        if until.is_none() && site == Site::Hook {
            return self.run_to_hook(tid, entry.ticks, goals, watching);
        }
        let goal = until.unwrap_or(entry.ticks).min(entry.ticks);
        while self.ticks < goal {
            let left = (goal - self.ticks).min(CHUNK_TICKS);
            let met = self.run_ticks(left)?;
            if let Some(found) = self.meaning(&met, watching)? {
                return Ok(Some(found));
            }
            match met {
                Met::Hook if self.ticks < entry.ticks => {
                    return Err(self.diverged(tid, "it makes a call that was not recorded"));
                }
                Met::Fault(info) => self.fault(tid, &info)?,
                _ => {}
            }
            if (goals.interrupted)() {
                return Ok(Some(Found::Interrupted));
            }
            if self.instructions == Some(0) && self.kept.elapsed() > CHECKPOINT_PERIOD {
                self.keep_here()?;
            }
        }
        if until.is_some() && self.ticks == goal {
            return Ok(None);
        }
        self.approach(tid, site, goals, watching)
    }

    /// Runs the loaded thread up to the instruction with a hook that it comes to after so many
    /// ticks.
    fn run_to_hook(
        &mut self,
        tid: Tid,
        ticks: u64,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<Option<Found>, Error> {
        loop {
            let left = ticks.saturating_sub(self.ticks).clamp(FEW_TICKS, CHUNK_TICKS);
            let budget = self.epoch.engine.budget(left).unwrap_or(left);
            let met = self.run(Distance::Budget(budget))?;
            if let Some(found) = self.meaning(&met, watching)? {
                return Ok(Some(found));
            }
            match met {
                Met::Hook if self.ticks == ticks => return Ok(None),
                Met::Hook => {
                    return Err(self.diverged(tid, "it makes a call that was not recorded"));
                }
                Met::Fault(info) => self.fault(tid, &info)?,
                _ if self.ticks > ticks => {
                    return Err(self.diverged(tid, "it does not make the call that was recorded"));
                }
                _ => {}
            }
            if (goals.interrupted)() {
                return Ok(Some(Found::Interrupted));
            }
            if self.kept.elapsed() > CHECKPOINT_PERIOD
                && self.ticks < ticks
                && let Some(found) = self.finish_tick(watching)?
            {
                return Ok(Some(found));
            }
        }
    }

    /// Runs the loaded thread to the end of the tick, and keeps a checkpoint there.
    fn finish_tick(&mut self, watching: &mut Watching) -> Result<Option<Found>, Error> {
        if self.hook_here()?.is_none() && self.instructions != Some(0) {
            let met = self.run(Distance::Bound(Bound::Ticks(1)))?;
            if let Some(found) = self.meaning(&met, watching)? {
                return Ok(Some(found));
            }
        }
        self.keep_here().map(|()| None)
    }

    /// Brings a thread to the site of its entry, which is within the tick.
    fn approach(
        &mut self,
        tid: Tid,
        site: Site,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<Option<Found>, Error> {
        let ticks = self.ticks;
        if let Site::Place(place) = site {
            let stops = goals.stops;
            let mut is_stop = |ip: Addr| stops.contains(&ip);
            if !self.walk_to(tid, place, &mut is_stop)? {
                return Ok(Some(Found::Stop));
            }
            return Ok(self.epoch.changed(watching).first().map(|number| Found::Watch(*number)));
        }
        loop {
            if self.hook_here()?.is_some() {
                return Ok(None);
            }
            let met = self.run(Distance::Bound(Bound::Ticks(1)))?;
            if let Some(found) = self.meaning(&met, watching)? {
                return Ok(Some(found));
            }
            match met {
                Met::Hook => return Ok(None),
                Met::Fault(info) => self.fault(tid, &info)?,
                _ if self.ticks != ticks => {
                    return Err(self.diverged(tid, "it does not make the call that was recorded"));
                }
                _ => {}
            }
        }
    }

    /// Returns what a run found, if it found something.
    fn meaning(&mut self, met: &Met, watching: &mut Watching) -> Result<Option<Found>, Error> {
        Ok(match met {
            Met::Stop => Some(Found::Stop),
            Met::Watch => self.epoch.met(watching)?.map(Found::Watch),
            Met::Nothing | Met::Hook | Met::Fault(_) => None,
        })
    }

    /// Returns the error for a fault that the recorded run did not have.
    fn fault(&self, tid: Tid, info: &SiginfoBytes) -> Result<(), Error> {
        let number = siginfo::signal_of(info);
        let at = siginfo::fault_address(info).unwrap_or_default();
        Err(self.diverged(tid, format!("it gets signal {number} for {at}")))
    }

    /// Runs the loaded thread for at most so many ticks, and exactly so many if nothing is met.
    fn run_ticks(&mut self, ticks: u64) -> Result<Met, Error> {
        let goal = self.ticks + ticks;
        while self.ticks < goal {
            let left = goal - self.ticks;
            let bound = || Distance::Bound(Bound::Ticks(left));
            let distance = self.epoch.engine.budget(left).map_or_else(bound, Distance::Budget);
            let met = self.run(distance)?;
            if !matches!(met, Met::Nothing) {
                return Ok(met);
            }
        }
        Ok(Met::Nothing)
    }

    /// Runs the loaded thread once.
    pub(super) fn run(&mut self, distance: Distance) -> Result<Met, Error> {
        let thread = &mut self.epoch.thread;
        let (run, _) = self.epoch.engine.run_counted(thread, distance)?;
        let (ran, info) = match run {
            Run::Ran(ran) => (ran, None),
            Run::Signal(ran, info) => (ran, Some(info)),
            Run::Other(stop) if stop.is_end() => return Err(Error::Killed),
            Run::Other(_) => return Err(Error::Killed),
        };
        let Ran { ticks, end, .. } = ran;
        self.count(ticks, distance, end);
        Ok(match end {
            RunEnd::Distance => Met::Nothing,
            RunEnd::Stop => Met::Stop,
            RunEnd::Native(Some(_)) => Met::Hook,
            RunEnd::Native(None) if self.hook_here()?.is_some() => Met::Hook,
            RunEnd::Native(None) => {
                self.step_natively()?;
                Met::Nothing
            }
            RunEnd::Watchpoint => Met::Watch,
            RunEnd::Signal => match info {
                Some(info) if siginfo::code_of(&info) > 0 => Met::Fault(Box::new(info)),
                // Nobody but the replay may tell its process anything.
                _ => Met::Nothing,
            },
        })
    }

    /// Takes note of ticks that were executed.
    fn count(&mut self, ticks: u64, distance: Distance, end: RunEnd) {
        let is_reached = matches!(
            (distance, end),
            (Distance::Bound(Bound::Ticks(bound)), RunEnd::Distance | RunEnd::Stop)
                if bound == ticks
        );
        self.ticks += ticks;
        self.instructions = is_reached.then_some(0);
    }
}
