//! Answers system calls, and instructions that read counters (RDTSC, RDTSCP), in the code cache,
//! without a stop for each. These are *hooks*, instructions at which an entry of the log happens.
//! Before a run, [`Replay::offer_answers`] writes the recorded effects of the next entries to
//! memory of the cache, whose code applies one at each such instruction. After the run,
//! [`Replay::pass_answered`] compares the registers and ticks that the cache noted there with the
//! log, and moves the cursor past the answered entries.

use super::epoch::Epoch;
use super::error::Error;
use super::events::Site;
use super::goals::Goals;
use super::process::Replay;
use super::watches::Watching;
use crate::common::{Addr, AddrRange, Tid};
use crate::insn::Registers;
use crate::recording::log::{Cursor, Entry, LogEvent, SharedEntry, Write, check_of};
use crate::tracee::call_numbers::ARCH_PRCTL;
use crate::translate::Counter;
use std::collections::BTreeMap;

/// The next entries of one thread that the cache can answer in a run. The run may end before it has
/// reached all of them.
pub(super) struct OfferedAnswers {
    /// The entries that are answered in the cache.
    entries: Vec<SharedEntry>,
    /// The ticks from the replay's last entry to the entry after those in `entries`, at which the
    /// thread stops.
    pub(super) ticks: u64,
    /// The place in the log of each entry in `entries`, and of the entry after the last of them.
    pub(super) cursors: Vec<Cursor>,
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
    /// Writes answers to the code cache for the next entries, as long as they are of the loaded
    /// thread `tid`, have only effects that the cache can repeat, no goal ends the run there, and
    /// the entry after them is of the thread, too, at a hook, and has a number below
    /// `before_entry`. Returns them, perhaps none. In the run that follows, the thread stops at the
    /// instruction of the entry after them, which is never answered. The cursor stays.
    pub(super) fn offer_answers(
        &mut self,
        tid: Tid,
        before_entry: u64,
        goals: &Goals<'_>,
        watching: &Watching,
    ) -> Result<OfferedAnswers, Error> {
        let mut answers = self.epoch.engine.empty_answers(&self.epoch.thread);
        let rcx_at = self.epoch.engine.rcx_slot_address(&self.epoch.thread);
        let mut known = KnownCounters::new();
        let mut cursor = self.cursor.clone();
        let mut offered = OfferedAnswers { entries: Vec::new(), ticks: 0, cursors: Vec::new() };
        while cursor.index() < before_entry || offered.entries.is_empty() {
            let index = cursor.index();
            let Some(entry) = cursor.current()?.filter(|entry| entry.tid == tid) else { break };
            if !offered.entries.is_empty() && self.site_of(&entry) != Site::Hook {
                break;
            }
            offered.ticks = offered.ticks.saturating_add(entry.ticks);
            let goal = self.event_before(index, goals).or_else(|| self.event_after(index, goals));
            let answer =
                self.epoch.answer_of(&entry, watching, &mut known).filter(|_| goal.is_none());
            let is_answered = answer.is_some_and(|answer| {
                let rcx = answer.rcx.map(u64::to_le_bytes);
                let rcx = rcx.iter().map(|bytes| (rcx_at.0, &bytes[..]));
                let writes = answer.writes.iter().map(|write| (write.addr.0, &write.bytes.0[..]));
                answers.push(answer.result, rcx.chain(writes))
            });
            offered.entries.push(entry);
            offered.cursors.push(cursor.clone());
            if !is_answered {
                break;
            }
            cursor.skip()?;
        }
        // The thread stops at the last entry, so its answer is taken back if it has one.
        offered.entries.pop();
        while answers.len() > offered.entries.len() {
            answers.pop();
        }
        if !answers.is_empty() {
            self.epoch.engine.offer_answers(&self.epoch.thread, &answers);
        }
        Ok(offered)
    }

    /// Compares the instructions that the cache answered in a run with the log, and moves past
    /// their entries; `self.ticks` then counts from the last of them. The run began with these
    /// ticks since the last entry, and this budget of ticks. Fails at the first difference, where
    /// the replay then is.
    pub(super) fn pass_answered(
        &mut self,
        tid: Tid,
        offered: &OfferedAnswers,
        (mut ticks, mut budget): (u64, u64),
    ) -> Result<(), Error> {
        if offered.entries.is_empty() {
            return Ok(());
        }
        let thread = &self.epoch.thread;
        let now = || thread.tracee.registers().ok();
        let answered = self.epoch.engine.take_answered_calls(thread, now);
        let mut passed = 0;
        for (call, entry) in answered.iter().zip(&offered.entries) {
            // The budget falls by one at each tick. The program can overwrite the noted values.
            ticks = ticks.wrapping_add(budget.wrapping_sub(call.budget));
            if ticks != entry.ticks || check_of(&call.registers) != entry.check {
                let (ip, what) = (Addr(call.registers.rip), "its registers are others".to_owned());
                self.move_to_offered(offered, passed);
                self.ticks = ticks;
                return Err(Error::Diverged { position: self.position(), tid, ip, what });
            }
            passed += 1;
            self.ticks = self.ticks.saturating_sub(entry.ticks);
            (ticks, budget) = (0, call.budget);
        }
        self.move_to_offered(offered, passed);
        Ok(())
    }

    /// Moves the cursor to the offered entry with this index; to the entry after them if the index
    /// is their number.
    fn move_to_offered(&mut self, offered: &OfferedAnswers, number: usize) {
        if let Some(cursor) = offered.cursors.get(number) {
            self.cursor = cursor.clone();
        }
    }
}

impl Epoch {
    /// Returns the effects of an entry's system call or instruction. `None` if the cache cannot
    /// repeat them: those of other events, of other instructions than counter reads, of
    /// `arch_prctl(2)`, or of a call that blocked, or changes mappings, other registers than RAX,
    /// memory that is not plain data ([`Self::is_plain_data`]), or a page with a watch.
    fn answer_of<'a>(
        &self,
        entry: &'a Entry,
        watching: &Watching,
        known: &mut KnownCounters,
    ) -> Option<Answer<'a>> {
        let (number, effects) = match &entry.event {
            LogEvent::Call { number, effects } => (number, effects),
            LogEvent::Executes { registers, extended: None, writes } if writes.is_empty() => {
                let after = Registers::from(**registers);
                let counter =
                    *known.entry(after.rip).or_insert_with(|| self.counter_before(after.rip));
                return counter.map(|counter| Answer::of_counter(counter, &after));
            }
            _ => return None,
        };
        let is_plain = |write: &Write| {
            let range = AddrRange::sized(write.addr, write.bytes.0.len() as u64);
            write.bytes.0.is_empty() || self.is_plain_data(range) && !watching.is_on_pages_of(range)
        };
        let sets_more =
            *number == ARCH_PRCTL || effects.state.is_some() || !effects.maps.is_empty();
        let is_answered = !sets_more && effects.writes.iter().all(is_plain);
        is_answered.then_some(Answer { result: effects.result, rcx: None, writes: &effects.writes })
    }

    /// Returns the counter that the instruction before an address reads; `None` if it reads none or
    /// cannot be read itself.
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
