//! The state of a thread that waits at a glance: a stop that the engine reports while the thread
//! waits in the code cache for the decision whether it goes on.

use super::position::Position;
use crate::insn::Registers;
use std::sync::atomic::AtomicBool;

/// The state of a thread that waits at a glance.
#[derive(Debug)]
pub(super) struct GlancingThread {
    pub(super) registers: Registers,
    /// The position of its last tick, without the instructions since then.
    pub(super) position: Position,
    /// Set when somebody asks for more than the general registers, which are all that is known
    /// here: the thread has to stop then.
    pub(super) needs_stop: AtomicBool,
}
