//! System calls of a stepped thread, from the call instruction to the return.
//!
//! The call is noted before its instruction is executed (`note_call`). The thread then has two call
//! stops: at the start (`handle_call_start`), after which `is_entered` is true, and at the end
//! (`handle_call_end`), at which the instruction is added to the thread's path.
//!
//! A call that a signal interrupted may end with a code by which the kernel restarts it. The thread
//! is in its `restarting_call` then: until the kernel repeats the call, which is the next call
//! stop, or a handler begins.

use super::process::Process;
use super::thread::{Activity, Call, Thread};
use super::trap::Ignored;
use crate::capture::Error;
use crate::capture::error::gone_is_fine;
use crate::capture::restart::{registers_outside_call, will_restart_call};
use crate::common::Addr;
use crate::insn::Registers;
use crate::sideband::Event;
use crate::tracee::call_numbers::{
    ARCH_PRCTL, EXECVE, EXECVEAT, MMAP, MPROTECT, MREMAP, MUNMAP, PKEY_MPROTECT, REMAP_FILE_PAGES,
    RSEQ, SHMAT, SHMDT,
};
use crate::tracee::trap_flag::r11_without_trap_flag;

/// A system call number that makes the kernel skip the call. The result is already `ENOSYS`
/// (`PUSH_AND_CLEAR_REGS rax=$-ENOSYS` in arch/x86/entry).
const NO_CALL: u64 = u64::MAX;
/// The bits of a system call's number that the kernel uses.
const NUMBER: u64 = 0xffff_ffff;

/// Returns true if the instruction at `ip` makes a system call: SYSCALL, or INT 0x80.
pub(super) fn is_system_call(process: &Process, ip: Addr) -> bool {
    is_syscall(process, ip) || is_32_bit_call(process, ip)
}

/// Returns true if the instruction at `ip` is SYSCALL.
fn is_syscall(process: &Process, ip: Addr) -> bool {
    has_code(process, ip, [0x0f, 0x05])
}

/// Returns true if the instruction at `ip` is INT 0x80.
fn is_32_bit_call(process: &Process, ip: Addr) -> bool {
    has_code(process, ip, [0xcd, 0x80])
}

/// Returns true if these bytes are at `ip`; false if the memory cannot be read.
fn has_code(process: &Process, ip: Addr, code: [u8; 2]) -> bool {
    let mut bytes = [0; 2];
    process.memory.read(ip, &mut bytes) == 2 && bytes == code
}

/// Returns the number of the system call that the thread is about to make; `None` if its next
/// instruction makes none, or a 32-bit one.
pub(super) fn next_call(process: &Process, thread: &Thread) -> Option<u64> {
    let registers =
        is_syscall(process, thread.ip).then(|| thread.tracee.registers().ok()).flatten()?;
    Some(registers.rax & NUMBER)
}

/// Notes the system call that the thread is about to make, in `current_call`. Does nothing if the
/// thread was killed.
pub(super) fn note_call(process: &Process, thread: &mut Thread) -> Result<(), Error> {
    let registers = match thread.tracee.registers() {
        // The thread was killed: its exit will be reported.
        Err(error) if error.is_gone() => return Ok(()),
        result => result?,
    };
    thread.current_call = Some(call_at(process, thread.ip, &registers, registers.rax));
    Ok(())
}

/// Returns the call of the instruction at `ip`, of a thread with these registers. `number` is in
/// RAX before the call, and in `orig_rax` in it.
fn call_at(process: &Process, ip: Addr, r: &Registers, number: u64) -> Call {
    let number = (!is_32_bit_call(process, ip)).then_some(number & NUMBER);
    let args = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
    Call { number, args, is_entered: false, sets_ignored: None, is_in_path: false }
}

/// Handles the stop of a thread at the start or the end of a system call. Resumes it at the start.
pub(super) fn handle_call_stop(process: &mut Process, thread: &mut Thread) -> Result<(), Error> {
    match thread.current_call.take() {
        Some(call) if call.is_entered => handle_call_end(process, thread, call),
        call => {
            handle_call_start(process, thread, call)?;
            resume_in_call(thread)
        }
    }
}

