//! Moves backwards: by single instructions ([`Replay::step_back`]), and to the last hit of a goal
//! before a position ([`Replay::run_back`]).
//!
//! The instruction before a position is usually in the same *interval*, the part of the run before
//! one entry of the log; [`Replay::undo_one`] or a seek moves there. At the beginning of the
//! interval, it is at the *site* where the thread's entry before happened, such as its SYSCALL.
//!
//! A search goes from the last checkpoint to the position forward, and notes all *hits* of the
//! goals and watches on the way ([`Replay::hits_until`]): where a run forward would end. The last
//! one is the result. If there is none, the part before that checkpoint is searched, and so on. If
//! there are many, the search keeps a checkpoint halfway to the position, and begins anew from
//! there. The other hits are kept for the user's next search ([`Hits`]).

use super::error::Error;
use super::events::Site;
use super::forward::Advanced;
use super::goals::{Goals, MoveEnd};
use super::outline::KernelEvent;
use super::position::Position;
use super::process::Replay;
use super::watches::{InsnAccesses, Watch};
use crate::common::{Addr, Tid};
use crate::recording::log::LogEvent;
use std::collections::BTreeSet;

/// A hit of a search: in the tick that begins after `entry` entries and `ticks` ticks, where the
/// next instruction is at `ip`. A watch was met by the instruction or entry before that.
#[derive(Clone, Copy, Debug)]
struct Hit {
    entry: u64,
    ticks: u64,
    ip: Addr,
    found: MoveEnd,
}

/// The hits of a search that the user has not seen yet, and the goals for which they are valid.
#[derive(Debug)]
pub(super) struct Hits {
    /// The position of the hit that was returned last: the user's position.
    at: Position,
    /// The hits between `begin` and `at`, in the order of the run.
    before: Vec<Hit>,
    /// The position from which on all hits are known.
    begin: Position,
    stops: BTreeSet<Addr>,
    key: u64,
    watches: Vec<Watch>,
}

impl Hits {
    /// Returns no hits, with nothing searched yet before `at`.
    fn new(at: Position, goals: &Goals<'_>, watches: &[Watch]) -> Self {
        let (stops, key) = (goals.stops.clone(), goals.key);
        Self { at, before: Vec::new(), begin: at, stops, key, watches: watches.to_vec() }
    }

    /// Returns true if these are the hits of a search from `here` for the same goals and watches.
    fn are_of_search(&self, here: Position, goals: &Goals<'_>, watches: &[Watch]) -> bool {
        let same = self.at == here && self.key == goals.key;
        same && self.stops == *goals.stops && self.watches == watches
    }
}

/// The result of a search through a part of the run.
enum Searched {
    /// All hits of this part, in the order of the run.
    All(Vec<Hit>),
    /// There are many hits. Only the last one is wanted: the search is to begin anew at this later
    /// position.
    Many(Position),
    /// The user interrupted the search.
    Interrupted,
}

/// The number of hits from which on a search begins anew halfway from the last of them to its end.
const MANY_HITS: usize = 20;
/// The minimum distance, in moments ([`Replay::moment`]), from the last hit to such a position.
const MIN_SKIPPED_MOMENTS: u64 = 500;

impl Replay {
    /// Moves back by one instruction or system call of a thread, and returns what that met: a
    /// watch, an act of the kernel that is a goal, or [`MoveEnd::Target`] for nothing. Returns
    /// [`MoveEnd::NoMoreHistory`] at the thread's first instruction. The stops of `goals` have no
    /// effect. From the end of the run, this may take long ([`Replay::prepare`]); if the user
    /// interrupts that, the replay stays at the end, and this returns [`MoveEnd::Interrupted`].
    pub fn step_back(
        &mut self,
        tid: Tid,
        goals: &Goals<'_>,
        watches: &[Watch],
    ) -> Result<MoveEnd, Error> {
        self.prepare(goals.interrupted);
        if self.needs_preparation() {
            return Ok(MoveEnd::Interrupted);
        }
        let mut watching = self.epoch.watch(watches)?;
        self.epoch.unwatch()?;
        let after = self.registers_of(tid)?;
        if !self.go_one_back(tid)? {
            return Ok(MoveEnd::NoMoreHistory);
        }
        let changed = self.epoch.changed(&mut watching).first().copied();
        let before = self.registers_of(tid)?;
        let is_executed = match self.cursor.current()? {
            Some(entry) => entry.tid == tid && !self.is_at_site(&entry)?,
            None => false,
        };
        let read = || {
            let code = self.bytes_at(before.rip.into());
            watching.first_access_by(&InsnAccesses::of(&code, &before, &after))
        };
        if let Some(number) = changed.or_else(|| if is_executed { read() } else { None }) {
            return Ok(MoveEnd::Watch(number));
        }
        Ok(self.event_here(tid, goals)?.map_or(MoveEnd::Target, MoveEnd::Event))
    }

