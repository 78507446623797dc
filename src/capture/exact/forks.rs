//! Forks under a debugger: parent and child both stay stopped until the debugger says which one it
//! follows. The one that it leaves goes on natively. A child that is followed is recorded from then
//! on, beside the recording of its parent. One that shares its parent's memory runs natively until
//! it executes a program.

use super::births::VFORKED_CHILD;
use super::debug_session::{ChildReport, Debugger};
use super::engine::Engine;
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
enum Begins {
    /// After the call that created the child.
    AtBirth,
    /// At the start of the program that it executes.
    WithProgram,
}

impl Engine {
    /// Keeps a child that is stopped at its birth, if the debugger wants to know of it. Returns
    /// false if it does not.
    pub(super) fn keep_newborn(
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
            self.report(parent, Report::Vforked(child));
        }
        Ok(true)
    }

    /// Reports the birth of the child that a thread's completed call made, or the end of its wait
    /// for one. The report of the call itself comes after that.
    pub(super) fn reports_child(&mut self, tid: Tid) {
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

    /// Lets the process and its newborn children go on natively. Other processes stay stopped.
    fn part(&mut self) -> Result<(), Error> {
        self.newborns.leave_all();
        if self.is_gone() { Ok(()) } else { self.leave_beside() }
    }

    /// Returns the thread that waits for a child in its system call.
    fn parent_of(&self, child: Pid) -> Option<Tid> {
        let waits = |thread: &&Thread| {
            thread.debug.child_report == Some(ChildReport::WaitOver(child))
                && thread.calling().is_some()
        };
        self.threads.values().find(waits).map(Thread::tid)
    }

    /// Waits until the parent of a child need not wait for it any more, and stops all threads then.
    fn end_wait_for(&mut self, child: Pid) -> Result<(), Error> {
        while let Some(tid) = self.parent_of(child) {
            self.wait_for_call(tid)?;
        }
        self.halt_all()
    }

    /// Waits up to [`VFORKED_CHILD`] while a child that was left uses the program's memory: until
    /// it executes another program, as a rule.
    pub(super) fn let_child_run(&mut self) -> Result<(), Error> {
        let children = self.threads.values().filter_map(|thread| match thread.debug.child_report {
            Some(ChildReport::WaitOver(child)) => Some(child),
            _ => None,
        });
        let runs = |child: &Pid| self.newborns.get(*child).is_none();
        match children.filter(runs).find_map(|child| self.parent_of(child)) {
            Some(parent) => self.wait_at_most(parent, VFORKED_CHILD),
            None => Ok(()),
        }
    }
}

/// The program under a debugger, and the process beside it that the debugger has not left yet.
#[derive(Debug)]
pub(super) struct Processes {
    /// The recorder of the program that is debugged.
    pub(super) program: Engine,
    /// The parent of a child that is followed since it executed a program, until it is left.
    pub(super) parent: Option<Engine>,
    /// The child that is debugged instead of the program, which waits for it and is left
    /// afterwards.
    pub(super) parting: Option<Pid>,
}

impl Processes {
    pub(super) fn of(program: Engine) -> Self {
        Self { program, parent: None, parting: None }
    }

    /// Begins to record a child that is stopped in the program, and makes it the program. Returns
    /// the engine of its parent.
    fn follow(&mut self, child: Pid, begins: Begins) -> Result<Engine, Error> {
        let parent = &mut self.program;
        let prepared = Prepared::of_followed(&parent.request, Backend::Exact, child)?;
        parent.newborns.take(child);
        let was_running = parent.process.as_ref().is_some_and(|process| process.was_running);
        let gate = parent.process.as_ref().and_then(Process::filters_gate);
        let mut engine = Engine::new(&parent.request, child, None);
        if let Err(error) = engine.begin_child(prepared, begins, was_running, gate) {
            engine.part_from_process();
            return Err(error);
        }
        engine.debugger = Some(Debugger::default());
        engine.begin_debugging_program();
        Ok(std::mem::replace(&mut self.program, engine))
    }

