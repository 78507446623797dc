//! Hides the trap flag from the program. For a single step the kernel sets it in EFLAGS, which some
//! instructions copy to the stack (PUSHF), or to R11 (SYSCALL). After a step of an instruction that
//! loads the flags (POPF, IRET), the kernel would take the flag for the program's own.

use super::error::Error;
use super::memory::Memory;
use super::ptrace::Tracee;
use super::stop::{PtraceEvent, Stop};
use super::wait::wait_for;
use crate::common::Addr;
use crate::insn::{FlagsCopy, Registers};

/// The trap flag (TF) of EFLAGS.
pub const TRAP_FLAG: u64 = 0x100;
/// The resume flag (RF) of EFLAGS, which SYSCALL does not save in R11.
pub const RESUME_FLAG: u64 = 0x1_0000;

/// Hides the trap flag after a step of an instruction that copies the flags as `flags` says. After
/// PUSHF, clears it in the copy on the stack, unless the program itself has set it; after POPF and
/// IRET, ends the series of steps, so that the kernel does not take it for the program's own.
/// Returns `None` if the thread can be treated as stopped by the step, otherwise its new stop,
/// which the caller must handle. Not for system calls: see [`r11_without_trap_flag`].
pub fn hide_after_step(
    tracee: Tracee,
    flags: FlagsCopy,
    memory: &Memory,
) -> Result<Option<Stop>, Error> {
    match flags {
        FlagsCopy::None => Ok(None),
        FlagsCopy::Pushes => {
            hide_on_stack(&tracee.registers()?, memory);
            Ok(None)
        }
        FlagsCopy::Loads => end_step_series(tracee),
    }
}

/// Ends a series of single steps (`PTRACE_SINGLESTEP`) after one of POPF or IRET: requests a stop,
/// and resumes the thread without a step. That ends the kernel's single-step mode
/// (`TIF_SINGLESTEP`), and the stop comes before the thread executes anything. Returns `None` at
/// that stop, or the stop that came instead. Within the series, the kernel would take the flag of
/// the next step for the program's own, show it, and leave it set (`enable_single_step` in its
/// arch/x86/kernel/step.c).
fn end_step_series(tracee: Tracee) -> Result<Option<Stop>, Error> {
    tracee.interrupt()?;
    tracee.resume(0)?;
    let stop = wait_for(tracee.0)?;
    Ok(Some(stop).filter(|stop| !matches!(stop, Stop::Event(PtraceEvent::Stop))))
}

/// Clears the trap flag in the flags that a step of PUSHF pushed, unless the program itself has set
/// it, as `registers`, those after the step, show. Does nothing if the stack cannot be accessed.
fn hide_on_stack(registers: &Registers, memory: &Memory) {
    let at = Addr(registers.rsp.wrapping_add(1));
    let mut byte = [0];
    if registers.eflags & TRAP_FLAG == 0 && memory.read(at, &mut byte) == 1 {
        byte[0] &= !1;
        // The program has just pushed there. If the memory is already gone, nothing can see it.
        let _ = memory.write(at, &byte);
    }
}

/// Returns R11 without the trap flag of a step, if SYSCALL left the flags there: then RCX is RIP,
/// and R11 differs from EFLAGS in TF and RF at most (SDM volume 2, "SYSCALL"). Otherwise returns
/// R11 as it is: other entries into the kernel leave RCX and R11 unchanged, and a return from a
/// signal handler restores others. TF in EFLAGS does not show whose the flag is, since the kernel
/// also sets it there while a signal is pending. So a trap flag of the program itself is cleared,
/// too.
pub fn r11_without_trap_flag(registers: &Registers) -> u64 {
    let differs = (registers.r11 ^ registers.eflags) & !(TRAP_FLAG | RESUME_FLAG);
    let is_left = registers.rcx == registers.rip && differs == 0;
    if is_left { registers.r11 & !TRAP_FLAG } else { registers.r11 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_syscall_left_is_hidden() {
        // SAFETY: zeros are plain numbers.
        let none: Registers = unsafe { std::mem::zeroed() };
        let following = Registers { rip: 0x1002, rcx: 0x1002, r11: 0x346, eflags: 0x246, ..none };
        assert_eq!(r11_without_trap_flag(&following), 0x246);
        // INT 0x80, or the return from a signal handler.
        assert_eq!(r11_without_trap_flag(&Registers { rcx: 5, ..following }), 0x346);
        // A return from a signal handler restored it from the frame.
        assert_eq!(
            r11_without_trap_flag(&Registers { r11: 0x9c06_35e4, ..following }),
            0x9c06_35e4
        );
        // A signal is pending.
        assert_eq!(r11_without_trap_flag(&Registers { eflags: 0x346, ..following }), 0x246);
    }
}
