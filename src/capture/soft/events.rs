//! What a stop means: requests of the code cache, system calls, births, ends. Signals stand in
//! `signals`.

use super::engine::{BACKEND, Engine};
use super::exact::{Exactness, Registers};
use super::feed::Item;
use super::process::{Process, bits_of};
use super::thread::{Doing, Place, Thread};
use crate::capture::clock::now;
use crate::capture::culprit::{LastStop, exit_of, one_executes};
use crate::capture::error::gone_is_fine;
use crate::capture::newborn::shares_memory;
use crate::capture::recorder::Prepared;
use crate::capture::{Error, News, final_state};
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::sideband::Event;
use crate::tracee::call_numbers::{CLONE, CLONE3, MPROTECT};
use crate::tracee::{PtraceEvent, Stop, Tracee, USER_CS_64, is_thread_of, wait_for};
use crate::translate::slots;

pub(super) const EVERYWHERE: AddrRange = AddrRange::new(Addr(0), Addr(u64::MAX));
/// Bytes of SYSCALL.
const SYSCALL_BYTES: u64 = 2;

impl Engine {
    /// Takes in a stop of a thread.
    pub(super) fn handle(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        if self.borrowers.contains_key(&tid) {
            return self.borrower(tid, stop);
        }
        let ended = matches!(stop, Stop::Exited(_) | Stop::Killed { .. });
        let known = self.threads.contains_key(&tid);
        let executed = stop == Stop::Event(PtraceEvent::Exec);
        // A first thread may be gone long before its process is, and gives its number to a thread
        // that executes a program.
        let of_process = self.processes.contains_key(&Pid(tid.0));
        if !(known || (ended || executed) && of_process) {
            self.early.insert(tid, stop);
            if stop == Stop::Event(PtraceEvent::Exit) {
                // Its process ends, and nobody may live to tell of its birth.
                return gone_is_fine(Tracee(tid).resume(0));
            }
            return Ok(());
        }
        match stop {
            Stop::Exited(_) | Stop::Killed { .. } => self.ended(tid, stop),
            Stop::Signal(signal) => self.signal_stop(tid, signal),
            Stop::Group(_) => self.with(tid, |_, thread| Ok(thread.tracee.listen()?)),
            Stop::Event(PtraceEvent::Stop) => self.with(tid, |_, thread| thread.go_on(0)),
            Stop::Event(PtraceEvent::Exit) => self.ending(tid),
            Stop::Event(PtraceEvent::Exec) => self.executed(tid),
            Stop::Event(event @ (PtraceEvent::Clone | PtraceEvent::Fork | PtraceEvent::Vfork)) => {
                self.born(tid, event)
            }
            Stop::Event(PtraceEvent::Other(_)) => {
                self.with(tid, |_, thread| Ok(thread.tracee.resume(0)?))
            }
            Stop::Call => self.call_ended(tid),
        }
    }

    /// The thread made a thread or a process.
    fn born(&mut self, parent: Tid, event: PtraceEvent) -> Result<(), Error> {
        let Ok(message) = Tracee(parent).event_message() else { return Ok(()) };
        let child = Tid(i32::try_from(message).unwrap_or(0));
        let first = match self.early.remove(&child) {
            Some(stop) => stop,
            None => wait_for(child)?,
        };
        if matches!(first, Stop::Event(PtraceEvent::Exit) | Stop::Exited(_) | Stop::Killed { .. }) {
            // It did not live to run. Whoever stands at its end is let go.
            gone_is_fine(Tracee(child).resume(0))?;
            return gone_is_fine(Tracee(parent).resume(0));
        }
        let pid = self.threads.get(&parent).map_or(self.program, |thread| thread.pid);
        let call = Tracee(parent).registers().map_or(0, |registers| registers.orig_rax);
        if matches!(call, CLONE | CLONE3)
            && let Some(process) = self.processes.get_mut(&pid)
        {
            process.window.keep_promise();
        }
        let is_thread = is_thread_of(child, pid);
        if let Some(process) = self.processes.get_mut(&pid)
            && let Some(turns) = process.turns
        {
            turns.end(child);
            if is_thread || self.request.follow_forks {
                process.end_turns();
            }
        }
        if is_thread {
            self.add_thread(child, pid, Place::Cache)?;
            self.with(child, |process, thread| {
                if let Some(debugger) = &process.debugger {
                    thread.watched.set(thread.tracee, &debugger.slots)?;
                }
                let mut registers = thread.tracee.registers()?;
                registers.gs_base = thread.area.base;
                thread.tracee.set_registers(&registers)?;
                process.tell(child, Item::Born { tsc: now().0 });
                Ok(thread.tracee.resume(0)?)
            })?;
        } else if self.forked(parent, pid, Pid(child.0), event)? {
            return self.stand_at_fork(parent, Pid(child.0), event);
        }
        gone_is_fine(Tracee(parent).resume(0))
    }

