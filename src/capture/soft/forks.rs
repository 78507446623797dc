//! Forks under a debugger: parent and child both stay stopped until the debugger decides which one
//! it follows, and leaves the other. Until then the child is a *newborn*: not recorded, with
//! nothing of the recorder in its memory.
//!
//! - After fork(2), a followed child becomes the program, and is recorded from there on.
//! - After vfork(2), the child shares its parent's memory, and the parent waits in the kernel. The
//!   child runs natively until its execve(2), and is recorded from there on. If the debugger has
//!   left the parent before, it follows the child alone: that is `followed_child`. The parent is
//!   still the program, and the recorder leaves it once the wait is over.
//!
//! A parent in vfork(2) first stops in its call (`waits_for_child`), to report the birth. Resumed
//! from there, it waits in the kernel ([`Activity::WaitingForChild`]), where nothing can stop it.
//! At the end of the call (`handle_syscall_stop`), it reports the end of the wait if the debugger
//! wants that, and goes on in the cache.

use super::engine::{BACKEND, Engine};
use super::events::disturbing_stop;
use super::thread::{Activity, Thread};
use crate::capture::begin::{finish_execve, reason_not_to_record};
use crate::capture::contract::{Go, Report};
use crate::capture::debugged::Debugged;
use crate::capture::error::gone_is_fine;
use crate::capture::newborn::{Newborn, NewbornEvent};
use crate::capture::recorder::Prepared;
use crate::capture::restart::registers_outside_call;
use crate::capture::signals::Forwarding;
use crate::capture::{Error, final_state};
use crate::common::{Pid, Tid};
use crate::encode::TraceItem;
use crate::recording::Exit;
use crate::tracee::{PtraceEvent, Stop, Tracee, wait_for};

impl Engine {
    /// Returns true if a process has a debugger that wants to stop at the birth of a child process
    /// that `event` reports: `Vfork` counts as vfork(2), any other event as fork(2). False if the
    /// process is unknown.
    pub(super) fn debugger_wants_fork(&self, pid: Pid, event: PtraceEvent) -> bool {
        let debugger = self.processes.get(&pid).and_then(|process| process.debugger.as_ref());
        debugger.is_some_and(|debugger| match event {
            PtraceEvent::Vfork => debugger.forks.vfork,
            _ => debugger.forks.fork,
        })
    }

    /// Stops a parent for the debugger at the birth of a child, which is stopped as well, and keeps
    /// the child in `newborns`. After vfork(2) the parent is stopped in its call, otherwise after
    /// it: then the end of a step, or of a caught call, is reported after the birth. In a step
    /// during which all other threads stay, only the end of the step is reported now, and the birth
    /// next. If another stop of the parent comes first, queues that, and leaves the child instead.
    pub(super) fn stop_at_fork(
        &mut self,
        parent: Tid,
        child: Pid,
        event: PtraceEvent,
    ) -> Result<(), Error> {
        let waits = event == PtraceEvent::Vfork;
        let program = self.threads.get(&parent).map_or(self.program, Thread::pid);
        let newborn = Newborn::new(child, program, waits)?;
        if !waits {
            // Let the parent finish the call, so that parent and child are both after it.
            gone_is_fine(Tracee(parent).resume_to_call(0))?;
            let stop = wait_for(parent)?;
            if stop != Stop::Call {
                newborn.leave();
                self.stop_queue.push_back((parent, stop));
                return Ok(());
            }
        }
        let mut disturbance = None;
        self.with_thread(parent, |process, thread| {
            disturbance = disturbing_stop(process.make_exact(thread)?);
            if disturbance.is_some() {
                return Ok(());
            }
            let registers = thread.tracee().registers()?;
            process.send(thread.tid(), TraceItem::EnterKernel { ip: registers.rip });
            thread.waits_for_child = waits;
            let birth = if waits { Report::Vforked(child) } else { Report::Forked(child) };
            if !waits {
                thread.tracee().set_registers(&registers_outside_call(&registers))?;
            }
            let steps = process.is_stepping(thread);
            let returned = process.take_call_return(thread.tid());
            if steps && process.debugger.as_ref().is_some_and(|debugger| debugger.others_stay) {
                // gdb steps over a breakpoint this way, and accepts only the end of the step as an
                // answer.
                thread.pending.report_on_resume = Some(birth);
                thread.stop_with(Report::Stepped);
            } else {
                // The return of a caught call is reported after the wait, if the call waits. Else
                // it is reported next, or without one, the end of a step.
                let stepped = steps.then_some(Report::Stepped);
                let done = if waits { None } else { returned.or(stepped) };
                (thread.report_after_wait, thread.pending.report_on_resume) =
                    (returned.filter(|_| waits), done);
                thread.stop_with(birth);
            }
            Ok(())
        })?;
        match disturbance {
            None => self.newborns.add(newborn),
            Some(stop) => {
                newborn.leave();
                self.stop_queue.push_back((parent, stop));
            }
        }
        Ok(())
    }