    /// Returns the act of the kernel that is about to happen to a thread at the current position,
    /// or has just happened, if it is a goal.
    fn event_here(&mut self, tid: Tid, goals: &Goals<'_>) -> Result<Option<KernelEvent>, Error> {
        let goals = Goals { passed: None, ..*goals };
        if let Some(entry) = self.cursor.current()?
            && entry.tid == tid
            && self.is_at_site(&entry)?
            && let Some(event) = self.event_ahead(&goals)
        {
            return Ok(Some(event));
        }
        let is_after =
            self.last_to_advance()? == Some(tid) && (self.ticks, self.instructions) == (0, Some(0));
        Ok(if is_after { self.event_passed(&goals) } else { None })
    }

    /// Moves back by one instruction of a thread: by the undo log if possible, otherwise by a seek.
    /// Returns false, and stays, at its first one.
    fn go_one_back(&mut self, tid: Tid) -> Result<bool, Error> {
        self.is_at_end = false;
        let here = self.exact_position()?;
        let is_running = self.next_thread()? == Some(tid);
        if is_running && (here.ticks, here.instructions) > (0, 0) && self.undo_one(here)? {
            return Ok(true);
        }
        let target = if is_running && (here.ticks, here.instructions) > (0, 0) {
            self.instruction_before(here)?
        } else {
            match self.outline.last_entry_of(tid, here.entry) {
                Some(entry) if entry >= self.first().entry => self.last_attempt_before(entry)?,
                _ => None,
            }
        };
        match target {
            Some(target) => self.seek(target).map(|()| true),
            None => self.seek(here).map(|()| false),
        }
    }

    /// Returns the position of the instruction before `here`, in the same interval between two
    /// entries of the log; `None` if the replay does not find it. `here` must not be right after an
    /// entry. May move the replay.
    fn instruction_before(&mut self, here: Position) -> Result<Option<Position>, Error> {
        if here.instructions > 0 {
            let instructions = here.instructions - 1;
            return Ok(Some(Position { instructions, ..here }));
        }
        // The tick itself, which is the last instruction before `here`.
        let ticks = here.ticks - 1;
        self.seek(Position { ticks, ..here })?;
        let mut count = 0;
        while !self.is_tick_here()? {
            if !self.step_insn()? {
                return Ok(None);
            }
            count += 1;
        }
        Ok(Some(Position { entry: here.entry, ticks, instructions: count }))
    }

    /// Returns the position of the last instruction that the thread of `entry` attempted before the
    /// entry, or in it: usually the entry's site, such as a SYSCALL. If the entry does not execute
    /// anything, it is the instruction before. `None` if there is none. Moves the replay.
    fn last_attempt_before(&mut self, mut entry: u64) -> Result<Option<Position>, Error> {
        loop {
            self.seek(Position::after_entries(entry))?;
            let Some(next) = self.cursor.current()? else { return Ok(None) };
            let site = self.site_of(&next);
            if site == Site::Anywhere {
                let in_call = self.epoch.contexts.get(next.tid).is_some_and(|c| c.call.is_some());
                // The thread is in a call that it entered before others ran, or its memory becomes
                // foreign, where nothing is executed.
                let is_between = matches!(next.event, LogEvent::Foreign { .. });
                match self.outline.last_entry_of(next.tid, entry).filter(|_| in_call || is_between)
                {
                    Some(before) => entry = before,
                    None => return Ok(None),
                }
                continue;
            }
            self.seek(Position { entry, ticks: next.ticks, instructions: 0 })?;
            if !self.walk_to_site(next.tid, site)? {
                return Ok(None);
            }
            let at = self.position();
            let stays = matches!(
                next.event,
                LogEvent::Switch { .. }
                    | LogEvent::Signal { handler: None, .. }
                    | LogEvent::Changed { state: None, .. }
            );
            if !stays {
                return Ok(Some(at));
            }
            // The thread is there before and after the entry: the instruction before that.
            if (at.ticks, at.instructions) > (0, 0) {
                return self.instruction_before(at);
            }
            match self.outline.last_entry_of(next.tid, entry) {
                Some(before) => entry = before,
                None => return Ok(None),
            }
        }
    }

