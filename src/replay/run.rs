//! Runs forward: by ticks, in the engine's counting code, from one entry of the log to the next.

use super::error::Error;
use super::events::Site;
use super::goals::{Found, GlanceFacts, Goals, Met};
use super::one_cpu::Span;
use super::outline::KernelEvent;
use super::process::Replay;
use super::watches::Watching;
use crate::common::{Addr, Tid};
use crate::engine::{Distance, Ran, Run, RunEnd};
use crate::recording::log::{Bytes, Happening};
use crate::tracee::{SiginfoBytes, siginfo};
use crate::translate::Bound;
use std::collections::BTreeSet;

/// Ticks between two checks whether the user has interrupted the run.
const CHUNK_TICKS: u64 = 20_000_000;
/// The minimum budget, in ticks, of a run to an instruction with a hook.
const FEW_TICKS: u64 = 1000;

impl Replay {
    /// Runs to `until`: the number of passed entries, and the ticks of the next entry's thread
    /// since its last entry; `None` for the end. Ends before that at a goal, but not at one where
    /// the run begins. The instructions since the last tick may not be counted after it
    /// ([`Self::settle`]).
    pub(super) fn travel(
        &mut self,
        until: Option<(u64, u64)>,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<Found, Error> {
        let _span = Span::begin();
        self.set_stops(goals);
        self.judged = None;
        let found = loop {
            match self.travel_to(until, goals, watching) {
                Ok(Found::Stop) if !self.is_accepted(goals)? => {
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

    /// Sets stops and watches again, after the process of another program replaced the one that had
    /// them.
    fn begin_goals(&mut self, goals: &Goals<'_>, watching: &mut Watching) -> Result<(), Error> {
        self.set_stops(goals);
        let watches = watching.watches();
        *watching = self.epoch.watch(&watches)?;
        Ok(())
    }

    /// Returns true if the thread that executes next is to stop here: it attempts its next
    /// instruction, and the goals accept the stop.
    pub(super) fn is_accepted(&mut self, goals: &Goals<'_>) -> Result<bool, Error> {
        if let Some(judged) = self.judged.take() {
            return Ok(judged);
        }
        self.switch_to_next_thread()?;
        Ok(self.is_attempted()? && (goals.accepts)(self))
    }

    /// Returns true if the thread attempts its next instruction before another entry of the log
    /// happens to it. Otherwise the thread will be here once more: after others ran, or after a
    /// handler.
    fn is_attempted(&mut self) -> Result<bool, Error> {
        let Some(entry) = self.cursor.current()? else { return Ok(true) };
        let Site::Place(place) = self.site_of(&entry) else { return Ok(true) };
        let here = self.epoch.thread.tracee.registers()?;
        let is_there = self.ticks == entry.ticks && here.rip == place.ip.0;
        let is_between = match &entry.happening {
            Happening::Switch { .. } | Happening::Changed { .. } => true,
            Happening::Signal { siginfo: Bytes(info), .. } => !came_of_attempt(info),
            _ => false,
        };
        Ok(!(is_there && is_between))
    }

    /// Travels as [`Self::travel`], but ends at every stop, accepted or not. The stops are set
    /// already.
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
                // A stop at the target itself is the target.
                let is_there = until == Some((self.cursor.index(), self.ticks));
                return Ok(if found == Found::Stop && is_there { Found::Goal } else { found });
            }
            if until == Some((self.cursor.index(), self.ticks)) {
                return Ok(Found::Goal);
            }
            if let Some(event) = self.event_ahead(goals) {
                return Ok(Found::Event(event));
            }
            let number = self.number;
            // Watched stores are compared with the entry, so it is read before it happens.
            let stores = if watching.is_of_stores() { self.cursor.current()? } else { None };
            if !self.happen()? {
                return Ok(Found::End);
            }
            if self.number != number {
                self.begin_goals(goals, watching)?;
            }
            let met = match &stores {
                Some(entry) => self.epoch.met_by(&entry.happening, watching)?,
                None => self.epoch.met(watching)?,
            };
            if let Some(number) = met {
                return Ok(Found::Watch(number));
            }
            if let Some(event) = self.event_passed(goals) {
                return Ok(Found::Event(event));
            }
            if (goals.interrupted)() {
                return Ok(Found::Interrupted);
            }
            if until.is_none_or(|u| u.1 > 0) && self.is_checkpoint_due() {
                self.keep_here()?;
            }
            if self.is_at_stop(goals.stops)? {
                return Ok(Found::Stop);
            }
        }
    }

    /// Returns the system call that the next entry makes, or the signal that it delivers, if a run
    /// ends there. Its thread is at its site.
    pub(super) fn event_ahead(&self, goals: &Goals<'_>) -> Option<KernelEvent> {
        self.event_before(self.cursor.index(), goals)
    }

    /// Returns the system call that an entry makes, or the signal that it delivers, if a run ends
    /// before it.
    pub(super) fn event_before(&self, next: u64, goals: &Goals<'_>) -> Option<KernelEvent> {
        let event = self.outline.event_before(next).filter(|_| goals.passed != Some(next));
        event.filter(|event| (goals.events)(*event))
    }

    /// Returns the act of the kernel in the last entry, if a run ends after it.
    pub(super) fn event_passed(&self, goals: &Goals<'_>) -> Option<KernelEvent> {
        self.event_after(self.cursor.index().checked_sub(1)?, goals)
    }

    /// Returns the act of the kernel in an entry, if a run ends after it.
    pub(super) fn event_after(&self, entry: u64, goals: &Goals<'_>) -> Option<KernelEvent> {
        let event = self.outline.event_after(entry);
        event.filter(|event| (goals.events)(*event))
    }

    /// Returns true if the thread that executes next is at a stop, at the start of its interval.
    pub(super) fn is_at_stop(&mut self, stops: &BTreeSet<Addr>) -> Result<bool, Error> {
        let Some(entry) = self.cursor.peek()? else { return Ok(false) };
        let (tid, executes) = (entry.tid, !matches!(entry.happening, Happening::Start(_)));
        let in_call = self.epoch.contexts.get(tid).is_none_or(|c| c.call.is_some());
        if stops.is_empty() || in_call || !executes {
            return Ok(false);
        }
        Ok(stops.contains(&Addr(self.registers_of(tid)?.rip)))
    }

    /// Runs the thread of the next entry to the entry's site, or to `until`. Returns what it found
    /// before, if it found something.
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
        let last = until.map_or(self.end, |until| until.0.min(self.end));
        let until = until.filter(|until| until.0 == here).map(|until| until.1);
        if until.is_none() && site == Site::Hook {
            return self.run_to_hook(tid, last, goals, watching);
        }
        let goal = until.unwrap_or(entry.ticks).min(entry.ticks);
        while self.ticks < goal {
            let left = (goal - self.ticks).min(CHUNK_TICKS);
            let met =
                self.run_ticks(left, &GlanceFacts { goals, entry: Some(&entry), answered: None })?;
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
            if self.instructions == Some(0) && self.is_checkpoint_due() {
                self.keep_here()?;
            }
        }
        if until.is_some() && self.ticks == goal {
            return Ok(None);
        }
        self.approach(tid, site, goals, watching)
    }

    /// Runs the loaded thread to the instruction with a hook of the next entry, or of a later one
    /// before entry number `last`. The entries between are answered in the cache.
    fn run_to_hook(
        &mut self,
        tid: Tid,
        last: u64,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<Option<Found>, Error> {
        loop {
            let ahead = self.answer_ahead(tid, last, goals, watching)?;
            let left = ahead.ticks.saturating_sub(self.ticks).clamp(FEW_TICKS, CHUNK_TICKS);
            let budget = self.epoch.engine.sampled_budget(left).unwrap_or(left);
            let begun = self.ticks;
            let looks = GlanceFacts { goals, entry: None, answered: Some(&ahead.places) };
            let met = self.run_looking(Distance::Budget(budget), Some(&looks));
            let noted = self.note_answered(tid, &ahead, (begun, budget));
            let met = met?;
            noted?;
            let Some(ticks) = self.cursor.peek()?.map(|entry| entry.ticks) else {
                return Ok(Some(Found::End));
            };
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
            if self.ticks < ticks
                && self.is_checkpoint_due()
                && let Some(found) = self.finish_tick(watching)?
            {
                return Ok(Some(found));
            }
        }
    }

    /// Runs the loaded thread to its next tick, unless it is at one, and keeps a checkpoint there.
    /// Returns what it found before, if it found something.
    fn finish_tick(&mut self, watching: &mut Watching) -> Result<Option<Found>, Error> {
        if self.hook_here()?.is_none() && self.instructions != Some(0) {
            let met = self.run(Distance::Bound(Bound::Ticks(1)))?;
            if let Some(found) = self.meaning(&met, watching)? {
                return Ok(Some(found));
            }
        }
        self.keep_here().map(|()| None)
    }

    /// Runs the loaded thread to the site of its entry, which is before its next tick. Returns what
    /// it found before, if it found something.
    fn approach(
        &mut self,
        tid: Tid,
        site: Site,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<Option<Found>, Error> {
        let ticks = self.ticks;
        if let Site::Place(place) = site {
            if goals.stops.is_empty() && watching.is_empty() {
                return self.walk_to(tid, place).map(|()| None);
            }
            let found = self.walk_asking(tid, place, &mut |replay, ip| {
                let met = replay.epoch.met(watching)?.map(Found::Watch);
                Ok(met.or_else(|| goals.stops.contains(&ip).then_some(Found::Stop)))
            })?;
            return match found {
                None => Ok(self.epoch.met(watching)?.map(Found::Watch)),
                found => Ok(found),
            };
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

    /// Returns the goal that a run has met, if it has met one.
    fn meaning(&mut self, met: &Met, watching: &mut Watching) -> Result<Option<Found>, Error> {
        Ok(match met {
            Met::Stop => Some(Found::Stop),
            Met::Watch(is_at_stop) => {
                let met = self.epoch.met(watching)?.map(Found::Watch);
                met.or(is_at_stop.then_some(Found::Stop))
            }
            Met::Nothing | Met::Hook | Met::Fault(_) => None,
        })
    }

    /// Handles a fault that the recorded run did not have: extends a stack, or fails, as the replay
    /// differs from the run.
    pub(super) fn fault(&mut self, tid: Tid, info: &SiginfoBytes) -> Result<(), Error> {
        let number = siginfo::signal_of(info);
        let at = siginfo::fault_address(info).unwrap_or_default();
        if number == libc::SIGSEGV && self.epoch.grow_stack(at)? {
            return Ok(());
        }
        Err(self.diverged(tid, format!("it gets signal {number} for {at}")))
    }

    /// Runs the loaded thread for `ticks` ticks, or fewer if it meets something.
    fn run_ticks(&mut self, ticks: u64, looks: &GlanceFacts<'_>) -> Result<Met, Error> {
        let goal = self.ticks + ticks;
        while self.ticks < goal {
            let left = goal - self.ticks;
            let bound = || Distance::Bound(Bound::Ticks(left));
            let budget = self.epoch.engine.sampled_budget(left);
            let distance = budget.map_or_else(bound, Distance::Budget);
            let met = self.run_looking(distance, Some(looks))?;
            if !matches!(met, Met::Nothing) {
                return Ok(met);
            }
        }
        Ok(Met::Nothing)
    }

    /// Runs the loaded thread once. It does not stop where it begins.
    pub(super) fn run(&mut self, distance: Distance) -> Result<Met, Error> {
        self.run_looking(distance, None)
    }

    /// Runs the loaded thread as [`Self::run`] does. With `looks`, its stops are glances if
    /// possible.
    fn run_looking(
        &mut self,
        distance: Distance,
        looks: Option<&GlanceFacts<'_>>,
    ) -> Result<Met, Error> {
        let (begun, ticks) = (self.ip()?, self.ticks);
        let met = self.run_engine(distance, looks)?;
        if !matches!(met, Met::Nothing | Met::Watch(_)) {
            return Ok(met);
        }
        let ip = self.ip()?;
        let is_elsewhere = ip != begun || self.ticks != ticks;
        // A run that ends by its distance or a watch reports no stop at that place.
        let is_at_stop = is_elsewhere && self.epoch.engine.translator().is_stop(ip.0);
        Ok(match met {
            Met::Watch(_) => Met::Watch(is_at_stop),
            _ if is_at_stop => Met::Stop,
            met => met,
        })
    }

    /// Runs the loaded thread once in the engine, counts its ticks, and returns why it ended. Steps
    /// it past an instruction that the cache cannot execute and that is no hook.
    fn run_engine(
        &mut self,
        distance: Distance,
        looks: Option<&GlanceFacts<'_>>,
    ) -> Result<Met, Error> {
        let run = match looks {
            Some(looks) if looks.are_worth_it(distance) => {
                self.run_with_glances(distance, looks)?
            }
            _ => self.epoch.run(distance)?,
        };
        let (ran, info) = match run {
            Run::Ran(ran) => (ran, None),
            Run::Signal(ran, info) => (ran, Some(info)),
            Run::Other(_) | Run::Called | Run::Glance(_) => return Err(Error::Killed),
        };
        let Ran { ticks, end, .. } = ran;
        self.count(ticks, distance, end);
        Ok(match end {
            RunEnd::Distance => Met::Nothing,
            RunEnd::Stop => Met::Stop,
            RunEnd::Native(Some(_)) => Met::Hook,
            RunEnd::Native(None) if self.hook_here()?.is_some() => Met::Hook,
            RunEnd::Native(None) => match self.step_natively()? {
                Some(info) => Met::Fault(Box::new(info)),
                // The instruction may have written to a watched page.
                None => Met::Watch(false),
            },
            RunEnd::Watchpoint => Met::Watch(false),
            RunEnd::Signal => match info {
                Some(info) if is_debug_trap(&info) => Met::Watch(false),
                Some(info) if siginfo::code_of(&info) > 0 => Met::Fault(Box::new(info)),
                // Another process sent it: it is dropped.
                _ => Met::Nothing,
            },
        })
    }

    /// Adds ticks that were executed. The instructions since the last of them are known, as 0, if
    /// the run ended at its bound of ticks.
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

/// Returns true if a debug register raised the signal. It cannot be a single step of the program:
/// the log has an entry for each of these, and every run ends there.
fn is_debug_trap(info: &SiginfoBytes) -> bool {
    const TRAP_TRACE: i32 = 2;
    const TRAP_HWBKPT: i32 = 4;
    let code = siginfo::code_of(info);
    siginfo::signal_of(info) == libc::SIGTRAP && matches!(code, TRAP_TRACE | TRAP_HWBKPT)
}

/// Returns true if a signal is a fault of the instruction at which the thread is. A trap is raised
/// after its instruction.
fn came_of_attempt(info: &[u8]) -> bool {
    let info: Option<&SiginfoBytes> = info.first_chunk();
    info.is_some_and(|info| {
        siginfo::fault_address(info).is_some() && siginfo::signal_of(info) != libc::SIGTRAP
    })
}
