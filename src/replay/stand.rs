//! A second place of a replay, with a process there.

use super::epoch::Epoch;
use crate::recording::log::Cursor;

/// A place of the run beside that of the replay, and a process there.
#[derive(Debug)]
pub(super) struct Stand {
    pub(super) epoch: Epoch,
    pub(super) number: usize,
    pub(super) cursor: Cursor,
    pub(super) ticks: u64,
    pub(super) instructions: Option<u64>,
}

/// The user's way back from the end, as far as it was made ready.
#[derive(Debug, Default)]
pub(super) enum Ahead {
    /// Nothing of it.
    #[default]
    Nothing,
    /// A part of it, which ends here.
    Part(Box<Stand>),
    /// It cannot be done.
    Failed,
}
