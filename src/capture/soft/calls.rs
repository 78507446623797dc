//! System calls that change the recorder's view of the process, such as mmap(2). The thread stops
//! before them, in the code cache; all other calls run without a stop. From there
//! (`handle_call_start`), there are four ways:
//!
//! - The call is made in the cache, without a stop at its end.
//! - The call is made by a single step ([`Activity::InCall`]), and `handle_call_end` records its
//!   effects.
//! - The recorder answers the call: the thread is moved past it, with a result (`skip_call`).
//! - The process cannot be recorded beyond the call: the caller ends its recording
//!   (`leave_reason`).

use super::process::Process;
use super::stopping_calls::HANDLED_CALLS;
use super::thread::{Activity, Call, Thread};
use crate::capture::clock::now;
use crate::capture::space::is_recorded;
use crate::capture::unrecordable::reason_to_leave;
use crate::capture::{Error, Report};
use crate::common::{Addr, AddrRange};
use crate::encode::TraceItem;
use crate::engine::registers_after_call;
use crate::insn::Registers;
use crate::sideband::Event;
use crate::tracee::Rseq;
use crate::tracee::call_numbers::{
    CLONE, CLONE3, MMAP, MPROTECT, MREMAP, MUNMAP, PKEY_MPROTECT, REMAP_FILE_PAGES, RSEQ,
    RT_SIGACTION, RT_SIGPROCMASK, RT_SIGRETURN, SCHED_GETAFFINITY, SCHED_SETAFFINITY, SHMAT, SHMDT,
};
use crate::tracee::trap_flag::TRAP_FLAG;

const PROT_EXEC: u64 = 4;
const MAP_ANONYMOUS: u64 = 0x20;

impl Process {
    /// Handles a system call that the thread, stopped before it in the cache, is about to make:
    /// resumes the thread into the call, up to its end if that matters, or past it with a result
    /// that the recorder sets. If the process cannot be recorded after the call, sets
    /// `leave_reason` instead, and does not resume the thread.
    pub(super) fn handle_call_start(
        &mut self,
        thread: &mut Thread,
        registers: &Registers,
    ) -> Result<(), Error> {
        let r = registers;
        let args = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        // The kernel reads only the low 32 bits.
        let number = r.rax & u64::from(u32::MAX);
        let call = Call { number, args };
        self.leave_reason = reason_to_leave(number, registers, &self.engine.memory);
        if self.leave_reason.is_some() {
            return Ok(());
        }
        if let Some(error) = self.engine.own_mapping_error(number, registers) {
            return skip_call(thread, registers, error);
        }
        if let Some(result) = self.engine.emulate_gs_call(&mut thread.translated, registers) {
            return skip_call(thread, registers, result);
        }
        match call.number {
            CLONE | CLONE3 => {
                // The new thread needs an area of memory for its trace buffers.
                self.engine.prepare_area(thread.tracee())?;
                self.engine.unprotect_for_call(thread.tracee(), registers)?;
                return Ok(thread.tracee().resume(0)?);
            }
            RT_SIGPROCMASK => {
                self.engine.note_sigprocmask(&mut thread.translated, registers);
                self.engine.unprotect_for_call(thread.tracee(), registers)?;
                return Ok(thread.tracee().resume(0)?);
            }
            RT_SIGACTION => {
                self.engine.note_sigaction(registers);
                self.engine.unprotect_for_call(thread.tracee(), registers)?;
                return Ok(thread.tracee().resume(0)?);
            }
            SCHED_SETAFFINITY | SCHED_GETAFFINITY => {
                self.end_sharing();
                self.engine.unprotect_for_call(thread.tracee(), registers)?;
                return Ok(thread.tracee().resume(0)?);
            }
            RT_SIGRETURN => self.engine.note_sigreturn(&mut thread.translated, registers),
            RSEQ if self.was_running => return pretend_rseq(thread, registers),
            // The kernel changes the IP of a thread that it preempts in a restartable sequence, but
            // it would not recognize the sequence in the cache: the call fails as on a kernel
            // without it.
            RSEQ => return skip_call(thread, registers, i64::from(-libc::ENOSYS)),
            MPROTECT | MUNMAP | MREMAP | PKEY_MPROTECT => {
                // The recorder may have write-protected pages of code there. The call must see the
                // program's own protection.
                self.engine.unprotect_for_mapping_call(thread.tracee(), number, registers)?;
            }
            number if !HANDLED_CALLS.contains(&number) => {
                self.engine.unprotect_for_call(thread.tracee(), registers)?;
                return Ok(thread.tracee().resume(0)?);
            }
            _ => {}
        }
        self.recorder.record_event(thread.tid(), Event::Syscall { number: call.number, args })?;
        thread.activity = Activity::InCall(call);
        Ok(thread.tracee().step(0)?)
    }

