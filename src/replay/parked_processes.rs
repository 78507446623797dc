//! The processes that a replay has left for others, with their checkpoints: a later move to their part
//! of the run continues from there.

use super::checkpoint_timer::CheckpointTimer;
use super::error::Error;
use super::parked::ParkedProcess;
use super::position::Position;
use super::process::Replay;
use crate::tracee::available_memory_percent;

/// The maximum number of these processes.
const MOST: usize = 12;
/// The minimum share of the machine's memory, in percent, that they leave available.
const LEAST_AVAILABLE_PERCENT: u64 = 50;
/// The minimum work of a replay, in ticks, that a switch to such a process must save.
const WORTH_A_SWITCH: u64 = 1_000_000;

/// The processes, those that were left first in front.
#[derive(Debug, Default)]
pub(super) struct ParkedProcesses(Vec<ParkedProcess>);

/// A checkpoint of a parked process.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParkedCheckpoint {
    /// The index of the process.
    index: usize,
    pub(super) position: Position,
}

impl ParkedProcesses {
    /// Ends the processes that were left first, until there are few enough, and enough memory is
    /// available.
    pub(super) fn make_room(&mut self) {
        let is_scarce =
            || available_memory_percent().is_some_and(|percent| percent < LEAST_AVAILABLE_PERCENT);
        while self.0.len() > MOST || !self.0.is_empty() && is_scarce() {
            self.0.remove(0);
        }
    }

    /// Ends all processes, since the log has changed.
    pub(super) fn end_all(&mut self) {
        self.0.clear();
    }

    /// Returns the last checkpoint at or before a position of program `number`.
    pub(super) fn last_at_or_before(
        &self,
        number: usize,
        target: Position,
    ) -> Option<ParkedCheckpoint> {
        let of_program = self.0.iter().enumerate().filter(|(_, parked)| parked.number == number);
        let checkpoints = of_program.filter_map(|(index, parked)| {
            let position = parked.epoch.checkpoints.last_at_or_before(target)?;
            Some(ParkedCheckpoint { index, position })
        });
        checkpoints.max_by_key(|checkpoint| checkpoint.position)
    }
}

impl Replay {
    /// Continues in another process, at its position. The former one is parked.
    pub(super) fn replace_process(&mut self, mut other: ParkedProcess) {
        self.swap_process(&mut other);
        // Processes that are loaded from now on have its translated code.
        other.epoch.save_code_cache();
        other.epoch.code_cache = None;
        self.parked.0.push(other);
        self.parked.make_room();
    }

    /// Moves to a checkpoint of a parked process. The former process is parked.
    pub(super) fn switch_to_parked_checkpoint(
        &mut self,
        checkpoint: ParkedCheckpoint,
    ) -> Result<(), Error> {
        let parked = self.parked.0.remove(checkpoint.index);
        self.replace_process(parked);
        self.restore_checkpoint(checkpoint.position)?;
        self.checkpoint_timer = CheckpointTimer::start(self.epoch.pid());
        Ok(())
    }

    /// Moves to the last checkpoint of a parked process at or before a position of the loaded
    /// program, if that saves much work: it is far after `nearest`, the nearest position from which
    /// the replay could continue; `None` for the beginning of the process. Returns false, and does
    /// nothing, if it does not, or if a keyframe saves much more.
    pub(super) fn skip_to_parked(
        &mut self,
        nearest: Option<Position>,
        target: Position,
    ) -> Result<bool, Error> {
        let nearest = nearest.unwrap_or(Position::after_entries(self.epoch.begins));
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
}
