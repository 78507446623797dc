//! Newborn processes of a program under a debugger. They are stopped at their first instruction,
//! untouched by the recorder, until the debugger decides their fate.

use super::contract::{Go, Report};
use super::{Error, final_state};
use crate::common::{Addr, Pid, Tid};
use crate::image::core;
use crate::insn::Registers;
use crate::recording::Exit;
use crate::tracee::call_numbers::{CLONE, CLONE3, VFORK};
use crate::tracee::{self, Memory, PtraceEvent, Stop, Tracee, news_of, wait_for};
use std::collections::BTreeMap;
use std::time::Duration;

/// The number of looks before the first pause.
const BUSY_LOOKS: u32 = 50;
/// The pause between two looks.
const LOOK_PERIOD: Duration = Duration::from_millis(1);
/// The number of stops between two checks for an interruption.
const STOPS_PER_LOOK: u32 = 1024;

/// `CLONE_VM` (clone(2)).
const SHARES_MEMORY: u64 = 0x100;

/// Returns true if a child shares its parent's memory until it executes a program, by the registers
/// of either at its birth.
pub(super) fn shares_memory(registers: &Registers, memory: &Memory) -> bool {
    let flags = match registers.orig_rax {
        VFORK => SHARES_MEMORY,
        CLONE => registers.rdi,
        CLONE3 => {
            // The flags come first in `struct clone_args`.
            let mut flags = [0; 8];
            memory.read(Addr(registers.rdi), &mut flags);
            u64::from_le_bytes(flags)
        }
        _ => 0,
    };
    flags & SHARES_MEMORY != 0
}

/// A child that is stopped at its birth.
#[derive(Debug)]
pub(super) struct Newborn {
    pub(super) pid: Pid,
    memory: Memory,
    /// True if its parent waits until it executes a program or ends, and may share its memory.
    pub(super) is_awaited: bool,
    /// The process that created it.
    parent: Pid,
    /// True once its birth was reported.
    is_reported: bool,
}

/// The result of running a child natively.
pub(super) enum Fate {
    /// It is the same program, stopped with news.
    Stands(Report),
    /// It is in the execve(2) that started another program.
    Executed,
    /// It is gone.
    Ended(Exit),
}

impl Newborn {
    pub(super) fn new(pid: Pid, parent: Pid, is_awaited: bool) -> Result<Self, Error> {
        let memory = Memory::open(pid)?;
        Ok(Self { pid, memory, is_awaited, parent, is_reported: false })
    }

    pub(super) fn tid(&self) -> Tid {
        Tid(self.pid.0)
    }

    fn tracee(&self) -> Tracee {
        Tracee(self.tid())
    }

    pub(super) fn thread(&self) -> Option<core::Thread> {
        final_state::thread(self.tracee(), None)
    }

