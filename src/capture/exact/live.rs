//! An exactly recorded program under a debugger.

use super::debugger::Debugger;
use super::engine::Engine;
use super::thread::Thread;
use crate::capture::contract::{Go, Report};
use crate::capture::debugged::Debugged;
use crate::capture::live_program::LiveProgram;
use crate::capture::recorder::Prepared;
use crate::capture::request::Request;
use crate::capture::{Backend, Error};
use crate::common::{Addr, Pid, Tid};
use crate::insn;
use crate::recording::TscClock;
use crate::tracee::comm;
use std::path::{Path, PathBuf};

/// A program under a debugger.
#[derive(Debug)]
pub(in crate::capture) struct Live {
    engine: Engine,
    dir: PathBuf,
}

impl Live {
    pub(in crate::capture) fn launch(request: &Request) -> Result<Self, Error> {
        let (prepared, pid) = Prepared::launch(request, Backend::Exact)?;
        prepared.set_latest(&request.store)?;
        Self::begin(Engine::new(request, pid, None), |engine| engine.start(prepared))
    }

    pub(in crate::capture) fn attach(request: &Request, pid: Pid) -> Result<Self, Error> {
        let (prepared, tids) = Prepared::attach(request, Backend::Exact, pid)?;
        prepared.set_latest(&request.store)?;
        Self::begin(Engine::new(request, pid, None), |engine| engine.take_over(prepared, &tids))
    }

    fn begin(
        mut engine: Engine,
        start: impl FnOnce(&mut Engine) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        if let Err(error) = start(&mut engine) {
            engine.let_go();
            return Err(error);
        }
        engine.debugger = Some(Debugger::default());
        engine.begin_debugging_program();
        Ok(Self { engine, dir: PathBuf::new() })
    }

    fn thread_mut(&mut self, tid: Tid) -> Result<&mut Thread, Error> {
        self.engine.threads.get_mut(&tid).ok_or(Error::NotStanding { tid })
    }
}

impl LiveProgram for Live {
    type Engine = Engine;

    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    fn go(&mut self, go: &Go, interrupted: &dyn Fn() -> bool) -> Result<(Tid, Report), Error> {
        self.engine.go(go, interrupted)
    }

    fn name(&self, tid: Tid) -> String {
        self.engine.names.get(&tid).cloned().unwrap_or_else(|| comm(self.engine.pid, tid))
    }

    fn set_registers(&mut self, tid: Tid, registers: &insn::Registers) -> Result<(), Error> {
        self.thread_mut(tid)?.change_registers(registers)
    }

    fn set_extended_state(&mut self, tid: Tid, area: &[u8]) -> Result<(), Error> {
        self.thread_mut(tid)?.change_extended(area)
    }

    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        self.engine.process.as_ref().map_or(0, |process| process.engine.read_visible(addr, buf))
    }

    fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<(), Error> {
        match &mut self.engine.process {
            Some(process) => process.write_for_debugger(addr, bytes),
            None => Err(Error::NoMemory { at: addr }),
        }
    }

    /// Returns nothing: the log has no times.
    fn clock(&self) -> Option<TscClock> {
        None
    }

    fn save(&mut self) -> Result<&Path, Error> {
        self.engine.save()?;
        if let Some(process) = &self.engine.process {
            process.recorder.writer().dir().clone_into(&mut self.dir);
        }
        Ok(&self.dir)
    }

    fn moment(&mut self) -> Result<Option<u64>, Error> {
        self.engine.save()?;
        let Some(process) = &mut self.engine.process else { return Ok(None) };
        let totals = process.recorder.log_totals()?;
        Ok(totals.map(|totals| totals.ticks + totals.entries))
    }

    fn detach(&mut self) -> Result<(), Error> {
        self.engine.leave_program()
    }

    fn kill(&mut self) -> Result<(), Error> {
        self.engine.kill()
    }
}

impl Engine {
    /// Writes the log up to where the program is.
    fn save(&mut self) -> Result<(), Error> {
        let Some(debugger) = &mut self.debugger else { return Ok(()) };
        let was_saved = std::mem::replace(&mut debugger.is_saved, true);
        self.log_changes()?;
        if !was_saved && !self.is_finished {
            self.log_place()?;
        }
        match &mut self.process {
            Some(process) => Ok(process.recorder.flush()?),
            None => Ok(()),
        }
    }
}
