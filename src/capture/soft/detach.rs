//! Leaves processes, which go on natively: their threads go back to the program's own code, and
//! nothing of the recorder stays in their memory.

use super::engine::Engine;
use super::events::disturbed;
use super::process::Process;
use super::thread::{Doing, Thread};
use crate::capture::error::gone_is_fine;
use crate::capture::restart::registers_outside_call;
use crate::capture::{Error, final_state};
use crate::common::{Addr, Pid, Tid};
use crate::encode::Item;
use crate::insn::Registers;
use crate::tracee::{PtraceEvent, Stop, Tracee};

impl Engine {
    /// Interrupts all threads, so that the recorder can leave them. Their other stops are handled
    /// as usual.
    pub(super) fn leave(&self) -> Result<(), Error> {
        let threads = self.threads.values().map(Thread::tracee);
        let borrowers = self.borrowers.keys().map(|&tid| Tracee(tid));
        threads.chain(borrowers).try_for_each(|tracee| gone_is_fine(tracee.interrupt()))
    }

    /// Handles a stop while the recorder leaves. Detaches from a process once all its threads are
    /// outside the cache. Returns false if the caller has to handle the stop.
    pub(super) fn handle_leaving(&mut self, tid: Tid, stop: Stop) -> Result<bool, Error> {
        let pid = self.threads.get(&tid).map(Thread::pid);
        let handled = self.bring_out(tid, stop, Process::part)?;
        if let Some(pid) =
            pid.filter(|_| self.threads.get(&tid).is_some_and(|t| t.doing == Doing::Left))
        {
            self.leave_if_all_stand(pid)?;
        }
        Ok(handled)
    }

    /// Moves an interrupted thread from the cache to the program's own code, and calls `then`.
    /// Handles any other stop, and interrupts the thread again. Returns false if the caller has to
    /// handle the stop.
    pub(super) fn bring_out(
        &mut self,
        tid: Tid,
        stop: Stop,
        then: fn(&mut Process, &mut Thread) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let is_wanted = matches!(stop, Stop::Event(PtraceEvent::Stop) | Stop::Group(_));
        if is_wanted && self.borrowers.remove(&tid).is_some() {
            gone_is_fine(Tracee(tid).detach(0))?;
            return Ok(true);
        }
        let Some(thread) = self.threads.get(&tid) else { return Ok(false) };
        let pid = thread.pid();
        if !is_wanted {
            // The thread goes on after this, and is interrupted again: any stop makes the kernel
            // forget the request (`ptrace_stop` in the kernel's signal.c).
            self.handle(tid, stop)?;
            let stands = |t: &Thread| matches!(t.doing, Doing::AtEnd | Doing::Standing);
            let goes_on = self.threads.get(&tid).is_some_and(|t| !stands(t));
            if goes_on {
                gone_is_fine(Tracee(tid).interrupt())?;
            }
            // The thread may have created others.
            self.interrupt_young(pid)?;
            return Ok(true);
        }
        if thread.doing != Doing::Running || thread.translated.is_forced_pending()? {
            // An instruction, a call or a trap that has begun ends first.
            return Ok(false);
        }
        let mut disturbance = None;
        self.with(tid, |process, thread| {
            disturbance = disturbed(process.make_exact(thread)?);
            if disturbance.is_none() {
                then(process, thread)?;
            }
            Ok(())
        })?;
        if let Some(stop) = disturbance {
            self.waiting.push_back((tid, stop));
        }
        Ok(true)
    }

    /// Interrupts the threads of a process that were created since all others were interrupted.
    fn interrupt_young(&mut self, pid: Pid) -> Result<(), Error> {
        let young =
            self.threads.values_mut().filter(|thread| thread.pid() == pid && thread.is_young);
        for thread in young {
            thread.is_young = false;
            gone_is_fine(thread.tracee().interrupt())?;
        }
        Ok(())
    }

    /// Detaches from a process once all its threads are marked as [`Doing::Left`].
    fn leave_if_all_stand(&mut self, pid: Pid) -> Result<(), Error> {
        let of_process = || self.threads.values().filter(|thread| thread.pid() == pid);
        if of_process().any(|thread| thread.doing != Doing::Left) {
            return Ok(());
        }
        let threads: Vec<&Thread> = of_process().collect();
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        process.depart(&threads)?;
        self.finish(pid, None)
    }
}

impl Process {
    /// Ends the trace of a thread that is stopped outside the cache, moves it before a call that
    /// the kernel would restart, and marks it as ready to be detached from.
    fn part(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let registers = thread.tracee().registers()?;
        self.send(thread.tid(), Item::Leave { ip: registers.rip });
        thread.tracee().set_registers(&registers_outside_call(&registers))?;
        thread.doing = Doing::Left;
        Ok(())
    }

    /// Leaves a process whose threads are all stopped outside the cache: writes the final state,
    /// removes the recorder's memory, and detaches.
    pub(super) fn depart(&mut self, threads: &[&Thread]) -> Result<(), Error> {
        let Some(first) = threads.first() else { return Ok(()) };
        self.end_sharing();
        let mut states = Vec::new();
        for thread in threads {
            let registers: Registers = thread.tracee().registers()?;
            let state = final_state::read_thread_with(thread.tracee(), &registers, None);
            states.push(final_state::forget_cache_address(state));
            self.thread_ended(thread.tid(), Some(Addr(registers.rip)));
        }
        let states = final_state::sort_threads(states, first.tid());
        final_state::write_core(
            &self.recorder,
            &self.engine.memory,
            states,
            0,
            self.engine.space.hidden(),
        )?;
        self.withdraw(first.tracee(), threads)?;
        for thread in threads {
            let tracee = thread.tracee();
            gone_is_fine(thread.watched.end(tracee))?;
            gone_is_fine(tracee.detach(thread.held))?;
        }
        Ok(())
    }
}
