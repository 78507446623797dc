//! The requests of a debugger to a live program, and the events that the program reports.

use crate::common::{Addr, Pid, Tid};
use crate::recording::Exit;
use crate::tracee::{Signo, Watch};
use std::collections::BTreeSet;

/// A request to resume a live program.
#[derive(Clone, Debug)]
pub struct Go {
    /// The thread to step. Without a step, the debugger's current thread: it goes on even if it is
    /// at one of `stops`.
    pub thread: Tid,
    /// True if `thread` executes one instruction only.
    pub step: bool,
    /// True if the other threads stay stopped.
    pub locked: bool,
    /// The signal to deliver to `thread`; 0 for none.
    pub signal: Signo,
    /// The signals to deliver to other threads.
    pub signals: Vec<(Tid, Signo)>,
    /// The addresses at which threads stop, before they execute the instruction there.
    pub stops: BTreeSet<Addr>,
    /// A mask of the signals that are delivered without a stop; signal 1 in bit 0.
    pub passed: u64,
    /// A mask of the signals that are delivered to the stepping thread without a stop. It is 0 if
    /// gdb steps: delivered at once, a signal could end the step in a handler.
    pub passed_to_stepper: u64,
    /// The watchpoints: threads stop after an access to this memory.
    pub watches: Vec<Watch>,
    /// The system calls before and after which threads stop.
    pub catches: Catches,
    /// The kinds of births of processes at which the parent stops.
    pub forks: Forks,
}

impl Go {
    /// Returns the mask of the signals that are delivered to a thread without a stop.
    pub(super) fn passed_to(&self, tid: Tid) -> u64 {
        if self.step && self.thread == tid { self.passed_to_stepper } else { self.passed }
    }
}

/// The system calls before and after which a live program stops.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Catches {
    /// No system call.
    #[default]
    None,
    /// The system calls with these numbers.
    Of(BTreeSet<u64>),
    /// All system calls.
    All,
}

impl Catches {
    /// Returns true if the program stops at the system call `number`.
    pub fn has(&self, number: u64) -> bool {
        match self {
            Self::None => false,
            Self::Of(numbers) => numbers.contains(&number),
            Self::All => true,
        }
    }
}

/// The kinds of births of processes at which a live program stops. Parent and child both stay
/// stopped then, until one of them is left ([`super::Live::leave_process`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forks {
    /// True for births of children that have their own memory, as after fork(2).
    pub fork: bool,
    /// True for births of children for which their parent waits until they execute a program or
    /// end, as after vfork(2), and for the end of that wait.
    pub vfork: bool,
}

/// The event for which a live program stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The thread is about to execute the instruction at one of the [`Go::stops`].
    Breakpoint,
    /// The thread has executed its single step.
    Stepped,
    /// The thread has accessed memory that is watched: the [`Watch`] at this address.
    Watch(Addr),
    /// A signal is about to be delivered to the thread.
    Signal(Signo),
    /// The thread is about to make the system call of this number.
    Call(u64),
    /// The thread has returned from the system call of this number.
    CallReturn(u64),
    /// The thread has created this process.
    Forked(Pid),
    /// The thread has created this process, and waits until it executes a program or ends.
    Vforked(Pid),
    /// The thread's wait for the child of a [`Report::Vforked`] is over.
    VforkDone,
    /// The thread has executed another program.
    Executed,
    /// The only thread that was resumed has ended. The reported thread is another one, still
    /// stopped.
    NoneRuns,
    /// The caller interrupted the program.
    Interrupted,
    /// All threads of the process are at their exit stops: its registers and memory can be read for
    /// the last time.
    Ending,
    /// The process is gone, with this exit; `None` if unknown.
    Ended(Option<Exit>),
}

impl Report {
    /// Returns true if this reports a child.
    pub(super) fn is_birth(self) -> bool {
        matches!(self, Self::Forked(_) | Self::Vforked(_))
    }

    /// Returns true if this event is reported instead of resuming, whatever the debugger requests
    /// next.
    pub(super) fn is_reported_before_resuming(self) -> bool {
        self.is_birth() || matches!(self, Self::CallReturn(_))
    }
}
