//! The division of watchpoints into those that the CPU's debug registers watch, and the others.

use super::{Access, Watchpoint};
use crate::capture::Live as Program;
use crate::tracee::Watch;

/// The maximum number of bytes compared after each instruction.
const COMPARED_LIMIT_BYTES: u64 = 1 << 16;

/// A division of watchpoints into those for the debug registers and those to compare.
#[derive(Debug, Default)]
pub(super) struct Split {
    pub(super) fast: Vec<Watch>,
    pub(super) slow: Vec<Watchpoint>,
}

/// Assigns watchpoints to the debug registers as long as they fit: those for reads first, since
/// decoding does not notice all reads. Returns `None` if the other watchpoints are too large to
/// compare.
pub(super) fn split(watchpoints: &[Watchpoint]) -> Option<Split> {
    let mut split = Split::default();
    let of_access =
        |write: bool| watchpoints.iter().filter(move |w| (w.access == Access::Write) == write);
    for watchpoint in of_access(false).chain(of_access(true)) {
        split.fast.push(watch(watchpoint));
        if !Program::can_watch(&split.fast) {
            split.fast.pop();
            split.slow.push(*watchpoint);
        }
    }
    let mut compared = split.slow.iter().filter(|w| w.access != Access::Read);
    let compared = compared.try_fold(0_u64, |sum, w| sum.checked_add(w.size_bytes))?;
    (compared <= COMPARED_LIMIT_BYTES).then_some(split)
}

fn watch(watchpoint: &Watchpoint) -> Watch {
    let reads = watchpoint.access != Access::Write;
    Watch { addr: watchpoint.addr, size_bytes: watchpoint.size_bytes, reads }
}
