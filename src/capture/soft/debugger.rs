//! The debugger's requests to a process, and the stops of its threads.

use super::process::Process;
use super::thread::{Doing, Thread};
use crate::capture::clock::now;
use crate::capture::restart::stand_before_call;
use crate::capture::{Catches, Error, Report};
use crate::common::Tid;
use crate::encode::Item;
use crate::tracee::Signo;
use std::collections::BTreeMap;

/// Bytes of SYSCALL.
const SYSCALL_BYTES: u64 = 2;

impl Thread {
    /// Stops the thread until the debugger lets it go on.
    pub(super) fn stand(&mut self, news: Report) {
        self.doing = Doing::Standing;
        self.pending.news = Some(news);
    }

    /// Delivers the signal at which a thread stopped, or another.
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
    /// Returns true if the thread executes one instruction for the debugger.
    pub(super) fn is_stepping(&self, thread: &Thread) -> bool {
        self.debugger.as_ref().is_some_and(|debugger| debugger.stepping == Some(thread.tid()))
    }

    /// Returns true if the debugger wants to stop for a signal.
    pub(super) fn wants(&self, thread: &mut Thread, signal: Signo) -> bool {
        let steps = self.is_stepping(thread);
        self.debugger.as_ref().is_some_and(|debugger| {
            let passed = if steps { debugger.passed_to_stepper } else { debugger.passed };
            thread.pending.asks(signal, passed)
        })
    }

    /// Stops a thread that left the cache at `ip`, where threads stop.
    pub(super) fn stop_at(&mut self, thread: &mut Thread, ip: u64) -> Result<(), Error> {
        self.send(thread.tid(), Item::Leave { ip });
        let Some(debugger) = &self.debugger else { return Ok(()) };
        let after_step = self.is_stepping(thread) && debugger.following == Some(ip);
        let called = debugger.calling.get(&thread.tid()).filter(|(following, _)| *following == ip);
        if let Some((_, number)) = called {
            thread.stand(Report::CallReturn(*number));
        } else if debugger.stops.contains(&ip) {
            thread.stand(Report::Stop);
        } else if after_step {
            thread.stand(Report::Stepped);
        } else {
            // Another thread's step ends here.
            self.go_on_in_cache(thread)?;
        }
        Ok(())
    }

    /// Returns true if a thread stops, once, at a system call that it is about to make at `ip`.
    pub(super) fn catches(&self, thread: &mut Thread, number: u64, ip: u64) -> bool {
        let passes = thread.caught.take().is_some_and(|caught| caught == (ip, number));
        !passes && self.debugger.as_ref().is_some_and(|debugger| debugger.catches.has(number))
    }

    /// Stops a thread in the program, before a system call.
    pub(super) fn stand_at_call(&mut self, thread: &mut Thread, number: u64, ip: u64) {
        self.send(thread.tid(), Item::Leave { ip });
        thread.caught = Some((ip, number));
        thread.stand(Report::Call(number));
    }

    /// Lets the system calls that the debugger catches stop before they are made.
    pub(super) fn catch_calls(&mut self, catches: &Catches) {
        let debugger = self.debugger.get_or_insert_default();
        if debugger.catches == *catches {
            return;
        }
        debugger.catches.clone_from(catches);
        // Calls that are no longer caught still stop, and go on.
        match catches {
            Catches::None => {}
            Catches::Of(numbers) => self.engine.see_calls(numbers.iter().copied()),
            Catches::All => self.engine.see_all_calls(),
        }
    }

    /// Notes the threads that make the system call at which they stopped, and stop after it.
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

    /// Returns the return of a system call that the debugger catches, of a thread stopped in that
    /// call. It is to be reported next, once.
    pub(super) fn take_return(&mut self, tid: Tid) -> Option<Report> {
        let (_, number) = self.debugger.as_mut()?.calling.remove(&tid)?;
        Some(Report::CallReturn(number))
    }

    /// Lets a thread that is stopped in the program go on, even where threads stop.
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

    /// Stops a thread in the program that was interrupted.
    pub(super) fn halt(&mut self, thread: &mut Thread) -> Result<(), Error> {
        let registers = thread.tracee().registers()?;
        self.send(thread.tid(), Item::Leave { ip: registers.rip });
        thread.tracee().set_registers(&stand_before_call(&registers))?;
        thread.doing = Doing::Standing;
        Ok(())
    }
}
