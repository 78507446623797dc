//! A live program, recorded by any backend: a debugger runs it, and inspects it while all its
//! threads are stopped. A process goes on *natively* where the recorder has detached from it.

use super::contract::{Go, Report};
use super::live_program::LiveProgram;
use super::request::Request;
use super::{Backend, Error, exact, perf, soft, step};
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::image::core;
use crate::insn;
use crate::recording::TscClock;
use crate::tracee::debug_registers::can_watch;
use crate::tracee::{SiginfoBytes, Watch, comm};
use std::collections::BTreeSet;
use std::path::Path;

/// A program under a debugger that is recorded while it runs. All its threads are stopped between
/// two calls of [`Live::go`].
#[derive(Debug)]
pub struct Live {
    program: Program,
}

#[derive(Debug)]
enum Program {
    Soft(Box<soft::Live>),
    Step(Box<step::Live>),
    Exact(Box<exact::Live>),
    Perf(Box<perf::Live>),
}

/// Evaluates an expression with the backend's live program.
macro_rules! either {
    ($self:ident, $live:ident => $what:expr) => {
        match &mut $self.program {
            Program::Soft($live) => $what,
            Program::Step($live) => $what,
            Program::Exact($live) => $what,
            Program::Perf($live) => $what,
        }
    };
    (ref $self:ident, $live:ident => $what:expr) => {
        match &$self.program {
            Program::Soft($live) => $what,
            Program::Step($live) => $what,
            Program::Exact($live) => $what,
            Program::Perf($live) => $what,
        }
    };
}

impl Live {
    /// Creates a value for a program that is gone, without a recording: it has no threads, and
    /// [`Self::go`] reports its end.
    pub fn vacant(request: &Request) -> Self {
        Self::soft(soft::Live::vacant(request))
    }

    /// Launches a program and starts its recording. It is stopped at its first instruction.
    pub fn launch(backend: Backend, request: &Request) -> Result<Self, Error> {
        match backend {
            Backend::Soft => soft::Live::launch(request).map(Self::soft),
            Backend::Step => step::Live::launch(request).map(Self::step),
            Backend::Exact => exact::Live::launch(request).map(Self::exact),
            Backend::Perf => perf::Live::launch(request).map(Self::perf),
        }
    }

    /// Attaches to a running process, stops it, and starts its recording. Fails for
    /// [`Backend::Step`].
    pub fn attach(backend: Backend, request: &Request, pid: Pid) -> Result<Self, Error> {
        match backend {
            Backend::Soft => soft::Live::attach(request, pid).map(Self::soft),
            Backend::Step => Err(Error::FromStartOnly { backend }),
            Backend::Exact => exact::Live::attach(request, pid).map(Self::exact),
            Backend::Perf => perf::Live::attach(request, pid).map(Self::perf),
        }
    }

    fn soft(live: soft::Live) -> Self {
        Self { program: Program::Soft(Box::new(live)) }
    }

    pub(super) fn perf(live: perf::Live) -> Self {
        Self { program: Program::Perf(Box::new(live)) }
    }

    fn exact(live: exact::Live) -> Self {
        Self { program: Program::Exact(Box::new(live)) }
    }

    fn step(live: step::Live) -> Self {
        Self { program: Program::Step(Box::new(live)) }
    }

    /// Resumes the program until there is an event, and returns the event with its thread. All
    /// threads are stopped again then. If an event is left from before, or if the program is gone,
    /// returns that event or its end, and resumes nothing. Polls `interrupted`, and if that returns
    /// true, returns [`Report::Interrupted`].
    pub fn go(&mut self, go: &Go, interrupted: &dyn Fn() -> bool) -> Result<(Tid, Report), Error> {
        either!(self, live => live.go(go, interrupted))
    }

    /// Returns true if the CPU's debug registers suffice for all these watchpoints at once.
    pub fn can_watch(watches: &[Watch]) -> bool {
        can_watch(watches)
    }

    /// Returns the program's process, or the child that is debugged while its parent waits.
    pub fn pid(&self) -> Pid {
        either!(ref self, live => live.pid())
    }

    /// Returns the program's threads; none if it is gone.
    pub fn threads(&self) -> Vec<Tid> {
        either!(ref self, live => live.threads())
    }

    /// Returns the name of a thread, also of one that has ended; empty if unknown.
    pub fn name(&self, tid: Tid) -> String {
        match self.beside().into_iter().find(|(beside, _)| *beside == tid) {
            Some((_, pid)) => comm(pid, tid),
            None => either!(ref self, live => live.name(tid)),
        }
    }

    /// Returns the program's auxiliary vector (`/proc/PID/auxv`); empty if the program is gone.
    pub fn auxv(&self) -> Vec<u8> {
        either!(ref self, live => live.auxv())
    }

