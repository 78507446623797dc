//! Forks under a debugger: parent and child both stay stopped until the debugger says which one it
//! follows. The one that it leaves goes on natively. A child that is followed is recorded from then
//! on, beside the recording of its parent. One that shares its parent's memory (vfork(2)) runs
//! natively until it executes a program.
//!
//! A *newborn* is a child that is stopped at its birth, or runs natively before it executes a
//! program, and is not recorded (`capture::newborn`). A parent in vfork(2) *waits* for its child.
//! If the debugger leaves such a parent, the recorder keeps it until the child executes a program
//! or ends, and only then detaches from it (`Processes::debugged_child`).

use super::births::VFORK_WAIT;
use super::debug_session::{ChildReport, Debugger};
use super::engine::ExactRecorder;
use super::process::Process;
use super::thread::Thread;
use crate::capture::begin::{finish_execve, reason_not_to_record};
use crate::capture::contract::{Go, Report};
use crate::capture::debugged::Debugged;
use crate::capture::error::gone_is_fine;
use crate::capture::newborn::{Newborn, NewbornEvent};
use crate::capture::recorder::Prepared;
use crate::capture::signals::Forwarding;
use crate::capture::{Backend, Error};
use crate::common::{Pid, Tid};
use crate::engine::Gate;
use crate::insn::Registers;
use crate::recording::Exit;
use crate::tracee::trap_flag::r11_without_trap_flag;
use crate::tracee::{PtraceEvent, Tracee};

/// The place where the recording of a child begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChildStart {
    /// After the call that created the child.
    AtBirth,
    /// At the start of the program that it executes.
    WithProgram,
}

impl ExactRecorder {
    /// Keeps a child that is stopped at its birth as a newborn, and returns true, if the debugger
    /// wants to know of it. The birth by vfork(2) is reported now, another one when the parent's
    /// call is done. Returns false if the debugger does not, or there is none.
    pub(super) fn keep_for_debugger(
        &mut self,
        parent: Tid,
        child: Pid,
        event: PtraceEvent,
    ) -> Result<bool, Error> {
        let Some(debugger) = &self.debugger else { return Ok(false) };
        let waits = event == PtraceEvent::Vfork;
        if !(if waits { debugger.forks.vfork } else { debugger.forks.fork }) {
            return Ok(false);
        }
        self.newborns.add(Newborn::new(child, self.pid, waits)?);
        if let Some(thread) = self.threads.get_mut(&parent) {
            thread.debug.child_report =
                Some(if waits { ChildReport::WaitOver(child) } else { ChildReport::Birth(child) });
        }
        if waits {
            self.report_event(parent, Report::Vforked(child));
        }
        Ok(true)
    }

    /// Reports the birth of the child that a thread's completed call made, or the end of its wait
    /// for one. A report of the call itself, or of a step over it, is made after that; but the end
    /// of a step with all other threads locked comes first. Reports nothing for other calls.
    pub(super) fn report_child(&mut self, tid: Tid) {
        let (Some(debugger), Some(thread)) = (&self.debugger, self.threads.get_mut(&tid)) else {
            return;
        };
        let news = match thread.debug.child_report.take() {
            Some(ChildReport::Birth(child)) => Report::Forked(child),
            Some(ChildReport::WaitOver(_)) if debugger.forks.vfork => Report::VforkDone,
            _ => return,
        };
        let pending = &mut thread.debug.pending;
        let done = pending.unreported.take();
        // gdb, which steps over a breakpoint so, accepts no other answer than the end of the step.
        let is_step_alone = done == Some(Report::Stepped) && debugger.is_locked && news.is_birth();
        (pending.unreported, pending.report_on_resume) =
            if is_step_alone { (done, Some(news)) } else { (Some(news), done) };
    }

    /// Lets the process, unless it is gone, and its newborn children go on natively, and completes
    /// its recording. Other processes stay stopped.
    fn leave_with_newborns(&mut self) -> Result<(), Error> {
        self.newborns.leave_all();
        if self.is_gone() { Ok(()) } else { self.leave_debugged_process() }
    }

    /// Returns the thread that waits for a child in its vfork(2); `None` if none does (any more).
    fn thread_waiting_for(&self, child: Pid) -> Option<Tid> {
        let waits = |thread: &&Thread| {
            thread.debug.child_report == Some(ChildReport::WaitOver(child))
                && thread.current_call().is_some()
        };
        self.threads.values().find(waits).map(Thread::tid)
    }

