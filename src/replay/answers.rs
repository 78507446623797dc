//! Answers system calls, and instructions that read counters, in the code cache, without a stop for
//! each: the recorded results are put there before a run, and what the thread did is compared with
//! the log after it.

use super::epoch::Epoch;
use super::error::Error;
use super::events::Site;
use super::goals::Goals;
use super::process::Replay;
use super::watches::Watching;
use crate::common::{Addr, AddrRange, Tid};
use crate::insn::Registers;
use crate::recording::log::{Current, Cursor, Entry, Happening, Write, check_of};
use crate::tracee::call_numbers::ARCH_PRCTL;
use crate::translate::Counter;
use std::collections::BTreeMap;

/// The next entries of one thread that the cache answers in a run.
pub(super) struct AnsweredRun {
    /// The entries that are answered in the cache.
    calls: Vec<Current>,
    /// The sum of the ticks of these entries and of the entry after them.
    pub(super) ticks: u64,
    /// The place in the log of each entry in `calls`, and of the entry after the last of them.
    pub(super) places: Vec<Cursor>,
}

/// The effects of a recorded system call or counter-reading instruction, for the cache to repeat.
struct Answer<'a> {
    /// The call's result, or the time-stamp counter that the instruction read.
    result: i64,
    /// RCX after the instruction, if it sets RCX.
    rcx: Option<u64>,
    writes: &'a [Write],
}

/// The counter that the instruction before each address reads; `None` if it reads none. Valid as
/// long as the program executes nothing.
type KnownCounters = BTreeMap<u64, Option<Counter>>;

impl Replay {
    /// Offers answers for the next entries of the loaded thread, as long as they have only effects
    /// that the cache can repeat, no goal ends the run there, and they are before entry number
    /// `last`. The thread stops at the instruction of the entry after them.
    pub(super) fn answer_ahead(
        &mut self,
        tid: Tid,
        last: u64,
        goals: &Goals<'_>,
        watching: &Watching,
    ) -> Result<AnsweredRun, Error> {
        let mut answers = self.epoch.engine.no_answers(&self.epoch.thread);
        let rcx_at = self.epoch.engine.rcx_of_answer(&self.epoch.thread);
        let mut known = KnownCounters::new();
        let mut cursor = self.cursor.clone();
        let mut ahead = AnsweredRun { calls: Vec::new(), ticks: 0, places: Vec::new() };
        while cursor.index() < last || ahead.calls.is_empty() {
            let index = cursor.index();
            let Some(entry) = cursor.current()?.filter(|entry| entry.tid == tid) else { break };
            if !ahead.calls.is_empty() && self.site_of(&entry) != Site::Hook {
                break;
            }
            ahead.ticks = ahead.ticks.saturating_add(entry.ticks);
            let ends = self.event_before(index, goals).or_else(|| self.event_after(index, goals));
            let answer =
                self.epoch.answer_of(&entry, watching, &mut known).filter(|_| ends.is_none());
            let is_answered = answer.is_some_and(|answer| {
                let rcx = answer.rcx.map(u64::to_le_bytes);
                let rcx = rcx.iter().map(|bytes| (rcx_at.0, &bytes[..]));
                let writes = answer.writes.iter().map(|write| (write.addr.0, &write.bytes.0[..]));
                answers.push(answer.result, rcx.chain(writes))
            });
            ahead.calls.push(entry);
            ahead.places.push(cursor.clone());
            if !is_answered {
                break;
            }
            cursor.skip()?;
        }
        // The thread stops at the last entry, so its answer is taken back if it has one.
        ahead.calls.pop();
        while answers.len() > ahead.calls.len() {
            answers.pop();
        }
        if !answers.is_empty() {
            self.epoch.engine.offer_answers(&self.epoch.thread, &answers);
        }
        Ok(ahead)
    }

    /// Compares what the cache answered in a run with the log, and moves past those entries;
    /// `self.ticks` then counts from the last of them. The run began with these ticks and this
    /// budget. Fails at the first difference.
    pub(super) fn note_answered(
        &mut self,
        tid: Tid,
        ahead: &AnsweredRun,
        (mut ticks, mut budget): (u64, u64),
    ) -> Result<(), Error> {
        if ahead.calls.is_empty() {
            return Ok(());
        }
        let thread = &self.epoch.thread;
        let now = || thread.tracee.registers().ok();
        let made = self.epoch.engine.take_answered_calls(thread, now);
        let mut seen = 0;
        for (call, entry) in made.iter().zip(&ahead.calls) {
            // The program can write to the log.
            ticks = ticks.wrapping_add(budget.wrapping_sub(call.budget));
            if ticks != entry.ticks || check_of(&call.registers) != entry.check {
                let (ip, what) = (Addr(call.registers.rip), "its registers are others".to_owned());
                self.go_on_at(ahead, seen);
                self.ticks = ticks;
                return Err(Error::Diverged { position: self.position(), tid, ip, what });
            }
            seen += 1;
            self.ticks = self.ticks.saturating_sub(entry.ticks);
            (ticks, budget) = (0, call.budget);
        }
        self.go_on_at(ahead, seen);
        Ok(())
    }

    fn go_on_at(&mut self, ahead: &AnsweredRun, number: usize) {
        if let Some(place) = ahead.places.get(number) {
            self.cursor = place.clone();
        }
    }
}

impl Epoch {
    /// Returns the effects of an entry's system call or instruction. `None` if the cache cannot
    /// repeat them, for instance changes of mappings, of code or of memory that is watched.
    fn answer_of<'a>(
        &self,
        entry: &'a Entry,
        watching: &Watching,
        known: &mut KnownCounters,
    ) -> Option<Answer<'a>> {
        let (number, done) = match &entry.happening {
            Happening::Call { number, done } => (number, done),
            Happening::Executes { registers, extended: None, writes } if writes.is_empty() => {
                let after = Registers::from(**registers);
                let counter =
                    *known.entry(after.rip).or_insert_with(|| self.counter_before(after.rip));
                return counter.map(|counter| Answer::of_counter(counter, &after));
            }
            _ => return None,
        };
        let is_plain = |write: &Write| {
            let range = AddrRange::sized(write.addr, write.bytes.0.len() as u64);
            write.bytes.0.is_empty() || self.is_plain(range) && !watching.is_near(range)
        };
        let sets_more = *number == ARCH_PRCTL || done.state.is_some() || !done.maps.is_empty();
        let is_answered = !sets_more && done.writes.iter().all(is_plain);
        is_answered.then_some(Answer { result: done.result, rcx: None, writes: &done.writes })
    }

    /// Returns the counter that the instruction before an address reads; `None` if it reads none.
    fn counter_before(&self, rip: u64) -> Option<Counter> {
        let mut bytes = [0; 3];
        let at = Addr(rip.wrapping_sub(bytes.len() as u64));
        let known = self.engine.read_visible(at, &mut bytes) == bytes.len();
        Counter::before(bytes).filter(|_| known)
    }
}

impl Answer<'_> {
    /// Returns the effects of an instruction that read a counter and left these registers.
    fn of_counter(counter: Counter, after: &Registers) -> Self {
        let result = (after.rdx << 32 | after.rax).cast_signed();
        let rcx = (counter == Counter::TscAux).then_some(after.rcx);
        Self { result, rcx, writes: &[] }
    }
}
