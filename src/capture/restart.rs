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

/// Returns true if these are the registers of a thread that is stopped in an interrupted system
/// call which the kernel will repeat, unless a signal handler runs first.
pub(super) fn will_restart_call(registers: &Registers) -> bool {
    let result = registers.rax.cast_signed();
    registers.orig_rax.cast_signed() >= 0
        && (RESTARTS.contains(&result) || result == RESTARTS_BY_BLOCK)
}

/// Returns the registers for a thread that is stopped in a system call, as if it were stopped
/// outside: before the call if the kernel would repeat it, otherwise after it. The kernel then
/// changes nothing when the thread is resumed. Returns `registers` if the thread is in no call.
pub(super) fn registers_outside_call(registers: &Registers) -> Registers {
    let mut outside = *registers;
    if registers.orig_rax.cast_signed() >= 0 {
        if will_restart_call(registers) {
            let by_block = registers.rax.cast_signed() == RESTARTS_BY_BLOCK;
            outside.rax = if by_block { RESTART_SYSCALL } else { registers.orig_rax };
            outside.rip -= SYSCALL_BYTES;
        }
        outside.orig_rax = u64::MAX;
    }
    outside
}
