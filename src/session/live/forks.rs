//! The processes beside a live program: stopped children that the debugger does not follow yet, and
//! the stopped parent of a child that it follows. The session's *program* is the process that the
//! debugger follows; it has the history.
//!
//! After a vfork(2), the parent's thread waits until its child executes a program or ends.
//! `Live::vfork_wait` is what the debugger knows of that wait:
//! 1. The report of the vfork sets [`Vfork::Waits`].
//! 2. If the debugger then goes to the past, where nothing waits, it is informed first that the
//!    wait is over ([`Live::end_vfork_for_past`]), although it is not: [`Vfork::ReportedDone`].
//! 3. The report of the real end clears it. After step 2, a [`Report::VforkDone`] is not passed on:
//!    the program is resumed again ([`Live::resume_past_known_reports`]).

use super::Live;
use crate::capture::{Go, Report};
use crate::common::{Addr, Pid, Tid};
use crate::session::{Direction, Ending, Error, Order, Run, Stop, StopReason};
use std::cell::{OnceCell, RefCell};

/// A thread that waits for its vfork child (`vfork(2)`), as far as the debugger was informed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vfork {
    /// The debugger knows that this thread waits.
    Waits(Tid),
    /// The debugger went to the past and was informed that the wait is over, although it is not.
    ReportedDone(Tid),
}

