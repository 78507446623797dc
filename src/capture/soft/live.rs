//! A translated program under a debugger. Between two stops it runs in the code cache. At each stop
//! all its threads are outside the cache, with their exact registers.
//!
//! Other stopped processes may be *beside* the program: recorded ones, and *newborns*, children
//! that stay stopped at their birth and are not recorded. A newborn is *awaited* if its parent
//! waits in the kernel until it executes a program or ends. The debugger can leave such a parent,
//! and follow the child alone (`followed_child`). Threads and names are then the child's; memory is
//! read through the parent, which shares it.

use super::debug_session::Debugger;
use super::engine::{BACKEND, Engine, SAVE_PERIOD};
use super::process::Process;
use super::thread::{Activity, Thread};
use crate::capture::contract::{Go, Report};
use crate::capture::debugged::{Debugged, DebuggedThread};
use crate::capture::error::gone_is_fine;
use crate::capture::live_program::{LiveProgram, first_fixed};
use crate::capture::periodic_signal::PeriodicSignal;
use crate::capture::recorder::Prepared;
use crate::capture::request::Request;
use crate::capture::{Error, final_state};
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::encode::TraceItem;
use crate::engine::{Place, prot_bits};
use crate::image::core;
use crate::insn;
use crate::recording::TscClock;
use crate::tracee::{self, Memory, Tracee};
use std::path::{Path, PathBuf};

const PROT_WRITE: u64 = 2;

/// A program under a debugger, recorded by translation.
#[derive(Debug)]
pub(in crate::capture) struct Live {
    engine: Engine,
    dir: PathBuf,
}

impl Live {
    /// Returns a value for a program that is gone, without a recording: `go` reports its end, and
    /// it has no threads and no memory.
    pub(in crate::capture) fn vacant(request: &Request) -> Self {
        Self { engine: Engine::new(request, Pid(0), None), dir: PathBuf::new() }
    }

    /// Launches a program, and begins to record it, stopped at its first instruction. If the
    /// recording fails after the launch, the program goes on natively, and this waits for its end
    /// before it returns the error.
    pub(in crate::capture) fn launch(request: &Request) -> Result<Self, Error> {
        let (prepared, pid) = Prepared::launch(request, BACKEND)?;
        let mut engine = Engine::new(request, pid, None);
        match engine.begin_debugging(prepared) {
            Ok(()) => Ok(Self { engine, dir: PathBuf::new() }),
            Err(error) => {
                engine.detach_after_failure();
                Err(error)
            }
        }
    }

    /// Attaches to a running process, begins to record it, and stops all its threads outside the
    /// cache. After an error, it goes on natively.
    pub(in crate::capture) fn attach(request: &Request, pid: Pid) -> Result<Self, Error> {
        let (prepared, tids) = Prepared::attach(request, BACKEND, pid)?;
        let mut engine = Engine::new(request, pid, None);
        let taken = engine.record_running(prepared, &tids).and_then(|()| engine.halt_all());
        match taken.and_then(|()| engine.start_debugging()) {
            Ok(()) => Ok(Self { engine, dir: PathBuf::new() }),
            Err(error) => {
                engine.detach_after_failure();
                Err(error)
            }
        }
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

    fn pid(&self) -> Pid {
        self.engine.followed_child.unwrap_or(self.engine.program)
    }

    fn hidden(&self) -> Vec<AddrRange> {
        let process = self.engine.processes.get(&self.engine.program);
        process.map(|process| process.engine.space.hidden().to_vec()).unwrap_or_default()
    }

    fn threads(&self) -> Vec<Tid> {
        if let Some(child) = self.engine.followed_child {
            return vec![Tid(child.0)];
        }
        self.engine.tids()
    }

    fn name(&self, tid: Tid) -> String {
        if let Some(child) = self.engine.followed_child {
            return tracee::comm(child, tid);
        }
        let process = self.engine.processes.get(&self.engine.program);
        process.map_or_else(String::new, |process| process.name_of(tid))
    }

    fn thread(&self, tid: Tid) -> Option<core::Thread> {
        if let Some(newborn) = self.engine.newborns.get(Pid(tid.0)) {
            return newborn.thread();
        }
        self.engine.threads.get(&tid)?.state()
    }

    fn set_registers(&mut self, tid: Tid, registers: &insn::Registers) -> Result<(), Error> {
        let thread = self.engine.stopped_thread(tid)?;
        Ok(thread.tracee().set_registers(registers)?)
    }

    fn set_extended_state(&mut self, tid: Tid, area: &[u8]) -> Result<(), Error> {
        final_state::set_extended_state(self.engine.stopped_thread(tid)?.tracee(), area)
    }

    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        let Some(process) = self.engine.processes.get(&self.engine.program) else { return 0 };
        process.engine.read_visible(addr, buf)
    }

