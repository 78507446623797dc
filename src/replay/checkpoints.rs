//! Checkpoints: copies of the replay's process, kept on the way, from which the replay can
//! continue. A checkpoint is a stopped child process, made by fork(2). To go back to it, a copy of
//! it takes the place of the process, which ends ([`Epoch::restore_checkpoint`]): the checkpoint
//! stays. *Regular* checkpoints are spread over the whole run; every second is removed if they get
//! too many, or memory is scarce. *Near* ones are close before the user's position.

use super::contexts::Contexts;
use super::epoch::Epoch;
use super::error::Error;
use super::position::Position;
use super::shared::SharedFiles;
use crate::common::{Pid, Tid};
use crate::engine::CopyState;
use crate::recording::log::Cursor;
use crate::tracee::{Tracee, available_memory_percent, kill_and_reap};
use std::collections::BTreeMap;

/// The maximum number of regular checkpoints: if there are more, every second is removed.
const REGULAR_LIMIT: usize = 32;
/// The minimum share of the machine's memory, in percent, that must be available for another
/// regular checkpoint, but for the first.
const LEAST_AVAILABLE_PERCENT: u64 = 12;

/// A copy of the process, stopped at a position.
#[derive(Debug)]
pub(super) struct Checkpoint {
    pid: Pid,
    /// The engine's own state of the process.
    copied: CopyState,
    contexts: Contexts,
    /// The memory files of the copy.
    shared: SharedFiles,
    /// The place at which it continues in the log.
    cursor: Cursor,
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        kill_and_reap(self.pid);
    }
}

/// The checkpoints of an epoch.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    regular: BTreeMap<Position, Checkpoint>,
    /// The checkpoints before the user's position, denser the closer they are to it.
    near: BTreeMap<Position, Checkpoint>,
}

impl Checkpoints {
    /// Returns the last position at or before `position` that has a checkpoint, regular or near;
    /// `None` if there is none.
    pub(super) fn last_at_or_before(&self, position: Position) -> Option<Position> {
        let last = |all: &BTreeMap<Position, Checkpoint>| {
            all.range(..=position).next_back().map(|(position, _)| *position)
        };
        last(&self.regular).max(last(&self.near))
    }

    /// Returns the last position before `position`, not at it, that has a regular checkpoint;
    /// `None` if there is none.
    pub(super) fn last_regular_before(&self, position: Position) -> Option<Position> {
        self.regular.range(..position).next_back().map(|(position, _)| *position)
    }

    /// Returns the number of regular checkpoints.
    pub(super) fn len(&self) -> usize {
        self.regular.len()
    }

    /// Removes the near checkpoints.
    pub(super) fn remove_all_near(&mut self) {
        self.near.clear();
    }

    /// Returns the place at which each checkpoint continues in the log.
    pub(super) fn cursors(&mut self) -> impl Iterator<Item = &mut Cursor> {
        let all = self.regular.values_mut().chain(self.near.values_mut());
        all.map(|checkpoint| &mut checkpoint.cursor)
    }

    /// Returns the checkpoint at exactly this position, regular or near; `None` if there is none.
    fn get(&self, position: Position) -> Option<&Checkpoint> {
        self.regular.get(&position).or_else(|| self.near.get(&position))
    }

    /// Removes the near checkpoint at a position, if there is one.
    pub(super) fn remove_near(&mut self, position: Position) {
        self.near.remove(&position);
    }

    /// Removes every second regular checkpoint. The first stays.
    fn remove_every_second(&mut self) {
        let mut number = 0;
        self.regular.retain(|_, _| {
            number += 1;
            number % 2 == 1
        });
    }
}

impl Epoch {
    /// Keeps a copy of the process as a regular checkpoint at its position, unless there is one of
    /// either kind. Removes every second regular one, perhaps this one, if there are too many then.
    /// If little memory is available, removes every second one before, and keeps no new one if that
    /// does not suffice.
    pub(super) fn keep_checkpoint(
        &mut self,
        position: Position,
        cursor: &Cursor,
    ) -> Result<(), Error> {
        if self.checkpoints.get(position).is_none() {
            let is_scarce =
                || available_memory_percent().is_some_and(|p| p < LEAST_AVAILABLE_PERCENT);
            if self.checkpoints.len() > 0 && is_scarce() {
                self.checkpoints.remove_every_second();
                if is_scarce() {
                    return Ok(());
                }
            }
            let checkpoint = self.copy_as_checkpoint(cursor)?;
            self.checkpoints.regular.insert(position, checkpoint);
            if self.checkpoints.len() > REGULAR_LIMIT {
                self.checkpoints.remove_every_second();
            }
        }
        Ok(())
    }

    /// Keeps a copy of the process as a near checkpoint at its position. Returns false, and keeps
    /// none, if there is one of either kind already.
    pub(super) fn keep_near_checkpoint(
        &mut self,
        position: Position,
        cursor: &Cursor,
    ) -> Result<bool, Error> {
        if self.checkpoints.get(position).is_some() {
            return Ok(false);
        }
        let checkpoint = self.copy_as_checkpoint(cursor)?;
        self.checkpoints.near.insert(position, checkpoint);
        Ok(true)
    }

    /// Copies the process. The copy gets its own copies of the memory files ([`SharedFiles`]), so
    /// that the original's writes to shared mappings do not change it.
    fn copy_as_checkpoint(&mut self, cursor: &Cursor) -> Result<Checkpoint, Error> {
        let tracee = self.thread.tracee;
        self.contexts.save(tracee)?;
        let copied = self.engine.copy_state();
        let pid = tracee.copy_process(self.page)?;
        let (contexts, shared) = (self.contexts.clone(), self.shared.clone());
        let checkpoint = Checkpoint { pid, copied, contexts, shared, cursor: cursor.clone() };
        // If this fails, the checkpoint is dropped, which ends the copy.
        checkpoint.shared.separate(self.pid(), pid, self.page)?;
        Ok(checkpoint)
    }

    /// Replaces the process, which ends, by a copy of the checkpoint at a position; the checkpoint
    /// stays. Returns the log's cursor there, and leaves it to the caller to set the replay's
    /// cursor, ticks and instructions; `None` if there is no such checkpoint.
    pub(super) fn restore_checkpoint(
        &mut self,
        position: Position,
    ) -> Result<Option<Cursor>, Error> {
        let Some(checkpoint) = self.checkpoints.get(position) else { return Ok(None) };
        let pid = Tracee(Tid(checkpoint.pid.0)).copy_process(self.page)?;
        let tracee = Tracee(Tid(pid.0));
        let shared = checkpoint.shared.clone();
        if let Err(error) = shared.separate(checkpoint.pid, pid, self.page) {
            kill_and_reap(pid);
            return Err(error);
        }
        self.shared = shared;
        let before = std::mem::replace(&mut self.thread.pid, pid);
        self.thread.tracee = tracee;
        self.contexts = checkpoint.contexts.clone();
        let cursor = checkpoint.cursor.clone();
        kill_and_reap(before);
        self.engine.switch_to_copy(tracee, pid, &checkpoint.copied)?;
        if !self.shared.is_empty() {
            // The new process has other memory files.
            self.refresh_mappings()?;
        }
        Ok(Some(cursor))
    }
}
