//! The contract between a debugger and a live program: requests and events.

use crate::common::{Addr, Pid, Tid};
use crate::recording::Exit;
use crate::tracee::{Signo, Watch};
use std::collections::BTreeSet;

/// A request to let a live program go on.
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
    /// Signals that are delivered to the stepping thread without a stop. gdb stops for all of them,
    /// since the step would end in a handler otherwise.
    pub passed_to_stepper: u64,
    /// Memory after an access of which threads stop.
    pub watches: Vec<Watch>,
    /// System calls before and after which threads stop.
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

/// The system calls before and after which a live program stops.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
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
    /// Returns true if a system call is among them.
    pub fn has(&self, number: u64) -> bool {
        match self {
            Self::None => false,
            Self::Of(numbers) => numbers.contains(&number),
            Self::All => true,
        }
    }
}

/// At which births of processes a live program stops. Parent and child both stand still then, until
/// one of them is left ([`super::Live::leave_process`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forks {
    /// At those of children with memory of their own.
    pub fork: bool,
    /// At those of children for which their parent waits, until they execute a program or end;
    /// and at the end of that.
    pub vfork: bool,
}

/// The event for which a live program stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
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

impl Report {
    /// Returns true if this reports a child.
    pub(super) fn is_birth(self) -> bool {
        matches!(self, Self::Forked(_) | Self::Vforked(_))
    }

    /// Returns true if this is reported however the thread is to go on.
    pub(super) fn is_due(self) -> bool {
        self.is_birth() || matches!(self, Self::CallReturn(_))
    }
}
