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
use crate::tracee::{self, Memory, PtraceEvent, Stop, Tracee, pending_stop, siginfo, wait_for};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

/// The number of checks for a stop before the first pause between two.
const CHECKS_BEFORE_PAUSE: u32 = 50;
/// The pause between two checks for a stop.
const CHECK_PERIOD: Duration = Duration::from_millis(1);
/// The number of stops of a child between two checks for an interruption.
const STOPS_PER_CHECK: u32 = 1024;

/// The `si_code` of a SIGTRAP by INT3.
const SI_KERNEL: i32 = 0x80;

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
    /// True if the child was interrupted in a group stop, to which it returns when it is resumed.
    returns_to_group_stop: Cell<bool>,
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
    /// `is_awaited`: the parent waits until the child executes a program or ends (vfork(2)).
    pub(super) fn new(pid: Pid, parent: Pid, is_awaited: bool) -> Result<Self, Error> {
        let memory = Memory::open(pid)?;
        let (is_reported, returns_to_group_stop) = (false, Cell::new(false));
        Ok(Self { pid, memory, is_awaited, parent, is_reported, returns_to_group_stop })
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
            // A signal to deliver would be lost.
            if signal == 0 && stops.is_multiple_of(STOPS_PER_CHECK) && interrupted() {
                break;
            }
            let in_group_stop = self.returns_to_group_stop.take();
            match (std::mem::take(&mut signal), steps) {
                (0, _) if in_group_stop => tracee.listen()?,
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
                    Stop::Signal(libc::SIGTRAP) if steps && has_stepped(tracee)? => {
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
                    // While the process is in a group stop, the kernel reports an interruption as
                    // another one (`do_jobctl_trap` in its kernel/signal.c).
                    Stop::Group(_) if was_interrupted => {
                        self.returns_to_group_stop.set(true);
                        return Ok(NewbornEvent::Stopped(Report::Interrupted));
                    }
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

/// Returns true if the SIGTRAP at which a thread is stopped reports a step. Returns false for one
/// of the program's own: one that was sent, or of INT3.
fn has_stepped(tracee: Tracee) -> Result<bool, tracee::Error> {
    let code = siginfo::code_of(&tracee.signal_info()?);
    Ok(code > 0 && code != SI_KERNEL)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::contract::{Catches, Forks};
    use crate::tracee::Launch;
    use std::collections::BTreeSet;
    use std::ffi::OsString;
    use std::path::Path;

    fn shell(script: &str) -> Newborn {
        let launch = Launch {
            program: Path::new("/bin/sh"),
            argv: &["sh", "-c", script].map(OsString::from),
            env: &[],
            directory: None,
            aslr: false,
        };
        let pid = launch.start().unwrap();
        Newborn::new(pid, Pid(std::process::id().cast_signed()), true).unwrap()
    }

    fn go(tid: Tid, stops: BTreeSet<Addr>) -> Go {
        Go {
            thread: tid,
            step: false,
            locked: false,
            signal: 0,
            signals: Vec::new(),
            stops,
            passed: 0,
            passed_to_stepper: 0,
            watches: Vec::new(),
            catches: Catches::default(),
            forks: Forks::default(),
        }
    }

    /// Starts a process that loops `rounds` times, sends itself a signal, and exits with status 0.
    /// Returns it, and the address after the call that sends the signal.
    fn sender(signal: u8, rounds: u32) -> (Newborn, Addr) {
        let child = shell("");
        let start = child.tracee().instruction_pointer().unwrap();
        let mut code = vec![0xb9];
        code.extend(rounds.to_le_bytes());
        // LOOP to itself; EAX = getpid(); kill(EAX, signal).
        code.extend([0xe2, 0xfe, 0xb8, 39, 0, 0, 0, 0x0f, 0x05]);
        code.extend([0x89, 0xc7, 0xbe, signal, 0, 0, 0, 0xb8, 62, 0, 0, 0, 0x0f, 0x05]);
        let sent = start.wrapping_add(code.len() as u64);
        // exit_group(0).
        code.extend([0x31, 0xff, 0xb8, 231, 0, 0, 0, 0x0f, 0x05]);
        child.memory.write(start, &code).unwrap();
        (child, sent)
    }

    /// Steps a child until it ends, and returns how it ended.
    fn step_to_end(child: &Newborn, interrupted: &dyn Fn() -> bool) -> Exit {
        let go = go(child.tid(), BTreeSet::from([Addr(1)]));
        loop {
            if let NewbornEvent::Ended(exit) = child.run_natively(&go, interrupted).unwrap() {
                return exit;
            }
        }
    }

    #[test]
    fn a_stepped_child_gets_its_own_sigtrap() {
        let (child, _) = sender(5, 1);
        assert_eq!(step_to_end(&child, &|| false), Exit::Signal(libc::SIGTRAP));
    }

    #[test]
    fn an_interruption_loses_no_signal() {
        const SIGUSR1: u8 = 10;
        // The stop for the signal is to be the last one before a check for an interruption.
        // Kernels differ in the other stops.
        for others in 5..12 {
            let (child, sent) = sender(SIGUSR1, STOPS_PER_CHECK - 1 - others);
            let is_sent = || child.tracee().instruction_pointer().is_ok_and(|at| at == sent);
            assert_eq!(step_to_end(&child, &is_sent), Exit::Signal(libc::SIGUSR1));
        }
    }

    #[test]
    fn a_child_in_a_group_stop_is_interrupted() {
        let child = shell("kill -STOP $$; exit 3");
        let go = go(child.tid(), BTreeSet::new());
        let has_stopped = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.pid)).unwrap();
            stat.contains(") t ")
        };
        // It stops again when it goes on, until it gets SIGCONT.
        for _ in 0..2 {
            let event = child.run_natively(&go, &has_stopped).unwrap();
            assert!(matches!(event, NewbornEvent::Stopped(Report::Interrupted)));
        }
        let pid = nix::unistd::Pid::from_raw(child.pid.0);
        nix::sys::signal::kill(pid, nix::sys::signal::SIGCONT).unwrap();
        let event = child.run_natively(&go, &|| false).unwrap();
        assert!(matches!(event, NewbornEvent::Ended(Exit::Code(3))));
    }
}
