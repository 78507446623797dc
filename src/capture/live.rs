//! A live program, of whichever backend: a debugger runs it under capture, and looks at it while
//! all its threads are stopped.

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

/// A program that runs under capture. All its threads are stopped between two calls of
/// [`Live::go`].
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

/// Calls the backend's method.
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
    /// Returns a program that is gone, and has left nothing.
    pub fn vacant(request: &Request) -> Self {
        Self::soft(soft::Live::vacant(request))
    }

    /// Launches a program, stopped at its first instruction.
    pub fn launch(backend: Backend, request: &Request) -> Result<Self, Error> {
        match backend {
            Backend::Soft => soft::Live::launch(request).map(Self::soft),
            Backend::Step => step::Live::launch(request).map(Self::step),
            Backend::Exact => exact::Live::launch(request).map(Self::exact),
            Backend::Perf => perf::Live::launch(request).map(Self::perf),
        }
    }

    /// Attaches to a running process, and stops it.
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

    /// Lets the program go on until there is an event, and returns that and its thread. All threads
    /// are stopped then. Polls `interrupted`.
    pub fn go(&mut self, go: &Go, interrupted: &dyn Fn() -> bool) -> Result<(Tid, Report), Error> {
        either!(self, live => live.go(go, interrupted))
    }

    /// Returns true if the CPU can watch all of this at once.
    pub fn can_watch(watches: &[Watch]) -> bool {
        can_watch(watches)
    }

    /// Returns the process.
    pub fn pid(&self) -> Pid {
        either!(ref self, live => live.pid())
    }

    /// Returns its threads; none if it is gone.
    pub fn threads(&self) -> Vec<Tid> {
        either!(ref self, live => live.threads())
    }

    /// Returns the name of a thread, also of one that has ended.
    pub fn name(&self, tid: Tid) -> String {
        match self.beside().into_iter().find(|(beside, _)| *beside == tid) {
            Some((_, pid)) => comm(pid, tid),
            None => either!(ref self, live => live.name(tid)),
        }
    }

    /// Returns the auxiliary vector as the program sees it; empty if the program is gone.
    pub fn auxv(&self) -> Vec<u8> {
        either!(ref self, live => live.auxv())
    }

    /// Returns the recorder's own ranges of the program's address space.
    pub fn hidden(&self) -> Vec<AddrRange> {
        either!(ref self, live => live.hidden())
    }

    /// Returns the registers of a thread, and the signal for which it stopped.
    pub fn thread(&self, tid: Tid) -> Option<core::Thread> {
        either!(ref self, live => live.thread(tid))
    }

    /// Changes a thread's general registers.
    pub fn set_registers(&mut self, tid: Tid, registers: &insn::Registers) -> Result<(), Error> {
        either!(self, live => live.set_registers(tid, registers))
    }

    /// Returns true if a thread is at one of `stops` and has not reported it. It has then.
    pub fn reports_stop(&mut self, tid: Tid, stops: &BTreeSet<Addr>) -> bool {
        either!(self, live => live.reports_stop(tid, stops))
    }

    /// Changes the information of the signal that a thread stopped for, or else of its next one.
    pub fn set_siginfo(&mut self, tid: Tid, info: &SiginfoBytes) -> Result<(), Error> {
        either!(self, live => live.set_siginfo(tid, info))
    }

    /// Forgets that a thread reported the place where it is, since the debugger put it there.
    pub fn forget_report(&mut self, tid: Tid) {
        either!(self, live => live.forget_report(tid));
    }

    /// Changes a thread's extended state, in XSAVE layout as [`Self::thread`] gives it.
    pub fn set_extended_state(&mut self, tid: Tid, area: &[u8]) -> Result<(), Error> {
        either!(self, live => live.set_extended_state(tid, area))
    }

    /// Reads the program's memory; gives how many bytes could be read.
    pub fn read(&self, addr: Addr, buf: &mut [u8]) -> usize {
        either!(ref self, live => live.read(addr, buf))
    }

    /// Changes the program's memory. Code that the program itself cannot change stays.
    pub fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<(), Error> {
        either!(self, live => live.write(addr, bytes))
    }

    /// Returns the time-stamp counter's rate so far; `None` if the program is gone.
    pub fn clock(&self) -> Option<TscClock> {
        either!(ref self, live => live.clock())
    }

    /// Writes all that was recorded so far, and returns the recording's directory.
    pub fn save(&mut self) -> Result<&Path, Error> {
        either!(self, live => live.save())
    }

    /// Returns where the program is: the number of ticks and entries of the log up to there. `None`
    /// if it is not recorded exactly.
    pub fn moment(&mut self) -> Result<Option<u64>, Error> {
        either!(self, live => live.moment())
    }

    /// Returns the threads of stopped processes other than the program: children whose birth was
    /// reported, and the parent of a followed child that waits for it.
    pub fn beside(&self) -> Vec<(Tid, Pid)> {
        either!(ref self, live => live.beside())
    }

    /// Returns true if a thread may go on while other processes are stopped. One process runs at a
    /// time: the program, or a child whose parent waits for it.
    pub fn may_go(&self, tid: Tid) -> bool {
        either!(ref self, live => live.may_go(tid))
    }

    /// Reads the memory of a stopped process other than the program.
    pub fn read_beside(&self, pid: Pid, addr: Addr, buf: &mut [u8]) -> usize {
        either!(ref self, live => live.read_beside(pid, addr, buf))
    }

    /// Leaves one of the processes, which goes on natively. If it was the program, another stopped
    /// one becomes the program, with its own recording from here on; if there is none, this is
    /// [`Self::detach`].
    pub fn leave_process(&mut self, pid: Pid) -> Result<(), Error> {
        either!(self, live => live.leave_process(pid))
    }

    /// Kills a stopped process other than the program.
    pub fn kill_beside(&mut self, pid: Pid) -> Result<(), Error> {
        either!(self, live => live.kill_beside(pid))
    }

    /// Lets all processes but the program go on natively, also those that were not reported yet.
    pub fn leave_all_beside(&mut self) -> Result<(), Error> {
        either!(self, live => live.leave_all_beside())
    }

    /// Leaves the program, which goes on natively.
    pub fn detach(&mut self) -> Result<(), Error> {
        either!(self, live => live.detach())
    }

    /// Ends the program.
    pub fn kill(&mut self) -> Result<(), Error> {
        either!(self, live => live.kill())
    }
}
