//! The contract of a live program: a debugger runs it under capture, and looks at it where it
//! stands.

use super::debug_registers::can_watch;
use super::recorder::Request;
use super::{Backend, Error, perf, soft, step};
use crate::common::{Addr, Pid, Tid};
use crate::image::core;
use crate::insn;
use crate::recording::{Exit, TscClock};
use crate::tracee::{SiginfoBytes, Signo, comm};
use std::collections::BTreeSet;
use std::path::Path;

/// How a live program is to go on.
#[derive(Clone, Debug)]
pub struct Go {
    /// The thread that steps; otherwise the one that the debugger looks at, which goes on even
    /// where it is to stop.
    pub thread: Tid,
    /// That thread executes one instruction.
    pub step: bool,
    /// The other threads stand still.
    pub locked: bool,
    /// The signal that this thread is to have; 0: none.
    pub signal: Signo,
    /// Signals that other threads are to have.
    pub signals: Vec<(Tid, Signo)>,
    /// Where threads stop.
    pub stops: BTreeSet<Addr>,
    /// Signals that are delivered without a stop; signal 1 in bit 0.
    pub passed: u64,
    /// The same of the thread that steps. A debugger wants to hear of all of them: the step would
    /// end in a handler otherwise.
    pub passed_to_stepper: u64,
    /// Memory that threads stop behind an access of.
    pub watches: Vec<Watch>,
    /// System calls that threads stop at, before and behind.
    pub catches: Catches,
    /// Births of processes that threads stop at.
    pub forks: Forks,
}

impl Go {
    /// Returns the signals that a thread gets without a stop.
    pub(super) fn passed_to(&self, tid: Tid) -> u64 {
        if self.step && self.thread == tid { self.passed_to_stepper } else { self.passed }
    }
}

/// Memory that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Its first byte.
    pub addr: Addr,
    /// How many bytes.
    pub size_bytes: u64,
    /// Reads count, and not only writes.
    pub reads: bool,
}

/// At which system calls a live program stops, before and behind each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Catches {
    /// At none.
    #[default]
    None,
    /// At these.
    Of(BTreeSet<u64>),
    /// At all.
    All,
}

impl Catches {
    /// Whether a system call is among them.
    pub fn has(&self, number: u64) -> bool {
        match self {
            Self::None => false,
            Self::Of(numbers) => numbers.contains(&number),
            Self::All => true,
        }
    }
}

/// At which births of processes a live program stops. Parent and child both stand still then, until
/// one of them is left ([`Live::leave_process`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forks {
    /// At those of children with memory of their own.
    pub fork: bool,
    /// At those of children for which their parent waits, until they execute a program or end;
    /// and at the end of that.
    pub vfork: bool,
}

/// Why a live program stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The thread is about to execute what is at one of the [`Go::stops`].
    Stop,
    /// The step is done.
    Stepped,
    /// The thread has accessed memory that is watched: the [`Watch`] at this address.
    Watch(Addr),
    /// A signal is about to be delivered to the thread.
    Signal(Signo),
    /// The thread is about to make the system call of this number.
    Call(u64),
    /// It has made it.
    CallReturn(u64),
    /// The thread has made this process.
    Forked(Pid),
    /// The thread has made this process, and waits until it executes a program or ends.
    Vforked(Pid),
    /// The thread need not wait any more.
    VforkDone,
    /// The thread has executed another program.
    Executed,
    /// The only thread that was to go on has ended, and no other runs. This is one of those.
    NoneRuns,
    /// Somebody interrupted.
    Interrupted,
    /// The process has ended but for its last trace: its registers and memory are as at its end.
    Ending,
    /// It is gone.
    Ended(Option<Exit>),
}

impl News {
    /// Whether this is of a child.
    pub(super) fn is_birth(self) -> bool {
        matches!(self, Self::Forked(_) | Self::Vforked(_))
    }

    /// Returns true if this is reported however the thread is to go on.
    pub(super) fn is_due(self) -> bool {
        self.is_birth() || matches!(self, Self::CallReturn(_))
    }
}

/// A program that runs under capture, and stands still between two calls of [`Live::go`].
#[derive(Debug)]
pub struct Live {
    program: Program,
}

#[derive(Debug)]
enum Program {
    Soft(Box<soft::Live>),
    Step(Box<step::Live>),
    Perf(Box<perf::Live>),
}

/// What each backend does in its own way.
macro_rules! either {
    ($self:ident, $live:ident => $what:expr) => {
        match &mut $self.program {
            Program::Soft($live) => $what,
            Program::Step($live) => $what,
            Program::Perf($live) => $what,
        }
    };
    (ref $self:ident, $live:ident => $what:expr) => {
        match &$self.program {
            Program::Soft($live) => $what,
            Program::Step($live) => $what,
            Program::Perf($live) => $what,
        }
    };
}

impl Live {
    /// No program: as one that is gone, and has left nothing.
    pub fn vacant(request: &Request) -> Self {
        Self::soft(soft::Live::vacant(request))
    }

    /// Launches a program. It stands at its first instruction.
    pub fn launch(backend: Backend, request: &Request) -> Result<Self, Error> {
        match backend {
            Backend::Soft => soft::Live::launch(request).map(Self::soft),
            Backend::Step => step::Live::launch(request).map(Self::step),
            Backend::Perf => perf::Live::launch(request).map(Self::perf),
        }
    }

