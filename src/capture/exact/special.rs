//! System calls that the recorder answers itself, prepares, or ends the recording before.

use super::engine::ExactRecorder;
use super::filters::probes_filters;
use super::process::{EVERYWHERE, Process};
use super::thread::Thread;
use crate::capture::Error;
use crate::capture::limits::{
    CHANGES_BY_32_BIT_CALL, MAKES_UNTRACED, MIXES_MAPPINGS, SHARES_MEMORY,
};
use crate::capture::unrecordable::reason_to_leave;
use crate::common::{Addr, AddrRange, Tid};
use crate::engine::make_vsyscall;
use crate::insn::{MAX_INSN_BYTES, Registers};
use crate::recording::log::LogEvent;
use crate::sideband::Mapping;
use crate::syscalls::{Call, Model, Property};
use crate::tracee::Rseq;
use crate::tracee::call_numbers::{
    ARCH_PRCTL, BRK, CLONE, CLONE3, EXIT_GROUP, FORK, MADVISE, MMAP, MPROTECT, MREMAP, MUNMAP,
    PKEY_MPROTECT, REMAP_FILE_PAGES, RSEQ, RT_SIGACTION, RT_SIGPROCMASK, RT_SIGRETURN,
    SCHED_GETAFFINITY, SCHED_SETAFFINITY, SCHED_SETATTR, VFORK,
};
use crate::translate::{Effects, Hook};

const ENOSYS: i64 = -libc::ENOSYS as i64;
const EINVAL: i64 = -libc::EINVAL as i64;
/// `arch_prctl(2)`: GS's base is the recorder's in the cache.
const ARCH_GET_GS: u64 = 0x1004;
/// Numbers of 32-bit calls that change mappings, handlers, threads or the program, by the kernel's
/// `arch/x86/entry/syscalls/syscall_32.tbl`: `exit`, `fork`, `execve`, `brk`, `signal`,
/// `sigaction`, `mmap`, `munmap`, `ipc`, `sigreturn`, `clone`, `mprotect`, `mremap`,
/// `rt_sigreturn`, `rt_sigaction`, `sigaltstack`, `vfork`, `mmap2`, `madvise`, `exit_group`,
/// `remap_file_pages`, `execveat`, `pkey_mprotect`, `clone3`.
const CHANGING_32_BIT_CALLS: [u64; 24] = [
    1, 2, 11, 45, 48, 67, 90, 91, 117, 119, 120, 125, 163, 173, 174, 186, 190, 192, 219, 252, 257,
    358, 380, 435,
];
const CLONE_VM: u64 = libc::CLONE_VM as u64;
const CLONE_VFORK: u64 = libc::CLONE_VFORK as u64;
const CLONE_UNTRACED: u64 = libc::CLONE_UNTRACED as u64;
const CLONE_THREAD: u64 = libc::CLONE_THREAD as u64;
const ARCH_SHSTK_ENABLE: u64 = 0x5001;
/// Refused advice of madvise(2): memory that the kernel may discard at any time, and pages that
/// fault.
const MADV_FREE: u64 = 8;
const MADV_GUARD_INSTALL: u64 = 102;
/// `process_madvise(2)`, and its advice that changes no contents: `MADV_WILLNEED`, `MADV_COLD`,
/// `MADV_PAGEOUT`, `MADV_COLLAPSE`.
const PROCESS_MADVISE: u64 = 440;
const HARMLESS_ADVICE: [u64; 4] = [3, 20, 21, 25];
/// A policy, which is in the second half word of `struct sched_attr`.
const SCHED_DEADLINE: u64 = 6;
/// `modify_ldt`, `set_thread_area`.
const SEGMENT_CALLS: [u64; 2] = [154, 205];
/// The maximum size of what a vsyscall writes through one argument: gettimeofday's `struct timeval`
/// or `struct timezone`; time's number; one of getcpu's two numbers.
const VSYSCALL_REACH_BYTES: u64 = 16;

