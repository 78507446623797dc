//! An exactly recorded program under a debugger: the interface for the session ([`LiveProgram`]).
//! Most calls go to the recorder of the program that is debugged now; `forks` has the other
//! processes that the debugger knows.
//!
//! `Processes::debugged_child` is set while a debugger has left the program, which waits in
//! vfork(2) for that child. The view is then of the child: its number, its thread and its name. Its
//! memory is the program's, so reads and writes go through the program's engine.

use super::debug_session::Debugger;
use super::engine::ExactRecorder;
use super::forks::Processes;
use super::start::without_vdso;
use super::thread::Thread;
use crate::capture::contract::{Go, Report};
use crate::capture::debugged::{Debugged, DebuggedThread};
use crate::capture::live_program::LiveProgram;
use crate::capture::recorder::Prepared;
use crate::capture::request::Request;
use crate::capture::{Backend, Error};
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::image::core;
use crate::insn;
use crate::recording::TscClock;
use crate::tracee::{auxv, comm};
use std::path::{Path, PathBuf};

/// An exactly recorded program under a debugger, and the processes beside it.
#[derive(Debug)]
pub(in crate::capture) struct Live {
    processes: Processes,
    /// The directory of the recording; empty before it is first saved.
    dir: PathBuf,
}

impl Live {
    /// Launches a program, and stops it before its first instruction.
    pub(in crate::capture) fn launch(request: &Request) -> Result<Self, Error> {
        let (prepared, pid) = Prepared::launch(request, Backend::Exact)?;
        prepared.set_latest(&request.store)?;
        Self::start_with(ExactRecorder::new(request, pid, None), |recorder| {
            recorder.start_launched(prepared)
        })
    }

    /// Attaches to a running process, and stops all of its threads.
    pub(in crate::capture) fn attach(request: &Request, pid: Pid) -> Result<Self, Error> {
        let (prepared, tids) = Prepared::attach(request, Backend::Exact, pid)?;
        prepared.set_latest(&request.store)?;
        Self::start_with(ExactRecorder::new(request, pid, None), |recorder| {
            recorder.take_over(prepared, &tids, None)
        })
    }

    /// Starts to record by `start`, and begins the debugger session. After an error, lets the
    /// process go on natively, and waits for its end if it is a child of the recorder.
    fn start_with(
        mut recorder: ExactRecorder,
        start: impl FnOnce(&mut ExactRecorder) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        if let Err(error) = start(&mut recorder) {
            recorder.detach_and_wait();
            return Err(error);
        }
        recorder.debugger = Some(Debugger::default());
        recorder.apply_debugger_stops();
        Ok(Self { processes: Processes::of(recorder), dir: PathBuf::new() })
    }

    /// Returns a thread of the program; an error if there is none with this number, as for a thread
    /// of a newborn child or of the parent.
    fn thread_mut(&mut self, tid: Tid) -> Result<&mut Thread, Error> {
        self.processes.program.threads.get_mut(&tid).ok_or(Error::ThreadEnded { tid })
    }
}

impl LiveProgram for Live {
    type Engine = ExactRecorder;

    fn engine(&self) -> &ExactRecorder {
        &self.processes.program
    }

    fn engine_mut(&mut self) -> &mut ExactRecorder {
        &mut self.processes.program
    }

    fn go(&mut self, go: &Go, interrupted: &dyn Fn() -> bool) -> Result<(Tid, Report), Error> {
        let (tid, report) = if self.engine_mut().newborns.get(Pid(go.thread.0)).is_some() {
            self.processes.run_newborn(Pid(go.thread.0), go, interrupted)?
        } else {
            self.engine_mut().go(go, interrupted)?
        };
        self.engine_mut().newborns.mark_reported(report);
        Ok((tid, report))
    }

    fn pid(&self) -> Pid {
        self.processes.debugged_child.unwrap_or(self.engine().pid)
    }

    fn auxv(&self) -> Vec<u8> {
        let vector = auxv(self.pid());
        match &self.engine().process {
            // It was launched without the vdso; one that ran before its recorder knows it.
            Some(process) if !process.was_running => without_vdso(vector),
            _ => vector,
        }
    }

    fn hidden(&self) -> Vec<AddrRange> {
        let process = self.engine().process.as_ref();
        process.map(|process| process.engine.space.hidden().to_vec()).unwrap_or_default()
    }

    fn threads(&self) -> Vec<Tid> {
        self.processes
            .debugged_child
            .map_or_else(|| self.engine().tids(), |child| vec![Tid(child.0)])
    }