    /// Takes over a running process, which stands still then.
    pub fn attach(backend: Backend, request: &Request, pid: Pid) -> Result<Self, Error> {
        match backend {
            Backend::Soft => soft::Live::attach(request, pid).map(Self::soft),
            Backend::Step => Err(Error::FromStartOnly { backend: "step" }),
            Backend::Perf => perf::Live::attach(request, pid).map(Self::perf),
        }
    }

    fn soft(live: soft::Live) -> Self {
        Self { program: Program::Soft(Box::new(live)) }
    }

    pub(super) fn perf(live: perf::Live) -> Self {
        Self { program: Program::Perf(Box::new(live)) }
    }

    fn step(live: step::Live) -> Self {
        Self { program: Program::Step(Box::new(live)) }
    }

    /// Lets the program go on until there is something to tell, and of which thread. All threads
    /// stand still then. `interrupted` is asked now and then.
    pub fn go(&mut self, go: &Go, interrupted: &dyn Fn() -> bool) -> Result<(Tid, News), Error> {
        either!(self, live => live.go(go, interrupted))
    }

    /// Whether the CPU can watch all of this at once.
    pub fn can_watch(watches: &[Watch]) -> bool {
        can_watch(watches)
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        either!(ref self, live => live.pid())
    }

    /// Its threads; none when it is gone.
    pub fn threads(&self) -> Vec<Tid> {
        either!(ref self, live => live.threads())
    }

    /// The name of a thread, also of one that has ended.
    pub fn name(&self, tid: Tid) -> String {
        match self.beside().into_iter().find(|(beside, _)| *beside == tid) {
            Some((_, pid)) => comm(pid, tid),
            None => either!(ref self, live => live.name(tid)),
        }
    }

    /// The registers of a thread, and the signal that it stands at.
    pub fn thread(&self, tid: Tid) -> Option<core::Thread> {
        either!(ref self, live => live.thread(tid))
    }

    /// Changes a thread's general registers.
    pub fn set_registers(&mut self, tid: Tid, registers: &insn::Registers) -> Result<(), Error> {
        either!(self, live => live.set_registers(tid, registers))
    }

    /// Returns true if a thread stands at one of `stops` and has not reported it. It has then.
    pub fn reports_stop(&mut self, tid: Tid, stops: &BTreeSet<Addr>) -> bool {
        either!(self, live => live.reports_stop(tid, stops))
    }

    /// Changes what the signal brings along that a thread stands at, or is given next.
    pub fn set_siginfo(&mut self, tid: Tid, info: &SiginfoBytes) -> Result<(), Error> {
        either!(self, live => live.set_siginfo(tid, info))
    }

    /// The debugger has put a thread where it stands: what it reported there before is forgotten.
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

    /// The time-stamp counter's rate from the start to now; none when the program is gone.
    pub fn clock(&self) -> Option<TscClock> {
        either!(ref self, live => live.clock())
    }

    /// Writes all that was recorded so far, and gives the recording's directory.
    pub fn save(&mut self) -> Result<&Path, Error> {
        either!(self, live => live.save())
    }

    /// The threads of processes that stand still beside the program: children whose birth was told
    /// of, and the parent of a followed one that waits for it.
    pub fn beside(&self) -> Vec<(Tid, Pid)> {
        match &self.program {
            Program::Soft(live) => live.beside(),
            Program::Step(live) => live.beside(),
            Program::Perf(_) => Vec::new(),
        }
    }

    /// Whether a thread may go on while other processes stand still. One at a time runs, and only
    /// of one whose parent waits for it is that any other than the program.
    pub fn may_go(&self, tid: Tid) -> bool {
        match &self.program {
            Program::Soft(live) => live.may_go(tid),
            Program::Step(live) => live.may_go(tid),
            Program::Perf(_) => true,
        }
    }

    /// Reads the memory of a process that stands beside the program.
    pub fn read_beside(&self, pid: Pid, addr: Addr, buf: &mut [u8]) -> usize {
        match &self.program {
            Program::Soft(live) => live.read_beside(pid, addr, buf),
            Program::Step(live) => live.read_beside(pid, addr, buf),
            Program::Perf(_) => 0,
        }
    }

    /// Leaves one of the processes, which goes on by itself. Where it was the program, one that
    /// stands beside it becomes the program, with a recording of its own from here on; where there
    /// is none, this is [`Self::detach`].
    pub fn leave_process(&mut self, pid: Pid) -> Result<(), Error> {
        match &mut self.program {
            Program::Soft(live) => live.leave_process(pid),
            Program::Step(live) => live.leave_process(pid),
            Program::Perf(live) => live.detach(),
        }
    }

    /// Ends a process that stands beside the program.
    pub fn kill_beside(&mut self, pid: Pid) -> Result<(), Error> {
        match &mut self.program {
            Program::Soft(live) => live.kill_beside(pid),
            Program::Step(live) => live.kill_beside(pid),
            Program::Perf(_) => Ok(()),
        }
    }

    /// All that stands beside the program goes on by itself, also what nobody was told of yet.
    pub fn leave_all_beside(&mut self) -> Result<(), Error> {
        match &mut self.program {
            Program::Soft(live) => live.leave_all_beside(),
            Program::Step(live) => live.leave_all_beside(),
            Program::Perf(_) => Ok(()),
        }
    }

    /// Leaves the program, which goes on by itself.
    pub fn detach(&mut self) -> Result<(), Error> {
        either!(self, live => live.detach())
    }

    /// Ends the program.
    pub fn kill(&mut self) -> Result<(), Error> {
        either!(self, live => live.kill())
    }
}
