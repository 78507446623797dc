//! Newborns: child processes of a program under a debugger, from their birth until the debugger
//! decides about them.
//!
//! 1. A backend stops parent and child at the birth (fork(2), vfork(2), clone(2)), and adds the
//!    child to [`Newborns`]. It is not recorded. Memory that it does not share with its parent has
//!    nothing of the recorder.
//! 2. The event of the birth is reported to the debugger, at once or at a later request: from then
//!    on the child is *reported*. One that never is goes on when its parent's recording ends.
//! 3. The debugger leaves the child (it is detached from), kills it, or follows it.
//! 4. A followed child is recorded from its birth on. One that shares its parent's memory cannot be
//!    translated there: except by `step`, which translates nothing, it is run *natively*, without
//!    the code cache ([`Newborn::run_natively`]), and recorded from its execve(2) on, if it makes
//!    one. As a rule its parent waits in the kernel for that, or for the child's end (vfork(2)):
//!    the child is *awaited*.

use super::contract::{Go, Report};
use super::{Error, final_state};
use crate::common::{Addr, Pid, Tid};
use crate::image::core;
use crate::insn::Registers;
use crate::recording::Exit;
use crate::tracee::call_numbers::{CLONE, CLONE3, VFORK};
use crate::tracee::{self, Memory, PtraceEvent, Stop, Tracee, pending_stop, wait_for};
use std::collections::BTreeMap;
use std::time::Duration;

/// The number of checks for a stop before the first pause between two.
const CHECKS_BEFORE_PAUSE: u32 = 50;
/// The pause between two checks for a stop.
const CHECK_PERIOD: Duration = Duration::from_millis(1);
/// The number of stops of a child between two checks for an interruption.
const STOPS_PER_CHECK: u32 = 1024;

/// `CLONE_VM` (clone(2)).
const CLONE_VM: u64 = 0x100;

/// Returns true if a child shares its parent's memory until it executes a program. `registers` are
/// those of either at the child's birth, `memory` is the parent's.
pub(super) fn shares_memory(registers: &Registers, memory: &Memory) -> bool {
    let flags = match registers.orig_rax {
        VFORK => CLONE_VM,
        CLONE => registers.rdi,
        CLONE3 => {
            // The flags come first in `struct clone_args`.
            let mut flags = [0; 8];
            memory.read(Addr(registers.rdi), &mut flags);
            u64::from_le_bytes(flags)
        }
        _ => 0,
    };
    flags & CLONE_VM != 0
}

/// A child process that is stopped at its birth.
#[derive(Debug)]
pub(super) struct Newborn {
    pub(super) pid: Pid,
    memory: Memory,
    /// True if the parent waits until the child executes a program or ends, and may share its
    /// memory.
    pub(super) is_awaited: bool,
    /// The process that created the child.
    parent: Pid,
    /// True once the child's birth was reported to the debugger.
    is_reported: bool,
}

/// The event that ends a newborn child's native run.
pub(super) enum NewbornEvent {
    /// The child still runs the same program, and is stopped with this event.
    Stopped(Report),
    /// The child is stopped in the execve(2) that started another program.
    Executed,
    /// The child is gone.
    Ended(Exit),
}

impl Newborn {
    /// Returns the child `pid` of `parent`, which is stopped at its birth and not reported yet.
    pub(super) fn new(pid: Pid, parent: Pid, is_awaited: bool) -> Result<Self, Error> {
        let memory = Memory::open(pid)?;
        Ok(Self { pid, memory, is_awaited, parent, is_reported: false })
    }

    /// Returns the number of the child's first thread, its only one.
    pub(super) fn tid(&self) -> Tid {
        Tid(self.pid.0)
    }

    fn tracee(&self) -> Tracee {
        Tracee(self.tid())
    }

    /// Returns the registers of the child; `None` if it is gone.
    pub(super) fn thread(&self) -> Option<core::Thread> {
        final_state::read_thread(self.tracee(), None)
    }