impl Live {
    /// Resumes the program and waits for a report, which it returns with its thread. Resumes again
    /// after two reports: the end of a vfork wait that the debugger was informed of already, and
    /// the coming exit of the program if the debugger does not stop before it. Begins a new history
    /// if another process is the program then.
    pub(super) fn resume_past_known_reports(
        &mut self,
        go: &Go,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(Tid, Report), crate::capture::Error> {
        let mut go = go.clone();
        let before = self.program.get_mut().pid();
        loop {
            let (thread, report) = self.program.get_mut().go(&go, interrupted)?;
            if self.program.get_mut().pid() != before {
                // A child that is followed has executed a program.
                self.begin_history();
            }
            match (report, self.vfork_wait) {
                (Report::VforkDone, Some(Vfork::ReportedDone(reported))) if reported == thread => {
                    self.vfork_wait = None;
                    (go.signal, go.thread) = (0, if go.step { go.thread } else { thread });
                    go.signals.clear();
                }
                (Report::Ending, _) if self.skips_end_stop => {
                    go.signal = 0;
                    go.signals.clear();
                }
                _ => {
                    self.note_vfork(thread, report);
                    return Ok((thread, report));
                }
            }
        }
    }

    /// Notes in `vfork_wait` whether a thread waits for its child, by a report that the debugger
    /// gets.
    fn note_vfork(&mut self, thread: Tid, report: Report) {
        match report {
            Report::Vforked(_) => self.vfork_wait = Some(Vfork::Waits(thread)),
            Report::VforkDone | Report::Executed | Report::Ended(_) => self.vfork_wait = None,
            _ => {}
        }
    }

    /// Returns a stop that reports a vfork wait as over, before the debugger goes to the past,
    /// where nothing waits, and notes that the debugger is informed of it. Returns `None` if the
    /// debugger knows of no wait, or requests no stops at vforks. gdb keeps its breakpoints out of
    /// a process that waits for its child.
    pub(super) fn end_vfork_for_past(&mut self) -> Option<Stop> {
        let Some(Vfork::Waits(thread)) = self.vfork_wait.filter(|_| self.forks.vfork) else {
            return None;
        };
        self.vfork_wait = Some(Vfork::ReportedDone(thread));
        Some(Stop { thread, reason: StopReason::VforkDone })
    }

    /// Returns the process beside the program to which a thread belongs; `None` if it belongs to
    /// none.
    fn process_beside(&self, tid: Tid) -> Option<Pid> {
        let beside = self.program.borrow().beside();
        beside.iter().find(|(of_beside, _)| *of_beside == tid).map(|(_, pid)| *pid)
    }

    /// Returns true if a thread belongs to a process beside the program.
    pub(super) fn is_of_process_beside(&self, tid: Tid) -> bool {
        self.process_beside(tid).is_some()
    }

    /// Returns the process of a thread. For an unknown thread: the program in the past; at the live
    /// end, an ended process whose first thread has this ID.
    pub(super) fn pid_of(&self, tid: Tid) -> Pid {
        let pid = self.program.borrow().pid();
        let known = || self.program.borrow().threads().contains(&tid);
        match self.process_beside(tid) {
            Some(beside) => beside,
            None if tid.0 == pid.0 || known() => pid,
            // A thread of the past that is gone, or a child that has ended.
            None if self.past_in_view().is_some() => pid,
            None => Pid(tid.0),
        }
    }

    /// Reads the present memory of a thread's process, which is the program for unknown threads.
    /// Returns the number of bytes read, up to the first that cannot be read.
    pub(super) fn read_live(&self, tid: Tid, addr: Addr, buf: &mut [u8]) -> usize {
        match self.process_beside(tid) {
            Some(pid) => self.program.borrow().read_beside(pid, addr, buf),
            None => self.program.borrow().read(addr, buf),
        }
    }

    /// Fails with [`Error::TwoProcesses`] for a thread of a process beside the program.
    pub(super) fn refuse_beside(&self, tid: Tid) -> Result<(), Error> {
        if self.is_of_process_beside(tid) { Err(Error::TwoProcesses) } else { Ok(()) }
    }

    /// Returns the reason why a live program cannot execute an order, due to the processes beside
    /// it; `None` if it can, if it is gone, and in the past.
    pub(super) fn refuse_order(&self, order: &Order) -> Option<Error> {
        if self.ended.is_some() || self.in_past {
            return None;
        }
        let is_beside = self.is_of_process_beside(order.thread);
        let program = self.program.borrow();
        if !program.may_resume(order.thread) {
            return Some(Error::TwoProcesses);
        }
        let goes_back = order.direction == Direction::Backward;
        (is_beside && goes_back).then_some(Error::NotRecordedYet)
    }

    /// Detaches from the program or from a process beside it ([`Run::detach_process`]). Begins a
    /// new history if another process is the program then. If the program is the only process,
    /// first closes the history, and so leaves the past, even if the detach fails.
    pub(super) fn detach_from_process(&mut self, pid: Pid) -> Result<(), Error> {
        let before = self.program.get_mut().pid();
        let only = self.program.get_mut().beside().is_empty();
        if only && before == pid {
            self.close_history();
        }
        let left = self.program.get_mut().leave_process(pid);
        left.map_err(|error| Error::Refused(error.to_string()))?;
        let now = self.program.get_mut().pid();
        if before != now {
            self.begin_history();
        } else if only && before == pid {
            self.ended.get_or_insert(Ending::Unknown);
        } else if !self.program.get_mut().threads().contains(&self.stopped_thread) {
            let tids = self.program.get_mut().threads();
            self.stopped_thread = tids.first().copied().unwrap_or(Tid(now.0));
        }
        Ok(())
    }

    /// Begins a new history at the live end, since another process is the program now. Forgets the
    /// stop and the ending of the former program.
    fn begin_history(&mut self) {
        let program = self.program.get_mut();
        self.stopped_thread = program.threads().first().copied().unwrap_or(Tid(program.pid().0));
        (self.history, self.reusable_replay) = (OnceCell::new(), RefCell::new(None));
        (self.in_past, self.repeats_signal) = (false, false);
        (self.stop_signal, self.ended) = (None, None);
    }

    /// Kills a process beside the program; for any other ID, kills the program. Keeps an error for
    /// the user in `failure`.
    pub(super) fn kill_process_or_program(&mut self, pid: Pid) {
        if self.program.get_mut().beside().iter().all(|(_, beside)| *beside != pid) {
            return self.kill();
        }
        if let Err(error) = self.program.get_mut().kill_beside(pid) {
            self.failure.replace(Some(error.to_string()));
        }
    }

    /// Detaches from the processes beside the program. The program counts as gone if no thread is
    /// left. Keeps an error for the user in `failure`.
    pub(super) fn detach_from_beside(&mut self) {
        if let Err(error) = self.program.get_mut().leave_all_beside() {
            self.failure.replace(Some(error.to_string()));
        }
        if self.program.get_mut().threads().is_empty() {
            self.ended.get_or_insert(Ending::Unknown);
        }
    }
}
