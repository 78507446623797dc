//! Births of threads, which are recorded, and of processes: these are followed (`follow`), kept for
//! the debugger (`forks`), or go on natively.

use super::effects::contents;
use super::engine::Engine;
use super::process::{Process, state_of};
use super::thread::Thread;
use crate::capture::Error;
use crate::capture::error::gone_is_fine;
use crate::capture::newborn::shares_memory;
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::engine::{Gate, Place, TranslatedThread};
use crate::insn::Registers;
use crate::recording::log::Happening;
use crate::sideband::Event;
use crate::syscalls::{Call, Registered};
use crate::tracee::call_numbers::{CLONE, CLONE3};
use crate::tracee::{PtraceEvent, Stop, Tracee, is_thread_of, wait_for_killed};
use std::time::Duration;

/// The maximum time for which other threads wait while a child shares this process's memory: until
/// the child executes another program, as a rule.
pub(super) const VFORKED_CHILD: Duration = Duration::from_millis(200);
/// Bytes of SYSCALL.
const SYSCALL_BYTES: u64 = 2;
const CLONE_CHILD_SETTID: u64 = libc::CLONE_CHILD_SETTID as u64;

impl Engine {
    /// Handles the birth of a thread or process, at the stop in the call of its parent. Then lets
    /// the parent go on, and waits until the call is done: at a vfork(2) only up to
    /// [`VFORKED_CHILD`], and not at all if the debugger gets a report of the child first.
    pub(super) fn born(&mut self, parent: Tid, event: PtraceEvent) -> Result<(), Error> {
        let message = Tracee(parent).event_message().unwrap_or(0);
        let child = Tid(i32::try_from(message).unwrap_or(0));
        let first = match self.early.remove(&child) {
            Some(stop) => stop,
            None => wait_for_killed(child)?,
        };
        if first.is_end() {
            self.stop_unborn(child, first)?;
        } else if is_thread_of(child, self.pid) {
            self.newborn_thread(parent, child)?;
        } else {
            self.newborn_process(parent, child, event)?;
        }
        self.with(parent, |_, thread| Ok(thread.tracee().step(0)?))?;
        match event {
            // The parent waits for its child, which uses its memory.
            PtraceEvent::Vfork if self.newborns.get(Pid(child.0)).is_none() => {
                self.wait_at_most(parent, VFORKED_CHILD)
            }
            // The debugger gets a report of the child first.
            PtraceEvent::Vfork => Ok(()),
            _ => self.wait_for_call(parent),
        }
    }

    /// Lets a child end whose first stop is its end.
    fn stop_unborn(&mut self, child: Tid, first: Stop) -> Result<(), Error> {
        if matches!(first, Stop::Exited(_) | Stop::Killed { .. }) {
            return Ok(());
        }
        self.left.insert(child);
        gone_is_fine(Tracee(child).resume(0))
    }

    /// Prepares a new thread for the code cache, and keeps it in `unborn`: it executes nothing
    /// before its parent's call is logged.
    fn newborn_thread(&mut self, parent: Tid, child: Tid) -> Result<(), Error> {
        let pid = self.pid;
        let gs_base = self.threads.get(&parent).map_or(0, |maker| maker.translated.gs_base());
        let made = self.with(parent, |process, _| {
            process.engine.settle_prepared_area();
            process.recorder.add_thread(child)?;
            Ok(process.engine.take_area())
        })?;
        let Some(Some(area)) = made else { return Ok(()) };
        let tracee = Tracee(child);
        let registers = tracee.registers()?;
        tracee.set_registers(&Registers { gs_base, orig_rax: u64::MAX, ..registers })?;
        let translated = TranslatedThread::new(child, pid, area, Place::Program);
        self.unborn.insert(parent, Thread::new(translated));
        Ok(())
    }

    /// Logs the birth of the thread that a call of `parent` made, if it made one. From then on, the
    /// thread can run.
    pub(super) fn after_birth_call(&mut self, parent: Tid, call: &Call) -> Result<(), Error> {
        let Some(mut child) = self.unborn.remove(&parent) else { return Ok(()) };
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
            CLONE3 => (process.word(call.args[0]), process.word(call.args[0] + 16)),
            _ => (0, 0),
        };
        let reported =
            (flags & CLONE_CHILD_SETTID != 0).then(|| AddrRange::sized(Addr(child_tid), 4));
        let writes = contents(&process.engine, reported);
        let state = Box::new(state_of(tracee, &registers)?);
        process.log(&mut child, &registers, Happening::Born { state, writes })?;
        if let Some(debugger) = &self.debugger {
            child.debug.watched.set(tracee, &debugger.slots)?;
        }
        self.threads.insert(child.tid(), child);
        Ok(())
    }

    /// Follows a new child process, keeps it for the debugger, or lets it go on natively. It has a
    /// copy of its parent's code cache, or shares that.
    fn newborn_process(
        &mut self,
        parent: Tid,
        child: Tid,
        event: PtraceEvent,
    ) -> Result<(), Error> {
        let shared_cpu = self.shared_cpu;
        let shares = self.with(parent, |process, thread| {
            if thread.calling().is_some_and(|c| matches!(c.call.number, CLONE | CLONE3)) {
                process.engine.settle_prepared_area();
            }
            process.recorder.record_event(parent, Event::Fork { child: Pid(child.0) })?;
            if let Some(shared_cpu) = shared_cpu {
                shared_cpu.unpin(child);
            }
            // An error is one of the child: its parent is stopped.
            let shares = process.take_out_newborn(Tracee(child));
            if shares.as_ref().is_ok_and(|shares| !shares) {
                process.share_with_child();
            }
            Ok(shares)
        })?;
        let Some(shares) = shares else { return Ok(()) };
        let followed = shares.and_then(|shares| {
            let is_kept = self.follow_newborn(child, shares)?
                || self.keep_newborn(parent, Pid(child.0), event)?;
            if is_kept {
                return Ok(());
            }
            if let Some(process) = self.process.as_ref().filter(|p| p.is_filtered && !shares) {
                process.engine.remove_gate_from(Tracee(child))?;
            }
            gone_is_fine(Tracee(child).detach(0))
        });
        self.unless_killed(child, followed)
    }
}

impl Process {
    /// Takes the recorder's memory out of a child process, but for the gate if that is needed.
    /// Returns true if the memory must stay, because the child shares its parent's.
    fn take_out_newborn(&self, child: Tracee) -> Result<bool, Error> {
        let registers = child.registers()?;
        let shares = shares_memory(&registers, &self.engine.memory);
        if !shares {
            // A filter may forbid system calls from the place where the child is.
            let call = Addr(registers.rip.wrapping_sub(SYSCALL_BYTES));
            let gadget = self.engine.gate().map_or(call, Gate::entry);
            self.engine.unprotect_in(child, gadget)?;
            self.engine.remove_from(child, gadget)?;
            if !self.is_filtered {
                self.engine.remove_gate_from(child)?;
            }
        }
        Ok(shares)
    }
}