    /// A child process stands at its birth, in a copy of the code cache or in the very same. Gives
    /// whether it is to stand there until a debugger has seen it.
    fn forked(
        &mut self,
        parent: Tid,
        pid: Pid,
        child: Pid,
        event: PtraceEvent,
    ) -> Result<bool, Error> {
        let (tid, is_told) = (Tid(child.0), self.tells_of_fork(pid, event));
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(false) };
        process.recorder.event(parent, Event::Fork { child })?;
        let Some(thread) = self.threads.get(&parent) else { return Ok(false) };
        let tracee = Tracee(tid);
        let registers = tracee.registers()?;
        let Some(at) = process.translator.locate(registers.rip) else {
            return gone_is_fine(tracee.detach(0)).map(|()| false);
        };
        let (program, _) = process.convert(thread, &registers, &at);
        tracee.set_registers(&Registers { gs_base: thread.gs_base, ..program })?;
        let shares = shares_memory(&registers, &process.memory);
        if !shares {
            // The child has a copy of all but the cache, which it must not use.
            let gadget = Addr(program.rip.wrapping_sub(SYSCALL_BYTES));
            for page in process.space.masked_in(EVERYWHERE) {
                let protection = process.space.protection(Addr(page)).map_or(0, bits_of);
                tracee.inject(gadget, MPROTECT, [page, 0x1000, protection, 0, 0, 0])?;
            }
            process.window.remove(tracee, gadget)?;
        }
        if is_told {
            return Ok(true);
        }
        if !self.request.follow_forks {
            return gone_is_fine(tracee.detach(0)).map(|()| false);
        }
        if shares {
            self.borrowers.insert(tid, pid);
            return gone_is_fine(tracee.resume(0)).map(|()| false);
        }
        let actions = process.actions.clone();
        let prepared = Prepared::of_child(&self.request, BACKEND)?;
        self.adopt(prepared, child)?;
        if let Some(process) = self.processes.get_mut(&child) {
            process.actions = actions;
        }
        Ok(false)
    }

    /// A child that shares its parent's memory runs by itself, until it executes a program.
    fn borrower(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        let tracee = Tracee(tid);
        match stop {
            Stop::Exited(_) | Stop::Killed { .. } => {
                self.borrowers.remove(&tid);
                Ok(())
            }
            Stop::Event(PtraceEvent::Exec) => {
                self.borrowers.remove(&tid);
                if !runs_64_bit_code(tracee)? {
                    self.notes.push(format!("process {tid} runs a 32-bit program: not recorded"));
                    return gone_is_fine(tracee.detach(0));
                }
                leave_system_call(tracee)?;
                let prepared = Prepared::of_child(&self.request, BACKEND)?;
                self.adopt(prepared, Pid(tid.0))
            }
            Stop::Event(PtraceEvent::Clone | PtraceEvent::Fork | PtraceEvent::Vfork) => {
                let child = Tid(i32::try_from(tracee.event_message().unwrap_or(0)).unwrap_or(0));
                if self.early.remove(&child).is_none() {
                    wait_for(child)?;
                }
                gone_is_fine(Tracee(child).detach(0))?;
                gone_is_fine(tracee.resume(0))
            }
            Stop::Group(_) => gone_is_fine(tracee.listen()),
            Stop::Signal(signal) => gone_is_fine(tracee.resume(signal)),
            Stop::Event(_) | Stop::Call => gone_is_fine(tracee.resume(0)),
        }
    }

    /// Another program runs in the thread's process, which has this thread only.
    fn executed(&mut self, tid: Tid) -> Result<(), Error> {
        let message = Tracee(tid).event_message();
        let old = message.map_or(tid, |old| Tid(i32::try_from(old).unwrap_or(tid.0)));
        let Some(thread) = self.threads.get(&old) else { return Ok(()) };
        let pid = thread.pid;
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let pointer = process.window.shared.load(thread.area.slot(slots::TRACE_POINTER));
        for (&other, thread) in self.threads.iter_mut().filter(|(_, thread)| thread.pid == pid) {
            if other == old {
                process.take_records(thread, pointer);
                process.tell_kept(other);
            }
            if other != tid {
                process.thread_ended(other, None);
            }
        }
        self.threads.retain(|_, thread| thread.pid != pid);
        if !runs_64_bit_code(Tracee(tid))? {
            gone_is_fine(Tracee(tid).detach(0))?;
            if let Some(process) = self.processes.get_mut(&pid) {
                process.thread_ended(tid, None);
            }
            return self.leave_alone(pid, "runs a 32-bit program");
        }
        leave_system_call(Tracee(tid))?;
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        process.exec(tid)?;
        self.add_thread(tid, pid, Place::Program)?;
        self.with(tid, |process, thread| {
            if process.debugger.is_some() {
                thread.stand(News::Executed);
                return Ok(());
            }
            process.enter(thread)?;
            Ok(thread.tracee.resume(0)?)
        })
    }

    /// A thread stands at its end: its registers are read now or never.
    fn ending(&mut self, tid: Tid) -> Result<(), Error> {
        let status = Tracee(tid).event_message().unwrap_or(0);
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let pid = thread.pid;
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let Ok(registers) = thread.tracee.registers() else { return Ok(()) };
        let call = (registers.orig_rax.cast_signed() >= 0).then_some(registers.orig_rax);
        let siginfo = thread.siginfo;
        let program = process.last_state(thread, &registers);
        thread.ending = program
            .as_ref()
            .map(|program| final_state::thread_with(thread.tracee, program, thread.siginfo));
        process.thread_ended(tid, program.map(|program| Addr(program.rip)));
        process.write_packets()?;
        let stop = LastStop { tid, status, call, siginfo };
        let ends_process = process.culprit.take(&stop);
        let others = || self.threads.values().filter(|t| t.pid == pid && t.tid() != tid);
        let alive = || others().filter(|t| t.doing != Doing::AtEnd).map(Thread::tid);
        let executes = one_executes(pid, alive());
        if executes {
            process.culprit.forget();
        }
        let hold = (ends_process || alive().next().is_none()) && !executes;
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        if hold {
            thread.doing = Doing::AtEnd;
            return self.end_if_all_are(pid);
        }
        let tracee = thread.tracee;
        if let Some(thread) = self.threads.remove(&tid)
            && let Some(process) = self.processes.get_mut(&pid)
        {
            process.close(thread);
        }
        gone_is_fine(tracee.resume(0))?;
        self.end_if_all_are(pid)
    }

    /// The thread, or its process, is gone.
    fn ended(&mut self, tid: Tid, stop: Stop) -> Result<(), Error> {
        let thread = self.threads.remove(&tid);
        let pid = thread.as_ref().map_or(Pid(tid.0), |thread| thread.pid);
        let unseen = thread.filter(|thread| thread.doing != Doing::AtEnd);
        // The others may have waited for this one.
        let was_awaited = unseen.is_some();
        if let Some((thread, process)) = unseen.zip(self.processes.get_mut(&pid)) {
            process.lost(thread);
        }
        if Tid(pid.0) == tid {
            return self.finish(pid, exit_of(stop));
        }
        if was_awaited { self.end_if_all_are(pid) } else { Ok(()) }
    }
}

