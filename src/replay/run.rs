//! Runs forward: by ticks (counted branches) in the engine, from one entry of the log to the next.
//!
//! [`Replay::run_until`] sets the *stops*, addresses at which a run ends, and runs to its target.
//! It passes stops that the goals do not accept. For each entry on the way:
//! 1. [`Replay::run_interval`] runs the entry's thread to the entry's [`Site`], or to the target:
//!    by ticks ([`Replay::run_ticks`]), then to the instruction ([`Replay::approach_site`]). But if
//!    the site is a *hook*, an instruction such as SYSCALL, [`Replay::run_to_hook`] may pass
//!    several entries that the code cache *answers*: it applies their effects itself
//!    ([`super::answers`]).
//! 2. The next entry is applied. A goal or a watch that it meets ends the run.
//!
//! Each run in the engine has a [`RunLimit`]: a *budget* of ticks, which is fast but may end early,
//! or a *bound*, for short distances: the run ends there, or already after one superblock.

use super::error::Error;
use super::events::Site;
use super::goals::{EngineEvent, GlanceFacts, Goals, MoveEnd};
use super::one_cpu::PinGuard;
use super::process::Replay;
use super::watches::Watching;
use crate::common::{Addr, Tid};
use crate::engine::{EndedRun, RunEnd, RunLimit, RunOutcome};
use crate::recording::log::{Bytes, LogEvent};
use crate::tracee::{SiginfoBytes, siginfo};
use crate::translate::Bound;
use std::collections::BTreeSet;

/// Ticks between two checks whether the user has interrupted the run.
const CHUNK_TICKS: u64 = 20_000_000;
/// The minimum budget, in ticks, of a run to a hook.
const FEW_TICKS: u64 = 1000;