    /// Reads the child's memory. Returns the number of bytes read.
    pub(super) fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        self.memory.read(addr, buf)
    }

    /// Detaches from the child. Ignores one that is gone.
    pub(super) fn leave(self) {
        let _ = self.tracee().detach(0);
    }

    /// Kills the child, and waits until it has ended.
    pub(super) fn kill(self) {
        Tracee::kill_process(self.pid);
        while let Ok(stop) = wait_for(self.tid()) {
            if matches!(stop, Stop::Exited(_) | Stop::Killed { .. }) {
                break;
            }
            // Resume the child from its exit stop, unless that was reported before.
            let _ = self.tracee().resume(0);
        }
    }

    /// Resumes the child natively, without a recording, and blocks until there is an event for the
    /// debugger. Does not take the child out of [`Newborns`], whatever the event.
    ///
    /// If `go` is a step or has addresses to stop at, single-steps the child: each SIGTRAP counts
    /// as the end of a step then, even the program's own. A signal for which it stops is delivered
    /// as it is next resumed, without a report. Detaches from its children.
    pub(super) fn run_natively(
        &self,
        go: &Go,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<NewbornEvent, tracee::Error> {
        let tracee = self.tracee();
        let steps = go.step || !go.stops.is_empty();
        let mut signal = go.signal;
        for stops in 1_u32.. {
            if stops.is_multiple_of(STOPS_PER_CHECK) && interrupted() {
                break;
            }
            match (std::mem::take(&mut signal), steps) {
                (signal, true) => tracee.step(signal)?,
                (signal, false) => tracee.resume(signal)?,
            }
            // Wait for one stop. Only a group stop is followed by another without being resumed.
            loop {
                let (stop, was_interrupted) = self.wait_for_stop(interrupted)?;
                match stop {
                    Stop::Exited(code) => return Ok(NewbornEvent::Ended(Exit::Code(code))),
                    Stop::Killed { signal, .. } => {
                        return Ok(NewbornEvent::Ended(Exit::Signal(signal)));
                    }
                    Stop::Event(PtraceEvent::Exec) => return Ok(NewbornEvent::Executed),
                    Stop::Event(PtraceEvent::Stop) if was_interrupted => {
                        return Ok(NewbornEvent::Stopped(Report::Interrupted));
                    }
                    Stop::Event(PtraceEvent::Clone | PtraceEvent::Fork | PtraceEvent::Vfork) => {
                        detach_child_of(tracee)?;
                    }
                    Stop::Signal(libc::SIGTRAP) if steps => {
                        let at = tracee.instruction_pointer()?;
                        if go.stops.contains(&at) {
                            return Ok(NewbornEvent::Stopped(Report::Breakpoint));
                        }
                        if go.step {
                            return Ok(NewbornEvent::Stopped(Report::Stepped));
                        }
                    }
                    // It is delivered in the next round of the outer loop.
                    Stop::Signal(number) => signal = number,
                    Stop::Group(_) => {
                        tracee.listen()?;
                        continue;
                    }
                    Stop::Event(_) | Stop::Call => {}
                }
                break;
            }
        }
        Ok(NewbornEvent::Stopped(Report::Interrupted))
    }

    /// Waits for the child's next stop. Interrupts the child if `interrupted` returns true. Returns
    /// the stop, and true if the child was interrupted: the stop may still be another one, which
    /// came first.
    fn wait_for_stop(&self, interrupted: &dyn Fn() -> bool) -> Result<(Stop, bool), tracee::Error> {
        let mut was_interrupted = false;
        for checks in 0_u32.. {
            if let Some(stop) = pending_stop(self.tid())? {
                return Ok((stop, was_interrupted));
            }
            if checks < CHECKS_BEFORE_PAUSE {
                std::thread::yield_now();
                continue;
            }
            if !was_interrupted && interrupted() {
                self.tracee().interrupt()?;
                was_interrupted = true;
            }
            std::thread::sleep(CHECK_PERIOD);
        }
        Ok((wait_for(self.tid())?, was_interrupted))
    }
}

/// The children that are stopped at their birth until the debugger follows or leaves them.
#[derive(Debug, Default)]
pub(super) struct Newborns(BTreeMap<Pid, Newborn>);

impl Newborns {
    /// Adds a child.
    pub(super) fn add(&mut self, newborn: Newborn) {
        self.0.insert(newborn.pid, newborn);
    }

    /// Returns the child `pid`; `None` if it is no newborn.
    pub(super) fn get(&self, pid: Pid) -> Option<&Newborn> {
        self.0.get(&pid)
    }

    /// Removes and returns the child `pid`, which stays stopped; `None` if it is no newborn.
    pub(super) fn take(&mut self, pid: Pid) -> Option<Newborn> {
        self.0.remove(&pid)
    }

    /// Returns the children whose births were reported to the debugger.
    pub(super) fn reported(&self) -> impl Iterator<Item = &Newborn> {
        self.0.values().filter(|newborn| newborn.is_reported)
    }

    /// Marks a child as reported if `report` is the event of its birth. Call this with each event
    /// that the debugger gets.
    pub(super) fn mark_reported(&mut self, report: Report) {
        if let Report::Forked(child) | Report::Vforked(child) = report
            && let Some(newborn) = self.0.get_mut(&child)
        {
            newborn.is_reported = true;
        }
    }

    /// Returns true if the debugger may resume a thread, false if not; `None` if that does not
    /// depend on newborn children. A newborn child may be resumed if its parent waits for it. Other
    /// threads may not while there is a reported child.
    pub(super) fn may_resume(&self, tid: Tid) -> Option<bool> {
        match self.get(Pid(tid.0)) {
            Some(newborn) => Some(newborn.is_awaited),
            None => self.reported().next().map(|_| false),
        }
    }

    /// Detaches from the newborn child `pid`, which goes on natively, and forgets it. Returns false
    /// if there is none of this number.
    pub(super) fn leave(&mut self, pid: Pid) -> bool {
        self.take(pid).map(Newborn::leave).is_some()
    }

    /// Detaches from all newborn children.
    pub(super) fn leave_all(&mut self) {
        std::mem::take(&mut self.0).into_values().for_each(Newborn::leave);
    }

    /// Detaches from the children of a process whose births were never reported.
    pub(super) fn leave_unreported_of(&mut self, parent: Pid) {
        let unreported = self.0.values().filter(|one| one.parent == parent && !one.is_reported);
        for pid in unreported.map(|one| one.pid).collect::<Vec<_>>() {
            self.leave(pid);
        }
    }

    /// Kills all newborn children, waits until they have ended, and forgets them.
    pub(super) fn kill_all(&mut self) {
        std::mem::take(&mut self.0).into_values().for_each(Newborn::kill);
    }
}

/// Detaches from the thread or process that a newborn child has just created.
fn detach_child_of(tracee: Tracee) -> Result<(), tracee::Error> {
    let child = Tid(i32::try_from(tracee.event_message()?).unwrap_or(0));
    wait_for(child)?;
    match Tracee(child).detach(0) {
        Err(error) if !error.is_gone() => Err(error),
        _ => Ok(()),
    }
}