    /// Waits until the parent's call returns in which it waits for a child, as the child has
    /// executed a program. Stops all threads then.
    fn wait_until_parent_returns(&mut self, child: Pid) -> Result<(), Error> {
        while let Some(tid) = self.thread_waiting_for(child) {
            self.wait_for_call_stop(tid)?;
        }
        self.halt_all()
    }

    /// Waits up to [`VFORK_WAIT`], before other threads run, while a child uses the program's
    /// memory from which the debugger has detached: until it executes another program, as a rule.
    /// Does nothing if there is no such child.
    pub(super) fn let_vfork_child_run(&mut self) -> Result<(), Error> {
        let children = self.threads.values().filter_map(|thread| match thread.debug.child_report {
            Some(ChildReport::WaitOver(child)) => Some(child),
            _ => None,
        });
        let runs = |child: &Pid| self.newborns.get(*child).is_none();
        match children.filter(runs).find_map(|child| self.thread_waiting_for(child)) {
            Some(parent) => self.wait_in_call_at_most(parent, VFORK_WAIT),
            None => Ok(()),
        }
    }
}

/// The program under a debugger, and the processes beside it that the debugger has not left yet.
#[derive(Debug)]
pub(super) struct Processes {
    /// The recorder of the program that is debugged.
    pub(super) program: ExactRecorder,
    /// The recorder of the program's parent, which stays stopped until the debugger leaves it: the
    /// program is its child by vfork(2), and is recorded since it executed a program.
    pub(super) parent: Option<ExactRecorder>,
    /// The newborn child that is debugged instead of the program, if the debugger has left the
    /// program while that waits for the child. The program is detached when the wait is over.
    pub(super) debugged_child: Option<Pid>,
}

impl Processes {
    /// Returns a program without other processes.
    pub(super) fn of(program: ExactRecorder) -> Self {
        Self { program, parent: None, debugged_child: None }
    }

    /// Begins to record a newborn child, which is stopped, and makes it the program. Returns the
    /// recorder of its parent, whose threads stay stopped. After an error, the program is still the
    /// parent. If the new recording could not be created, the child stays a stopped newborn; after
    /// other errors, it goes on natively and is forgotten.
    fn switch_to_child(&mut self, child: Pid, begins: ChildStart) -> Result<ExactRecorder, Error> {
        let parent = &mut self.program;
        let prepared = Prepared::of_followed(&parent.request, Backend::Exact, child)?;
        parent.newborns.take(child);
        let was_running = parent.process.as_ref().is_some_and(|process| process.was_running);
        let gate = parent.process.as_ref().and_then(Process::gate_if_filtered);
        let mut recorder = ExactRecorder::new(&parent.request, child, None);
        if let Err(error) = recorder.begin_child(prepared, begins, was_running, gate) {
            recorder.detach_process();
            return Err(error);
        }
        recorder.debugger = Some(Debugger::default());
        recorder.apply_debugger_stops();
        Ok(std::mem::replace(&mut self.program, recorder))
    }