    /// Handles the stop at the end of a system call: records its result and changed mappings, and
    /// resumes the thread. After `rt_sigreturn(2)`, dispatches the thread to the code to which it
    /// returns, or stops it if the debugger steps it.
    pub(super) fn handle_call_end(&mut self, thread: &mut Thread, call: Call) -> Result<(), Error> {
        let tid = thread.tid();
        let registers = thread.tracee().registers()?;
        if call.number != RT_SIGRETURN {
            // SYSCALL left the flags in R11, with the trap flag of the single step.
            let r11 = registers.r11 & !TRAP_FLAG;
            thread.tracee().set_registers(&Registers { r11, ..registers })?;
        }
        let result = registers.rax.cast_signed();
        if call.number == RT_SIGRETURN {
            let pointer = thread.translated.trace_pointer(self.engine.shared());
            self.take_records(thread, pointer);
            thread.translated.return_from_handler(&registers)?;
            if self.is_stepping(thread) {
                thread.stop_with(Report::Stepped);
                return Ok(());
            }
            self.send(tid, TraceItem::ReturnFromKernel { ip: registers.rip, tsc: now().0 });
            self.dispatch(thread)?;
            return Ok(thread.tracee().resume(0)?);
        }
        self.recorder.record_event(tid, Event::SyscallReturn { result })?;
        if !(-4095..0).contains(&result) {
            self.update_mappings_after(thread, call, registers.rax)?;
        }
        Ok(thread.tracee().resume(0)?)
    }

    /// Handles a successful system call that may have changed mappings: records the changes, drops
    /// translations of code there, and updates the write protection of pages with translated code.
    fn update_mappings_after(
        &mut self,
        thread: &Thread,
        call: Call,
        result: u64,
    ) -> Result<(), Error> {
        let [first, second, third, fourth, ..] = call.args;
        let range = |start, size: u64| AddrRange::sized(Addr(start), size.next_multiple_of(0x1000));
        let (changed, may_add_code) = match call.number {
            MMAP => {
                let anonymous = fourth & MAP_ANONYMOUS != 0;
                let may_add_code = third & PROT_EXEC != 0 || !anonymous;
                (vec![range(result, second)], may_add_code)
            }
            MPROTECT | PKEY_MPROTECT => (vec![range(first, second)], third & PROT_EXEC != 0),
            MUNMAP => (vec![range(first, second)], false),
            MREMAP => (vec![range(first, second), range(result, third)], true),
            SHMAT | SHMDT | REMAP_FILE_PAGES => (Vec::new(), true),
            _ => return Ok(()),
        };
        // During the call another thread may have executed code there, so that it was translated
        // and its page write-protected (masked) again.
        let space = &self.engine.space;
        let masked: Vec<u64> = changed.iter().flat_map(|range| space.masked_in(*range)).collect();
        for page in &masked {
            self.engine.space.unmask(*page);
        }
        if may_add_code
            || !masked.is_empty()
            || changed.iter().any(|range| self.engine.space.overlapping(*range).any(is_recorded))
        {
            self.refresh_mappings(thread.tid())?;
            for range in changed {
                self.engine.forget_code(range);
            }
        }
        if matches!(call.number, MMAP | MPROTECT | PKEY_MPROTECT) {
            for &page in &masked {
                self.engine.set_protection(thread.tracee(), page, third)?;
            }
        }
        if matches!(call.number, MUNMAP | MREMAP)
            && self.engine.open_new_mappings(thread.tracee(), &masked)?
        {
            self.refresh_mappings(thread.tid())?;
        }
        Ok(())
    }
}

/// Resumes a thread after a system call that it does not make, with `result` as the call's result.
fn skip_call(thread: &Thread, registers: &Registers, result: i64) -> Result<(), Error> {
    thread.tracee().set_registers(&registers_after_call(registers, result))?;
    Ok(thread.tracee().resume(0)?)
}

/// Pretends that rseq(2) succeeded, in a process that the recorder attached to: its C library
/// relies on restartable sequences, since the kernel accepted those of earlier threads. The kernel
/// gets the registration when the recorder leaves. Until then no CPU number is written to the
/// thread's `struct rseq`, so the library asks the kernel for it.
fn pretend_rseq(thread: &mut Thread, registers: &Registers) -> Result<(), Error> {
    let r = registers;
    let size = u32::try_from(r.rsi).unwrap_or(0);
    let signature = u32::try_from(r.r10).unwrap_or(0);
    thread.rseq = (r.rdx == 0).then(|| Rseq::new(r.rdi, size, signature));
    skip_call(thread, registers, 0)
}
