//! Glances: stops at which a thread waits in the code cache for its tracer's answer: to go on, or
//! to stop. A search passes most stops, and a glance takes a fraction of the time of a stop.
//!
//! [`Replay::run_with_glances`] runs a thread. At each glance, it finds the thread's position
//! ([`Replay::position_of_tick`]) and asks the goals, of which the verdict is one of three:
//! - The goals pass the stop: the thread goes on, unless the user interrupts the run.
//! - They accept it: the thread stops, and the move ends there.
//! - `None`: they cannot decide yet, since only the general registers and memory are known at a
//!   glance. The thread stops, and they are asked again ([`Replay::is_accepted`]).
//!
//! Before a glance, the code cache may have *answered* entries of the log: applied their effects
//! itself ([`super::answers`]). They are before the thread's position, though the replay's cursor
//! only passes them after the run.

use super::error::Error;
use super::events::Site;
use super::glancing::GlancingThread;
use super::goals::GlanceFacts;
use super::position::Position;
use super::process::Replay;
use crate::engine::{Glance, RunLimit, RunOutcome};
use crate::translate::GlanceAnswer;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;

/// True if tracer and thread may run at the same time. Finding out takes as long as a stop, so it
/// is done once.
static HAS_CPUS: LazyLock<bool> =
    LazyLock::new(|| available_parallelism().is_ok_and(|count| count.get() > 1));

impl GlanceFacts<'_> {
    /// Returns true if the stops of a run with this limit may be glances: there are stops, the
    /// limit is a budget (a run up to a bound ends at every stop), and the machine has several
    /// CPUs, so that tracer and thread can run at the same time.
    pub(super) fn are_worth_it(&self, limit: RunLimit) -> bool {
        let has_budget = matches!(limit, RunLimit::Budget(_));
        has_budget && !self.goals.stops.is_empty() && *HAS_CPUS
    }
}

impl Replay {
    /// Returns true if a thread waits at a glance and has to stop, since [`Replay::thread`] was
    /// called for it, which needs more than its general registers. For [`Goals::accepts`].
    ///
    /// [`Goals::accepts`]: super::Goals::accepts
    pub fn needs_stop(&self) -> bool {
        self.glancing.as_ref().is_some_and(|glanced| glanced.needs_stop.load(Ordering::Relaxed))
    }

    /// Runs the loaded thread once. At a glance, it goes on if the goals pass the stop and the user
    /// does not interrupt; otherwise it stops there, and `self.glance_verdict` is the goals'
    /// answer: `None` if they cannot decide yet. A run without a glance leaves the verdict as it
    /// is. Allows both threads all CPUs, since they run at the same time.
    pub(super) fn run_with_glances(
        &mut self,
        limit: RunLimit,
        glance_facts: &GlanceFacts<'_>,
    ) -> Result<RunOutcome, Error> {
        self.epoch.one_cpu.unpin(self.epoch.thread.tid());
        let mut running = self.epoch.engine.begin_run(&mut self.epoch.thread, limit)?;
        self.epoch.engine.allow_glances(&self.epoch.thread, &mut running)?;
        self.epoch.thread.tracee.resume(0)?;
        loop {
            let run = self.epoch.engine.serve_run(&mut self.epoch.thread, &mut running, None)?;
            let RunOutcome::Glance(glance) = run else { return Ok(run) };
            let verdict = self.judge(&glance, glance_facts);
            let passes = verdict == Some(false) && !(glance_facts.goals.interrupted)();
            let answer = if passes { GlanceAnswer::Pass } else { GlanceAnswer::Stop };
            // A thread that has waited too long stops without an answer.
            let is_in_time = self.epoch.engine.answer_glance(&self.epoch.thread, answer);
            let has_passed = passes && is_in_time;
            self.glance_verdict = verdict.filter(|_| !has_passed);
        }
    }

    /// Returns true if the goals accept the stop of a thread that waits at a glance. `None`: the
    /// thread has to stop before they can decide.
    fn judge(&mut self, glance: &Glance, glance_facts: &GlanceFacts<'_>) -> Option<bool> {
        let position = self.position_of_tick(glance, glance_facts)?;
        let registers = glance.registers;
        self.glancing =
            Some(GlancingThread { registers, position, needs_stop: AtomicBool::new(false) });
        let accepts = (glance_facts.goals.accepts)(self);
        let needs_stop = self.needs_stop();
        self.glancing = None;
        (!needs_stop).then_some(accepts)
    }

    /// Returns the position of the last tick of a thread that waits at a glance, without the
    /// instructions since then. `None` if an entry of the log may happen to it there before it
    /// executes the instruction, or if the number of answered entries, which the program can
    /// overwrite, makes no sense.
    fn position_of_tick(
        &self,
        glance: &Glance,
        glance_facts: &GlanceFacts<'_>,
    ) -> Option<Position> {
        // The glance's ticks are since the last answered entry; before the first one, they are
        // added to those of the position.
        let begun = if glance.answered == 0 { self.ticks } else { 0 };
        let ticks = begun.checked_add(glance.ticks)?;
        // In a run to a hook, `cursors[n]` is at the entry that is next after `n` answered ones. In
        // other runs, nothing is answered.
        let entry = match glance_facts.cursors {
            Some(cursors) => cursors.get(usize::try_from(glance.answered).ok()?)?.index(),
            None => self.cursor.index(),
        };
        // The thread may be at the site of the next entry, which happens to it first.
        if let Some(next) = glance_facts.entry
            && let Site::Place(_) = self.site_of(next)
            && next.ticks <= ticks
        {
            return None;
        }
        Some(Position { entry, ticks, instructions: 0 })
    }
}
