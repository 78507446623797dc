//! Restarts of interrupted system calls: the values that the kernel leaves in a thread's registers
//! to repeat them (arch/x86/kernel/signal.c).

use crate::insn::Registers;
use crate::tracee::call_numbers::RESTART_SYSCALL;

/// The size of the SYSCALL instruction.
const SYSCALL_BYTES: u64 = 2;
/// Values of RAX in an interrupted call (include/linux/errno.h): `ERESTARTSYS`, `ERESTARTNOINTR`,
/// `ERESTARTNOHAND`.
const RESTARTS: [i64; 3] = [-512, -513, -514];
/// `ERESTART_RESTARTBLOCK`: repeated by `restart_syscall`.
const RESTARTS_BY_BLOCK: i64 = -516;

/// Returns true if these are the registers of a thread in a system call that the kernel will repeat
/// unless a signal handler runs.
pub(super) fn asks_to_restart(registers: &Registers) -> bool {
    let result = registers.rax.cast_signed();
    registers.orig_rax.cast_signed() >= 0
        && (RESTARTS.contains(&result) || result == RESTARTS_BY_BLOCK)
}

/// Returns the registers with which a thread that is stopped in a system call can be resumed
/// anywhere: those before the call if the kernel would repeat it, otherwise those after it. Changes
/// nothing outside a call.
pub(super) fn stand_before_call(registers: &Registers) -> Registers {
    let mut settled = *registers;
    if registers.orig_rax.cast_signed() >= 0 {
        if asks_to_restart(registers) {
            let by_block = registers.rax.cast_signed() == RESTARTS_BY_BLOCK;
            settled.rax = if by_block { RESTART_SYSCALL } else { registers.orig_rax };
            settled.rip -= SYSCALL_BYTES;
        }
        settled.orig_rax = u64::MAX;
    }
    settled
}
