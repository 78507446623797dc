//! Births of threads and processes. The kernel reports one by a stop in the parent's system call,
//! and the child's first stop before or after that (`early_stops`). `handle_birth` waits for both.
//! From there:
//!
//! - A new thread is kept in `unlogged_threads` until the parent's call is done and logged
//!   (`finish_call`). Then its birth is logged (`log_new_thread`), and it can run. The token stays
//!   with the parent up to there.
//! - A new process with a copy of the memory loses the recorder's part of it, and shared memory
//!   becomes foreign. It is then followed by another recorder (`follow`), kept for the debugger
//!   (`forks`), or goes on natively. One that shares the memory (vfork(2)) runs natively up to its
//!   execve(2), while its parent waits in the call.
//! - A child that was killed before its first instruction is resumed to its end, and not recorded.

use super::effects::contents;
use super::engine::ExactRecorder;
use super::process::{Process, state_of};
use super::thread::Thread;
use crate::capture::Error;
use crate::capture::error::gone_is_fine;
use crate::capture::newborn::shares_memory;
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::engine::{Gate, Place, TranslatedThread};
use crate::insn::Registers;
use crate::recording::log::LogEvent;
use crate::sideband::Event;
use crate::syscalls::{Call, Registered};
use crate::tracee::call_numbers::{CLONE, CLONE3};
use crate::tracee::{PtraceEvent, Stop, Tracee, is_thread_of, wait_for_killed};
use std::time::Duration;

/// The maximum time for which other threads wait while a child of vfork(2) shares this process's
/// memory. As a rule, the child executes another program before that, which ends the sharing.
pub(super) const VFORK_WAIT: Duration = Duration::from_millis(200);
/// Bytes of SYSCALL.
const SYSCALL_BYTES: u64 = 2;
const CLONE_CHILD_SETTID: u64 = libc::CLONE_CHILD_SETTID as u64;

impl ExactRecorder {
    /// Handles the birth of a thread or process, at the stop `event` in the call of its parent,
    /// after waiting for the child's first stop. Then resumes the parent, waits for its next stop,
    /// usually the end of the call, and handles that. At a vfork(2), it waits only up to
    /// [`VFORK_WAIT`], or not at all if the debugger gets a report of the child first.
    pub(super) fn handle_birth(&mut self, parent: Tid, event: PtraceEvent) -> Result<(), Error> {
        let message = Tracee(parent).event_message().unwrap_or(0);
        let child = Tid(i32::try_from(message).unwrap_or(0));
        let first = match self.early_stops.remove(&child) {
            Some(stop) => stop,
            None => wait_for_killed(child)?,
        };
        if first.is_end() {
            self.let_child_end(child, first)?;
        } else if is_thread_of(child, self.pid) {
            self.prepare_new_thread(parent, child)?;
        } else {
            self.handle_new_process(parent, child, event)?;
        }
        self.with_thread(parent, |_, thread| Ok(thread.tracee().step(0)?))?;
        match event {
            // The parent waits for its child, which uses its memory.
            PtraceEvent::Vfork if self.newborns.get(Pid(child.0)).is_none() => {
                self.wait_in_call_at_most(parent, VFORK_WAIT)
            }
            // The debugger gets a report of the child first.
            PtraceEvent::Vfork => Ok(()),
            _ => self.wait_for_call_stop(parent),
        }
    }

    /// Lets a child end whose first stop is its end: resumes it if that is its exit stop.
    fn let_child_end(&mut self, child: Tid, first: Stop) -> Result<(), Error> {
        if matches!(first, Stop::Exited(_) | Stop::Killed { .. }) {
            return Ok(());
        }
        self.unrecorded.insert(child);
        gone_is_fine(Tracee(child).resume(0))
    }

    /// Prepares a new thread, which is stopped, for the code cache, and keeps it in
    /// `unlogged_threads`: it executes nothing before its parent's call is logged.
    fn prepare_new_thread(&mut self, parent: Tid, child: Tid) -> Result<(), Error> {
        let pid = self.pid;
        let gs_base = self.threads.get(&parent).map_or(0, |maker| maker.translated.gs_base());
        let made = self.with_thread(parent, |process, _| {
            process.engine.settle_prepared_area();
            process.recorder.add_thread(child)?;
            Ok(process.engine.take_area())
        })?;
        let Some(Some(area)) = made else { return Ok(()) };
        let tracee = Tracee(child);
        let registers = tracee.registers()?;
        tracee.set_registers(&Registers { gs_base, orig_rax: u64::MAX, ..registers })?;
        let translated = TranslatedThread::new(child, pid, area, Place::Program);
        self.unlogged_threads.insert(parent, Thread::new(translated));
        Ok(())
    }

