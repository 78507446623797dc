//! Debugger requests to a translated process, and the stops of its threads for them.
//!
//! A thread has two stops at a system call that the debugger catches:
//!
//! 1. It stops before the call (`stop_before_call`), and its `caught_call` says where.
//! 2. Before it is resumed, `note_caught_calls` adds the address after the call to those at which
//!    threads leave the cache (`Debugger::stops`). The thread then passes the place of its first
//!    stop once (`stops_at_call`), and makes the call.
//! 3. It leaves the cache after the call, and reports the return (`handle_stop_address`).

use super::process::Process;
use super::thread::{Activity, Thread};
use crate::capture::clock::now;
use crate::capture::restart::registers_outside_call;
use crate::capture::{Catches, Error, Report};
use crate::common::Tid;
use crate::encode::TraceItem;
use crate::tracee::Signo;
use std::collections::BTreeMap;

/// Bytes of the SYSCALL instruction.
const SYSCALL_BYTES: u64 = 2;

impl Thread {
    /// Marks the thread, which is stopped outside the cache, as stopped for the debugger, with
    /// `event` to report in place of any earlier one.
    pub(super) fn stop_with(&mut self, event: Report) {
        self.activity = Activity::Stopped;
        self.pending.unreported = Some(event);
    }

    /// Resumes the thread, which stopped outside the cache for a signal, with `signal`. If the
    /// program has a handler for it (`caught`), the thread stops again at the first instruction of
    /// the handler. Otherwise the signal must be one that ends the process: the thread does not
    /// enter the cache.
    pub(super) fn deliver(&mut self, signal: Signo, caught: bool) -> Result<(), Error> {
        if caught {
            self.activity = Activity::EnteringHandler;
            self.tracee().step(signal)?;
        } else {
            self.activity = Activity::Running;
            self.tracee().resume(signal)?;
        }
        Ok(())
    }
}

impl Process {
    /// Returns true if the thread executes a single step for the debugger.
    pub(super) fn is_stepping(&self, thread: &Thread) -> bool {
        self.debugger.as_ref().is_some_and(|debugger| debugger.stepping == Some(thread.tid()))
    }

    /// Returns true if a thread stops for a signal, since there is a debugger that wants to see it.
    /// Returns false for a signal that was sent for the debugger, and forgets that it was: so this
    /// is called once for each signal.
    pub(super) fn stops_for_signal(&self, thread: &mut Thread, signal: Signo) -> bool {
        let steps = self.is_stepping(thread);
        self.debugger.as_ref().is_some_and(|debugger| {
            let passed = if steps { debugger.passed_to_stepper } else { debugger.passed };
            thread.pending.stops_for_signal(signal, passed)
        })
    }

    /// Handles a thread that left the cache at `ip`, one of [`Debugger::stops()`]: ends its trace
    /// there, and stops it with one event: the return of its caught call, else a breakpoint, else
    /// the end of its step. If only another thread stops there, resumes it in the cache instead.
    pub(super) fn handle_stop_address(
        &mut self,
        thread: &mut Thread,
        ip: u64,
    ) -> Result<(), Error> {
        self.send(thread.tid(), TraceItem::EnterKernel { ip });
        let Some(debugger) = &self.debugger else { return Ok(()) };
        let is_step_end = self.is_stepping(thread) && debugger.step_ends_at == Some(ip);
        let caught = debugger.caught_calls.get(&thread.tid()).filter(|(end, _)| *end == ip);
        if let Some((_, number)) = caught {
            thread.stop_with(Report::CallReturn(*number));
        } else if debugger.stops.contains(&ip) {
            thread.stop_with(Report::Breakpoint);
        } else if is_step_end {
            thread.stop_with(Report::Stepped);
        } else {
            // Only another thread's step or system call ends here.
            self.resume_in_cache(thread)?;
        }
        Ok(())
    }

    /// Returns true if the debugger catches the system call that a thread is about to make at `ip`.
    /// Returns false if the thread has already stopped before this call, and forgets that it has.
    pub(super) fn stops_at_call(&self, thread: &mut Thread, number: u64, ip: u64) -> bool {
        let has_stopped = thread.caught_call.take().is_some_and(|caught| caught == (ip, number));
        !has_stopped && self.debugger.as_ref().is_some_and(|debugger| debugger.catches.has(number))
    }

    /// Stops a thread, which is outside the cache, for the debugger before system call `number`,
    /// whose instruction is at `ip`: ends its trace there, and marks it as stopped.
    pub(super) fn stop_before_call(&mut self, thread: &mut Thread, number: u64, ip: u64) {
        self.send(thread.tid(), TraceItem::EnterKernel { ip });
        thread.caught_call = Some((ip, number));
        thread.stop_with(Report::Call(number));
    }

    /// Sets the system calls that the debugger catches, and lets the cache stop threads before
    /// them. The cache goes on to stop threads before calls that were caught earlier.
    pub(super) fn set_catches(&mut self, catches: &Catches) {
        let debugger = self.debugger.get_or_insert_default();
        if debugger.catches == *catches {
            return;
        }
        debugger.catches.clone_from(catches);
        // Threads still stop at calls that are no longer caught, and go on at once.
        match catches {
            Catches::None => {}
            Catches::Of(numbers) => self.engine.stop_before_calls(numbers.iter().copied()),
            Catches::All => self.engine.stop_before_all_calls(),
        }
    }

    /// Notes the threads that are stopped before a caught system call, so that they stop after it
    /// as well. Forgets stopped threads that are not. Called before threads are resumed.
    pub(super) fn note_caught_calls(&mut self, threads: &BTreeMap<Tid, Thread>) {
        let Some(debugger) = &mut self.debugger else { return };
        debugger
            .caught_calls
            .retain(|tid, _| threads.get(tid).is_some_and(|t| t.activity != Activity::Stopped));
        for (tid, thread) in threads.iter().filter(|(_, t)| t.activity == Activity::Stopped) {
            if let Some((ip, number)) = thread.caught_call
                && debugger.catches.has(number)
            {
                debugger.caught_calls.insert(*tid, (ip + SYSCALL_BYTES, number));
            }
        }
    }

    /// Returns the event for the return of the caught system call that a thread is in, and forgets
    /// that call. `None` if the thread is in none.
    pub(super) fn take_call_return(&mut self, tid: Tid) -> Option<Report> {
        let (_, number) = self.debugger.as_mut()?.caught_calls.remove(&tid)?;
        Some(Report::CallReturn(number))
    }

    /// Resumes a thread that is stopped outside the cache: continues its trace, and lets it enter
    /// the cache, without a stop at its own address. A thread that waits for a vfork child waits on
    /// in the kernel instead.
    pub(super) fn resume_in_cache(&mut self, thread: &mut Thread) -> Result<(), Error> {
        if thread.waits_for_child {
            return thread.wait_for_child();
        }
        let ip = thread.tracee().registers()?.rip;
        self.send(thread.tid(), TraceItem::ReturnFromKernel { ip, tsc: now().0 });
        self.dispatch_passing(thread)?;
        thread.activity = Activity::Running;
        Ok(thread.tracee().resume(0)?)
    }

    /// Ends the trace of an interrupted thread, already outside the cache, and marks it as stopped
    /// for the debugger or for a snapshot, without an event. If it is in a system call, moves it
    /// out of the call, before it if the kernel would restart it.
    pub(super) fn halt(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let registers = thread.tracee().registers()?;
        self.send(thread.tid(), TraceItem::EnterKernel { ip: registers.rip });
        thread.tracee().set_registers(&registers_outside_call(&registers))?;
        thread.activity = Activity::Stopped;
        Ok(())
    }
}
