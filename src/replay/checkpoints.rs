//! Checkpoints: copies of the replay's process, kept on the way, from which the replay can
//! continue.

use super::contexts::Contexts;
use super::epoch::Epoch;
use super::error::Error;
use super::position::Position;
use super::shared::SharedFiles;
use crate::common::{Pid, Tid};
use crate::engine::Copied;
use crate::recording::log::Cursor;
use crate::tracee::{Tracee, end};
use std::collections::BTreeMap;

/// The maximum number of checkpoints, without near ones: if there are more, every second is
/// removed.
const MOST: usize = 32;

/// A copy of the process, stopped at a position.
#[derive(Debug)]
pub(super) struct Checkpoint {
    pid: Pid,
    copied: Copied,
    contexts: Contexts,
    shared: SharedFiles,
    cursor: Cursor,
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        end(self.pid);
    }
}

/// The checkpoints of an epoch.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    kept: BTreeMap<Position, Checkpoint>,
    /// The near checkpoints: additional ones before the user's position, denser the closer they are
    /// to it.
    near: BTreeMap<Position, Checkpoint>,
}

impl Checkpoints {
    /// Returns the last position at or before `position` that has a checkpoint.
    pub(super) fn before(&self, position: Position) -> Option<Position> {
        let last = |all: &BTreeMap<Position, Checkpoint>| {
            all.range(..=position).next_back().map(|(position, _)| *position)
        };
        last(&self.kept).max(last(&self.near))
    }

    /// Returns the last position before `position` that has a checkpoint other than a near one.
    pub(super) fn strictly_before(&self, position: Position) -> Option<Position> {
        self.kept.range(..position).next_back().map(|(position, _)| *position)
    }

    /// Returns the number of checkpoints, without near ones.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Removes the near checkpoints.
    pub(super) fn forget_near(&mut self) {
        self.near.clear();
    }

    /// Returns the place at which each checkpoint continues in the log.
    pub(super) fn cursors(&mut self) -> impl Iterator<Item = &mut Cursor> {
        let all = self.kept.values_mut().chain(self.near.values_mut());
        all.map(|checkpoint| &mut checkpoint.cursor)
    }

    fn get(&self, position: Position) -> Option<&Checkpoint> {
        self.kept.get(&position).or_else(|| self.near.get(&position))
    }

    /// Removes the near checkpoint at a position.
    pub(super) fn forget(&mut self, position: Position) {
        self.near.remove(&position);
    }

    /// Removes every second checkpoint, other than near ones. The first stays.
    fn thin(&mut self) {
        let mut number = 0;
        self.kept.retain(|_, _| {
            number += 1;
            number % 2 == 1
        });
    }
}

impl Epoch {
    /// Keeps a copy of the process as a checkpoint at its position, unless there is one. Removes
    /// every second checkpoint if there are too many then.
    pub(super) fn keep(&mut self, position: Position, cursor: &Cursor) -> Result<(), Error> {
        if self.checkpoints.get(position).is_none() {
            let checkpoint = self.copy(cursor)?;
            self.checkpoints.kept.insert(position, checkpoint);
            if self.checkpoints.len() > MOST {
                self.checkpoints.thin();
            }
        }
        Ok(())
    }

    /// Keeps a copy of the process as a near checkpoint at its position. Returns false if there was
    /// a checkpoint.
    pub(super) fn keep_near(&mut self, position: Position, cursor: &Cursor) -> Result<bool, Error> {
        if self.checkpoints.get(position).is_some() {
            return Ok(false);
        }
        let checkpoint = self.copy(cursor)?;
        self.checkpoints.near.insert(position, checkpoint);
        Ok(true)
    }

    /// Copies the process. The copy gets its own memory files in the place of those that it shares
    /// with the original.
    fn copy(&mut self, cursor: &Cursor) -> Result<Checkpoint, Error> {
        let tracee = self.thread.tracee;
        self.contexts.save(tracee)?;
        let copied = self.engine.copied();
        let pid = tracee.copy_process(self.page)?;
        let (contexts, shared) = (self.contexts.clone(), self.shared.clone());
        let checkpoint = Checkpoint { pid, copied, contexts, shared, cursor: cursor.clone() };
        // If this fails, the checkpoint is dropped, which ends the copy.
        checkpoint.shared.separate(self.pid(), pid, self.page)?;
        Ok(checkpoint)
    }

    /// Replaces the process, which ends, by a copy of the checkpoint at a position. Returns the
    /// log's cursor there, and leaves it to the caller to move the replay; `None` if there is no
    /// such checkpoint.
    pub(super) fn restore(&mut self, position: Position) -> Result<Option<Cursor>, Error> {
        let Some(checkpoint) = self.checkpoints.get(position) else { return Ok(None) };
        let pid = Tracee(Tid(checkpoint.pid.0)).copy_process(self.page)?;
        let tracee = Tracee(Tid(pid.0));
        let shared = checkpoint.shared.clone();
        if let Err(error) = shared.separate(checkpoint.pid, pid, self.page) {
            end(pid);
            return Err(error);
        }
        self.shared = shared;
        let before = std::mem::replace(&mut self.thread.pid, pid);
        self.thread.tracee = tracee;
        self.contexts = checkpoint.contexts.clone();
        let cursor = checkpoint.cursor.clone();
        end(before);
        self.engine.switch(tracee, pid, &checkpoint.copied)?;
        if !self.shared.is_empty() {
            // The new process has other memory files.
            self.look_at_mappings()?;
        }
        Ok(Some(cursor))
    }
}