    fn thread(&self, tid: Tid) -> Option<core::Thread> {
        if let Some(newborn) = self.engine().newborns.get(Pid(tid.0)) {
            return newborn.thread();
        }
        let of_parent = || self.processes.parent.as_ref()?.threads.get(&tid);
        self.engine().threads.get(&tid).or_else(of_parent)?.state()
    }

    fn name(&self, tid: Tid) -> String {
        if let Some(child) = self.processes.debugged_child {
            return comm(child, tid);
        }
        self.engine().names.get(&tid).cloned().unwrap_or_else(|| comm(self.engine().pid, tid))
    }

    fn set_registers(&mut self, tid: Tid, registers: &insn::Registers) -> Result<(), Error> {
        self.thread_mut(tid)?.change_registers(registers)
    }

    fn set_extended_state(&mut self, tid: Tid, area: &[u8]) -> Result<(), Error> {
        self.thread_mut(tid)?.change_extended(area)
    }

    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        self.engine().process.as_ref().map_or(0, |process| process.engine.read_visible(addr, buf))
    }

    fn beside(&self) -> Vec<(Tid, Pid)> {
        if self.processes.debugged_child.is_some() {
            return Vec::new();
        }
        let newborns =
            self.engine().newborns.reported().map(|newborn| (newborn.tid(), newborn.pid));
        let parent = self.processes.parent.iter();
        let of_parent =
            parent.flat_map(|parent| parent.threads.keys().map(|tid| (*tid, parent.pid)));
        newborns.chain(of_parent).collect()
    }

    fn may_resume(&self, tid: Tid) -> bool {
        let is_parents =
            || self.processes.parent.as_ref().is_some_and(|p| p.threads.contains_key(&tid));
        self.engine().newborns.may_resume(tid).unwrap_or_else(|| !is_parents())
    }

    fn read_beside(&self, pid: Pid, addr: Addr, buf: &mut [u8]) -> usize {
        let parent = self.processes.parent.as_ref().filter(|parent| parent.pid == pid);
        match (self.engine().newborns.get(pid), parent) {
            // The parent waits in vfork(2), and may share its memory with the child: `read` hides
            // the recorder's part of it.
            (Some(newborn), _) if newborn.is_awaited => self.read(addr, buf),
            (Some(newborn), _) => newborn.read(addr, buf),
            (None, Some(parent)) => {
                parent.process.as_ref().map_or(0, |process| process.engine.read_visible(addr, buf))
            }
            (None, None) => 0,
        }
    }

    fn leave_process(&mut self, pid: Pid) -> Result<(), Error> {
        self.processes.leave_one(pid)
    }

    fn kill_beside(&mut self, pid: Pid) -> Result<(), Error> {
        self.processes.kill_other(pid)
    }

    fn leave_all_beside(&mut self) -> Result<(), Error> {
        self.processes.leave_all_others()
    }

    fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<(), Error> {
        match &mut self.engine_mut().process {
            Some(process) => process.write_for_debugger(addr, bytes),
            None => Err(Error::NoMemory { at: addr }),
        }
    }

    /// Returns `None`: the log has no times.
    fn clock(&self) -> Option<TscClock> {
        None
    }

    fn save(&mut self) -> Result<&Path, Error> {
        if let Some(pid) = self.processes.debugged_child {
            return Err(Error::NotRecordedYet { pid });
        }
        self.engine_mut().save()?;
        if let Some(process) = &self.processes.program.process {
            process.recorder.writer().dir().clone_into(&mut self.dir);
        }
        Ok(&self.dir)
    }

    fn moment(&mut self) -> Result<Option<u64>, Error> {
        self.engine_mut().save()?;
        let Some(process) = &mut self.engine_mut().process else { return Ok(None) };
        let totals = process.recorder.log_totals()?;
        Ok(totals.map(|totals| totals.ticks + totals.entries))
    }

    fn detach(&mut self) -> Result<(), Error> {
        self.processes.leave_all_others()?;
        self.engine_mut().leave_program()
    }

    fn kill(&mut self) -> Result<(), Error> {
        self.processes.kill_all()
    }
}

impl ExactRecorder {
    /// Logs the debugger's changes and the program's current place, and writes the log to disk. A
    /// second call before the program goes on logs no second place. Does nothing without a
    /// debugger.
    fn save(&mut self) -> Result<(), Error> {
        let Some(debugger) = &mut self.debugger else { return Ok(()) };
        let was_saved = std::mem::replace(&mut debugger.is_saved, true);
        self.log_changes()?;
        if !was_saved && !self.has_program_ended {
            self.log_holder_place()?;
        }
        match &mut self.process {
            Some(process) => Ok(process.recorder.flush()?),
            None => Ok(()),
        }
    }
}
