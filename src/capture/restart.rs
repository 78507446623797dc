//! System calls that were interrupted: what the kernel leaves in a thread's registers to make them
//! again (arch/x86/kernel/signal.c).

use crate::insn::Registers;
use crate::tracee::call_numbers::RESTART_SYSCALL;

/// Bytes of SYSCALL.
const SYSCALL_BYTES: u64 = 2;
/// What stands in RAX (include/linux/errno.h): `ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND`.
const RESTARTS: [i64; 3] = [-512, -513, -514];
/// `ERESTART_RESTARTBLOCK`: made again by `restart_syscall`.
const RESTARTS_BY_BLOCK: i64 = -516;

/// Whether the thread stands in a system call that the kernel will make again, unless a handler
/// runs.
pub(super) fn asks_to_restart(registers: &Registers) -> bool {
    let result = registers.rax.cast_signed();
    registers.orig_rax.cast_signed() >= 0
        && (RESTARTS.contains(&result) || result == RESTARTS_BY_BLOCK)
}

/// A thread that was stopped in a system call stands before it again, as the kernel would have it.
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