    /// Handles a stop at the end of a system call. If the thread waited in it for its vfork child,
    /// and the debugger wants that, stops the thread with the end of the wait as its event; the end
    /// of a step, or of the caught call, is reported next. Otherwise resumes the thread, without an
    /// event.
    pub(super) fn handle_syscall_stop(&mut self, tid: Tid) -> Result<(), Error> {
        self.with_thread(tid, |process, thread| {
            if thread.activity != Activity::WaitingForChild {
                return Ok(thread.tracee().resume(0)?);
            }
            thread.finish_wait()?;
            let returned = thread.report_after_wait.take();
            let reports = process.debugger.as_ref().is_some_and(|debugger| debugger.forks.vfork);
            if !reports {
                return process.resume_in_cache(thread);
            }
            let stepped = process.is_stepping(thread).then_some(Report::Stepped);
            thread.pending.report_on_resume = returned.or(stepped);
            thread.stop_with(Report::VforkDone);
            Ok(())
        })
    }

    /// Lets the system calls end in which threads of a process wait for a child, and blocks until
    /// they have, so until each child has executed a program or ended. The threads are stopped
    /// after the calls then. If another stop of a thread comes first, such as its exit stop, queues
    /// that, and does not mark the thread as stopped.
    fn end_waits(&mut self, pid: Pid) -> Result<(), Error> {
        let waiting = |t: &&mut Thread| {
            t.pid() == pid && (t.waits_for_child || t.activity == Activity::WaitingForChild)
        };
        for thread in self.threads.values_mut().filter(waiting) {
            if thread.activity != Activity::WaitingForChild {
                thread.tracee().resume_to_call(0)?;
            }
            match wait_for(thread.tid())? {
                Stop::Call => thread.finish_wait()?,
                stop => self.stop_queue.push_back((thread.tid(), stop)),
            }
        }
        Ok(())
    }

    /// Returns the threads of stopped processes other than the program, with their processes:
    /// children whose births were reported, and other recorded processes. Empty while
    /// `followed_child` is set.
    pub(super) fn beside(&self) -> Vec<(Tid, Pid)> {
        if self.followed_child.is_some() {
            return Vec::new();
        }
        let newborns = self.newborns.reported().map(|newborn| (newborn.tid(), newborn.pid));
        newborns.chain(self.tids_beside()).collect()
    }

