//! A run that can be driven: the interface behind which live and recorded runs look alike.

use super::{
    BreakpointKind, Breakpoints, CallFrame, Catches, Description, Direction, Ending, FileBytes,
    Forks, GapInfo, History, Library, Older, Region, Register, Registers, Start, ThreadInfo, Value,
    Watchpoint,
};
use crate::common::{Addr, Pid, Tid};
use crate::state::NoThreadLocal;
use std::path::{Path, PathBuf};

/// Where a run stands in its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Instructions of all threads executed so far.
    pub at: u64,
    /// Instructions in the history.
    pub total: u64,
}

/// What a resumed thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// One instruction.
    Step,
    /// Until something stops it.
    Continue,
}

/// How to resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Step or continue.
    pub action: Action,
    /// Which way through time.
    pub direction: Direction,
    /// The thread that steps, or that the stop should be seen from.
    pub thread: Tid,
    /// Only this thread may stop the run (gdb's scheduler locking).
    pub locked: bool,
    /// The signal that the thread of a live program is to have; 0: none.
    pub signal: i32,
}

/// An end of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Nothing earlier.
    Begin,
    /// Nothing later.
    End,
}

/// Why a run stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// It has just been opened or moved.
    Arrived,
    /// The step is done.
    Step,
    /// The instruction at a breakpoint is about to execute.
    Breakpoint(BreakpointKind),
    /// The history goes no further.
    Edge(Edge),
    /// The user interrupted.
    Interrupted,
    /// A live program has accessed the memory of a watchpoint.
    Watchpoint(Watchpoint),
    /// A signal (the kernel's number) is about to be delivered to a live program, or in the past: its
    /// handler begins.
    Signal(i32),
    /// The system call of this number is about to be made.
    Call(u64),
    /// It was made.
    CallReturn(u64),
    /// A live program has made this process, which stands still as well.
    Forked(Pid),
    /// The same, and waits until that one executes a program or ends.
    Vforked(Pid),
    /// A live program need not wait for its child any more.
    VforkDone,
    /// A live program has executed another one.
    Executed,
    /// The only thread of a live program that was to run has ended.
    NoneRuns,
    /// A live program is gone: the process whose first thread this is.
    Gone(Ending),
}

impl StopReason {
    /// In place of a system call's number that is not known.
    pub const UNKNOWN_CALL: u64 = u64::MAX;
}

/// A stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The thread that it happened to.
    pub thread: Tid,
    /// Why.
    pub reason: StopReason,
}

/// Why something could not be done with a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A write to registers or memory of the past.
    #[error("the past cannot be changed: this is a recording (registers and memory are read-only)")]
    PastIsFixed,
    /// A write to registers or memory of a live program's past.
    #[error(
        "the past cannot be changed: go forward to the live end first (monitor seek end, or \
         continue)"
    )]
    LivePastIsFixed,
    /// A way through the past with watchpoints.
    #[error(
        "watchpoints see nothing in the past, whose values are not known: delete or disable them \
         to go there"
    )]
    NoPastWatches,
    /// A thread-local variable whose address is not known.
    #[error(transparent)]
    NoThreadLocal(NoThreadLocal),
    /// A write to a program that is gone.
    #[error("the program is gone")]
    Gone,
    /// Another program in place of a recording.
    #[error("this is a recording, which is not run again: `contraflow serve` runs programs")]
    NotRunAgain,
    /// A program that is to run again, where none ran before.
    #[error("no program was run before: say which one to run")]
    NoProgram,
    /// Two processes that are to be debugged at once.
    #[error(
        "two processes stand still here, and one is debugged at a time: detach one of them first \
         (set detach-on-fork on)"
    )]
    TwoProcesses,
    /// A way back for a process that has no recording.
    #[error("this process has no history yet: go forward first")]
    NotRecordedYet,
    /// A seek in a run without a history.
    #[error("there is no history")]
    NoHistory,
    /// A `siginfo_t` of another size than the kernel's.
    #[error("a siginfo_t has 128 bytes")]
    NotSiginfo,
    /// A register that cannot be written.
    #[error("this register cannot be written")]
    NoSuchRegister,
    /// A live program could not be changed.
    #[error("{0}")]
    Refused(String),
    /// A seek outside the history.
    #[error("no such position: {position} (the history has 0 to {total})")]
    NoSuchPosition {
        /// What was asked for.
        position: u64,
        /// The last position.
        total: u64,
    },
}

/// A live or recorded run, standing somewhere.
pub trait Run {
    /// The threads that exist now, never none.
    fn threads(&self) -> Vec<ThreadInfo>;

    /// The thread to look at before anything has stopped.
    fn default_thread(&self) -> Tid;

    /// Where the run stands; `None` for one without a history.
    fn position(&self) -> Option<Position>;

    /// Resumes, and waits for the stop. `last` is the stop at which the run stands: what it
    /// reported is not reported again. `interrupted` is called now and then.
    fn resume(
        &mut self,
        order: &Order,
        last: &Stop,
        breakpoints: &Breakpoints,
        interrupted: &dyn Fn() -> bool,
    ) -> Stop;

    /// Moves to a position of the history.
    fn seek(&mut self, position: u64) -> Result<(), Error>;

    /// The address of the next instruction of a thread.
    fn pc(&self, tid: Tid) -> Option<Addr>;

    /// Whether the next instruction of a thread leads to another one of the same activation of a
    /// function. False where that is not known.
    fn stays(&self, _tid: Tid) -> bool {
        false
    }

