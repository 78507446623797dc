//! System calls of a thread that its tracer answers in place of the kernel, or makes it execute.

use super::error::Error;
use super::exact::PROGRAM_END;
use super::process::TranslatedProcess;
use super::thread::TranslatedThread;
use crate::common::Addr;
use crate::insn::Registers;
use crate::tracee::call_numbers::{ARCH_PRCTL, PRCTL};
use crate::translate::slots;

const PR_GET_TSC: u64 = 25;
const PR_GET_TID_ADDRESS: u64 = 40;
const ARCH_SET_GS: u64 = 0x1001;
const ARCH_GET_GS: u64 = 0x1004;
/// Bytes of a page. A program cannot have the last page before `PROGRAM_END` (`TASK_SIZE_MAX` of
/// the kernel).
const PAGE_BYTES: u64 = 0x1000;
/// Bytes of SYSCALL.
const SYSCALL_BYTES: u64 = 2;

impl TranslatedProcess {
    /// Does the work of an `arch_prctl(2)` by which a thread sets or reads its GS base, in place of
    /// the kernel: in the cache, GS is the tracer's. Returns the call's result: 0, or a negative
    /// error number, `EPERM` for a base outside the program's addresses and `EFAULT` if the base
    /// cannot be written. Leaves the thread's registers to the caller. Returns `None`, and does
    /// nothing, for other calls.
    pub fn emulate_gs_call(
        &self,
        thread: &mut TranslatedThread,
        registers: &Registers,
    ) -> Option<i64> {
        // The kernel takes the code for an `int`.
        let (code, value) = (registers.rdi & u64::from(u32::MAX), registers.rsi);
        if registers.rax & u64::from(u32::MAX) != ARCH_PRCTL {
            return None;
        }
        let error = match code {
            ARCH_SET_GS if value >= PROGRAM_END - PAGE_BYTES => libc::EPERM,
            ARCH_SET_GS => {
                thread.gs_base = value;
                0
            }
            ARCH_GET_GS => {
                let written = self.memory.write(Addr(value), &thread.gs_base.to_le_bytes());
                if written.is_ok() { 0 } else { libc::EFAULT }
            }
            _ => return None,
        };
        Some(i64::from(-error))
    }

    /// Returns whether a thread may read the time-stamp counter, as `PR_GET_TSC` of prctl(2) has it
    /// (`PR_TSC_ENABLE` or `PR_TSC_SIGSEGV`). Makes the stopped thread execute that call. `None` if
    /// it fails.
    pub fn tsc_mode(&self, thread: &TranslatedThread) -> Result<Option<u64>, Error> {
        let mode = self.ask_prctl(thread, PR_GET_TSC)?;
        Ok(mode.map(|mode| mode & u64::from(u32::MAX)))
    }

    /// Returns the address at which the kernel writes 0 when a thread ends (`PR_GET_TID_ADDRESS` of
    /// prctl(2)); address 0 if it writes nowhere. Makes the stopped thread execute that call.
    /// `None` if it fails.
    pub fn tid_address(&self, thread: &TranslatedThread) -> Result<Option<Addr>, Error> {
        Ok(self.ask_prctl(thread, PR_GET_TID_ADDRESS)?.map(Addr))
    }

    /// Makes a stopped thread execute a prctl(2) that writes its answer to memory, here to a slot
    /// of the thread. Returns the answer; `None` if the call fails.
    fn ask_prctl(&self, thread: &TranslatedThread, code: u64) -> Result<Option<u64>, Error> {
        let at = thread.area.base + u64::from(slots::RESPONSE);
        let asked = thread.tracee.inject(self.gadget(), PRCTL, [code, at, 0, 0, 0, 0])?;
        let answer = self.window.shared.load(thread.area.slot(slots::RESPONSE));
        Ok((asked == 0).then_some(answer))
    }
}

/// Returns the registers of a thread in the cache after a system call that it skips, with this
/// result in RAX, and the flags in R11. `registers` are those before the call. RCX is unchanged:
/// the glue after the call sets it.
pub fn registers_after_call(registers: &Registers, result: i64) -> Registers {
    // SYSCALL leaves the flags in R11 (SDM volume 2, "SYSCALL").
    Registers {
        rip: registers.rip + SYSCALL_BYTES,
        rax: result.cast_unsigned(),
        r11: registers.eflags,
        ..*registers
    }
}