/// A reason to end a recording before a system call: the act of the process, as a clause.
pub(super) struct Reason(pub(super) &'static str);

impl ExactRecorder {
    /// Returns why the process cannot be recorded beyond a call, which a thread with the registers
    /// `r` is about to make; `None` if it can.
    pub(super) fn reason_to_leave(&self, call: &Call, r: &Registers) -> Option<Reason> {
        let process = self.process.as_ref()?;
        let is_harmless = process.can_filter(call) || probes_filters(call);
        let clause = reason_to_leave(call.number, r, &process.engine.memory);
        if let Some(clause) = clause.filter(|_| !is_harmless) {
            return Some(Reason(clause));
        }
        let is_untraced = |flags| flags & CLONE_UNTRACED != 0;
        if process.clone_flags(call).is_some_and(is_untraced) {
            Some(Reason(MAKES_UNTRACED))
        } else if process.shares_with_child(call) {
            Some(Reason(SHARES_MEMORY))
        } else if process.mixes_mappings(call) {
            Some(Reason(MIXES_MAPPINGS))
        } else {
            None
        }
    }

    /// Returns why the process cannot be recorded beyond an instruction with a hook, at which a
    /// thread is: it makes a 32-bit system call that changes mappings, handlers, threads or the
    /// program. `None` for other calls and instructions.
    pub(super) fn reason_to_leave_at(&self, tid: Tid, hook: Hook) -> Option<Reason> {
        if hook.effects() != Effects::Unlimited {
            return None;
        }
        let registers = self.threads.get(&tid)?.tracee().registers().ok()?;
        let number = registers.rax & u64::from(u32::MAX);
        CHANGING_32_BIT_CALLS.contains(&number).then_some(Reason(CHANGES_BY_32_BIT_CALL))
    }

    /// Lets all threads run on the program's own CPUs again before a call that reads or sets those.
    /// Does nothing before other calls, or if recorder and program do not share one CPU.
    pub(super) fn unshare_cpu_for_call(&mut self, call: &Call) {
        let asks = call.number == SCHED_GETAFFINITY || self.chooses_cpus(call);
        if let Some(shared_cpu) = self.shared_cpu.filter(|_| asks) {
            for thread in self.threads.values() {
                shared_cpu.unpin(thread.tid());
            }
        }
    }

    /// Keeps the threads on the shared CPU again after a call that read their CPUs. After a call by
    /// which the program chose its CPUs, or tried to, ends the sharing for good: the recorder may
    /// use all CPUs again.
    pub(super) fn reshare_cpu_after_call(&mut self, call: &Call) -> Result<(), Error> {
        if let (Some(_), SCHED_GETAFFINITY) = (self.shared_cpu, call.number) {
            let here = crate::tracee::Cpus::of_this_thread()?;
            for thread in self.threads.values() {
                here.pin(thread.tid())?;
            }
        }
        if self.chooses_cpus(call)
            && let Some(shared_cpu) = self.shared_cpu.take()
        {
            let _ = shared_cpu.all.pin_this_thread();
        }
        Ok(())
    }

    /// Returns true if the program chooses its CPUs by a call, or makes a thread one with
    /// deadlines, which must be allowed all CPUs (sched(7)).
    fn chooses_cpus(&self, call: &Call) -> bool {
        let policy = || {
            let attributes = self.process.as_ref().map(|process| process.read_word(call.args[1]));
            attributes.unwrap_or(0) >> 32
        };
        match call.number {
            SCHED_SETAFFINITY => true,
            SCHED_SETATTR => policy() == SCHED_DEADLINE,
            _ => false,
        }
    }
}

impl Process {
    /// Returns the result with which the recorder answers a call; `None` if the thread is to make
    /// the call. Does the work of the answered calls that have some: `arch_prctl(2)` for GS, and
    /// rseq(2) in a process that ran before it was recorded, whose registration is kept until the
    /// recording ends (others get ENOSYS).
    pub(super) fn answer_to(
        &mut self,
        thread: &mut Thread,
        call: &Call,
        registers: &Registers,
    ) -> Option<i64> {
        let number = call.number;
        if let Some(error) = self.engine.own_mapping_error(number, registers) {
            return Some(error);
        }
        let is_refused = Model::by_number(number).is_some_and(|model| model.has(Property::Denied));
        match number {
            // Its C library relies on what worked before the recorder came. No number of a CPU is
            // written, so the library asks for it.
            RSEQ if self.was_running => {
                thread.rseq = (call.args[2] == 0).then(|| rseq_of(call));
                Some(0)
            }
            // The kernel moves the IP of a thread that it preempts in a restartable sequence.
            RSEQ | REMAP_FILE_PAGES => Some(ENOSYS),
            number if is_refused || SEGMENT_CALLS.contains(&number) => Some(ENOSYS),
            MADVISE if matches!(call.args[2], MADV_FREE | MADV_GUARD_INSTALL) => Some(EINVAL),
            // Older kernels answer so, which have no advice here that changes contents.
            PROCESS_MADVISE if !HARMLESS_ADVICE.contains(&call.args[3]) => Some(EINVAL),
            ARCH_PRCTL if call.args[0] & u64::from(u32::MAX) == ARCH_SHSTK_ENABLE => Some(EINVAL),
            ARCH_PRCTL => self.engine.emulate_gs_call(&mut thread.translated, registers),
            _ => None,
        }
    }

    /// Prepares the engine and the memory for a call that a thread is about to make: notes its
    /// signal mask, action or frame, makes room for a new thread, restores page permissions that
    /// the call meets, and opens the foreign memory that it may use.
    pub(super) fn prepare_call(
        &mut self,
        thread: &mut Thread,
        call: &Call,
        registers: &Registers,
    ) -> Result<(), Error> {
        let tracee = thread.tracee();
        match call.number {
            CLONE | CLONE3 => self.engine.prepare_area(tracee)?,
            RT_SIGPROCMASK => self.engine.note_sigprocmask(&mut thread.translated, registers),
            RT_SIGACTION => self.engine.note_sigaction(registers),
            RT_SIGRETURN => self.engine.note_sigreturn(&mut thread.translated, registers),
            MPROTECT | MUNMAP | MREMAP | PKEY_MPROTECT => {
                let range = AddrRange::sized(Addr(call.args[0]), call.args[1]);
                self.engine.unprotect_and_forget(tracee, range)?;
            }
            BRK => {
                let (from, to) = (call.args[0].min(self.heap_end), self.heap_end);
                self.engine.unprotect_and_forget(tracee, AddrRange::new(Addr(from), Addr(to)))?;
            }
            _ => {}
        }
        if self.waits_for_child(call) {
            // The child has the same memory.
            self.engine.open_foreign_range(tracee, EVERYWHERE)?;
        }
        self.engine.open_foreign_for_call(tracee, call)?;
        Ok(self.engine.unprotect_for_call(tracee, registers)?)
    }

    /// Returns true if a call creates a process that shares this one's memory while this one runs
    /// on: not a thread, and not a child that this process waits for, as after vfork(2).
    fn shares_with_child(&self, call: &Call) -> bool {
        let Some(flags) = self.clone_flags(call) else { return false };
        flags & (CLONE_VM | CLONE_VFORK | CLONE_THREAD) == CLONE_VM
    }

    /// Returns true if a call is an mmap(2) that maps a file privately which is mapped shared and
    /// writable, or the reverse: a private page changes with the file until the program first
    /// writes to it.
    fn mixes_mappings(&self, call: &Call) -> bool {
        let [_, _, prot, flags, fd, _] = call.args;
        if call.number != MMAP || flags & libc::MAP_ANONYMOUS as u64 != 0 {
            return false;
        }
        let pid = self.pid();
        let Ok(path) = std::fs::read_link(format!("/proc/{pid}/fd/{fd}")) else { return false };
        let path = path.to_string_lossy();
        let is_private =
            flags & u64::from(libc::MAP_TYPE.cast_unsigned()) == libc::MAP_PRIVATE as u64;
        let writes = prot & libc::PROT_WRITE as u64 != 0;
        let is_other = |mapping: &Mapping| {
            let protection = mapping.protection;
            if is_private {
                protection.shared && protection.write
            } else {
                writes && !protection.shared
            }
        };
        self.engine.space.mappings().any(|mapping| mapping.name == path && is_other(mapping))
    }

    /// Returns true if a call creates a thread of the process.
    pub(super) fn makes_thread(&self, call: &Call) -> bool {
        self.clone_flags(call).is_some_and(|flags| flags & CLONE_THREAD != 0)
    }

    /// Returns true if the thread waits in a call until the child that this makes executes a
    /// program or ends. Nothing but a fatal signal ends that wait.
    pub(super) fn waits_for_child(&self, call: &Call) -> bool {
        self.clone_flags(call).is_some_and(|flags| flags & CLONE_VFORK != 0)
    }

    /// Returns the flags with which a call makes a thread or a process (clone(2)); `None` for a
    /// call that makes neither.
    pub(super) fn clone_flags(&self, call: &Call) -> Option<u64> {
        match call.number {
            FORK => Some(0),
            VFORK => Some(CLONE_VM | CLONE_VFORK),
            CLONE => Some(call.args[0]),
            // They come first in `struct clone_args`.
            CLONE3 => Some(self.read_word(call.args[0])),
            _ => None,
        }
    }

    /// Reads 8 bytes of the program's memory; 0 if they are not there.
    pub(super) fn read_word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.engine.memory.read(Addr(at), &mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Reads the bytes of the instruction at an address, and those after it up to the length of the
    /// longest instruction: fewer if memory ends before.
    pub(super) fn insn_bytes_at(&self, ip: u64) -> Vec<u8> {
        let mut bytes = vec![0; MAX_INSN_BYTES];
        let known = self.engine.memory.read(Addr(ip), &mut bytes);
        bytes.truncate(known);
        bytes
    }

    /// Makes the call of the vsyscall page that a thread is at, for the thread, which returns from
    /// it, and logs that. Returns false, and does nothing, if it is at none.
    pub(super) fn call_vsyscall(
        &mut self,
        thread: &mut Thread,
        before: &Registers,
    ) -> Result<bool, Error> {
        let (tracee, gadget) = (thread.tracee(), self.engine.gadget());
        let made = make_vsyscall(tracee, &self.engine.memory, &self.engine.space, gadget)?;
        if made.is_none() {
            return Ok(false);
        }
        let after = tracee.registers()?;
        let reach =
            [before.rdi, before.rsi].map(|at| AddrRange::sized(Addr(at), VSYSCALL_REACH_BYTES));
        let writes = super::effects::contents(&self.engine, reach);
        let registers = Box::new(after.into());
        self.log(thread, before, LogEvent::Executes { registers, extended: None, writes })?;
        Ok(true)
    }
}

/// Returns what a call of rseq(2) registers.
fn rseq_of(call: &Call) -> Rseq {
    let word = |index: usize| u32::try_from(call.args[index]).unwrap_or(0);
    Rseq::new(call.args[0], word(1), word(3))
}

/// Returns true if a call ends the process (`exit_group(2)`).
pub(super) fn ends_process(call: &Call) -> bool {
    call.number == EXIT_GROUP
}

/// Returns the ranges of memory that the recorder wrote for a call which it answered: that of
/// `ARCH_GET_GS`. Returns none for other calls.
pub(super) fn written_by_answer(number: u64, r: &Registers, result: i64) -> Vec<AddrRange> {
    let is_read = number == ARCH_PRCTL && r.rdi == ARCH_GET_GS && result == 0;
    is_read.then(|| AddrRange::sized(Addr(r.rsi), 8)).into_iter().collect()
}
