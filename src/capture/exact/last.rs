//! The end of a program, until it is in the log.

use crate::common::Tid;
use crate::insn::Registers;
use crate::recording::log::Write;

/// The end of a program.
#[derive(Debug, Default)]
pub(super) struct Last {
    /// The thread that ended it, and where. It is taken as that is logged.
    pub(super) place: Option<(Tid, Registers)>,
    /// The memory that the kernel wrote as it killed threads in system calls.
    pub(super) writes: Vec<Write>,
    /// That thread, and the number of entries before the end, if a keyframe is to be stored there.
    pub(super) keyframe: Option<(Tid, u64)>,
}
