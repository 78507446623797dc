//! Leaves processes by request, so that they go on natively. `left` leaves processes at once.
//!
//! 1. All threads are interrupted (`interrupt_to_leave`).
//! 2. Each is moved out of the code cache at its next stop, and waits as
//!    [`Activity::ReadyToDetach`]. One that is in an instruction, a call or the entry into a
//!    handler first ends that; a stop for another reason is handled, and the thread is interrupted
//!    again.
//! 3. Once all threads of a process wait, its final state is written, nothing of the recorder stays
//!    in it, and all are detached from.
//!
//! `move_out_if_interrupted` does step 2 for debuggers (`go`) and snapshots (`snapshot`) as well,
//! which mark threads as [`Activity::Stopped`].

use super::engine::Engine;
use super::events::disturbing_stop;
use super::process::Process;
use super::thread::{Activity, Thread};
use crate::capture::error::gone_is_fine;
use crate::capture::restart::registers_outside_call;
use crate::capture::{Error, final_state};
use crate::common::{Addr, Pid, Tid};
use crate::encode::TraceItem;
use crate::insn::Registers;
use crate::tracee::{PtraceEvent, Stop, Tracee};

impl Engine {
    /// Interrupts all threads, so that the recorder can leave their processes. Does not wait:
    /// [`Self::handle_while_leaving`] handles their stops.
    pub(super) fn interrupt_to_leave(&self) -> Result<(), Error> {
        let threads = self.threads.values().map(Thread::tracee);
        let borrowers = self.borrowers.keys().map(|&tid| Tracee(tid));
        threads.chain(borrowers).try_for_each(|tracee| gone_is_fine(tracee.interrupt()))
    }

    /// Handles a stop while the recorder leaves all processes. Detaches from a process once all its
    /// threads are outside the cache. Returns false if it did nothing, and the caller has to handle
    /// the stop as usual.
    pub(super) fn handle_while_leaving(&mut self, tid: Tid, stop: Stop) -> Result<bool, Error> {
        let pid = self.threads.get(&tid).map(Thread::pid);
        let handled = self.move_out_if_interrupted(tid, stop, Process::mark_ready_to_detach)?;
        if let Some(pid) = pid.filter(|_| {
            self.threads.get(&tid).is_some_and(|t| t.activity == Activity::ReadyToDetach)
        }) {
            self.detach_if_all_ready(pid)?;
        }
        Ok(handled)
    }

    /// Handles a stop while threads are being stopped. If the thread was interrupted, moves it from
    /// the cache to the program's own code, and calls `then`, which marks it as stopped; detaches
    /// from a borrower instead. Any other stop is handled as usual, and the thread is interrupted
    /// again, unless it stays stopped. Returns false if it did nothing, and the caller has to
    /// handle the stop as usual: an instruction or a call has to end first, or the thread is
    /// unknown.
    pub(super) fn move_out_if_interrupted(
        &mut self,
        tid: Tid,
        stop: Stop,
        then: fn(&mut Process, &mut Thread) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let was_interrupted = matches!(stop, Stop::Event(PtraceEvent::Stop) | Stop::Group(_));
        if was_interrupted && self.borrowers.remove(&tid).is_some() {
            gone_is_fine(Tracee(tid).detach(0))?;
            return Ok(true);
        }
        let Some(thread) = self.threads.get(&tid) else { return Ok(false) };
        let pid = thread.pid();
        if !was_interrupted {
            // The thread goes on after this, and is interrupted again: any stop makes the kernel
            // forget the request (`ptrace_stop` in the kernel's signal.c).
            self.handle(tid, stop)?;
            let stays = |t: &Thread| matches!(t.activity, Activity::AtExitStop | Activity::Stopped);
            let goes_on = self.threads.get(&tid).is_some_and(|t| !stays(t));
            if goes_on {
                gone_is_fine(Tracee(tid).interrupt())?;
            }
            // The thread may have created others.
            self.interrupt_new_threads(pid)?;
            return Ok(true);
        }
        if thread.activity != Activity::Running || thread.translated.is_forced_pending()? {
            // An instruction, a call or a trap that has begun ends first.
            return Ok(false);
        }
        let mut disturbance = None;
        self.with_thread(tid, |process, thread| {
            disturbance = disturbing_stop(process.make_exact(thread)?);
            if disturbance.is_none() {
                then(process, thread)?;
            }
            Ok(())
        })?;
        if let Some(stop) = disturbance {
            self.stop_queue.push_back((tid, stop));
        }
        Ok(true)
    }

    /// Interrupts the threads of a process that were never interrupted, since they were created
    /// after all others had been.
    fn interrupt_new_threads(&mut self, pid: Pid) -> Result<(), Error> {
        let young = self
            .threads
            .values_mut()
            .filter(|thread| thread.pid() == pid && thread.was_never_interrupted);
        for thread in young {
            thread.was_never_interrupted = false;
            gone_is_fine(thread.tracee().interrupt())?;
        }
        Ok(())
    }

    /// Detaches from a process, and completes its recording, if all its threads are marked as
    /// [`Activity::ReadyToDetach`].
    fn detach_if_all_ready(&mut self, pid: Pid) -> Result<(), Error> {
        let of_process = || self.threads.values().filter(|thread| thread.pid() == pid);
        if of_process().any(|thread| thread.activity != Activity::ReadyToDetach) {
            return Ok(());
        }
        let threads: Vec<&Thread> = of_process().collect();
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        process.detach_from_stopped(&threads)?;
        self.finish(pid, None)
    }
}

impl Process {
    /// Ends the trace of a thread that is stopped outside the cache, moves it before a call that
    /// the kernel would restart, and marks it as ready to be detached from.
    fn mark_ready_to_detach(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let registers = thread.tracee().registers()?;
        self.send(thread.tid(), TraceItem::EnterKernel { ip: registers.rip });
        thread.tracee().set_registers(&registers_outside_call(&registers))?;
        thread.activity = Activity::ReadyToDetach;
        Ok(())
    }

    /// Leaves a process whose threads, `threads`, are all stopped outside the cache: ends their
    /// traces, writes the final state, removes the recorder's memory, and detaches, with the
    /// signals for which they stopped. The caller completes the recording. Does nothing without
    /// threads.
    pub(super) fn detach_from_stopped(&mut self, threads: &[&Thread]) -> Result<(), Error> {
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
        self.remove_recorder_from(first.tracee(), threads)?;
        for thread in threads {
            let tracee = thread.tracee();
            gone_is_fine(thread.watched.end(tracee))?;
            gone_is_fine(tracee.detach(thread.held_signal))?;
        }
        Ok(())
    }
}