    /// Logs the birth of the thread that a completed call of `parent` made, if it made one, with
    /// its registers and the number that the kernel wrote for it. From then on, the thread can run.
    pub(super) fn log_new_thread(&mut self, parent: Tid, call: &Call) -> Result<(), Error> {
        let Some(mut child) = self.unlogged_threads.remove(&parent) else { return Ok(()) };
        let Some(process) = &mut self.process else { return Ok(()) };
        let tracee = child.tracee();
        let mut registers = tracee.registers()?;
        if let Some(maker) = self.threads.get(&parent).and_then(|t| t.tracee().registers().ok())
            && registers.rcx == registers.rip
        {
            // R11 as SYSCALL left it, without the trap flag of its parent's step.
            registers.r11 = maker.r11;
            tracee.set_registers(&registers)?;
        }
        let memory = |addr: Addr, buf: &mut [u8]| process.engine.read_visible(addr, buf);
        child.registered = Registered::of_child(call, &memory);
        let (flags, child_tid) = match call.number {
            CLONE => (call.args[0], call.args[3]),
            CLONE3 => (process.read_word(call.args[0]), process.read_word(call.args[0] + 16)),
            _ => (0, 0),
        };
        let reported =
            (flags & CLONE_CHILD_SETTID != 0).then(|| AddrRange::sized(Addr(child_tid), 4));
        let writes = contents(&process.engine, reported);
        let state = Box::new(state_of(tracee, &registers)?);
        process.log(&mut child, &registers, LogEvent::Born { state, writes })?;
        if let Some(debugger) = &self.debugger {
            child.debug.watched.set(tracee, &debugger.watch_slots)?;
        }
        self.threads.insert(child.tid(), child);
        Ok(())
    }

    /// Follows a new child process, keeps it for the debugger, or detaches from it so that it goes
    /// on natively. If it has a copy of its parent's memory, the recorder's part is removed there,
    /// and the memory that both share becomes foreign. Lets a child that was killed end.
    fn handle_new_process(
        &mut self,
        parent: Tid,
        child: Tid,
        event: PtraceEvent,
    ) -> Result<(), Error> {
        let shared_cpu = self.shared_cpu;
        let shares = self.with_thread(parent, |process, thread| {
            if thread.current_call().is_some_and(|c| matches!(c.call.number, CLONE | CLONE3)) {
                process.engine.settle_prepared_area();
            }
            process.recorder.record_event(parent, Event::Fork { child: Pid(child.0) })?;
            if let Some(shared_cpu) = shared_cpu {
                shared_cpu.unpin(child);
            }
            // An error is one of the child: its parent is stopped.
            let shares = process.remove_recorder_memory(Tracee(child));
            if shares.as_ref().is_ok_and(|shares| !shares) {
                process.make_shared_memory_foreign();
            }
            Ok(shares)
        })?;
        let Some(shares) = shares else { return Ok(()) };
        let followed = shares.and_then(|shares| {
            let is_kept = self.follow_newborn(child, shares)?
                || self.keep_for_debugger(parent, Pid(child.0), event)?;
            if is_kept {
                return Ok(());
            }
            if let Some(process) = self.process.as_ref().filter(|p| p.is_filtered && !shares) {
                process.engine.remove_gate_from(Tracee(child))?;
            }
            gone_is_fine(Tracee(child).detach(0))
        });
        self.ignore_if_killed(child, followed)
    }
}

impl Process {
    /// Removes the recorder's memory from a child process, but for the gate if the process has
    /// filters of system calls. Returns true, and removes nothing, if the child shares its parent's
    /// memory (vfork(2)).
    fn remove_recorder_memory(&self, child: Tracee) -> Result<bool, Error> {
        let registers = child.registers()?;
        let shares = shares_memory(&registers, &self.engine.memory);
        if !shares {
            // A filter may forbid system calls from the place where the child is.
            let call = Addr(registers.rip.wrapping_sub(SYSCALL_BYTES));
            let gadget = self.engine.gate().map_or(call, Gate::entry);
            self.engine.unprotect_child(child, gadget)?;
            self.engine.unmap_from_child(child, gadget)?;
            if !self.is_filtered {
                self.engine.remove_gate_from(child)?;
            }
        }
        Ok(shares)
    }
}