    /// Lets a reported child run natively until it executes a program. From then on it is the one
    /// that is debugged.
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
                self.part_for_good(child, Some(exit))?;
                Ok((tid, Report::Ended(Some(exit))))
            }
            NewbornEvent::Executed if reason_not_to_record(child, self.program.pid)?.is_some() => {
                self.program.newborns.leave(child);
                self.part_for_good(child, None)?;
                Ok((tid, Report::Ended(None)))
            }
            NewbornEvent::Executed => {
                finish_execve(Tracee(tid))?;
                self.program.end_wait_for(child)?;
                let mut parent = self.follow(child, Begins::WithProgram)?;
                if self.parting.take().is_some() {
                    parent.part()?;
                } else {
                    self.parent = Some(parent);
                }
                Ok((tid, Report::Executed))
            }
        }
    }

    /// Lets the parent of a child that is gone or left go on natively, if the child was debugged in
    /// its place (`parting`).
    fn part_for_good(&mut self, child: Pid, exit: Option<Exit>) -> Result<(), Error> {
        if self.parting.take().is_none() {
            return Ok(());
        }
        let engine = &mut self.program;
        engine.part()?;
        (engine.pid, engine.exit) = (child, exit);
        Ok(())
    }

    /// Leaves one of the processes. If that is the program, another one becomes the program.
    pub(super) fn leave_one(&mut self, pid: Pid) -> Result<(), Error> {
        if self.program.newborns.leave(pid) {
            return self.part_for_good(pid, None);
        }
        if let Some(mut parent) = self.parent.take_if(|parent| parent.pid == pid) {
            return parent.part();
        }
        if pid != self.program.pid {
            return Ok(());
        }
        let reported = self.program.newborns.reported().next();
        match reported.map(|child| (child.pid, child.is_awaited)) {
            Some((child, true)) => {
                self.parting = Some(child);
                Ok(())
            }
            Some((child, false)) => self.follow(child, Begins::AtBirth)?.part(),
            None => {
                if let Some(parent) = self.parent.take() {
                    return std::mem::replace(&mut self.program, parent).part();
                }
                self.leave_newborns();
                self.program.leave_program()
            }
        }
    }

    /// Lets the newborn children and the parent go on natively, and the program if it is being left
    /// (`parting`).
    pub(super) fn leave_all_others(&mut self) -> Result<(), Error> {
        self.leave_newborns();
        if let Some(child) = self.parting {
            self.part_for_good(child, None)?;
        }
        self.parent.take().map_or(Ok(()), |mut parent| parent.part())
    }

    /// Lets the newborn children go on natively, and drops the reports of their births.
    fn leave_newborns(&mut self) {
        let engine = &mut self.program;
        engine.newborns.leave_all();
        engine.forget_births();
        for thread in engine.threads.values_mut() {
            thread.debug.child_report.take_if(|report| matches!(report, ChildReport::Birth(_)));
        }
    }

    /// Kills a newborn child or the parent, and waits for its end.
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

    /// Kills all processes, except for a program that is being left (`parting`): that goes on
    /// natively.
    pub(super) fn kill_all(&mut self) -> Result<(), Error> {
        self.program.newborns.kill_all();
        if let Some(child) = self.parting {
            return self.part_for_good(child, None);
        }
        let killed = self.parent.take().map_or(Ok(()), |mut parent| parent.kill());
        killed.and(self.program.kill())
    }
}

impl Engine {
    /// Begins to record the stopped child in this process, its recorder: from the call that created
    /// it, or from the program that it executes. `was_running` is that of its parent.
    fn begin_child(
        &mut self,
        prepared: Prepared,
        begins: Begins,
        was_running: bool,
        gate: Option<Gate>,
    ) -> Result<(), Error> {
        if begins == Begins::WithProgram {
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