    pub(super) fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        self.memory.read(addr, buf)
    }

    /// Detaches from it. Ignores one that is gone.
    pub(super) fn leave(self) {
        let _ = self.tracee().detach(0);
    }

    /// Kills it, and waits until it has ended.
    pub(super) fn kill(self) {
        Tracee::kill_process(self.pid);
        while let Ok(stop) = wait_for(self.tid()) {
            if matches!(stop, Stop::Exited(_) | Stop::Killed { .. }) {
                break;
            }
            // Resume it from its exit stop, unless that was reported before.
            let _ = self.tracee().resume(0);
        }
    }

    /// Runs it natively, without a recording, until there is news: one that shares its parent's
    /// memory cannot be translated. Steps it if it is to stop at addresses.
    pub(super) fn run(
        &self,
        go: &Go,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Fate, tracee::Error> {
        let tracee = self.tracee();
        let steps = go.step || !go.stops.is_empty();
        let mut signal = go.signal;
        for stops in 1_u32.. {
            if stops.is_multiple_of(STOPS_PER_LOOK) && interrupted() {
                break;
            }
            match (std::mem::take(&mut signal), steps) {
                (signal, true) => tracee.step(signal)?,
                (signal, false) => tracee.resume(signal)?,
            }
            loop {
                let (stop, asked) = self.wait(interrupted)?;
                match stop {
                    Stop::Exited(code) => return Ok(Fate::Ended(Exit::Code(code))),
                    Stop::Killed { signal, .. } => return Ok(Fate::Ended(Exit::Signal(signal))),
                    Stop::Event(PtraceEvent::Exec) => return Ok(Fate::Executed),
                    Stop::Event(PtraceEvent::Stop) if asked => {
                        return Ok(Fate::Stands(Report::Interrupted));
                    }
                    Stop::Event(PtraceEvent::Clone | PtraceEvent::Fork | PtraceEvent::Vfork) => {
                        leave_child_of(tracee)?;
                    }
                    Stop::Signal(libc::SIGTRAP) if steps => {
                        let at = tracee.instruction_pointer()?;
                        if go.stops.contains(&at) {
                            return Ok(Fate::Stands(Report::Stop));
                        }
                        if go.step {
                            return Ok(Fate::Stands(Report::Stepped));
                        }
                    }
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
        Ok(Fate::Stands(Report::Interrupted))
    }

    /// Returns the next stop, and true if it was requested.
    fn wait(&self, interrupted: &dyn Fn() -> bool) -> Result<(Stop, bool), tracee::Error> {
        let mut asked = false;
        for look in 0_u32.. {
            if let Some(stop) = news_of(self.tid())? {
                return Ok((stop, asked));
            }
            if look < BUSY_LOOKS {
                std::thread::yield_now();
                continue;
            }
            if !asked && interrupted() {
                self.tracee().interrupt()?;
                asked = true;
            }
            std::thread::sleep(LOOK_PERIOD);
        }
        Ok((wait_for(self.tid())?, asked))
    }
}

/// The children that are stopped at their birth, until the debugger decides their fate.
#[derive(Debug, Default)]
pub(super) struct Newborns(BTreeMap<Pid, Newborn>);

impl Newborns {
    pub(super) fn add(&mut self, newborn: Newborn) {
        self.0.insert(newborn.pid, newborn);
    }

    pub(super) fn get(&self, pid: Pid) -> Option<&Newborn> {
        self.0.get(&pid)
    }

    pub(super) fn take(&mut self, pid: Pid) -> Option<Newborn> {
        self.0.remove(&pid)
    }

    /// Returns the reported children.
    pub(super) fn reported(&self) -> impl Iterator<Item = &Newborn> {
        self.0.values().filter(|newborn| newborn.is_reported)
    }

    /// Marks a child as reported if the report is of its birth.
    pub(super) fn note_report(&mut self, report: Report) {
        if let Report::Forked(child) | Report::Vforked(child) = report
            && let Some(newborn) = self.0.get_mut(&child)
        {
            newborn.is_reported = true;
        }
    }

    /// Returns true if a thread may run, false if it must not; `None` if no child decides that. A
    /// child runs if its parent waits for it. Other threads must not run beside a reported child.
    pub(super) fn allow(&self, tid: Tid) -> Option<bool> {
        match self.get(Pid(tid.0)) {
            Some(newborn) => Some(newborn.is_awaited),
            None => self.reported().next().map(|_| false),
        }
    }

    /// Detaches from a child. Returns true if there was one.
    pub(super) fn leave(&mut self, pid: Pid) -> bool {
        self.take(pid).map(Newborn::leave).is_some()
    }

    /// Detaches from all.
    pub(super) fn leave_all(&mut self) {
        std::mem::take(&mut self.0).into_values().for_each(Newborn::leave);
    }

    /// Detaches from the children of a process that were never reported.
    pub(super) fn leave_unreported_of(&mut self, parent: Pid) {
        let unreported = self.0.values().filter(|one| one.parent == parent && !one.is_reported);
        for pid in unreported.map(|one| one.pid).collect::<Vec<_>>() {
            self.leave(pid);
        }
    }

    /// Kills all, and waits until they have ended.
    pub(super) fn kill_all(&mut self) {
        std::mem::take(&mut self.0).into_values().for_each(Newborn::kill);
    }
}

/// Detaches from the process that a child has created.
fn leave_child_of(tracee: Tracee) -> Result<(), tracee::Error> {
    let child = Tid(i32::try_from(tracee.event_message()?).unwrap_or(0));
    wait_for(child)?;
    match Tracee(child).detach(0) {
        Err(error) if !error.is_gone() => Err(error),
        _ => Ok(()),
    }
}