    /// Runs a newborn child natively until there is an event, and returns the event: its end if
    /// there is no such newborn. If the child executes a program, it becomes the program, and is
    /// recorded and debugged from there on. Its parent is left then if `followed_child` is set;
    /// otherwise it is still recorded, beside the program ([`Self::beside`]). If the new program
    /// cannot be recorded, the child is left, and reported as ended.
    pub(super) fn run_newborn(
        &mut self,
        child: Pid,
        go: &Go,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(Tid, Report), Error> {
        let Some(newborn) = self.newborns.get(child) else {
            return Ok((Tid(child.0), Report::Ended(None)));
        };
        let tid = newborn.tid();
        let _forwarding = Forwarding::to(child);
        match newborn.run_natively(go, interrupted)? {
            NewbornEvent::Stopped(report) => Ok((tid, report)),
            NewbornEvent::Ended(exit) => {
                self.newborns.take(child);
                self.leave_parent_of_followed(child, Some(exit))?;
                Ok((tid, Report::Ended(Some(exit))))
            }
            NewbornEvent::Executed => {
                let recorder = Pid(nix::unistd::getpid().as_raw());
                if let Some(clause) = reason_not_to_record(child, recorder)? {
                    self.notes.push(format!("process {child} {clause}: not recorded"));
                    self.newborns.leave(child);
                    self.leave_parent_of_followed(child, None)?;
                    return Ok((tid, Report::Ended(None)));
                }
                finish_execve(Tracee(tid))?;
                let parent = self.program;
                self.record_followed(child)?;
                if self.followed_child.take().is_some() {
                    self.detach_from(parent)?;
                }
                Ok((tid, Report::Executed))
            }
        }
    }

    /// Leaves the parent that waits for `child`, if the debugger follows a child alone
    /// (`followed_child`, which must be `child` then), and completes the parent's recording: blocks
    /// until the wait is over. The child, which is gone or left, becomes the program, with its
    /// `exit`. Does nothing if the debugger follows no child alone.
    pub(super) fn leave_parent_of_followed(
        &mut self,
        child: Pid,
        exit: Option<Exit>,
    ) -> Result<(), Error> {
        if self.followed_child.take().is_none() {
            return Ok(());
        }
        let parent = std::mem::replace(&mut self.program, child);
        self.exit = exit;
        self.detach_from(parent)
    }

    /// Makes a stopped newborn child the program, and begins to record it. The parent is not left.
    /// If the recording was created but cannot begin, leaves the child, and returns the error; the
    /// program stays the same.
    fn record_followed(&mut self, child: Pid) -> Result<(), Error> {
        let prepared = Prepared::of_followed(&self.request, BACKEND, child)?;
        let (parent, newborn) = (self.program, self.newborns.take(child));
        self.program = child;
        let begun = self.record_stopped_for_debugger(prepared);
        if begun.is_err() {
            self.program = parent;
            newborn.into_iter().for_each(Newborn::leave);
            return begun;
        }
        let inherited = self.processes.get(&parent).map(|process| process.engine.actions().clone());
        if let (Some(process), Some(actions)) = (self.processes.get_mut(&child), inherited)
            && newborn.is_some_and(|newborn| !newborn.is_awaited)
        {
            process.engine.set_actions(actions);
        }
        Ok(())
    }

    /// Leaves a stopped process, newborn or recorded: detaches from it, so that it goes on
    /// natively. If it is the program, a child that was reported becomes the program, and is
    /// recorded, or else another process; without either, all newborns are left as well. A program
    /// that waits for its child is left later: this only sets `followed_child`.
    pub(super) fn leave_process(&mut self, pid: Pid) -> Result<(), Error> {
        if self.newborns.leave(pid) {
            return self.leave_parent_of_followed(pid, None);
        }
        if pid == self.program {
            let reported = self.newborns.reported().next();
            if let Some(child) = reported.filter(|child| child.is_awaited) {
                self.followed_child = Some(child.pid);
                return Ok(());
            }
            let other = self.processes.keys().find(|other| **other != pid).copied();
            match (reported.map(|newborn| newborn.pid), other) {
                (Some(child), _) => self.record_followed(child)?,
                (None, Some(other)) => self.program = other,
                (None, None) => {
                    self.leave_newborns();
                    return self.leave_program();
                }
            }
        }
        self.detach_from(pid)
    }

    /// Detaches from a process whose threads are all stopped, or wait for a child, so that it goes
    /// on natively, and completes its recording. Blocks until the waits are over
    /// ([`Self::end_waits`]). Does nothing if the process is unknown.
    pub(super) fn detach_from(&mut self, pid: Pid) -> Result<(), Error> {
        self.end_waits(pid)?;
        let threads: Vec<&Thread> = self.threads.values().filter(|t| t.pid() == pid).collect();
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        process.detach_from_stopped(&threads)?;
        self.finish(pid, None)
    }

    /// Detaches from all processes but the program, newborns among them, so that they go on
    /// natively. If the debugger follows a child alone (`followed_child`), that child is left, too,
    /// and its parent with it: none is recorded any more.
    pub(super) fn leave_all_beside(&mut self) -> Result<(), Error> {
        self.leave_newborns();
        if let Some(child) = self.followed_child {
            self.leave_parent_of_followed(child, None)?;
        }
        let others = self.processes.keys().filter(|pid| **pid != self.program);
        let others: Vec<Pid> = others.copied().collect();
        others.into_iter().try_for_each(|pid| self.detach_from(pid))
    }

    /// Detaches from all newborns, and forgets births that were not reported.
    fn leave_newborns(&mut self) {
        self.newborns.leave_all();
        self.forget_births();
    }

    /// Kills a newborn or another recorded process than the program, and waits until it has ended.
    /// Does nothing if `pid` is neither.
    pub(super) fn kill_beside(&mut self, pid: Pid) -> Result<(), Error> {
        if let Some(newborn) = self.newborns.take(pid) {
            newborn.kill();
            return Ok(());
        }
        if pid != self.program && self.processes.contains_key(&pid) {
            return self.kill_process(pid);
        }
        Ok(())
    }
}

impl Thread {
    /// Resumes the thread in the system call in which it waits for its vfork child. Keeps its
    /// registers for the debugger, as they are at the call's end.
    pub(super) fn wait_for_child(&mut self) -> Result<(), Error> {
        self.exit_state =
            final_state::read_thread(self.tracee(), None).map(final_state::forget_cache_address);
        self.activity = Activity::WaitingForChild;
        Ok(self.tracee().resume_to_call(0)?)
    }

    /// Marks a thread as stopped for the debugger, after the call in which it waited for its child.
    fn finish_wait(&mut self) -> Result<(), Error> {
        (self.waits_for_child, self.exit_state) = (false, None);
        self.activity = Activity::Stopped;
        let registers = self.tracee().registers()?;
        Ok(self.tracee().set_registers(&registers_outside_call(&registers))?)
    }
}
