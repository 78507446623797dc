//! Steps over REP MOVS and REP STOS, the instructions that have copies in the cache: the copy
//! executes all repetitions at once, and an INT3 after it stops the thread. *In the program* means
//! at the program's own code, outside of the cache.

use super::error::Error;
use super::process::TranslatedProcess;
use crate::common::Addr;
use crate::insn::Registers;
use crate::tracee::{Stop, Tracee, wait_for};
use crate::translate::RepeatCopy;

/// Bytes of INT3.
const INT3_BYTES: u64 = 1;

impl TranslatedProcess {
    /// Returns the copy, in the cache, of the REP instruction that `code` begins with; `None` if
    /// there is none of this instruction.
    pub(super) fn repeat_copy(&self, code: &[u8]) -> Option<RepeatCopy> {
        self.translator.zones().first()?.repeat_copy(code)
    }
}

/// Lets a thread, which is stopped at `ip` in the program, execute one instruction by a single
/// step, or its `copy` with all its repetitions. Waits for the thread. Returns its next stop, and
/// true if it has executed the copy to its end: it is after the instruction in the program then. If
/// a signal or fault came first, it is at the instruction, and some repetitions may be left.
pub(super) fn step_or_repeat(
    tracee: Tracee,
    ip: Addr,
    copy: Option<RepeatCopy>,
) -> Result<(Stop, bool), Error> {
    let Some(copy) = copy else {
        tracee.step(0)?;
        return Ok((wait_for(tracee.0)?, false));
    };
    let registers = tracee.registers()?;
    tracee.set_registers(&Registers { rip: copy.start, ..registers })?;
    tracee.resume(0)?;
    let stop = wait_for(tracee.0)?;
    Ok((stop, move_back_from_copy(tracee, copy, ip, stop)?))
}

/// Moves a thread that has stopped in the copy of the instruction at `ip` back to the program: to
/// after the instruction if it has executed the copy to its end, which returns true, else to `ip`.
fn move_back_from_copy(
    tracee: Tracee,
    copy: RepeatCopy,
    ip: Addr,
    stop: Stop,
) -> Result<bool, Error> {
    let registers = match tracee.registers() {
        Ok(registers) => registers,
        // It was killed, and has no registers.
        Err(_) if stop.is_end() => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let end = copy.start + copy.size_bytes;
    let is_done = stop == Stop::Signal(libc::SIGTRAP) && registers.rip == end + INT3_BYTES;
    let rip = if is_done { ip.0 + copy.size_bytes } else { ip.0 };
    // A signal may come before the INT3. RCX is 0 then, with which the instruction does nothing.
    if is_done || [copy.start, end].contains(&registers.rip) {
        tracee.set_registers(&Registers { rip, ..registers })?;
    }
    Ok(is_done)
}
