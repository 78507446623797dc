//! The interface of a live program, which each backend implements. A process goes on *natively*
//! where the recorder has detached from it.

use super::Error;
use super::contract::{Go, Report};
use super::debugged::{Debugged, DebuggedThread};
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::image::core;
use crate::insn;
use crate::recording::TscClock;
use crate::tracee::{SiginfoBytes, auxv};
use std::collections::BTreeSet;
use std::iter::successors;
use std::path::Path;

const PAGE_BYTES: u64 = 0x1000;

/// A live program of one backend. The methods are those of [`super::Live`]. The default ones suit a
/// backend that follows no children. Other stopped processes that the recorder holds are *beside*
/// the program: children whose birth was reported, and the parent of a child that is debugged.
pub(super) trait LiveProgram {
    /// The backend's recorder, which runs the program's threads.
    type Engine: Debugged;

    /// Returns the backend's recorder.
    fn engine(&self) -> &Self::Engine;

    /// Returns the backend's recorder, to change it.
    fn engine_mut(&mut self) -> &mut Self::Engine;

    /// Resumes the program until there is an event, and returns the event with its thread.
    fn go(&mut self, go: &Go, interrupted: &dyn Fn() -> bool) -> Result<(Tid, Report), Error>;

    /// Returns the name of a thread, also of one that has ended.
    fn name(&self, tid: Tid) -> String;

    /// Sets a thread's general registers. Returns an error if the thread is gone, or at its exit
    /// stop.
    fn set_registers(&mut self, tid: Tid, registers: &insn::Registers) -> Result<(), Error>;

    /// Sets a thread's extended registers, in XSAVE layout. Fails as [`Self::set_registers`] does.
    fn set_extended_state(&mut self, tid: Tid, area: &[u8]) -> Result<(), Error>;

    /// Reads the program's memory, up to the first byte that cannot be read. Returns the number of
    /// bytes read.
    fn read(&self, addr: Addr, buf: &mut [u8]) -> usize;

    /// Writes to the program's memory, all of the bytes. Returns an error for memory that cannot be
    /// written, and, unless the program is recorded exactly, for code that it cannot change itself.
    fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<(), Error>;

    /// Returns the start and the rate of the time-stamp counter so far; `None` if the program is
    /// gone, or recorded exactly.
    fn clock(&self) -> Option<TscClock>;

    /// Writes all data recorded so far, and returns the recording's directory.
    fn save(&mut self) -> Result<&Path, Error>;

    /// Returns the ticks so far plus the log entries so far; `None` if there is no log.
    fn moment(&mut self) -> Result<Option<u64>, Error> {
        Ok(None)
    }

    /// Detaches from the program and all processes beside it, which go on natively.
    fn detach(&mut self) -> Result<(), Error>;

    /// Kills the program and the processes beside it, and waits until their recordings are
    /// complete.
    fn kill(&mut self) -> Result<(), Error>;

    /// Returns the program's process, or the child that is debugged while its parent waits.
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

    /// Returns the threads of that process; none if the program is gone.
    fn threads(&self) -> Vec<Tid> {
        self.engine().tids()
    }

    /// Returns the registers of a stopped thread, and the signal for which it stopped; `None` if it
    /// is gone, or its state at its exit stop is unknown.
    fn thread(&self, tid: Tid) -> Option<core::Thread> {
        self.engine().threads().get(&tid)?.state()
    }

    /// Marks a stop at an address as reported ([`Debugged::mark_stop_reported`]).
    fn mark_stop_reported(&mut self, tid: Tid, stops: &BTreeSet<Addr>) -> bool {
        self.engine_mut().mark_stop_reported(tid, stops)
    }

    /// Sets the information of a thread's signal ([`Debugged::set_siginfo`]).
    fn set_siginfo(&mut self, tid: Tid, info: &SiginfoBytes) -> Result<(), Error> {
        self.engine_mut().set_siginfo(tid, info)
    }

    /// Forgets that a stop at an address was reported ([`Debugged::forget_reported_stop`]).
    fn forget_reported_stop(&mut self, tid: Tid) {
        self.engine_mut().forget_reported_stop(tid);
    }

    /// Returns the threads of the processes beside the program, with their processes.
    fn beside(&self) -> Vec<(Tid, Pid)> {
        Vec::new()
    }

    /// Returns true if a thread may be resumed now. While processes are beside the program, only
    /// one of all may run: the program, or a child for which its parent waits.
    fn may_resume(&self, _: Tid) -> bool {
        true
    }

    /// Reads the memory of a process beside the program. Returns the number of bytes read; 0 if
    /// there is no such process.
    fn read_beside(&self, _: Pid, _: Addr, _: &mut [u8]) -> usize {
        0
    }

    /// Detaches from the program or from a process beside it, which goes on natively. In place of
    /// the program, one of the others becomes the program. Without others, this is
    /// [`Self::detach`].
    fn leave_process(&mut self, _: Pid) -> Result<(), Error> {
        self.detach()
    }

    /// Kills a process beside the program, and waits until it has ended. Does nothing if there is
    /// no such process.
    fn kill_beside(&mut self, _: Pid) -> Result<(), Error> {
        Ok(())
    }

    /// Detaches from all processes beside the program, which go on natively.
    fn leave_all_beside(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// Returns the first address at which a write of `bytes` to `addr` meets code that the program
/// itself cannot change: `addr`, or the start of a later page. `None` if there is none. `is_fixed`
/// returns true if such code is at an address.
pub(super) fn first_fixed(
    addr: Addr,
    bytes: &[u8],
    is_fixed: impl Fn(Addr) -> bool,
) -> Option<Addr> {
    let range = AddrRange::sized(addr, bytes.len().max(1) as u64);
    let next = |at: &Addr| at.page().0.checked_add(PAGE_BYTES).map(Addr);
    let mut pages = successors(Some(addr), next).take_while(|at| range.contains(*at));
    pages.find(|at| is_fixed(*at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_amid_a_write_is_found() {
        let code = AddrRange::new(Addr(0x3000), Addr(0x4000));
        let first = |addr, size| first_fixed(Addr(addr), &vec![0; size], |at| code.contains(at));
        assert_eq!(first(0x2ffe, 2), None);
        assert_eq!(first(0x4000, 0x3000), None);
        assert_eq!(first(0x2ffe, 3), Some(Addr(0x3000)));
        assert_eq!(first(0x1800, 0x4000), Some(Addr(0x3000)));
        assert_eq!(first(0x3800, 0x2000), Some(Addr(0x3800)));
        assert_eq!(first(u64::MAX, 1), None);
    }
}