    /// A thread's registers, each known or not.
    fn registers(&self, tid: Tid) -> Registers;

    /// Fills `buf` from memory at `addr` as far as it is known without a hole; how many bytes.
    fn read_memory(&self, tid: Tid, addr: Addr, buf: &mut [u8]) -> usize;

    /// Changes a register.
    fn write_register(&mut self, tid: Tid, register: Register, value: Value) -> Result<(), Error>;

    /// Changes memory.
    fn write_memory(&mut self, tid: Tid, addr: Addr, bytes: &[u8]) -> Result<(), Error>;

    /// The activations that a thread is in, innermost first.
    fn call_stack(&self, tid: Tid) -> Vec<CallFrame>;

    /// What is around the outermost of them.
    fn older_frames(&self, _tid: Tid) -> Older {
        Older::Nothing
    }

    /// Nanoseconds since the start, now.
    fn time_ns(&self) -> Option<u64>;

    /// The signal that the run stands at, and the thread it came to: at the end of one that died
    /// of it.
    fn fatal_signal(&self) -> Option<(Tid, i32)>;

    /// Holes in the path.
    fn gaps(&self) -> Vec<GapInfo>;

    /// What runs.
    fn describe(&self) -> Description;

    /// The ELF auxiliary vector.
    fn auxv(&self) -> Option<Vec<u8>>;

    /// The path of the executable.
    fn exec_file(&self) -> Option<PathBuf>;

    /// The shared libraries.
    fn libraries(&self) -> Option<Vec<Library>>;

    /// What is mapped now, by address.
    fn regions(&self) -> Option<Vec<Region>> {
        None
    }

    /// The `siginfo_t` of the signal at which a thread stands.
    fn siginfo(&self, tid: Tid) -> Option<Vec<u8>>;

    /// Changes the `siginfo_t` of the signal at which a thread stands, or which it is given next.
    fn write_siginfo(&mut self, _tid: Tid, _info: &[u8]) -> Result<(), Error> {
        Err(Error::PastIsFixed)
    }

    /// A file that belongs to the run.
    fn file(&self, path: &Path) -> Option<Box<dyn FileBytes>>;

    /// Where a symbolic link leads that belongs to the run.
    fn link(&self, _path: &Path) -> Option<PathBuf> {
        None
    }

    /// The PT packets of a thread up to now.
    fn pt_trace(&self, tid: Tid) -> Option<Vec<u8>>;

    /// Family, model and stepping of the CPU that wrote the packets.
    fn pt_cpu(&self) -> Option<(u16, u8, u8)>;

    /// Gives a thread of a live program a signal when it goes on next, beside that of the order.
    fn give_signal(&mut self, _tid: Tid, _signal: i32) {}

    /// Signals that the program gets, or got, without a stop; signal 1 in bit 0.
    fn pass_signals(&mut self, _signals: u64) {}

    /// The history so far, to be searched.
    fn recorded(&self) -> Option<&dyn History> {
        None
    }

    /// Starts another program, or takes over another process, in place of what runs now.
    fn start(&mut self, _start: &Start) -> Result<(), Error> {
        Err(Error::NotRunAgain)
    }

    /// The process that is there, for those whose number a debugger may ask for.
    fn process(&self) -> Option<Pid> {
        self.threads().first().map(|thread| thread.pid)
    }

    /// Whether [`Self::catch_calls`] does something.
    fn can_catch_calls(&self) -> bool {
        false
    }

    /// The system calls at which the program stops.
    fn catch_calls(&mut self, _catches: Catches) {}

    /// Whether [`Self::catch_forks`] does something.
    fn can_catch_forks(&self) -> bool {
        false
    }

    /// The births of processes at which a live program stops.
    fn catch_forks(&mut self, _forks: Forks) {}

    /// The process that a thread is of, or was.
    fn process_of(&self, _tid: Tid) -> Option<Pid> {
        self.process()
    }

    /// Whether a thread is one of a process that stands still beside the program: a child that
    /// nobody follows yet, or the parent of one that is followed.
    fn is_beside(&self, _tid: Tid) -> bool {
        false
    }

    /// Why the run does not go where an order sends it.
    fn refusal(&self, _order: &Order) -> Option<Error> {
        None
    }

    /// The debugger leaves a process, which goes on by itself. Another one that stands beside it
    /// becomes the program.
    fn leave_process(&mut self, _pid: Pid) -> Result<(), Error> {
        self.leave();
        Ok(())
    }

    /// The debugger wants a process to end.
    fn kill_process(&mut self, _pid: Pid) {
        self.kill();
    }

    /// What stands beside the program goes on by itself.
    fn leave_all_beside(&mut self) {}

    /// System calls that the last way through the past went over because nobody knows their numbers.
    fn unknown_calls(&self) -> u64 {
        0
    }

    /// Whether the run can stop for all these accesses.
    fn can_watch(&self, _watchpoints: &[Watchpoint]) -> bool {
        false
    }

    /// Whether an order lets a live program run, rather than walking a history.
    fn goes_live(&self, _order: &Order) -> bool {
        false
    }

    /// Why the run could not go on, or its history not be read, if that is so.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Whether nothing is left to be looked at: a live program is gone.
    fn is_over(&self) -> bool {
        false
    }

    /// The debugger leaves: a live program goes on by itself.
    fn leave(&mut self) {}

    /// The debugger wants the run to end: a live program is killed.
    fn kill(&mut self) {}

    /// Whoever drives a live program ends: what was started is killed, and what was there before goes
    /// on by itself.
    fn abandon(&mut self) {}
}
