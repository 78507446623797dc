//! A translated program under a debugger: it runs in the code cache between two stops, and all its
//! threads stand in the program, with their exact registers, at each.

use super::debugger::Debugger;
use super::engine::{BACKEND, Engine};
use super::feed::Item;
use super::process::{Process, bits_of};
use super::thread::{Doing, Place, Thread};
use crate::capture::error::gone_is_fine;
use crate::capture::live::{Go, News};
use crate::capture::recorder::{Prepared, Request};
use crate::capture::{Error, final_state};
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::image::core;
use crate::recording::TscClock;
use crate::tracee::{self, Memory, Tracee};
use std::path::{Path, PathBuf};

const NT_X86_XSTATE: u32 = 0x202;
const PROT_WRITE: u64 = 2;

/// A program under a debugger.
#[derive(Debug)]
pub(in crate::capture) struct Live {
    engine: Engine,
    dir: PathBuf,
}

impl Live {
    pub(in crate::capture) fn vacant(request: &Request) -> Self {
        Self { engine: Engine::new(request, Pid(0), None), dir: PathBuf::new() }
    }

    pub(in crate::capture) fn launch(request: &Request) -> Result<Self, Error> {
        let (prepared, pid) = Prepared::launch(request, BACKEND)?;
        let mut engine = Engine::new(request, pid, None);
        match engine.begin_debugging(prepared) {
            Ok(dir) => Ok(Self { engine, dir }),
            Err(error) => {
                engine.let_go();
                Err(error)
            }
        }
    }

    pub(in crate::capture) fn attach(request: &Request, pid: Pid) -> Result<Self, Error> {
        let (prepared, tids) = Prepared::attach(request, BACKEND, pid)?;
        let mut engine = Engine::new(request, pid, None);
        let taken = engine.take_over(prepared, &tids).and_then(|()| engine.halt_all());
        match taken.and_then(|()| engine.attend()) {
            Ok(dir) => Ok(Self { engine, dir }),
            Err(error) => {
                engine.let_go();
                Err(error)
            }
        }
    }

    pub(in crate::capture) fn go(
        &mut self,
        go: &Go,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(Tid, News), Error> {
        self.engine.go(go, interrupted)
    }

    pub(in crate::capture) fn pid(&self) -> Pid {
        self.engine.program
    }

    pub(in crate::capture) fn threads(&self) -> Vec<Tid> {
        self.engine.of_program().map(Thread::tid).collect()
    }

    pub(in crate::capture) fn name(&self, tid: Tid) -> String {
        let process = self.engine.processes.get(&self.engine.program);
        process.map_or_else(String::new, |process| process.name_of(tid))
    }

    pub(in crate::capture) fn thread(&self, tid: Tid) -> Option<core::Thread> {
        let thread = self.engine.threads.get(&tid)?;
        if thread.doing == Doing::AtEnd {
            return thread.ending.clone();
        }
        let registers = thread.tracee.registers().ok()?;
        let siginfo = thread.siginfo.filter(|_| thread.held != 0);
        Some(final_state::thread_with(thread.tracee, &registers, siginfo))
    }

    pub(in crate::capture) fn set_registers(
        &mut self,
        tid: Tid,
        registers: &core::Registers,
    ) -> Result<(), Error> {
        let thread = self.engine.standing(tid)?;
        let words = final_state::kernel_registers(registers);
        Ok(thread.tracee.set_registers(&words)?)
    }

    pub(in crate::capture) fn set_extended_state(
        &mut self,
        tid: Tid,
        area: &[u8],
    ) -> Result<(), Error> {
        let thread = self.engine.standing(tid)?;
        Ok(thread.tracee.set_register_set(NT_X86_XSTATE, area)?)
    }

    pub(in crate::capture) fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        let Some(process) = self.engine.processes.get(&self.engine.program) else { return 0 };
        let visible = process.visible_bytes(addr, buf.len());
        process.memory.read(addr, &mut buf[..visible])
    }

    pub(in crate::capture) fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<(), Error> {
        let program = self.engine.program;
        let Some(process) = self.engine.processes.get_mut(&program) else {
            return Err(Error::NoMemory { at: addr });
        };
        process.write_for_debugger(addr, bytes)
    }

    /// The clock so far.
    pub(in crate::capture) fn clock(&self) -> Option<TscClock> {
        let process = self.engine.processes.get(&self.engine.program)?;
        Some(process.recorder.clock_so_far())
    }

    pub(in crate::capture) fn save(&mut self) -> Result<&Path, Error> {
        self.engine.save_all()?;
        Ok(&self.dir)
    }