/// Handles the start of a system call: notes and records it. Makes rseq(2) fail. The caller resumes
/// the thread. Does nothing if the thread is gone.
fn handle_call_start(
    process: &mut Process,
    thread: &mut Thread,
    call: Option<Call>,
) -> Result<(), Error> {
    let registers = match thread.tracee.registers() {
        Err(error) if error.is_gone() => return Ok(()),
        result => result?,
    };
    if let Some(call_ip) = thread.restarting_call.take() {
        thread.ip = call_ip;
        process.decode_next(thread)?;
    }
    let mut call =
        call.unwrap_or_else(|| call_at(process, thread.ip, &registers, registers.orig_rax));
    if call.number == Some(RSEQ) {
        // The kernel moves the IP of a thread that it preempts in a restartable sequence, which the
        // path cannot express: make the call fail as on a kernel without it.
        let skipped = Registers { orig_rax: NO_CALL, ..registers };
        thread.tracee.set_registers(&skipped)?;
    }
    call.is_entered = true;
    if let Some(number) = call.number {
        call.sets_ignored = Ignored::set_by(&process.memory, number, &call.args);
        let event = Event::Syscall { number, args: call.args };
        process.recorder.record_event(thread.tid(), event)?;
    }
    thread.current_call = Some(call);
    Ok(())
}

/// Handles the end of a system call: the thread is about to continue after it, or to repeat it.
/// Adds its instruction to the path. Resumes the thread if it repeats the call and is not to stop.
fn handle_call_end(process: &mut Process, thread: &mut Thread, call: Call) -> Result<(), Error> {
    let registers = match thread.tracee.registers() {
        Err(error) if error.is_gone() => return Ok(()),
        result => result?,
    };
    let next = Addr(registers.rip);
    let call_ip = thread.insn.take().map(|insn| {
        if !call.is_in_path {
            thread.path.retire(&insn, next);
        }
        insn.ip
    });
    thread.ip = next;
    record_return(process, thread, &call)?;
    thread.trap.read_mask(thread.tracee)?;
    thread.restarting_call = call_ip.filter(|_| will_restart_call(&registers));
    let restarts = thread.restarting_call.is_some();
    thread.has_moved |= !restarts;
    // For the debugger.
    thread.returned_call = call.number.filter(|_| !restarts);
    thread.entry_was_reported = thread.caught_call.is_some();
    thread.caught_call = thread.caught_call.filter(|_| restarts);
    match thread.restarting_call {
        Some(_) if thread.is_to_stop => move_before_call(thread),
        Some(_) => resume_in_call(thread),
        None => Ok(()),
    }
}

/// Moves a thread whose call was interrupted back to before the call instruction, which it executes
/// again when it is resumed. Does not resume it.
fn move_before_call(thread: &mut Thread) -> Result<(), Error> {
    let registers = registers_outside_call(&thread.tracee.registers()?);
    thread.tracee.set_registers(&registers)?;
    thread.ip = Addr(registers.rip);
    thread.restarting_call = None;
    Ok(())
}

/// Resumes a thread in its system call, up to the end of the call.
pub(super) fn resume_in_call(thread: &mut Thread) -> Result<(), Error> {
    thread.activity = Activity::InCall;
    gone_is_fine(thread.tracee.resume_to_call(0))
}

/// Restores the flags in R11 that the program would see untraced, and records the return and
/// changes of mappings and code.
fn record_return(process: &mut Process, thread: &mut Thread, call: &Call) -> Result<(), Error> {
    let before = match thread.tracee.registers() {
        Err(error) if error.is_gone() => return Ok(()),
        result => result?,
    };
    let mut registers = before;
    registers.r11 = r11_without_trap_flag(&before);
    if registers.r11 != before.r11 {
        thread.tracee.set_registers(&registers)?;
    }
    let tid = thread.tid();
    let result = registers.rax.cast_signed();
    if call.number.is_some() {
        process.recorder.record_event(tid, Event::SyscallReturn { result })?;
    }
    // During any call, another process may write code, and this one may have waited for that.
    process.record_changed_code(tid)?;
    if let (0, Some(number)) = (result, call.number) {
        process.trap_ignored.apply(&process.memory, number, &call.args, call.sets_ignored);
    }
    if call.number.is_none_or(changes_mappings) {
        process.refresh_mappings(tid)?;
    }
    Ok(())
}

/// Returns true for the number of a system call that can change mappings, or replace the program.
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
