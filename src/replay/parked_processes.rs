//! The processes that a replay has left for others, with their checkpoints: a later move to their
//! part of the run continues from there.

use super::parked::ParkedProcess;
use super::position::Position;
use crate::tracee::available_memory_percent;

/// The maximum number of these processes.
const MOST: usize = 12;
/// The minimum share of the machine's memory, in percent, that they leave available.
const LEAST_AVAILABLE_PERCENT: u64 = 50;

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
    /// Adds a process. Then ends the first ones if there are too many, or little memory is
    /// available, perhaps even this one.
    pub(super) fn add(&mut self, process: ParkedProcess) {
        self.0.push(process);
        self.make_room();
    }

    /// Removes and returns the process that has a checkpoint.
    pub(super) fn take(&mut self, checkpoint: ParkedCheckpoint) -> ParkedProcess {
        self.0.remove(checkpoint.index)
    }

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

    /// Returns the last checkpoint at or before a position of program `number`; `None` if there is
    /// none. It is valid until the processes change.
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
