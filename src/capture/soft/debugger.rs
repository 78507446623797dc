//! Debugger requests to a translated process, and the stops of its threads for them.

use super::process::Process;
use super::thread::{Doing, Thread};
use crate::capture::clock::now;
use crate::capture::restart::registers_outside_call;
use crate::capture::{Catches, Error, Report};
use crate::common::Tid;
use crate::encode::Item;
use crate::tracee::Signo;
use std::collections::BTreeMap;

/// Bytes of the SYSCALL instruction.
const SYSCALL_BYTES: u64 = 2;

impl Thread {
    /// Marks the thread as stopped for the debugger, and `news` as its event to report.
    pub(super) fn stand(&mut self, news: Report) {
        self.doing = Doing::Standing;
        self.pending.unreported = Some(news);
    }

    /// Resumes the thread with a signal. If the program catches it, the thread stops again at the
    /// first instruction of the handler.
    pub(super) fn deliver(&mut self, signal: Signo, caught: bool) -> Result<(), Error> {
        if caught {
            self.doing = Doing::Diverting;
            self.tracee().step(signal)?;
        } else {
            self.doing = Doing::Running;
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

    /// Returns true if a thread stops for a signal, since the debugger wants to see it.
    pub(super) fn wants(&self, thread: &mut Thread, signal: Signo) -> bool {
        let steps = self.is_stepping(thread);
        self.debugger.as_ref().is_some_and(|debugger| {
            let passed = if steps { debugger.passed_to_stepper } else { debugger.passed };
            thread.pending.stops_for_signal(signal, passed)
        })
    }

    /// Handles a thread that left the cache at `ip`, one of the addresses at which threads stop:
    /// stops it with an event, or resumes it if only another thread stops there.
    pub(super) fn stop_at(&mut self, thread: &mut Thread, ip: u64) -> Result<(), Error> {
        self.send(thread.tid(), Item::Leave { ip });
        let Some(debugger) = &self.debugger else { return Ok(()) };
        let after_step = self.is_stepping(thread) && debugger.following == Some(ip);
        let called = debugger.calling.get(&thread.tid()).filter(|(following, _)| *following == ip);
        if let Some((_, number)) = called {
            thread.stand(Report::CallReturn(*number));
        } else if debugger.stops.contains(&ip) {
            thread.stand(Report::Breakpoint);
        } else if after_step {
            thread.stand(Report::Stepped);
        } else {
            // Only another thread's step or system call ends here.
            self.go_on_in_cache(thread)?;
        }
        Ok(())
    }

    /// Returns true if a thread stops for the debugger at the system call that it is about to make
    /// at `ip`. Returns false the second time, so that the thread can go on.
    pub(super) fn catches(&self, thread: &mut Thread, number: u64, ip: u64) -> bool {
        let passes = thread.caught.take().is_some_and(|caught| caught == (ip, number));
        !passes && self.debugger.as_ref().is_some_and(|debugger| debugger.catches.has(number))
    }

    /// Stops a thread for the debugger, outside the cache, before the system call at `ip`.
    pub(super) fn stand_at_call(&mut self, thread: &mut Thread, number: u64, ip: u64) {
        self.send(thread.tid(), Item::Leave { ip });
        thread.caught = Some((ip, number));
        thread.stand(Report::Call(number));
    }

    /// Sets the system calls that the debugger catches, and makes threads stop before them in the
    /// cache.
    pub(super) fn catch_calls(&mut self, catches: &Catches) {
        let debugger = self.debugger.get_or_insert_default();
        if debugger.catches == *catches {
            return;
        }
        debugger.catches.clone_from(catches);
        // Threads still stop at calls that are no longer caught, and go on at once.
        match catches {
            Catches::None => {}
            Catches::Of(numbers) => self.engine.see_calls(numbers.iter().copied()),
            Catches::All => self.engine.see_all_calls(),
        }
    }

    /// Notes the threads that are about to make a caught system call and are to stop after it. They
    /// are stopped before it now.
    pub(super) fn note_calling(&mut self, threads: &BTreeMap<Tid, Thread>) {
        let Some(debugger) = &mut self.debugger else { return };
        debugger
            .calling
            .retain(|tid, _| threads.get(tid).is_some_and(|t| t.doing != Doing::Standing));
        for (tid, thread) in threads.iter().filter(|(_, t)| t.doing == Doing::Standing) {
            if let Some((ip, number)) = thread.caught
                && debugger.catches.has(number)
            {
                debugger.calling.insert(*tid, (ip + SYSCALL_BYTES, number));
            }
        }
    }

    /// Takes and returns the event for the return of the caught system call in which the thread is;
    /// `None` if it is in none.
    pub(super) fn take_return(&mut self, tid: Tid) -> Option<Report> {
        let (_, number) = self.debugger.as_mut()?.calling.remove(&tid)?;
        Some(Report::CallReturn(number))
    }

    /// Resumes a thread that is stopped outside the cache in the cache, even if threads stop at its
    /// address. A thread that waits for a vfork child waits on in the kernel.
    pub(super) fn go_on_in_cache(&mut self, thread: &mut Thread) -> Result<(), Error> {
        if thread.waits {
            return thread.wait_for_child();
        }
        let ip = thread.tracee().registers()?.rip;
        self.send(thread.tid(), Item::Enter { ip, tsc: now().0 });
        self.dispatch_passing(thread)?;
        thread.doing = Doing::Running;
        Ok(thread.tracee().resume(0)?)
    }

    /// Marks an interrupted thread, already outside the cache, as stopped for the debugger. If it
    /// is in a system call to be restarted, moves it before the call.
    pub(super) fn halt(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let registers = thread.tracee().registers()?;
        self.send(thread.tid(), Item::Leave { ip: registers.rip });
        thread.tracee().set_registers(&registers_outside_call(&registers))?;
        thread.doing = Doing::Standing;
        Ok(())
    }
}