    /// Returns the ranges of the program's address space that the recorder uses.
    pub fn hidden(&self) -> Vec<AddrRange> {
        either!(ref self, live => live.hidden())
    }

    /// Returns the registers of a stopped thread, and the signal for which it stopped; `None` if it
    /// is gone.
    pub fn thread(&self, tid: Tid) -> Option<core::Thread> {
        either!(ref self, live => live.thread(tid))
    }

    /// Changes a thread's general registers. Returns an error if the thread is gone, or at its exit
    /// stop.
    pub fn set_registers(&mut self, tid: Tid, registers: &insn::Registers) -> Result<(), Error> {
        either!(self, live => live.set_registers(tid, registers))
    }

    /// Marks the stop of a thread at its address as reported, if that is one of `stops`. Returns
    /// true if it is one, and was not reported before.
    pub fn mark_stop_reported(&mut self, tid: Tid, stops: &BTreeSet<Addr>) -> bool {
        either!(self, live => live.mark_stop_reported(tid, stops))
    }

    /// Sets the information of the signal for which a thread is stopped, or else of the next signal
    /// that the debugger delivers to it.
    pub fn set_siginfo(&mut self, tid: Tid, info: &SiginfoBytes) -> Result<(), Error> {
        either!(self, live => live.set_siginfo(tid, info))
    }

    /// Forgets that a thread reported a stop at its address, since the debugger moved it there.
    pub fn forget_reported_stop(&mut self, tid: Tid) {
        either!(self, live => live.forget_reported_stop(tid));
    }

    /// Sets a thread's extended registers (x87, SSE, AVX...), in the XSAVE layout of
    /// [`Self::thread`].
    pub fn set_extended_state(&mut self, tid: Tid, area: &[u8]) -> Result<(), Error> {
        either!(self, live => live.set_extended_state(tid, area))
    }

    /// Reads the program's memory, up to the first byte that cannot be read. Returns the number of
    /// bytes read.
    pub fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        either!(ref self, live => live.read(addr, buf))
    }

    /// Writes to the program's memory. Returns an error for memory that cannot be written, and,
    /// unless it is recorded exactly, for code that the program itself cannot change.
    pub fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<(), Error> {
        either!(self, live => live.write(addr, bytes))
    }

    /// Returns the start and the rate of the time-stamp counter so far; `None` if the program is
    /// gone, or recorded exactly.
    pub fn clock(&self) -> Option<TscClock> {
        either!(ref self, live => live.clock())
    }

    /// Writes all data recorded so far, and returns the recording's directory. Fails while a child
    /// is debugged that is not recorded yet.
    pub fn save(&mut self) -> Result<&Path, Error> {
        either!(self, live => live.save())
    }

    /// Returns the program's moment in its exact recording: the ticks so far plus the log entries
    /// so far. `None` without an exact recording.
    pub fn moment(&mut self) -> Result<Option<u64>, Error> {
        either!(self, live => live.moment())
    }

    /// Returns the threads of stopped processes other than the program: children whose birth was
    /// reported, and the parent of a followed child that waits for it.
    pub fn beside(&self) -> Vec<(Tid, Pid)> {
        either!(ref self, live => live.beside())
    }

    /// Returns true if a thread may be resumed while other processes are stopped. One process runs
    /// at a time: the program, or a child whose parent waits for it.
    pub fn may_resume(&self, tid: Tid) -> bool {
        either!(ref self, live => live.may_resume(tid))
    }

    /// Reads the memory of a stopped process other than the program. Returns the number of bytes
    /// read.
    pub fn read_beside(&self, pid: Pid, addr: Addr, buf: &mut [u8]) -> usize {
        either!(ref self, live => live.read_beside(pid, addr, buf))
    }

    /// Detaches from a stopped process, which goes on natively. If it was the program, another
    /// stopped process becomes the program, with a recording from here on; without one, this is
    /// [`Self::detach`].
    pub fn leave_process(&mut self, pid: Pid) -> Result<(), Error> {
        either!(self, live => live.leave_process(pid))
    }

    /// Kills a stopped process other than the program, and waits until it has ended. Does nothing
    /// if there is none with this number.
    pub fn kill_beside(&mut self, pid: Pid) -> Result<(), Error> {
        either!(self, live => live.kill_beside(pid))
    }

    /// Detaches from all processes but the program, also from children that were not reported yet.
    pub fn leave_all_beside(&mut self) -> Result<(), Error> {
        either!(self, live => live.leave_all_beside())
    }

    /// Detaches from the program and all processes beside it, which go on natively. Does nothing if
    /// the program is gone.
    pub fn detach(&mut self) -> Result<(), Error> {
        either!(self, live => live.detach())
    }

    /// Kills the program and the processes beside it, and waits until their recordings are
    /// complete. A process that was left, but waits for a child that is debugged, goes on natively.
    pub fn kill(&mut self) -> Result<(), Error> {
        either!(self, live => live.kill())
    }
}