    pub(in crate::capture) fn detach(&mut self) -> Result<(), Error> {
        self.engine.detach_debugged()
    }

    pub(in crate::capture) fn kill(&mut self) -> Result<(), Error> {
        self.engine.kill_debugged()
    }
}

impl Engine {
    /// Begins to record a program that was just launched, which stands at its first instruction.
    fn begin_debugging(&mut self, prepared: Prepared) -> Result<PathBuf, Error> {
        prepared.set_latest(&self.request.store)?;
        let pid = self.program;
        let tracee = Tracee(Tid(pid.0));
        let process = Process::start(prepared, &self.request, pid, tracee, None)?;
        self.processes.insert(pid, process);
        self.add_thread(Tid(pid.0), pid, Place::Program)?;
        if let Some(thread) = self.threads.get_mut(&Tid(pid.0)) {
            thread.gs_base = tracee.registers()?.gs_base;
            thread.doing = Doing::Standing;
        }
        self.attend()
    }

    /// A debugger looks at the program from now on. Gives the recording's directory.
    fn attend(&mut self) -> Result<PathBuf, Error> {
        let Some(process) = self.processes.get_mut(&self.program) else {
            let program = self.request.program.clone();
            return Err(tracee::Error::EndedEarly { program }.into());
        };
        process.debugger = Some(Debugger::default());
        Ok(process.recorder.writer().dir().to_owned())
    }

    pub(super) fn of_program(&self) -> impl Iterator<Item = &Thread> {
        self.threads.values().filter(|thread| thread.pid == self.program)
    }

    fn standing(&self, tid: Tid) -> Result<&Thread, Error> {
        let thread = self.threads.get(&tid).filter(|thread| thread.doing == Doing::Standing);
        thread.ok_or(Error::NotStanding { tid })
    }

    /// Writes all that was recorded so far.
    fn save_all(&mut self) -> Result<(), Error> {
        let tids: Vec<Tid> = self.of_program().map(Thread::tid).collect();
        let Some(process) = self.processes.get_mut(&self.program) else { return Ok(()) };
        for tid in tids {
            process.tell(tid, Item::Flush);
        }
        process.feed.settle(Tid(self.program.0));
        process.write_packets()?;
        Ok(process.recorder.flush()?)
    }

    fn detach_debugged(&mut self) -> Result<(), Error> {
        if self.is_at_end() {
            return self.let_end();
        }
        let pid = self.program;
        let threads: Vec<&Thread> = self.threads.values().filter(|t| t.pid == pid).collect();
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        process.depart(&threads)?;
        self.finish(pid, None)
    }

    fn kill_debugged(&mut self) -> Result<(), Error> {
        if !self.processes.contains_key(&self.program) {
            return Ok(());
        }
        Tracee::kill_process(self.program);
        if let Some(process) = self.processes.get_mut(&self.program) {
            process.debugger = None;
        }
        for thread in self.of_program().filter(|thread| thread.doing == Doing::AtEnd) {
            gone_is_fine(thread.tracee.resume(0))?;
        }
        while self.processes.contains_key(&self.program) {
            if let Some((tid, stop)) = self.wait()? {
                self.handle(tid, stop)?;
            }
        }
        Ok(())
    }
}

impl Process {
    /// How many of `size` bytes at `addr` are the program's own.
    fn visible_bytes(&self, addr: Addr, size: usize) -> usize {
        let wanted = AddrRange::sized(addr, size as u64);
        let hidden = self.space.hidden().iter().filter(|range| range.overlaps(wanted));
        let first = hidden.map(|range| range.start.0.saturating_sub(addr.0)).min();
        first.map_or(size, |first| usize::try_from(first).unwrap_or(size).min(size))
    }

    fn write_for_debugger(&mut self, addr: Addr, bytes: &[u8]) -> Result<(), Error> {
        let range = AddrRange::sized(addr, bytes.len() as u64);
        // Other code, as a debugger puts there for its expressions, is read again before it runs.
        let fixed = |at: Addr| {
            let protection = self.space.protection(at);
            let is_fixed = protection.is_some_and(|p| p.execute && bits_of(p) & PROT_WRITE == 0);
            is_fixed && self.space.is_stable(at)
        };
        if fixed(addr) || fixed(addr.wrapping_add((bytes.len() as u64).saturating_sub(1))) {
            return Err(Error::FixedCode { at: addr });
        }
        if self.visible_bytes(addr, bytes.len()) < bytes.len() {
            return Err(Error::NoMemory { at: addr });
        }
        let memory: &Memory = &self.memory;
        memory.write(addr, bytes).map_err(|_| Error::NoMemory { at: addr })?;
        self.forget_code(range);
        Ok(())
    }
}
