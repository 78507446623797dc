//! The interface of a live program, which each backend implements.

use super::Error;
use super::contract::{Go, Report};
use super::debugged::{Debugged, DebuggedThread};
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::image::core;
use crate::insn;
use crate::recording::TscClock;
use crate::tracee::{SiginfoBytes, auxv};
use std::collections::BTreeSet;
use std::path::Path;

/// A live program of one backend. The methods are those of [`super::Live`]. The default ones suit a
/// backend that follows no children.
pub(super) trait LiveProgram {
    /// The backend's recorder, which runs the program's threads.
    type Engine: Debugged;

    fn engine(&self) -> &Self::Engine;
    fn engine_mut(&mut self) -> &mut Self::Engine;

    /// Resumes the program until there is an event, and returns the event with its thread.
    fn go(&mut self, go: &Go, interrupted: &dyn Fn() -> bool) -> Result<(Tid, Report), Error>;

    /// Returns the name of a thread, also of one that has ended.
    fn name(&self, tid: Tid) -> String;

    fn set_registers(&mut self, tid: Tid, registers: &insn::Registers) -> Result<(), Error>;

    /// Sets a thread's extended registers, in XSAVE layout.
    fn set_extended_state(&mut self, tid: Tid, area: &[u8]) -> Result<(), Error>;

    /// Reads the program's memory. Returns the number of bytes that could be read.
    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize;

    fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<(), Error>;

    /// Returns the start and the rate of the time-stamp counter so far; `None` if the program is
    /// gone.
    fn clock(&self) -> Option<TscClock>;

    /// Writes all data recorded so far, and returns the recording's directory.
    fn save(&mut self) -> Result<&Path, Error>;

    /// Returns the ticks so far plus the log entries so far; `None` if there is no log.
    fn moment(&mut self) -> Result<Option<u64>, Error> {
        Ok(None)
    }

    /// Detaches from the program, which goes on natively.
    fn detach(&mut self) -> Result<(), Error>;

    fn kill(&mut self) -> Result<(), Error>;

    fn pid(&self) -> Pid {
        self.engine().program()
    }

    /// Returns the program's auxiliary vector (`/proc/PID/auxv`).
    fn auxv(&self) -> Vec<u8> {
        auxv(self.pid())
    }

    /// Returns the ranges of the program's address space that the recorder uses.
    fn hidden(&self) -> Vec<AddrRange> {
        Vec::new()
    }

    fn threads(&self) -> Vec<Tid> {
        self.engine().tids()
    }

    fn thread(&self, tid: Tid) -> Option<core::Thread> {
        self.engine().threads().get(&tid)?.state()
    }

    fn mark_stop_reported(&mut self, tid: Tid, stops: &BTreeSet<Addr>) -> bool {
        self.engine_mut().mark_stop_reported(tid, stops)
    }

    fn set_siginfo(&mut self, tid: Tid, info: &SiginfoBytes) -> Result<(), Error> {
        self.engine_mut().set_siginfo(tid, info)
    }

    fn forget_reported_stop(&mut self, tid: Tid) {
        self.engine_mut().forget_reported_stop(tid);
    }

    /// Returns the threads of stopped processes other than the program.
    fn beside(&self) -> Vec<(Tid, Pid)> {
        Vec::new()
    }

    fn may_resume(&self, _: Tid) -> bool {
        true
    }

    fn read_beside(&self, _: Pid, _: Addr, _: &mut [u8]) -> usize {
        0
    }

    fn leave_process(&mut self, _: Pid) -> Result<(), Error> {
        self.detach()
    }

    fn kill_beside(&mut self, _: Pid) -> Result<(), Error> {
        Ok(())
    }

    fn leave_all_beside(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
