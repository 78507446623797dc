//! The end of a program, until it is in the log. (If the recorder leaves the program, the place
//! where it does counts as the end.)

use crate::common::Tid;
use crate::insn::Registers;
use crate::recording::log::Write;

/// The end of a program that is not logged yet.
#[derive(Debug, Default)]
pub(super) struct ProgramEnd {
    /// The thread that ended the program, with its registers then; `None` before the end, and once
    /// the end is logged.
    pub(super) place: Option<(Tid, Registers)>,
    /// The memory that the kernel wrote as it killed threads in system calls (`ends`).
    pub(super) writes: Vec<Write>,
    /// The thread that ended the program, and the number of log entries before the last one
    /// (`Finish`), if a keyframe is to be stored there; otherwise `None`.
    pub(super) keyframe: Option<(Tid, u64)>,
}