    /// Runs the loaded thread `tid` to a site, which must be before its next tick: to its place, or
    /// without one to the next instruction with a hook. Returns false if an instruction faults
    /// before a hook; fails if the thread does not reach a place.
    fn walk_to_site(&mut self, tid: Tid, site: Site) -> Result<bool, Error> {
        if let Site::Place(place) = site {
            return self.walk_to(tid, place).map(|()| true);
        }
        while self.hook_here()?.is_none() {
            if !self.step_insn()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Runs backwards to the last goal before the position, to right before the last access that
    /// meets a watch, or to the beginning. Returns which. If the user interrupts it, the replay is
    /// at a position after which nothing was found.
    pub fn run_back(&mut self, goals: &Goals<'_>, watches: &[Watch]) -> Result<MoveEnd, Error> {
        let here = self.exact_position()?;
        if goals.stops.is_empty() && watches.is_empty() {
            return self.run_back_to_event(here, goals);
        }
        let ip = self.ip()?;
        let known = self.hits.take().filter(|hits| hits.are_of_search(here, goals, watches));
        let mut hits = known.unwrap_or_else(|| Hits::new(here, goals, watches));
        loop {
            while let Some(hit) = hits.before.pop() {
                self.go_to_hit(&hit, watches)?;
                hits.at = self.position();
                // A stop from which nothing is executed up to the user's place is the same place.
                let is_place = matches!(hit.found, MoveEnd::Stop | MoveEnd::Event(_));
                if hits.at < here && !(is_place && self.only_entries_lead_to(here, ip)?) {
                    self.hits = Some(hits);
                    return Ok(hit.found);
                }
            }
            let end = hits.begin;
            let begin = self.resume_point_before(end)?;
            if end <= self.first() {
                self.seek(self.first())?;
                return Ok(MoveEnd::NoMoreHistory);
            }
            self.seek(begin)?;
            match self.hits_until(end, goals, watches)? {
                Searched::All(found) => (hits.before, hits.begin) = (found, begin),
                // The search begins anew from there.
                Searched::Many(later) => {
                    self.seek(later)?;
                    self.keep_checkpoint_here()?;
                }
                Searched::Interrupted => {
                    self.seek(end)?;
                    return Ok(MoveEnd::Interrupted);
                }
            }
        }
    }

    /// Returns true if both the current position and `later`, whose thread is at `ip`, are right
    /// after entries, and only entries of one thread are between, at which it executes nothing,
    /// such as `LogEvent::Changed`. False if `later` is not after the current position, or if one
    /// of the two is in an interval: such positions are not compared.
    fn only_entries_lead_to(&self, later: Position, ip: Addr) -> Result<bool, Error> {
        let at = self.position();
        let are_at_entries = [at, later].iter().all(|p| (p.ticks, p.instructions) == (0, 0));
        let is_one = self.outline.are_at_one_place(at.entry, later.entry);
        Ok(are_at_entries && is_one && self.ip()? == ip)
    }

    /// Moves back to the last act of the kernel that is a goal; if there is none, moves to the
    /// beginning and returns [`MoveEnd::NoMoreHistory`]. The log has all acts, so only the interval
    /// before the act is run. If that is interrupted, the replay stays at `here`, the current
    /// position.
    fn run_back_to_event(&mut self, here: Position, goals: &Goals<'_>) -> Result<MoveEnd, Error> {
        let ip = self.ip()?;
        for entry in (self.first().entry..=here.entry).rev() {
            let after = entry.checked_sub(1).and_then(|last| self.outline.event_after(last));
            let at = Position::after_entries(entry);
            if let Some(event) = after.filter(|event| at < here && (goals.events)(*event)) {
                self.seek(at)?;
                if !self.only_entries_lead_to(here, ip)? {
                    return Ok(MoveEnd::Event(event));
                }
            }
            let before = entry.checked_sub(1).and_then(|last| self.outline.event_before(last));
            if before.is_some_and(|event| (goals.events)(event)) {
                self.seek(Position::after_entries(entry - 1))?;
                let until = Goals { stops: &BTreeSet::new(), passed: None, ..*goals };
                let found = self.run_forward(&until, &[])?;
                if found == MoveEnd::Interrupted {
                    self.seek(here)?;
                }
                return Ok(found);
            }
        }
        self.seek(self.first())?;
        Ok(MoveEnd::NoMoreHistory)
    }

    /// Returns the last position before `end` from which the replay can continue: that of a regular
    /// checkpoint, or of the beginning of the process. If the process begins too late, replaces it
    /// first, which moves the replay.
    fn resume_point_before(&mut self, end: Position) -> Result<Position, Error> {
        let number = self.outline.epoch_before(end);
        let begins = Position::after_entries(self.epoch.begins);
        let is_too_late = end <= begins && begins > self.outline.first_position_of(number);
        if number != self.number || is_too_late {
            let is_at_entry = (end.ticks, end.instructions) == (0, 0);
            let last = end.entry.saturating_sub(is_at_entry.into());
            self.load_before(number, Position::after_entries(last))?;
        }
        let before = self.epoch.checkpoints.last_regular_before(end);
        Ok(before.unwrap_or(Position::after_entries(self.epoch.begins)))
    }

    /// Runs from the current position to `end`, and returns the hits on the way, without one at
    /// `end`. Ends early if there are many, or if the user interrupts it.
    fn hits_until(
        &mut self,
        end: Position,
        goals: &Goals<'_>,
        watches: &[Watch],
    ) -> Result<Searched, Error> {
        // An earlier run may have left the decision of other goals.
        self.glance_verdict = None;
        let mut watching = self.epoch.watch(watches)?;
        self.switch_to_next_thread()?;
        let ip = self.ip()?;
        let (mut hits, mut goals) = (Vec::new(), Goals { passed: None, ..*goals });
        if self.position() < end && goals.stops.contains(&ip) && self.is_accepted(&goals)? {
            hits.push(self.hit(MoveEnd::Stop)?);
        }
        let until = Some((end.entry, end.ticks));
        loop {
            match self.run_until_watched(until, &goals, &mut watching)? {
                MoveEnd::Target | MoveEnd::NoMoreHistory => break,
                MoveEnd::Interrupted => {
                    self.epoch.unwatch()?;
                    return Ok(Searched::Interrupted);
                }
                found => {
                    hits.push(self.hit(found)?);
                    if matches!(found, MoveEnd::Event(event) if event.is_ahead()) {
                        goals.passed = Some(self.cursor.index());
                        continue;
                    }
                    // The next run would pass a stop here.
                    let is_passed = matches!(found, MoveEnd::Watch(_) | MoveEnd::Event(_))
                        && (self.cursor.index(), self.ticks) < (end.entry, end.ticks);
                    if is_passed && self.is_at_stop(goals.stops)? && self.is_accepted(&goals)? {
                        hits.push(self.hit(MoveEnd::Stop)?);
                    }
                }
            }
            if hits.len() >= MANY_HITS
                && let Some(later) = self.halfway_to(end)
            {
                self.epoch.unwatch()?;
                return Ok(Searched::Many(later));
            }
        }
        if self.instructions.is_none() {
            self.epoch.unwatch()?;
            self.exact_position()?;
            watching = self.epoch.watch(watches)?;
        }
        self.switch_to_next_thread()?;
        while self.position() < end && self.ticks == end.ticks && self.cursor.index() == end.entry {
            let ip = self.ip()?;
            if goals.stops.contains(&ip) && self.is_accepted(&goals)? {
                hits.push(self.hit(MoveEnd::Stop)?);
            }
            if self.hook_here()?.is_some() {
                break;
            }
            if let Advanced::Watch(number) = self.advance(&mut watching)? {
                hits.push(self.hit(MoveEnd::Watch(number))?);
            }
        }
        self.epoch.unwatch()?;
        Ok(Searched::All(hits))
    }

    /// Returns the position halfway, in moments, from the current one to `end`; `None` if that is
    /// near, or in another program.
    fn halfway_to(&self, end: Position) -> Option<Position> {
        let (here, end) = (self.moment(self.position()), self.moment(end));
        let half = end.saturating_sub(here) / 2;
        let later = self.position_of_moment(here + half);
        (half > MIN_SKIPPED_MOMENTS && self.outline.epoch_of(later.entry) == self.number)
            .then_some(later)
    }

    /// Returns a hit at the current position. Loads the thread that is next there.
    fn hit(&mut self, found: MoveEnd) -> Result<Hit, Error> {
        self.switch_to_next_thread()?;
        Ok(Hit { entry: self.cursor.index(), ticks: self.ticks, ip: self.ip()?, found })
    }

    /// Moves to a hit: to its instruction, or, for a watch, to right before the access.
    fn go_to_hit(&mut self, hit: &Hit, watches: &[Watch]) -> Result<(), Error> {
        let at = Position { entry: hit.entry, ticks: hit.ticks, instructions: 0 };
        self.seek(at)?;
        self.walk_to_ip(hit.ip)?;
        if !matches!(hit.found, MoveEnd::Watch(_)) {
            return Ok(());
        }
        let end = self.exact_position()?;
        if let Some(access) = self.last_access_before(end, watches)? {
            return self.seek(access.start);
        }
        if self.position() != end {
            self.seek(end)?;
        }
        if let Some(tid) = self.last_to_advance()? {
            self.go_one_back(tid)?;
        }
        Ok(())
    }
}