    /// Lets a newborn child run natively, as `go` asks, until it has an event, executes a program
    /// or ends, or `interrupted` returns true. Returns the event to report. A child that executes a
    /// program is recorded from then on and becomes the program; if it cannot be recorded, it is
    /// left, and reported as ended. So is a `child` that is no newborn.
    pub(super) fn run_newborn(
        &mut self,
        child: Pid,
        go: &Go,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(Tid, Report), Error> {
        let tid = Tid(child.0);
        let Some(newborn) = self.program.newborns.get(child) else {
            return Ok((tid, Report::Ended(None)));
        };
        let _forwarding = Forwarding::to(child);
        match newborn.run_natively(go, interrupted)? {
            NewbornEvent::Stopped(news) => Ok((tid, news)),
            NewbornEvent::Ended(exit) => {
                self.program.newborns.take(child);
                self.leave_waiting_program(child, Some(exit))?;
                Ok((tid, Report::Ended(Some(exit))))
            }
            NewbornEvent::Executed if reason_not_to_record(child, self.program.pid)?.is_some() => {
                self.program.newborns.leave(child);
                self.leave_waiting_program(child, None)?;
                Ok((tid, Report::Ended(None)))
            }
            NewbornEvent::Executed => {
                finish_execve(Tracee(tid))?;
                self.program.wait_until_parent_returns(child)?;
                let mut parent = self.switch_to_child(child, ChildStart::WithProgram)?;
                if self.debugged_child.take().is_some() {
                    parent.leave_with_newborns()?;
                } else {
                    self.parent = Some(parent);
                }
                Ok((tid, Report::Executed))
            }
        }
    }

    /// Lets the program, which waited for a child that is gone or left, go on natively, if the
    /// child was debugged in its place (`debugged_child`). The child's number and `exit` take the
    /// place of the program's then. Does nothing otherwise.
    fn leave_waiting_program(&mut self, child: Pid, exit: Option<Exit>) -> Result<(), Error> {
        if self.debugged_child.take().is_none() {
            return Ok(());
        }
        let recorder = &mut self.program;
        recorder.leave_with_newborns()?;
        (recorder.pid, recorder.exit) = (child, exit);
        Ok(())
    }

    /// Leaves one of the processes, which goes on natively. If that is the program, another one
    /// becomes the program: its newborn child, or else its parent; a program that waits for its
    /// child is only detached later. Without another one, the session is over. Does nothing for an
    /// unknown process.
    pub(super) fn leave_one(&mut self, pid: Pid) -> Result<(), Error> {
        if self.program.newborns.leave(pid) {
            return self.leave_waiting_program(pid, None);
        }
        if let Some(mut parent) = self.parent.take_if(|parent| parent.pid == pid) {
            return parent.leave_with_newborns();
        }
        if pid != self.program.pid {
            return Ok(());
        }
        let reported = self.program.newborns.reported().next();
        match reported.map(|child| (child.pid, child.is_awaited)) {
            Some((child, true)) => {
                self.debugged_child = Some(child);
                Ok(())
            }
            Some((child, false)) => {
                self.switch_to_child(child, ChildStart::AtBirth)?.leave_with_newborns()
            }
            None => {
                if let Some(parent) = self.parent.take() {
                    return std::mem::replace(&mut self.program, parent).leave_with_newborns();
                }
                self.leave_newborns();
                self.program.leave_program()
            }
        }
    }

    /// Lets the newborn children and the parent go on natively, and the program as well if the
    /// debugger has left it already (`debugged_child`).
    pub(super) fn leave_all_others(&mut self) -> Result<(), Error> {
        self.leave_newborns();
        if let Some(child) = self.debugged_child {
            self.leave_waiting_program(child, None)?;
        }
        self.parent.take().map_or(Ok(()), |mut parent| parent.leave_with_newborns())
    }

    /// Lets the newborn children go on natively, and drops the reports of their births.
    fn leave_newborns(&mut self) {
        let recorder = &mut self.program;
        recorder.newborns.leave_all();
        recorder.forget_births();
        for thread in recorder.threads.values_mut() {
            thread.debug.child_report.take_if(|report| matches!(report, ChildReport::Birth(_)));
        }
    }

    /// Kills a newborn child or the parent, and waits for its end. Does nothing for other
    /// processes.
    pub(super) fn kill_other(&mut self, pid: Pid) -> Result<(), Error> {
        if let Some(newborn) = self.program.newborns.take(pid) {
            newborn.kill();
            return Ok(());
        }
        match self.parent.take_if(|parent| parent.pid == pid) {
            Some(mut parent) => parent.kill(),
            None => Ok(()),
        }
    }

    /// Kills all processes. But if the debugger has left the program (`debugged_child`), kills the
    /// newborn children only: the program goes on natively, and its parent stays as it is.
    pub(super) fn kill_all(&mut self) -> Result<(), Error> {
        self.program.newborns.kill_all();
        if let Some(child) = self.debugged_child {
            return self.leave_waiting_program(child, None);
        }
        let killed = self.parent.take().map_or(Ok(()), |mut parent| parent.kill());
        killed.and(self.program.kill())
    }
}

impl ExactRecorder {
    /// Begins to record a stopped child, for which this recorder was made: from the call that
    /// created it, or from the program that it executes. `was_running` is that of its parent.
    fn begin_child(
        &mut self,
        prepared: Prepared,
        begins: ChildStart,
        was_running: bool,
        gate: Option<Gate>,
    ) -> Result<(), Error> {
        if begins == ChildStart::WithProgram {
            return self.start_executed(prepared, gate);
        }
        let tracee = Tracee(Tid(self.pid.0));
        let registers = tracee.registers()?;
        // As SYSCALL left it, without the trap flag of its parent's step.
        let r11 = r11_without_trap_flag(&registers);
        gone_is_fine(tracee.set_registers(&Registers { r11, orig_rax: u64::MAX, ..registers }))?;
        self.take_over(prepared, &[tracee.0], gate)?;
        if let Some(process) = &mut self.process {
            process.was_running = was_running;
        }
        Ok(())
    }
}