    fn beside(&self) -> Vec<(Tid, Pid)> {
        self.engine.beside()
    }

    fn may_resume(&self, tid: Tid) -> bool {
        let engine = &self.engine;
        let is_own =
            || engine.threads.get(&tid).is_none_or(|thread| thread.pid() == engine.program);
        engine.newborns.may_resume(tid).unwrap_or_else(is_own)
    }

    fn read_beside(&self, pid: Pid, addr: Addr, buf: &mut [u8]) -> usize {
        // A child that shares its parent's memory is read through the parent, which hides the
        // recorder's memory.
        let newborn = self.engine.newborns.get(pid);
        let is_shared = newborn.is_some_and(|newborn| newborn.is_awaited);
        let owner = if is_shared { self.engine.program } else { pid };
        match (self.engine.processes.get(&owner), newborn) {
            (Some(process), _) => process.engine.read_visible(addr, buf),
            (None, Some(newborn)) => newborn.read(addr, buf),
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

    fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<(), Error> {
        let program = self.engine.program;
        let Some(process) = self.engine.processes.get_mut(&program) else {
            return Err(Error::NoMemory { at: addr });
        };
        process.write_for_debugger(addr, bytes)
    }

    fn clock(&self) -> Option<TscClock> {
        let process = self.engine.processes.get(&self.engine.program)?;
        Some(process.recorder.clock_so_far())
    }

    fn save(&mut self) -> Result<&Path, Error> {
        if let Some(pid) = self.engine.followed_child {
            return Err(Error::NotRecordedYet { pid });
        }
        self.engine.save_all()?;
        if let Some(process) = self.engine.processes.get(&self.engine.program) {
            process.recorder.writer().dir().clone_into(&mut self.dir);
        }
        Ok(&self.dir)
    }

    fn detach(&mut self) -> Result<(), Error> {
        self.engine.leave_all_beside()?;
        self.engine.leave_program()
    }

    fn kill(&mut self) -> Result<(), Error> {
        self.engine.kill_all()
    }
}

impl Engine {
    /// Begins to record a launched program for a debugger, stopped at its first instruction. Marks
    /// its recording as the store's latest.
    fn begin_debugging(&mut self, prepared: Prepared) -> Result<(), Error> {
        prepared.set_latest(&self.request.store)?;
        self.record_stopped_for_debugger(prepared)
    }

    /// Begins to record the process `program` for a debugger. Its only thread is stopped at the
    /// program's own code, and stays stopped.
    pub(super) fn record_stopped_for_debugger(&mut self, prepared: Prepared) -> Result<(), Error> {
        let pid = self.program;
        let tracee = Tracee(Tid(pid.0));
        let process = Process::start(prepared, &self.request, pid, tracee, None)?;
        self.processes.insert(pid, process);
        self.add_thread(Tid(pid.0), pid, Place::Program)?;
        if let Some(thread) = self.threads.get_mut(&Tid(pid.0)) {
            thread.activity = Activity::Stopped;
        }
        self.start_debugging()
    }

    /// Notes that a debugger controls the program. Returns an error if the program has ended.
    fn start_debugging(&mut self) -> Result<(), Error> {
        let Some(process) = self.processes.get_mut(&self.program) else {
            let program = self.request.program.clone();
            return Err(tracee::Error::EndedEarly { program }.into());
        };
        process.debugger = Some(Debugger::default());
        Ok(())
    }

    /// Returns a thread that is stopped for the debugger, even one in a vfork(2) whose wait has not
    /// begun; an error if the thread is gone, runs, is at its exit stop, or waits in the kernel
    /// ([`Activity::WaitingForChild`]).
    fn stopped_thread(&self, tid: Tid) -> Result<&Thread, Error> {
        let thread = self.threads.get(&tid).filter(|thread| thread.activity == Activity::Stopped);
        thread.ok_or(Error::ThreadEnded { tid })
    }

    /// Encodes and writes all records of the program so far, whose threads are stopped. Those that
    /// a ring keeps are not written.
    fn save_all(&mut self) -> Result<(), Error> {
        let tids = self.tids();
        let Some(process) = self.processes.get_mut(&self.program) else { return Ok(()) };
        for tid in tids {
            process.send(tid, TraceItem::Flush);
        }
        process.tracer.wait_until_encoded(Tid(self.program.0));
        process.write_packets()?;
        Ok(process.recorder.flush()?)
    }

    /// Kills all processes, and waits until they have ended. If the recorder is to leave the parent
    /// of a followed child (`followed_child`), kills only the newborns, that child among them, and
    /// leaves the parent instead.
    fn kill_all(&mut self) -> Result<(), Error> {
        self.newborns.kill_all();
        if let Some(child) = self.followed_child {
            return self.leave_parent_of_followed(child, None);
        }
        let pids: Vec<Pid> = self.processes.keys().copied().collect();
        pids.into_iter().try_for_each(|pid| self.kill_process(pid))
    }

    /// Kills a process, ends its debugger's requests, and waits until its recording is completed.
    pub(super) fn kill_process(&mut self, pid: Pid) -> Result<(), Error> {
        Tracee::kill_process(pid);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.debugger = None;
        }
        let of_process = self.threads.values().filter(|thread| thread.pid() == pid);
        for thread in of_process.filter(|thread| thread.activity == Activity::AtExitStop) {
            gone_is_fine(thread.tracee().resume(0))?;
        }
        let _periodic_signal = PeriodicSignal::start(SAVE_PERIOD);
        while self.processes.contains_key(&pid) {
            if PeriodicSignal::take_due() {
                self.end_without_first_threads()?;
            }
            if let Some((tid, stop)) = self.wait()? {
                self.handle(tid, stop)?;
            }
        }
        Ok(())
    }
}

impl Process {
    /// Writes to the program's memory, and drops translations of the code there. Returns an error
    /// for code that the program itself cannot change, for memory of the recorder, and for memory
    /// that is not there.
    fn write_for_debugger(&mut self, addr: Addr, bytes: &[u8]) -> Result<(), Error> {
        let range = AddrRange::sized(addr, bytes.len() as u64);
        // Other code may be written, as gdb does to call functions: it is read again before it is
        // executed.
        let fixed = |at: Addr| {
            let protection = self.engine.space.protection(at);
            let is_fixed = protection.is_some_and(|p| p.execute && prot_bits(p) & PROT_WRITE == 0);
            is_fixed && self.engine.space.is_stable(at)
        };
        if let Some(at) = first_fixed(addr, bytes, fixed) {
            return Err(Error::FixedCode { at });
        }
        if self.engine.visible_bytes(addr, bytes.len()) < bytes.len() {
            return Err(Error::NoMemory { at: addr });
        }
        let memory: &Memory = &self.engine.memory;
        memory.write(addr, bytes).map_err(|_| Error::NoMemory { at: addr })?;
        self.engine.forget_code(range);
        Ok(())
    }
}