impl Process {
    /// The thread stands in the program, where its history begins or goes on after what is not
    /// part of it.
    pub(super) fn enter(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let ip = thread.tracee.registers()?.rip;
        self.tell(thread.tid(), Item::Enter { ip, tsc: now().0 });
        self.dispatch(thread)
    }

    /// The thread was killed and did not stop at its end: what it recorded before its last system
    /// call, at least, is there.
    fn lost(&mut self, mut thread: Thread) {
        let pointer = self.window.shared.load(thread.area.slot(slots::TRACE_POINTER));
        if pointer <= thread.area.guard(thread.buffer).start.0 {
            self.take_records(&mut thread, pointer);
        }
        self.thread_ended(thread.tid(), None);
        self.close(thread);
    }

    /// Tells the encoder how a thread's path ends, and gives the program's registers there. None
    /// where they are not known.
    fn last_state(&mut self, thread: &mut Thread, registers: &Registers) -> Option<Registers> {
        let tid = thread.tid();
        if thread.place == Place::Program {
            if self.window.ranges.iter().any(|range| range.contains(Addr(registers.rip))) {
                // Killed while it made a system call for the recorder.
                return None;
            }
            if let Doing::Stepping(Some(insn)) = thread.doing
                && insn.ip.0 != registers.rip
            {
                self.tell(tid, Item::Native { insn, next: registers.rip });
            }
            self.tell(tid, Item::Leave { ip: registers.rip });
            return Some(Registers { gs_base: thread.gs_base, ..*registers });
        }
        let Some(exact) = self.exact_soon(thread, registers) else {
            // What was recorded is told.
            let in_glue = self.translator.locate(registers.rip);
            let in_glue = in_glue.is_none_or(|at| at.point.state.r11_in_slot);
            let area = thread.area;
            let inside = (0..super::area::BUFFERS)
                .any(|i| (area.buffer(i)..=area.guard(i).start.0).contains(&registers.r11));
            if in_glue && inside {
                self.take_records(thread, registers.r11);
            } else {
                let pointer = self.window.shared.load(area.slot(slots::TRACE_POINTER));
                self.take_records(thread, pointer);
            }
            return None;
        };
        self.take_records(thread, exact.pointer);
        if let Some((steps, ip)) = exact.partial {
            self.tell(tid, Item::Partial { steps, ip });
            self.tell(tid, Item::Leave { ip });
        }
        let program = exact.program;
        Some(Registers { gs_base: thread.gs_base, ..program })
    }
}

/// A thread that stands inside the execve(2) that brought its program is taken out of it.
pub(super) fn leave_system_call(tracee: Tracee) -> Result<(), Error> {
    tracee.step(0)?;
    wait_for(tracee.0)?;
    Ok(())
}

pub(super) fn runs_64_bit_code(tracee: Tracee) -> Result<bool, Error> {
    Ok(tracee.registers()?.cs == USER_CS_64)
}

/// What [`Process::make_exact`] could not do is done by whoever handles the stop.
pub(super) fn disturbed(exactness: Exactness) -> Option<Stop> {
    match exactness {
        Exactness::Exact => None,
        Exactness::Disturbed(stop) => Some(stop),
    }
}
