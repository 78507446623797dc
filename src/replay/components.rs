//! Large components of the extended state, as those of AMX: a process may use one after it asked
//! for permission (Documentation/arch/x86/xstate.rst in the kernel).

use super::epoch::Epoch;
use super::error::Error;
use crate::insn::Registers;
use crate::tracee::call_numbers::ARCH_PRCTL;

/// The operation of `arch_prctl(2)` that asks for permission.
pub(super) const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
/// The component of AMX's tiles, the only one so far.
const XFEATURE_XTILEDATA: u64 = 18;

impl Epoch {
    /// Asks the kernel to let the process use an XSAVE component, by its number (`arch_prctl(2)`).
    /// Ignores a refusal: a CPU without it was reported when the recording was opened.
    pub(super) fn permit(&self, component: u64) -> Result<(), Error> {
        let args = [ARCH_REQ_XCOMP_PERM, component, 0, 0, 0, 0];
        self.thread.tracee.inject(self.page, ARCH_PRCTL, args)?;
        Ok(())
    }

    /// Lets the process use AMX's tiles, unless it begins at the first instruction of its program,
    /// as `registers` show: before a later beginning, the program may have requested them.
    pub(super) fn permit_earlier_requests(&self, registers: &Registers) -> Result<(), Error> {
        if is_first_instruction(registers) { Ok(()) } else { self.permit(XFEATURE_XTILEDATA) }
    }
}

/// Returns true if these are the registers of a program that the kernel has just loaded: all are 0
/// but the stack pointer and the instruction pointer.
fn is_first_instruction(registers: &Registers) -> bool {
    let Registers {
        rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15, ..
    } = *registers;
    [rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15] == [0; 15]
}
