//! A program under a debugger that the CPU traces. Between two stops it runs natively; at each, all
//! its threads are stopped.

use super::debug_session::Debugger;
use super::debugger::{finish_execve, move_outside_call};
use super::engine::{BACKEND, Engine, note_hardware, open_cpu_pmu};
use super::pmu::Pmu;
use super::sideband::SidebandAttr;
use super::tap::lock;
use super::thread::{Activity, Thread};
use crate::capture::contract::{Go, Report};
use crate::capture::debugged::Debugged;
use crate::capture::live_program::{LiveProgram, first_fixed};
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
    /// Launches a program and traces it with the CPU, stopped at its first instruction.
    pub(in crate::capture) fn launch(request: &Request) -> Result<Self, Error> {
        Self::launch_with(request, Box::new(open_cpu_pmu(request)?))
    }

    /// Launches a program and traces it with `pmu`.
    pub(super) fn launch_with(request: &Request, pmu: Box<dyn Pmu>) -> Result<Self, Error> {
        let (sideband_attr, time) = SidebandAttr::probe()?;
        let (mut prepared, pid) = Prepared::launch(request, BACKEND)?;
        note_hardware(&mut prepared, &*pmu);
        let mut engine = Engine::new(request, pid, pmu, sideband_attr, time);
        let first = Tid(pid.0);
        let begun = finish_execve(Tracee(first));
        match begun.and_then(|_| engine.start_debugging(prepared, &[first])) {
            Ok(dir) => Ok(Self { engine, dir }),
            Err(error) => {
                engine.detach_after_failure(true);
                Err(error)
            }
        }
    }

    /// Attaches to a running process, stops it and traces it with the CPU.
    pub(in crate::capture) fn attach(request: &Request, pid: Pid) -> Result<Self, Error> {
        Self::attach_with(request, pid, Box::new(open_cpu_pmu(request)?))
    }

    /// Attaches to a running process and traces it with `pmu`.
    pub(super) fn attach_with(
        request: &Request,
        pid: Pid,
        pmu: Box<dyn Pmu>,
    ) -> Result<Self, Error> {
        let (sideband_attr, time) = SidebandAttr::probe()?;
        let (mut prepared, tids) = Prepared::attach(request, BACKEND, pid)?;
        note_hardware(&mut prepared, &*pmu);
        let mut engine = Engine::new(request, pid, pmu, sideband_attr, time);
        let moved = tids.iter().try_for_each(|tid| move_outside_call(Tracee(*tid)));
        match moved.and_then(|()| engine.start_debugging(prepared, &tids)) {
            Ok(dir) => Ok(Self { engine, dir }),
            Err(error) => {
                engine.detach_after_failure(false);
                Err(error)
            }
        }
    }

    /// Returns a thread that is stopped for the debugger; an error if it is gone or at its exit
    /// stop.
    fn stopped_thread(&self, tid: Tid) -> Result<&Thread, Error> {
        let thread = self.engine.threads.get(&tid).filter(|t| t.activity == Activity::Stopped);
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
        process.map_or_else(String::new, |process| lock(&process.recording).recorder.name_of(tid))
    }

    fn set_registers(&mut self, tid: Tid, registers: &insn::Registers) -> Result<(), Error> {
        let thread = self.stopped_thread(tid)?;
        Ok(thread.tracee.set_registers(registers)?)
    }

    fn set_extended_state(&mut self, tid: Tid, area: &[u8]) -> Result<(), Error> {
        final_state::set_extended_state(self.stopped_thread(tid)?.tracee, area)
    }

    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        let process = self.engine.processes.get(&self.engine.program);
        process.map_or(0, |process| process.memory.read(addr, buf))
    }

    fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<(), Error> {
        let process = self.engine.processes.get(&self.engine.program);
        let process = process.ok_or(Error::NoMemory { at: addr })?;
        let maps = mappings(process.pid).unwrap_or_default();
        let is_fixed = |at: Addr| {
            let mapping = maps.iter().find(|mapping| mapping.range.contains(at));
            mapping.is_some_and(|m| m.protection.execute && !m.protection.write)
        };
        if let Some(at) = first_fixed(addr, bytes, is_fixed) {
            return Err(Error::FixedCode { at });
        }
        process.memory.write(addr, bytes).map_err(|_| Error::NoMemory { at: addr })
    }

    fn clock(&self) -> Option<TscClock> {
        let process = self.engine.processes.get(&self.engine.program)?;
        Some(lock(&process.recording).recorder.clock_so_far())
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
    fn start_debugging(&mut self, prepared: Prepared, tids: &[Tid]) -> Result<PathBuf, Error> {
        self.debugger = Some(Debugger::default());
        self.record_stopped(prepared, tids)?;
        self.threads.values_mut().for_each(|thread| thread.activity = Activity::Stopped);
        let Some(process) = self.processes.get(&self.program) else {
            let program = self.request.program.clone();
            return Err(tracee::Error::EndedEarly { program }.into());
        };
        Ok(lock(&process.recording).recorder.writer().dir().to_owned())
    }

    /// Writes everything recorded so far.
    fn save_all(&mut self) -> Result<(), Error> {
        for thread in self.threads.values_mut() {
            if let Some((process, tap)) = self.processes.get(&thread.pid).zip(thread.tap.as_mut()) {
                tap.save(&process.recording)?;
            }
        }
        for process in self.processes.values() {
            let mut recording = lock(&process.recording);
            recording.write_sidebands()?;
            recording.recorder.flush()?;
        }
        Ok(())
    }
}
