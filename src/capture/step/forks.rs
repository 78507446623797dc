//! Forks under a debugger: parent and child both stay stopped until the debugger chooses which one
//! it follows. Until then the child is a *newborn*: stopped at its birth, and not recorded.

use super::debug_session::Debugger;
use super::engine::{BACKEND, Engine};
use super::events::handle_event_stop;
use super::process::Process;
use super::thread::{Activity, Thread};
use crate::capture::contract::Report;
use crate::capture::debugged::Debugged;
use crate::capture::newborn::Newborn;
use crate::capture::recorder::Prepared;
use crate::capture::{Error, final_state};
use crate::common::{Pid, Tid};
use crate::tracee::PtraceEvent;

impl Engine {
    /// Returns true if `pid` is the program, and its debugger wants to stop at births of this kind.
    pub(super) fn debugger_wants_fork(&self, pid: Pid, event: PtraceEvent) -> bool {
        let forks = self.debugger.as_ref().map(Debugger::forks).unwrap_or_default();
        let wanted = if event == PtraceEvent::Vfork { forks.vfork } else { forks.fork };
        wanted && pid == self.program
    }

    /// Keeps a newborn child stopped for the debugger, and notes the event for its parent. Returns
    /// true if the parent stays stopped inside the call, false if it is to stop after it.
    pub(super) fn keep_newborn(
        &mut self,
        parent: Tid,
        child: Pid,
        event: PtraceEvent,
    ) -> Result<bool, Error> {
        let waits = event == PtraceEvent::Vfork;
        let Some(thread) = self.threads.get_mut(&parent) else { return Ok(false) };
        self.newborns.add(Newborn::new(child, thread.pid, waits)?);
        if waits {
            thread.retire_call();
            thread.waits_for_child = true;
            thread.exit_state = final_state::read_thread(thread.tracee, None);
            let go = self.debugger.as_ref().and_then(Debugger::go);
            let alone = go.is_some_and(|go| go.step && go.locked && go.thread == parent);
            if alone {
                // gdb steps over a breakpoint this way, and accepts only the end of the step as an
                // answer.
                thread.pending.report_on_resume = Some(Report::Vforked(child));
            }
            thread.pending.unreported =
                Some(if alone { Report::Stepped } else { Report::Vforked(child) });
        } else {
            thread.new_child = Some(child);
        }
        Ok(waits)
    }

    /// Returns the threads of stopped processes other than the program, with their processes:
    /// children whose births were reported, and other recorded processes.
    pub(super) fn beside(&self) -> Vec<(Tid, Pid)> {
        let newborns = self.newborns.reported().map(|newborn| (newborn.tid(), newborn.pid));
        newborns.chain(self.tids_beside()).collect()
    }

    /// Makes a newborn child the program that is debugged, and starts its recording. The parent is
    /// not left. If the recording was created but cannot begin, leaves the child. Does nothing if
    /// `child` is no newborn.
    pub(super) fn record_followed(&mut self, child: Pid) -> Result<(), Error> {
        let prepared = Prepared::of_followed(&self.request, BACKEND, child)?;
        let Some(newborn) = self.newborns.take(child) else { return Ok(()) };
        let begun = Process::start(prepared, &self.request.filter, child);
        let mut process = match begun {
            Ok(process) => process,
            Err(error) => {
                newborn.leave();
                return Err(error);
            }
        };
        if let Some(parent) = self.processes.get(&self.program) {
            process.trap_ignored = parent.trap_ignored;
        }
        self.processes.insert(child, process);
        self.add_thread(newborn.tid(), child, Activity::InCall)?;
        self.program = child;
        self.with_thread(newborn.tid(), handle_event_stop)
    }

    /// Leaves a stopped process. If it is the program, a child that was reported, or else another
    /// process, becomes the program.
    pub(super) fn leave_process(&mut self, pid: Pid) -> Result<(), Error> {
        if self.newborns.leave(pid) {
            return Ok(());
        }
        if pid == self.program {
            let reported = self.newborns.reported().next();
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

    /// Detaches from all processes but the program, newborns among them, so that they go on
    /// natively.
    pub(super) fn leave_all_beside(&mut self) -> Result<(), Error> {
        self.leave_newborns();
        let others = self.processes.keys().filter(|pid| **pid != self.program);
        let others: Vec<Pid> = others.copied().collect();
        others.into_iter().try_for_each(|pid| self.detach_from(pid))
    }

    /// Detaches from all newborns, and forgets births that were not reported.
    fn leave_newborns(&mut self) {
        self.newborns.leave_all();
        self.forget_births();
        self.threads.values_mut().for_each(|thread| thread.new_child = None);
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
    /// Takes and returns the event of a system call that is done and created a child or waited for
    /// one.
    pub(super) fn take_child_event(&mut self) -> Option<Report> {
        if self.current_call.is_some() {
            return None;
        }
        let done = std::mem::take(&mut self.waits_for_child).then_some(Report::VforkDone);
        self.new_child.take().map(Report::Forked).or(done)
    }
}
