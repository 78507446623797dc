//! A program under a debugger that is recorded by single-stepping.

use super::debug_session::Debugger;
use super::engine::{BACKEND, Engine, stay_on_this_cpu};
use super::thread::{Activity, Thread};
use crate::capture::contract::{Go, Report};
use crate::capture::debugged::{Debugged, DebuggedThread};
use crate::capture::live_program::{LiveProgram, first_fixed};
use crate::capture::recorder::Prepared;
use crate::capture::request::Request;
use crate::capture::restart::will_restart_call;
use crate::capture::{Error, final_state};
use crate::common::{Addr, Pid, Tid};
use crate::image::core;
use crate::insn;
use crate::recording::TscClock;
use crate::tracee::{self};
use std::path::{Path, PathBuf};

/// The size of the SYSCALL instruction.
const SYSCALL_BYTES: u64 = 2;

/// A program under a debugger, recorded by single-stepping.
#[derive(Debug)]
pub(in crate::capture) struct Live {
    engine: Engine,
    dir: PathBuf,
}

impl Live {
    /// Launches a program, and begins to record it, stopped at its first instruction. Restricts
    /// this thread to its CPU.
    pub(in crate::capture) fn launch(request: &Request) -> Result<Self, Error> {
        stay_on_this_cpu()?;
        let (prepared, pid) = Prepared::launch(request, BACKEND)?;
        let mut engine = Engine::new(request, pid);
        match engine.start(prepared).and_then(|()| engine.reach_program()) {
            Ok(()) => Ok(Self { engine, dir: PathBuf::new() }),
            Err(error) => {
                engine.detach_after_failure();
                Err(error)
            }
        }
    }

    /// Returns a thread that is ready to be stepped; an error if it is gone, at its exit stop, in a
    /// system call or stopped by job control.
    fn stopped_thread(&mut self, tid: Tid) -> Result<&mut Thread, Error> {
        let thread = self.engine.threads.get_mut(&tid).filter(|t| t.activity == Activity::Ready);
        thread.ok_or(Error::ThreadEnded { tid })
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
        let process = self.engine.processes.get(&self.engine.program);
        process.map_or_else(String::new, |process| process.recorder.name_of(tid))
    }

    fn thread(&self, tid: Tid) -> Option<core::Thread> {
        if let Some(newborn) = self.engine.newborns.get(Pid(tid.0)) {
            return newborn.thread();
        }
        self.engine.threads.get(&tid)?.state()
    }

    fn set_registers(&mut self, tid: Tid, registers: &insn::Registers) -> Result<(), Error> {
        let thread = self.stopped_thread(tid)?;
        let before = thread.tracee.registers()?;
        let mut words = *registers;
        if words.rip != before.rip && words.orig_rax == before.orig_rax {
            // The thread's interrupted system call is not repeated.
            words.orig_rax = u64::MAX;
        }
        thread.tracee.set_registers(&words)?;
        let call = Addr(words.rip.wrapping_sub(SYSCALL_BYTES));
        thread.restarting_call = will_restart_call(&words).then_some(call);
        let next = thread.restarting_call.unwrap_or(Addr(words.rip));
        if next != thread.ip {
            thread.current_call = None;
            thread.divert(next);
        }
        Ok(())
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
        if let Some(at) = first_fixed(addr, bytes, |at| process.has_fixed_code(at)) {
            return Err(Error::FixedCode { at });
        }
        process.memory.write(addr, bytes).map_err(|_| Error::NoMemory { at: addr })
    }

    fn clock(&self) -> Option<TscClock> {
        let process = self.engine.processes.get(&self.engine.program)?;
        Some(process.recorder.clock_so_far())
    }

    fn save(&mut self) -> Result<&Path, Error> {
        self.engine.trace_current_addresses();
        self.engine.write_all()?;
        if let Some(process) = self.engine.processes.get(&self.engine.program) {
            process.recorder.writer().dir().clone_into(&mut self.dir);
        }
        Ok(&self.dir)
    }

    fn beside(&self) -> Vec<(Tid, Pid)> {
        self.engine.beside()
    }

    fn may_resume(&self, tid: Tid) -> bool {
        let engine = &self.engine;
        let is_own = || engine.threads.get(&tid).is_none_or(|thread| thread.pid == engine.program);
        engine.newborns.may_resume(tid).unwrap_or_else(is_own)
    }

    fn read_beside(&self, pid: Pid, addr: Addr, buf: &mut [u8]) -> usize {
        match (self.engine.newborns.get(pid), self.engine.processes.get(&pid)) {
            (Some(newborn), _) => newborn.read(addr, buf),
            (None, Some(process)) => process.memory.read(addr, buf),
            (None, None) => 0,
        }
    }

    fn leave_process(&mut self, pid: Pid) -> Result<(), Error> {
        self.engine.leave_process(pid)
    }

    fn kill_beside(&mut self, pid: Pid) -> Result<(), Error> {
        self.engine.kill_beside(pid)
    }

    fn leave_all_beside(&mut self) -> Result<(), Error> {
        self.engine.leave_all_beside()
    }

    fn detach(&mut self) -> Result<(), Error> {
        self.engine.leave_all_beside()?;
        self.engine.leave_program()
    }

    fn kill(&mut self) -> Result<(), Error> {
        self.engine.kill()
    }
}

impl Engine {
    /// Steps a launched program to its first instruction, and starts the debugger session.
    fn reach_program(&mut self) -> Result<(), Error> {
        let first = Tid(self.program.0);
        while self.threads.get(&first).is_some_and(|thread| thread.current_call.is_some()) {
            self.schedule()?;
            let (tid, stop) = self.wait_ignoring_signals()?;
            self.handle(tid, stop)?;
        }
        if !self.processes.contains_key(&self.program) {
            let program = self.request.program.clone();
            return Err(tracee::Error::EndedEarly { program }.into());
        }
        self.debugger = Some(Debugger::default());
        Ok(())
    }

    /// Adds the current addresses of all stopped threads to their traces.
    fn trace_current_addresses(&mut self) {
        for thread in self.threads.values_mut().filter(|thread| thread.activity == Activity::Ready)
        {
            thread.path.interrupt(thread.ip);
        }
    }
}
