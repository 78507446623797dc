//! Glances: stops at which a thread waits in the code cache until the goals accept or pass them. A
//! search passes most stops, and a glance takes a fraction of the time of a stop.

use super::error::Error;
use super::events::Site;
use super::goals::GlanceFacts;
use super::position::Position;
use super::process::Replay;
use super::stand::Glanced;
use crate::engine::{Distance, Glance, Run};
use crate::translate::GlanceAnswer;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;

/// True if tracer and thread may run at the same time. Finding out takes as long as a stop, so it
/// is done once.
static HAS_CPUS: LazyLock<bool> =
    LazyLock::new(|| available_parallelism().is_ok_and(|count| count.get() > 1));

impl GlanceFacts<'_> {
    /// Returns true if stops of a run over this distance may be glances: if it has any, and tracer
    /// and thread would not wait for the same CPU. Runs up to a bound end at stops.
    pub(super) fn are_worth_it(&self, distance: Distance) -> bool {
        let has_budget = matches!(distance, Distance::Budget(_));
        has_budget && !self.goals.stops.is_empty() && *HAS_CPUS
    }
}

impl Replay {
    /// Returns true if the thread that waits for the answer to a glance has to stop, as more is
    /// asked of it than its general registers.
    pub fn needs_stop(&self) -> bool {
        self.glanced.as_ref().is_some_and(|glanced| glanced.needs_stop.load(Ordering::Relaxed))
    }

    /// Runs the loaded thread once. At stops, it waits at a glance, and goes on if the goals do not
    /// accept the stop. Leaves their decision about the stop that ends the run in `self.judged`.
    pub(super) fn run_with_glances(
        &mut self,
        distance: Distance,
        looks: &GlanceFacts<'_>,
    ) -> Result<Run, Error> {
        self.epoch.one_cpu.let_go(self.epoch.thread.tid());
        let mut running = self.epoch.engine.begin_run(&mut self.epoch.thread, distance)?;
        self.epoch.engine.listen(&self.epoch.thread, &mut running)?;
        self.epoch.thread.tracee.resume(0)?;
        loop {
            let run = self.epoch.engine.go_on(&mut self.epoch.thread, &mut running, None)?;
            let Run::Glance(glance) = run else { return Ok(run) };
            let judged = self.judge(&glance, looks);
            let passes = judged == Some(false) && !(looks.goals.interrupted)();
            let answer = if passes { GlanceAnswer::Pass } else { GlanceAnswer::Stop };
            let is_in_time = self.epoch.engine.answer(&self.epoch.thread, answer);
            self.judged = judged.filter(|_| !(passes && is_in_time));
        }
    }

    /// Returns true if the goals accept a stop. `None`: the thread has to stop before they can
    /// decide.
    fn judge(&mut self, glance: &Glance, looks: &GlanceFacts<'_>) -> Option<bool> {
        let position = self.position_of(glance, looks)?;
        let registers = glance.registers;
        self.glanced = Some(Glanced { registers, position, needs_stop: AtomicBool::new(false) });
        let accepts = (looks.goals.accepts)(self);
        let needs_stop = self.needs_stop();
        self.glanced = None;
        (!needs_stop).then_some(accepts)
    }

    /// Returns the position of a thread that waits at a glance. `None` if an entry of the log may
    /// happen to it there before it executes the instruction.
    fn position_of(&self, glance: &Glance, looks: &GlanceFacts<'_>) -> Option<Position> {
        let begun = if glance.answered == 0 { self.ticks } else { 0 };
        let ticks = begun.checked_add(glance.ticks)?;
        let entry = match looks.answered {
            Some(places) => places.get(usize::try_from(glance.answered).ok()?)?.index(),
            None => self.cursor.index(),
        };
        if let Some(next) = looks.entry
            && let Site::Place(_) = self.site_of(next)
            && next.ticks <= ticks
        {
            return None;
        }
        Some(Position { entry, ticks, instructions: 0 })
    }
}
