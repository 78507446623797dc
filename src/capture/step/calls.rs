//! System calls of a stepped thread, from the instruction that enters to the return.

use super::process::Process;
use super::thread::{Call, Thread};
use crate::capture::Error;
use crate::common::Addr;
use crate::sideband::Event;

/// The trap flag. Single-stepping sets it, and the program must not see that.
const TF: u64 = 0x100;

const MMAP: u64 = 9;
const MPROTECT: u64 = 10;
const MUNMAP: u64 = 11;
const RT_SIGRETURN: u64 = 15;
const MREMAP: u64 = 25;
const SHMAT: u64 = 30;
pub(super) const EXECVE: u64 = 59;
const SHMDT: u64 = 67;
const ARCH_PRCTL: u64 = 158;
const REMAP_FILE_PAGES: u64 = 216;
pub(super) const EXIT_GROUP: u64 = 231;
pub(super) const EXECVEAT: u64 = 322;
const PKEY_MPROTECT: u64 = 329;
const RSEQ: u64 = 334;

/// The thread is about to execute a far call: SYSCALL, or INT n.
pub(super) fn enter(process: &mut Process, thread: &mut Thread) -> Result<(), Error> {
    let registers = match thread.tracee.registers() {
        // Its end will be reported.
        Err(error) if error.is_gone() => return Ok(()),
        result => result?,
    };
    let r = registers;
    let args = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
    let mut call = Call { number: r.rax, args, told: false, hidden_rsi: None, retired: false };
    if call.number == RSEQ && thread.deliver == 0 {
        // The kernel moves the IP of a thread that it preempts in a restartable sequence, to
        // somewhere that the path cannot tell. With a wrong size the registration fails, and C
        // libraries do without.
        call.hidden_rsi = Some(registers.rsi);
        thread.tracee.set_registers(&libc::user_regs_struct { rsi: 0, ..registers })?;
    }
    // A signal's handler may run instead of the call, which is told afterwards then.
    if thread.deliver == 0 {
        tell(process, thread, &mut call)?;
    }
    thread.call = Some(call);
    Ok(())
}

fn tell(process: &mut Process, thread: &Thread, call: &mut Call) -> Result<(), Error> {
    if !call.told {
        let event = Event::Syscall { number: call.number, args: call.args };
        process.recorder.event(thread.tid(), event)?;
        call.told = true;
    }
    Ok(())
}

/// The call is done and the thread stands behind it, at its return's address.
pub(super) fn leave(
    process: &mut Process,
    thread: &mut Thread,
    mut call: Call,
) -> Result<(), Error> {
    tell(process, thread, &mut call)?;
    let before = match thread.tracee.registers() {
        Err(error) if error.is_gone() => return Ok(()),
        result => result?,
    };
    let mut registers = before;
    if call.number != RT_SIGRETURN {
        // SYSCALL left the flags in R11 (SDM volume 2, "SYSCALL").
        registers.r11 &= !TF;
    }
    registers.rsi = call.hidden_rsi.unwrap_or(registers.rsi);
    if (registers.r11, registers.rsi) != (before.r11, before.rsi) {
        thread.tracee.set_registers(&registers)?;
    }
    let tid = thread.tid();
    let result = registers.rax.cast_signed();
    process.recorder.event(tid, Event::SyscallReturn { result })?;
    // By any call, somebody may have written to code, or have waited for somebody who did.
    process.look_for_changes(tid)?;
    if changes_mappings(call.number) {
        process.look_at_mappings(tid)?;
    }
    Ok(())
}

/// Results with which the kernel asks itself to restart a system call (include/linux/errno.h).
const RESTARTS: [i64; 3] = [-512, -513, -514];
/// The same, by `restart_syscall(2)`.
const RESTART_BLOCK: i64 = -516;
const RESTART_SYSCALL: u64 = 219;

/// Whether the thread stands in a system call that the kernel will make again, unless a handler
/// runs.
pub(super) fn asks_to_restart(registers: &libc::user_regs_struct) -> bool {
    let result = registers.rax.cast_signed();
    registers.orig_rax.cast_signed() >= 0 && (RESTARTS.contains(&result) || result == RESTART_BLOCK)
}

/// A signal interrupted the call, and then another thread took it: the kernel is about to go back
/// to the instruction at `entry`. Goes back in its place, so that it is told from a signal that
/// comes now.
pub(super) fn restart(thread: &mut Thread, entry: Addr) -> Result<(), Error> {
    let mut registers = match thread.tracee.registers() {
        Err(error) if error.is_gone() => return Ok(()),
        result => result?,
    };
    if !asks_to_restart(&registers) {
        return Ok(());
    }
    let by_block = registers.rax.cast_signed() == RESTART_BLOCK;
    registers.rax = if by_block { RESTART_SYSCALL } else { registers.orig_rax };
    registers.orig_rax = u64::MAX;
    registers.rip = entry.0;
    thread.ip = entry;
    Ok(thread.tracee.set_registers(&registers)?)
}

fn changes_mappings(number: u64) -> bool {
    matches!(
        number,
        MMAP | MPROTECT
            | MUNMAP
            | MREMAP
            | SHMAT
            | SHMDT
            | EXECVE
            | EXECVEAT
            | ARCH_PRCTL
            | REMAP_FILE_PAGES
            | PKEY_MPROTECT
    )
}

/// PUSHF was executed: the flags on the stack must not show the trap flag.
pub(super) fn hide_trap_flag(process: &Process, thread: &Thread) -> Result<(), Error> {
    let registers = thread.tracee.registers()?;
    let at = Addr(registers.rsp.wrapping_add(1));
    let mut byte = [0];
    if registers.eflags & TF == 0 && process.memory.read(at, &mut byte) == 1 {
        byte[0] &= !1;
        // The program pushed there a moment ago; if it is gone already, nobody sees it.
        let _ = process.memory.write(at, &byte);
    }
    Ok(())
}
