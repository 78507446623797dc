//! Places of a replay beside its own: a second one, with a process there, and that of a thread
//! which waits at a stop.

use super::epoch::Epoch;
use super::position::Position;
use crate::insn::Registers;
use crate::recording::log::Cursor;
use std::sync::atomic::AtomicBool;

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

/// The place of a thread that waits at a stop for an answer.
#[derive(Debug)]
pub(super) struct Glanced {
    pub(super) registers: Registers,
    pub(super) position: Position,
    /// Set if its registers do not suffice.
    pub(super) needs_stop: AtomicBool,
}
