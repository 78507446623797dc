//! A program under a debugger that the CPU traces. Between two stops it runs natively; at each, all
//! its threads are stopped.

use super::debug_session::Debugger;
use super::debugger::{leave_system_call, stand_clear};
use super::engine::{BACKEND, Engine, cpu, note_hardware};
use super::pmu::Pmu;
use super::sideband::Recipe;
use super::tap::lock;
use super::thread::{Doing, Thread};
use crate::capture::contract::{Go, Report};
use crate::capture::debugged::Debugged;
use crate::capture::live_program::LiveProgram;
use crate::capture::recorder::Prepared;
use crate::capture::request::Request;
use crate::capture::{Error, final_state};
use crate::common::{Addr, Pid, Tid};
use crate::insn;
use crate::recording::TscClock;
use crate::tracee::{self, Tracee, mappings};
use std::path::{Path, PathBuf};

/// A program under a debugger, recorded with the CPU.
#[derive(Debug)]
pub(in crate::capture) struct Live {
    engine: Engine<'static>,
    dir: PathBuf,
}

impl Live {
    pub(in crate::capture) fn launch(request: &Request) -> Result<Self, Error> {
        Self::launch_with(request, Box::new(cpu(request)?))
    }

    /// Launches a program and traces it with `pmu`.
    pub(super) fn launch_with(request: &Request, pmu: Box<dyn Pmu>) -> Result<Self, Error> {
        let (recipe, time) = Recipe::find()?;
        let (mut prepared, pid) = Prepared::launch(request, BACKEND)?;
        note_hardware(&mut prepared, &*pmu);
        let mut engine = Engine::new(request, pid, pmu, recipe, time);
        let first = Tid(pid.0);
        let begun = leave_system_call(Tracee(first));
        match begun.and_then(|_| engine.attend(prepared, &[first])) {
            Ok(dir) => Ok(Self { engine, dir }),
            Err(error) => {
                engine.let_go(true);
                Err(error)
            }
        }
    }

    pub(in crate::capture) fn attach(request: &Request, pid: Pid) -> Result<Self, Error> {
        Self::attach_with(request, pid, Box::new(cpu(request)?))
    }

    /// Attaches to a running process and traces it with `pmu`.
    pub(super) fn attach_with(
        request: &Request,
        pid: Pid,
        pmu: Box<dyn Pmu>,
    ) -> Result<Self, Error> {
        let (recipe, time) = Recipe::find()?;
        let (mut prepared, tids) = Prepared::attach(request, BACKEND, pid)?;
        note_hardware(&mut prepared, &*pmu);
        let mut engine = Engine::new(request, pid, pmu, recipe, time);
        let stand = tids.iter().try_for_each(|tid| stand_clear(Tracee(*tid)));
        match stand.and_then(|()| engine.attend(prepared, &tids)) {
            Ok(dir) => Ok(Self { engine, dir }),
            Err(error) => {
                engine.let_go(false);
                Err(error)
            }
        }
    }

    fn standing(&self, tid: Tid) -> Result<&Thread, Error> {
        let thread = self.engine.threads.get(&tid).filter(|t| t.doing == Doing::Standing);
        thread.ok_or(Error::ThreadEnded { tid })
    }
}

impl LiveProgram for Live {
    type Engine = Engine<'static>;

    fn engine(&self) -> &Engine<'static> {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine<'static> {
        &mut self.engine
    }

    fn go(&mut self, go: &Go, interrupted: &dyn Fn() -> bool) -> Result<(Tid, Report), Error> {
        self.engine.go(go, interrupted)
    }

    fn name(&self, tid: Tid) -> String {
        let process = self.engine.processes.get(&self.engine.program);
        process.map_or_else(String::new, |process| lock(&process.book).recorder.name_of(tid))
    }

    fn set_registers(&mut self, tid: Tid, registers: &insn::Registers) -> Result<(), Error> {
        let thread = self.standing(tid)?;
        Ok(thread.tracee.set_registers(registers)?)
    }

    fn set_extended_state(&mut self, tid: Tid, area: &[u8]) -> Result<(), Error> {
        final_state::set_extended_state(self.standing(tid)?.tracee, area)
    }

    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        let process = self.engine.processes.get(&self.engine.program);
        process.map_or(0, |process| process.memory.read(addr, buf))
    }

    fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<(), Error> {
        let process = self.engine.processes.get(&self.engine.program);
        let process = process.ok_or(Error::NoMemory { at: addr })?;
        let last = addr.wrapping_add((bytes.len() as u64).saturating_sub(1));
        let maps = mappings(process.pid).unwrap_or_default();
        let is_fixed = |at: Addr| {
            let mapping = maps.iter().find(|mapping| mapping.range.contains(at));
            mapping.is_some_and(|m| m.protection.execute && !m.protection.write)
        };
        if is_fixed(addr) || is_fixed(last) {
            return Err(Error::FixedCode { at: addr });
        }
        process.memory.write(addr, bytes).map_err(|_| Error::NoMemory { at: addr })
    }

    fn clock(&self) -> Option<TscClock> {
        let process = self.engine.processes.get(&self.engine.program)?;
        Some(lock(&process.book).recorder.clock_so_far())
    }

    fn save(&mut self) -> Result<&Path, Error> {
        self.engine.save_all()?;
        Ok(&self.dir)
    }

    fn detach(&mut self) -> Result<(), Error> {
        self.engine.leave_program()
    }

    fn kill(&mut self) -> Result<(), Error> {
        self.engine.kill()
    }
}

impl Engine<'_> {
    /// Starts the recording and the debugger's session of the program, whose threads `tids` are
    /// stopped. Returns the recording's directory.
    fn attend(&mut self, prepared: Prepared, tids: &[Tid]) -> Result<PathBuf, Error> {
        self.debugger = Some(Debugger::default());
        self.take_over(prepared, tids)?;
        self.threads.values_mut().for_each(|thread| thread.doing = Doing::Standing);
        let Some(process) = self.processes.get(&self.program) else {
            let program = self.request.program.clone();
            return Err(tracee::Error::EndedEarly { program }.into());
        };
        Ok(lock(&process.book).recorder.writer().dir().to_owned())
    }

    /// Writes everything recorded so far.
    fn save_all(&mut self) -> Result<(), Error> {
        for thread in self.threads.values_mut() {
            if let Some((process, tap)) = self.processes.get(&thread.pid).zip(thread.tap.as_mut()) {
                tap.save(&process.book)?;
            }
        }
        for process in self.processes.values() {
            let mut book = lock(&process.book);
            book.hear()?;
            book.recorder.flush()?;
        }
        Ok(())
    }
}
