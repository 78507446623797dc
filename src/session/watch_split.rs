//! The division of watchpoints into hardware watchpoints, which the CPU's debug registers watch,
//! and software watchpoints, for which the program is single-stepped. After each step, memory
//! watched for writes is compared; for reads, the executed instruction is examined for the memory
//! that it read.

use super::{Access, Watchpoint};
use crate::capture::Live as Program;
use crate::tracee::Watch;

/// The maximum number of bytes compared after each instruction.
const COMPARED_LIMIT_BYTES: u64 = 1 << 16;

/// A division of watchpoints.
#[derive(Debug, Default)]
pub(super) struct WatchSplit {
    /// Those in the debug registers.
    pub(super) hardware: Vec<Watch>,
    /// The others.
    pub(super) software: Vec<Watchpoint>,
}

/// Assigns watchpoints to the debug registers as long as they fit: those for reads first, since not
/// all reads of an instruction are noticed. Returns `None` if the software watchpoints for writes
/// have more than [`COMPARED_LIMIT_BYTES`] together.
pub(super) fn split(watchpoints: &[Watchpoint]) -> Option<WatchSplit> {
    let mut split = WatchSplit::default();
    let with_reads = watchpoints.iter().filter(|w| w.access != Access::Write);
    let only_writes = watchpoints.iter().filter(|w| w.access == Access::Write);
    for watchpoint in with_reads.chain(only_writes) {
        split.hardware.push(watch(watchpoint));
        if !Program::can_watch(&split.hardware) {
            split.hardware.pop();
            split.software.push(*watchpoint);
        }
    }
    let mut compared = split.software.iter().filter(|w| w.access != Access::Read);
    let compared = compared.try_fold(0_u64, |sum, w| sum.checked_add(w.size_bytes))?;
    (compared <= COMPARED_LIMIT_BYTES).then_some(split)
}

/// Returns a watchpoint for a debug register, which watches writes, or reads and writes.
fn watch(watchpoint: &Watchpoint) -> Watch {
    let reads = watchpoint.access != Access::Write;
    Watch { addr: watchpoint.addr, size_bytes: watchpoint.size_bytes, reads }
}
