//! A second process of a replay at another place of the run, and the state of a thread that waits
//! at a glance: a stop that the engine reports while the thread waits in the code cache.

use super::epoch::Epoch;
use super::position::Position;
use crate::insn::Registers;
use crate::recording::log::Cursor;
use std::sync::atomic::AtomicBool;

/// A place of the run other than the replay's, and a process there. The fields are those of
/// `Replay`.
#[derive(Debug)]
pub(super) struct Stand {
    pub(super) epoch: Epoch,
    pub(super) number: usize,
    pub(super) cursor: Cursor,
    pub(super) ticks: u64,
    pub(super) instructions: Option<u64>,
}

/// The preparation for going back from the end (`Replay::prepare`).
#[derive(Debug, Default)]
pub(super) enum Preparation {
    /// No preparation is under way.
    #[default]
    Nothing,
    /// The preparation was interrupted, with this process at this place.
    Part(Box<Stand>),
    /// The preparation failed, and is not tried again.
    Failed,
}

/// The state of a thread that waits at a glance.
#[derive(Debug)]
pub(super) struct Glanced {
    pub(super) registers: Registers,
    pub(super) position: Position,
    /// Set if more than the general registers is asked for: the thread has to stop then.
    pub(super) needs_stop: AtomicBool,
}