impl Replay {
    /// Runs forward to the target `until`: the number of passed entries, and the ticks of the next
    /// entry's thread since the last of them; `None`, or a passed target, for the end. Returns
    /// [`MoveEnd::Target`] there, [`MoveEnd::NoMoreHistory`] at the end. Ends earlier at a goal, an
    /// accessed watch or an interrupt, but not at a stop where it begins. Keeps checkpoints at
    /// ticks, and at entries unless the target is right after one. Then the instructions since the
    /// tick may be unknown ([`Self::exact_position`]), or another thread than the next be loaded.
    pub(super) fn run_until(
        &mut self,
        until: Option<(u64, u64)>,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<MoveEnd, Error> {
        let _pinned = PinGuard::begin();
        self.set_stops(goals);
        self.glance_verdict = None;
        let end = self.run_until_accepted_stop(until, goals, watching);
        self.epoch.engine.set_stops(&BTreeSet::new());
        end
    }

    /// Runs as [`Self::run_until`], past stops that the goals reject; after each of these, ends if
    /// the user interrupts it. The stops are set already.
    fn run_until_accepted_stop(
        &mut self,
        until: Option<(u64, u64)>,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<MoveEnd, Error> {
        loop {
            let end = self.run_until_any_stop(until, goals, watching)?;
            if end != MoveEnd::Stop || self.is_accepted(goals)? {
                return Ok(end);
            }
            if (goals.interrupted)() {
                return Ok(MoveEnd::Interrupted);
            }
        }
    }

    /// Sets the stops of the goals in the engine, in place of all others.
    fn set_stops(&mut self, goals: &Goals<'_>) {
        let stops: BTreeSet<u64> = goals.stops.iter().map(|addr| addr.0).collect();
        self.epoch.engine.set_stops(&stops);
    }

    /// Sets stops and watches anew, in the process of the program that just began.
    fn set_stops_and_watches(
        &mut self,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<(), Error> {
        self.set_stops(goals);
        let watches = watching.watches();
        *watching = self.epoch.watch(&watches)?;
        Ok(())
    }

    /// Returns true if the stop at which the thread of the next entry is ends the run: the thread
    /// attempts its next instruction, and the goals accept the stop. Takes the answer of a glance
    /// if there is one, otherwise loads that thread.
    pub(super) fn is_accepted(&mut self, goals: &Goals<'_>) -> Result<bool, Error> {
        if let Some(judged) = self.glance_verdict.take() {
            return Ok(judged);
        }
        self.switch_to_next_thread()?;
        Ok(self.attempts_next_insn()? && (goals.accepts)(self))
    }

    /// Returns true if the loaded thread attempts its next instruction before the next entry of the
    /// log happens to it. Otherwise the thread will be here once more: after others ran, or after a
    /// handler.
    fn attempts_next_insn(&mut self) -> Result<bool, Error> {
        let Some(entry) = self.cursor.current()? else { return Ok(true) };
        let Site::Place(place) = self.site_of(&entry) else { return Ok(true) };
        let here = self.epoch.thread.tracee.registers()?;
        let is_there = self.ticks == entry.ticks && here.rip == place.ip.0;
        let is_between = match &entry.event {
            LogEvent::Switch { .. } | LogEvent::Changed { .. } => true,
            LogEvent::Signal { siginfo: Bytes(info), .. } => !is_fault(info),
            _ => false,
        };
        Ok(!(is_there && is_between))
    }

    /// Runs as [`Self::run_until_accepted_stop`], but ends at every stop, accepted or not; one at
    /// `until` itself counts as the target.
    fn run_until_any_stop(
        &mut self,
        until: Option<(u64, u64)>,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<MoveEnd, Error> {
        loop {
            if until == Some((self.cursor.index(), self.ticks)) {
                return Ok(MoveEnd::Target);
            }
            if let Some(found) = self.run_interval(until, goals, watching)? {
                let is_there = until == Some((self.cursor.index(), self.ticks));
                return Ok(if found == MoveEnd::Stop && is_there {
                    MoveEnd::Target
                } else {
                    found
                });
            }
            if until == Some((self.cursor.index(), self.ticks)) {
                return Ok(MoveEnd::Target);
            }
            if let Some(event) = self.event_ahead(goals) {
                return Ok(MoveEnd::Event(event));
            }
            let number = self.number;
            // Watched stores are compared with the entry, so it is read before it happens.
            let stores = if watching.is_of_stores() { self.cursor.current()? } else { None };
            if !self.apply_next_entry()? {
                return Ok(MoveEnd::NoMoreHistory);
            }
            if self.number != number {
                self.set_stops_and_watches(goals, watching)?;
            }
            let met = match &stores {
                Some(entry) => self.epoch.first_met_by_entry(&entry.event, watching)?,
                None => self.epoch.first_met(watching)?,
            };
            if let Some(number) = met {
                return Ok(MoveEnd::Watch(number));
            }
            if let Some(event) = self.event_passed(goals) {
                return Ok(MoveEnd::Event(event));
            }
            if (goals.interrupted)() {
                return Ok(MoveEnd::Interrupted);
            }
            if until.is_none_or(|(_, ticks)| ticks > 0) && self.is_checkpoint_due() {
                self.keep_checkpoint_here()?;
            }
            if self.is_at_stop(goals.stops)? {
                return Ok(MoveEnd::Stop);
            }
        }
    }

    /// Returns true if the thread of the next entry is at a stop. Returns false if it executes
    /// nothing here: it is in a system call or does not exist yet, the next entry begins another
    /// program, or there is none.
    pub(super) fn is_at_stop(&mut self, stops: &BTreeSet<Addr>) -> Result<bool, Error> {
        let Some(entry) = self.cursor.peek()? else { return Ok(false) };
        let (tid, executes) = (entry.tid, !matches!(entry.event, LogEvent::Start(_)));
        let in_call = self.epoch.contexts.get(tid).is_none_or(|c| c.call.is_some());
        if stops.is_empty() || in_call || !executes {
            return Ok(false);
        }
        Ok(stops.contains(&Addr(self.registers_of(tid)?.rip)))
    }

    /// Runs the thread of the next entry to the entry's site, or to `until` if that is before it.
    /// If the site is a hook, may pass that entry and others that the code cache answers
    /// ([`Self::run_to_hook`]): the thread is then at the site of the entry at which the cursor is.
    /// Returns the reason if the run ended earlier, or there is no next entry. Keeps checkpoints
    /// that are due.
    fn run_interval(
        &mut self,
        until: Option<(u64, u64)>,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<Option<MoveEnd>, Error> {
        let here = self.cursor.index();
        let Some(entry) = self.cursor.current()? else { return Ok(Some(MoveEnd::NoMoreHistory)) };
        let site = self.site_of(&entry);
        if site == Site::Anywhere {
            // The thread executes nothing before the entry.
            return Ok(None);
        }
        let tid = entry.tid;
        if !self.epoch.contexts.load(tid, self.epoch.thread.tracee)? {
            return Err(Error::BadLog { entry: here, what: "it is of a thread that is not there" });
        }
        let before_entry = until.map_or(self.end, |(entry, _)| entry.min(self.end));
        let until_ticks = until.filter(|(entry, _)| *entry == here).map(|(_, ticks)| ticks);
        if until_ticks.is_none() && site == Site::Hook {
            return self.run_to_hook(tid, before_entry, goals, watching);
        }
        let target_ticks = until_ticks.unwrap_or(entry.ticks).min(entry.ticks);
        while self.ticks < target_ticks {
            let left = (target_ticks - self.ticks).min(CHUNK_TICKS);
            let met =
                self.run_ticks(left, &GlanceFacts { goals, entry: Some(&entry), cursors: None })?;
            if let Some(found) = self.move_end_of(&met, watching)? {
                return Ok(Some(found));
            }
            match met {
                EngineEvent::Hook if self.ticks < entry.ticks => {
                    return Err(self.diverged(tid, "it makes a call that was not recorded"));
                }
                EngineEvent::Fault(info) => self.handle_fault(tid, &info)?,
                _ => {}
            }
            if (goals.interrupted)() {
                return Ok(Some(MoveEnd::Interrupted));
            }
            if self.instructions == Some(0) && self.is_checkpoint_due() {
                self.keep_checkpoint_here()?;
            }
        }
        if until_ticks.is_some() && self.ticks == target_ticks {
            return Ok(None);
        }
        self.approach_site(tid, site, goals, watching)
    }

    /// Runs the loaded thread to the hook of the next entry, or of a later one before entry number
    /// `before_entry`. Passes the entries between, which the code cache answers. Returns the reason
    /// if the run ended earlier; `None` at the hook of the entry at which the cursor is.
    fn run_to_hook(
        &mut self,
        tid: Tid,
        before_entry: u64,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<Option<MoveEnd>, Error> {
        loop {
            let offered = self.offer_answers(tid, before_entry, goals, watching)?;
            let left = offered.ticks.saturating_sub(self.ticks).clamp(FEW_TICKS, CHUNK_TICKS);
            // A budget even for few ticks: the thread stops at the hook in any case.
            let budget = self.epoch.engine.sampled_budget(left).unwrap_or(left);
            let begun = self.ticks;
            let glance_facts = GlanceFacts { goals, entry: None, cursors: Some(&offered.cursors) };
            let met = self.run_once_with(RunLimit::Budget(budget), Some(&glance_facts));
            // Also after a failed run: a difference in an answered entry explains it.
            let passed = self.pass_answered(tid, &offered, (begun, budget));
            let met = met?;
            passed?;
            // The ticks of the next entry, whose hook the thread must reach after them.
            let Some(ticks) = self.cursor.peek()?.map(|entry| entry.ticks) else {
                return Ok(Some(MoveEnd::NoMoreHistory));
            };
            if let Some(found) = self.move_end_of(&met, watching)? {
                return Ok(Some(found));
            }
            match met {
                EngineEvent::Hook if self.ticks == ticks => return Ok(None),
                EngineEvent::Hook => {
                    return Err(self.diverged(tid, "it makes a call that was not recorded"));
                }
                EngineEvent::Fault(info) => self.handle_fault(tid, &info)?,
                _ if self.ticks > ticks => {
                    return Err(self.diverged(tid, "it does not make the call that was recorded"));
                }
                _ => {}
            }
            if (goals.interrupted)() {
                return Ok(Some(MoveEnd::Interrupted));
            }
            if self.ticks < ticks
                && self.is_checkpoint_due()
                && let Some(found) = self.finish_tick(watching)?
            {
                return Ok(Some(found));
            }
        }
    }

    /// Runs the loaded thread to right after its next tick, unless it is right after one or at a
    /// hook, and keeps a checkpoint there if it is after a tick. Returns the reason if the run
    /// ended earlier.
    fn finish_tick(&mut self, watching: &mut Watching) -> Result<Option<MoveEnd>, Error> {
        if self.hook_here()?.is_none() && self.instructions != Some(0) {
            let met = self.run_once(RunLimit::Bound(Bound::Ticks(1)))?;
            if let Some(found) = self.move_end_of(&met, watching)? {
                return Ok(Some(found));
            }
        }
        self.keep_checkpoint_here().map(|()| None)
    }

    /// Runs the loaded thread to the site of its entry, which it reaches before its next tick.
    /// Returns the reason if the run ended earlier. Fails if the thread does not reach the site.
    fn approach_site(
        &mut self,
        tid: Tid,
        site: Site,
        goals: &Goals<'_>,
        watching: &mut Watching,
    ) -> Result<Option<MoveEnd>, Error> {
        let ticks = self.ticks;
        if let Site::Place(place) = site {
            if goals.stops.is_empty() && watching.is_empty() {
                return self.walk_to(tid, place).map(|()| None);
            }
            let found = self.walk_checking(tid, place, &mut |replay, ip| {
                let met = replay.epoch.first_met(watching)?.map(MoveEnd::Watch);
                Ok(met.or_else(|| goals.stops.contains(&ip).then_some(MoveEnd::Stop)))
            })?;
            return match found {
                None => Ok(self.epoch.first_met(watching)?.map(MoveEnd::Watch)),
                found => Ok(found),
            };
        }
        loop {
            if self.hook_here()?.is_some() {
                return Ok(None);
            }
            let met = self.run_once(RunLimit::Bound(Bound::Ticks(1)))?;
            if let Some(found) = self.move_end_of(&met, watching)? {
                return Ok(Some(found));
            }
            match met {
                EngineEvent::Hook => return Ok(None),
                EngineEvent::Fault(info) => self.handle_fault(tid, &info)?,
                _ if self.ticks != ticks => {
                    return Err(self.diverged(tid, "it does not make the call that was recorded"));
                }
                _ => {}
            }
        }
    }

    /// Returns the reason to end the move after a run in the engine: a stop, or a watch whose
    /// memory was accessed. `None` if the move goes on.
    fn move_end_of(
        &mut self,
        met: &EngineEvent,
        watching: &mut Watching,
    ) -> Result<Option<MoveEnd>, Error> {
        Ok(match met {
            EngineEvent::Stop => Some(MoveEnd::Stop),
            EngineEvent::MaybeWatch(is_at_stop) => {
                let met = self.epoch.first_met(watching)?.map(MoveEnd::Watch);
                met.or(is_at_stop.then_some(MoveEnd::Stop))
            }
            EngineEvent::Nothing | EngineEvent::Hook | EngineEvent::Fault(_) => None,
        })
    }

    /// Handles a fault that the recorded run did not have: extends the stack below whose end the
    /// thread accessed memory, so that it can run on; or fails, as the replay differs from the run.
    pub(super) fn handle_fault(&mut self, tid: Tid, info: &SiginfoBytes) -> Result<(), Error> {
        let number = siginfo::signal_of(info);
        let at = siginfo::fault_address(info).unwrap_or_default();
        if number == libc::SIGSEGV && self.epoch.grow_stack(at)? {
            return Ok(());
        }
        Err(self.diverged(tid, format!("it gets signal {number} for {at}")))
    }

    /// Runs the loaded thread for `ticks` ticks: by budgets, and by bounds once few are left. An
    /// event other than a limit ends this earlier. Returns it, or [`EngineEvent::Nothing`].
    fn run_ticks(
        &mut self,
        ticks: u64,
        glance_facts: &GlanceFacts<'_>,
    ) -> Result<EngineEvent, Error> {
        let goal = self.ticks + ticks;
        while self.ticks < goal {
            let left = goal - self.ticks;
            let bound = || RunLimit::Bound(Bound::Ticks(left));
            let budget = self.epoch.engine.sampled_budget(left);
            let limit = budget.map_or_else(bound, RunLimit::Budget);
            let met = self.run_once_with(limit, Some(glance_facts))?;
            if !matches!(met, EngineEvent::Nothing) {
                return Ok(met);
            }
        }
        Ok(EngineEvent::Nothing)
    }

    /// Runs the loaded thread once, without glances, up to `limit`, and adds its ticks to the
    /// position. It does not stop where it begins.
    pub(super) fn run_once(&mut self, limit: RunLimit) -> Result<EngineEvent, Error> {
        self.run_once_with(limit, None)
    }

    /// Runs the loaded thread once, up to `limit`. It does not stop where it begins, but a stop at
    /// the limit is reported. With `glance_facts`, its stops are glances if possible.
    fn run_once_with(
        &mut self,
        limit: RunLimit,
        glance_facts: Option<&GlanceFacts<'_>>,
    ) -> Result<EngineEvent, Error> {
        let (begun, ticks) = (self.ip()?, self.ticks);
        let met = self.run_in_engine(limit, glance_facts)?;
        if !matches!(met, EngineEvent::Nothing | EngineEvent::MaybeWatch(_)) {
            return Ok(met);
        }
        let ip = self.ip()?;
        let is_elsewhere = ip != begun || self.ticks != ticks;
        // A run that ends by its limit or a watch reports no stop at that place.
        let is_at_stop = is_elsewhere && self.epoch.engine.translator().is_stop(ip.0);
        Ok(match met {
            EngineEvent::MaybeWatch(_) => EngineEvent::MaybeWatch(is_at_stop),
            _ if is_at_stop => EngineEvent::Stop,
            met => met,
        })
    }

    /// Runs the loaded thread once in the engine, adds its ticks to the position, and returns why
    /// it ended. Then executes an instruction that the cache cannot execute and that is no hook, if
    /// the run ended there.
    fn run_in_engine(
        &mut self,
        limit: RunLimit,
        glance_facts: Option<&GlanceFacts<'_>>,
    ) -> Result<EngineEvent, Error> {
        let run = match glance_facts {
            Some(glance_facts) if glance_facts.are_worth_it(limit) => {
                self.run_with_glances(limit, glance_facts)?
            }
            _ => self.epoch.run(limit)?,
        };
        let (ran, info) = match run {
            RunOutcome::Ended(ran) => (ran, None),
            RunOutcome::Signal(ran, info) => (ran, Some(info)),
            RunOutcome::Other(_) | RunOutcome::IncompleteCall | RunOutcome::Glance(_) => {
                return Err(Error::Killed);
            }
        };
        let EndedRun { ticks, end, .. } = ran;
        self.count_ticks(ticks, limit, end);
        Ok(match end {
            RunEnd::Limit => EngineEvent::Nothing,
            RunEnd::Stop => EngineEvent::Stop,
            RunEnd::Native(Some(_)) => EngineEvent::Hook,
            RunEnd::Native(None) if self.hook_here()?.is_some() => EngineEvent::Hook,
            RunEnd::Native(None) => match self.step_natively()? {
                Some(info) => EngineEvent::Fault(Box::new(info)),
                // The instruction may have written to a watched page.
                None => EngineEvent::MaybeWatch(false),
            },
            RunEnd::Watchpoint => EngineEvent::MaybeWatch(false),
            RunEnd::Signal => match info {
                Some(info) if is_debug_trap(&info) => EngineEvent::MaybeWatch(false),
                Some(info) if siginfo::code_of(&info) > 0 => EngineEvent::Fault(Box::new(info)),
                // Another process sent it: it is dropped.
                _ => EngineEvent::Nothing,
            },
        })
    }

    /// Adds the ticks of a run to the position. The instructions since the last of them are known,
    /// as 0, only if the run ended at its bound of ticks: right after the last one.
    fn count_ticks(&mut self, ticks: u64, limit: RunLimit, end: RunEnd) {
        let is_reached = matches!(
            (limit, end),
            (RunLimit::Bound(Bound::Ticks(bound)), RunEnd::Limit | RunEnd::Stop)
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

/// Returns true if a signal (`info`: its `siginfo_t`) is a fault, raised by the instruction that
/// the thread is still at. A trap comes after its instruction. False if `info` is cut short.
fn is_fault(info: &[u8]) -> bool {
    let info: Option<&SiginfoBytes> = info.first_chunk();
    info.is_some_and(|info| {
        siginfo::fault_address(info).is_some() && siginfo::signal_of(info) != libc::SIGTRAP
    })
}
