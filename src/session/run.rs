//! The common interface of live and recorded runs.

use super::{
    BreakpointKind, Breakpoints, CallFrame, Called, Catches, Description, Direction, Ending,
    ExecutionSearch, ExecutionSink, FileBytes, Forks, GapInfo, History, Library, Older, Place,
    Position, Protection, Region, Register, Registers, SearchEnd, Start, ThreadInfo, Value,
    Watchpoint,
};
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::state::NoThreadLocal;
use std::path::{Path, PathBuf};

/// The action of a resumed thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Execute one instruction.
    Step,
    /// Run until something stops it.
    Continue,
}

/// A request to resume a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Step or continue.
    pub action: Action,
    /// The direction through time.
    pub direction: Direction,
    /// The thread that steps, or from whose view the stop is reported.
    pub thread: Tid,
    /// True if only this thread may stop the run (gdb's scheduler locking).
    pub locked: bool,
    /// The signal to deliver to the thread of a live program; 0 for none.
    pub signal: i32,
}

/// An end of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The beginning.
    Begin,
    /// The end.
    End,
}

/// The reason of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The run was just opened or moved.
    Arrived,
    /// The step is complete.
    Step,
    /// The instruction at a breakpoint is about to execute.
    Breakpoint(BreakpointKind),
    /// The history has no more instructions in this direction.
    Edge(Edge),
    /// The user interrupted the run.
    Interrupted,
    /// A live program has accessed watched memory.
    Watchpoint(Watchpoint),
    /// A live program is about to receive a signal (the kernel's number); in the past, its handler
    /// begins.
    Signal(i32),
    /// The system call with this number is about to be made.
    Call(u64),
    /// The system call with this number has returned.
    CallReturn(u64),
    /// A live program has forked this process, which is stopped as well.
    Forked(Pid),
    /// A live program has vforked this process, and waits until it executes a program or ends.
    Vforked(Pid),
    /// A live program no longer waits for its vfork child.
    VforkDone,
    /// A live program has executed another program.
    Executed,
    /// The only resumed thread of a live program has ended.
    NoneRuns,
    /// A process of a live program is gone; the stop's thread is its first thread.
    Gone(Ending),
}

impl StopReason {
    /// A placeholder for the number of an unknown system call.
    pub const UNKNOWN_CALL: u64 = u64::MAX;
}

/// A stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The thread that stopped.
    pub thread: Tid,
    /// The reason.
    pub reason: StopReason,
}

/// An error of an operation on a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A write to registers or memory of a recording.
    #[error("the past cannot be changed: this is a recording (registers and memory are read-only)")]
    PastIsFixed,
    /// A write to registers or memory of a live program's past.
    #[error(
        "the past cannot be changed: go forward to the live end first (monitor seek end, or \
         continue)"
    )]
    LivePastIsFixed,
    /// A move through the past while watchpoints are inserted.
    #[error(
        "watchpoints cannot be checked in the past, where values are unknown: delete or disable \
         them first"
    )]
    NoPastWatches,
    /// A thread-local variable without a known address.
    #[error(transparent)]
    NoThreadLocal(NoThreadLocal),
    /// A write to a program that is gone.
    #[error("the program is gone")]
    Gone,
    /// A start of a program in place of a recording.
    #[error("a recording cannot run again: `contraflow serve` runs programs")]
    NotRunAgain,
    /// A restart without a previous program.
    #[error("no program was run before: say which one to run")]
    NoProgram,
    /// An order that needs two processes to be debugged at once.
    #[error(
        "two processes are stopped here, and only one can be debugged: detach one of them first \
         (set detach-on-fork on)"
    )]
    TwoProcesses,
    /// A move backwards in a process without a recording.
    #[error("this process has no history yet: go forward first")]
    NotRecordedYet,
    /// A question about values of the past in a run whose past has none.
    #[error("only an exact recording has the values of the past")]
    NotExact,
    /// A seek in a run without a history.
    #[error("there is no history")]
    NoHistory,
    /// A `siginfo_t` whose size differs from the kernel's.
    #[error("a siginfo_t has 128 bytes")]
    NotSiginfo,
    /// A write to a register that cannot be written.
    #[error("this register cannot be written")]
    NoSuchRegister,
    /// A failed change of a live program.
    #[error("{0}")]
    Refused(String),
    /// The debugger allocated too much memory.
    #[error("the debugger has allocated too much memory")]
    NoRoom,
    /// A seek outside the history.
    #[error("no such position: {position} (the history has 0 to {total})")]
    NoSuchPosition {
        /// The requested position.
        position: u64,
        /// The last position of the history.
        total: u64,
    },
}

/// The result of a search for the last change of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastChange {
    /// It is next.
    Here,
    /// There is none before, as far as the recording goes.
    Nowhere,
    /// The user interrupted the search.
    Interrupted,
}

/// A live or recorded run, stopped at a position.
pub trait Run {
    /// Returns the threads that exist now, never none.
    fn threads(&self) -> Vec<ThreadInfo>;

    /// Returns the thread to show before anything has stopped.
    fn default_thread(&self) -> Tid;

    /// Returns the current position; `None` for a run without a history.
    fn position(&self) -> Option<Position>;

    /// Resumes the run and waits for the stop. Does not repeat what `last`, the current stop,
    /// reported. Calls `interrupted` regularly, and stops if it returns true.
    fn resume(
        &mut self,
        order: &Order,
        last: &Stop,
        breakpoints: &Breakpoints,
        interrupted: &dyn Fn() -> bool,
    ) -> Stop;

    /// Moves to a position of the history.
    fn seek(&mut self, position: u64) -> Result<(), Error>;

    /// Makes ready what later commands need, while there is nothing else to do. Nothing changes that
    /// the user sees. Ends soon after `interrupted` returns true.
    fn use_idle_time(&mut self, _interrupted: &dyn Fn() -> bool) {}

    /// Returns the address of a thread's next instruction.
    fn pc(&self, tid: Tid) -> Option<Addr>;

    /// Returns true if a thread's next instruction leads to another one of the same activation of a
    /// function. Returns false if that is unknown.
    fn stays(&self, _tid: Tid) -> bool {
        false
    }

    /// Returns a thread's registers, each known or unknown.
    fn registers(&self, tid: Tid) -> Registers;

    /// Reads memory at `addr` into `buf` up to the first unknown byte and returns the byte count.
    fn read_memory(&self, tid: Tid, addr: Addr, buf: &mut [u8]) -> usize;

    /// Writes a register.
    fn write_register(&mut self, tid: Tid, register: Register, value: Value) -> Result<(), Error>;

    /// Writes memory.
    fn write_memory(&mut self, tid: Tid, addr: Addr, bytes: &[u8]) -> Result<(), Error>;

    /// Allocates memory for the debugger's own use. Returns `None` where that would change the
    /// program.
    fn allocate(&mut self, _size: u64, _protection: Protection) -> Option<Result<Addr, Error>> {
        None
    }

    /// Frees what [`allocate`](Self::allocate) gave. Returns false if there is nothing at `addr`.
    fn free(&mut self, _addr: Addr) -> bool {
        false
    }

    /// Returns the activations of a thread, innermost first.
    fn call_stack(&self, tid: Tid) -> Vec<CallFrame>;

    /// Returns what is known of the frames outside the outermost of them.
    fn older_frames(&self, _tid: Tid) -> Older {
        Older::Nothing
    }

    /// Returns the current time, in nanoseconds since the start.
    fn time_ns(&self) -> Option<u64>;

    /// Returns the signal that killed the run and the thread that received it, if the run is at its
    /// end.
    fn fatal_signal(&self) -> Option<(Tid, i32)>;

    /// Returns the gaps of the path.
    fn gaps(&self) -> Vec<GapInfo>;

    /// Returns the description of the run.
    fn describe(&self) -> Description;

    /// Returns the ELF auxiliary vector.
    fn auxv(&self) -> Option<Vec<u8>>;

    /// Returns the path of the executable.
    fn exec_file(&self) -> Option<PathBuf>;

    /// Returns the shared libraries.
    fn libraries(&self) -> Option<Vec<Library>>;

    /// Returns the current memory mappings, ordered by address.
    fn regions(&self) -> Option<Vec<Region>> {
        None
    }

    /// Returns the `siginfo_t` of the signal that stopped a thread.
    fn siginfo(&self, tid: Tid) -> Option<Vec<u8>>;

    /// Changes the `siginfo_t` of the signal that stopped a thread, or that it receives next.
    fn write_siginfo(&mut self, _tid: Tid, _info: &[u8]) -> Result<(), Error> {
        Err(Error::PastIsFixed)
    }

    /// Returns a file of the run.
    fn file(&self, path: &Path) -> Option<Box<dyn FileBytes>>;

    /// Returns the target of a symbolic link of the run.
    fn link(&self, _path: &Path) -> Option<PathBuf> {
        None
    }

    /// Returns the PT packets of a thread up to the current position: from position `since` on, unless
    /// the packets need what is before that.
    fn pt_trace(&self, tid: Tid, since: u64) -> Option<Vec<u8>>;

    /// Returns family, model and stepping of the CPU that wrote the packets.
    fn pt_cpu(&self) -> Option<(u16, u8, u8)>;

    /// Makes the path of an exact recording, if that was not done: it has the packets and the calls.
    /// Calls `goes_on` with what is done and the whole of it; false ends that with an error.
    fn prepare_path(&self, _goes_on: &mut dyn FnMut(u64, u64) -> bool) -> Result<(), Error> {
        Ok(())
    }

    /// Returns up to `count` functions that a thread reached before the current position, and as many
    /// from there on.
    fn calls_around(&self, tid: Tid, count: usize) -> Vec<Called> {
        let here = self.position().map_or(0, |position| position.at);
        self.recorded().map(|history| history.calls_around(tid, here, count)).unwrap_or_default()
    }

    /// Delivers a signal to a thread of a live program at its next resume, besides the order's.
    fn give_signal(&mut self, _tid: Tid, _signal: i32) {}

    /// Sets the signals that do not stop the run; signal 1 in bit 0.
    fn pass_signals(&mut self, _signals: u64) {}

    /// Returns the history so far, for searches.
    fn recorded(&self) -> Option<&dyn History> {
        None
    }

    /// Starts a program or attaches to a process, in place of the current program.
    fn start(&mut self, _start: &Start) -> Result<(), Error> {
        Err(Error::NotRunAgain)
    }

    /// Returns the current process.
    fn process(&self) -> Option<Pid> {
        self.threads().first().map(|thread| thread.pid)
    }

    /// Returns true if a software breakpoint can be at an address. In the past it can be where there is
    /// code at other times only.
    fn can_break_at(&self, _addr: Addr) -> bool {
        true
    }

    /// Returns true if [`Self::catch_calls`] is supported.
    fn can_catch_calls(&self) -> bool {
        false
    }

    /// Sets the system calls at which the program stops.
    fn catch_calls(&mut self, _catches: Catches) {}

    /// Returns true if [`Self::catch_forks`] is supported.
    fn can_catch_forks(&self) -> bool {
        false
    }

    /// Sets the kinds of forks at which a live program stops.
    fn catch_forks(&mut self, _forks: Forks) {}

    /// Returns the process to which a thread belongs or belonged.
    fn process_of(&self, _tid: Tid) -> Option<Pid> {
        self.process()
    }

    /// Returns true if a thread belongs to a stopped process beside the program: a child that the
    /// debugger does not follow yet, or the parent of one that it follows.
    fn is_beside(&self, _tid: Tid) -> bool {
        false
    }

    /// Returns the reason why the run cannot execute an order.
    fn refusal(&self, _order: &Order) -> Option<Error> {
        None
    }

    /// Detaches from a process, which continues without the debugger. If it was the program, a
    /// process beside it becomes the program.
    fn leave_process(&mut self, _pid: Pid) -> Result<(), Error> {
        self.leave();
        Ok(())
    }

    /// Kills a process.
    fn kill_process(&mut self, _pid: Pid) {
        self.kill();
    }

    /// Detaches from the processes beside the program.
    fn leave_all_beside(&mut self) {}

    /// Returns the number of system calls skipped by the last resume as their numbers are unknown.
    fn unknown_calls(&self) -> u64 {
        0
    }

    /// Returns true if the run can stop for all these accesses.
    fn can_watch(&self, _watchpoints: &[Watchpoint]) -> bool {
        false
    }

    /// Returns true for a live program.
    fn is_live(&self) -> bool {
        false
    }

    /// Returns true if all values of the past are known, so that watchpoints hold there. The numbers
    /// of positions are then those of [`Position::exact`].
    fn is_exact(&self) -> bool {
        false
    }

    /// Returns the addresses of a function, of `FILE:LINE`, or of `*ADDRESS`, in an exact recording.
    fn code_of(&self, _what: &str) -> Vec<Addr> {
        Vec::new()
    }

    /// Returns the source location of code, in an exact recording.
    fn place(&self, _addr: Addr) -> Option<Place> {
        None
    }

    /// Searches backwards for executions of instructions, in an exact recording, and comes back.
    fn executions(
        &mut self,
        _search: &ExecutionSearch<'_>,
        _sink: ExecutionSink<'_>,
        _interrupted: &dyn Fn() -> bool,
    ) -> Result<SearchEnd, Error> {
        Err(Error::NoHistory)
    }

    /// Moves back to where memory was last changed, in an exact recording: the instruction that writes
    /// is next. Stays where it is unless [`LastChange::Here`] is the result.
    fn go_to_last_change(
        &mut self,
        _range: AddrRange,
        _interrupted: &dyn Fn() -> bool,
    ) -> Result<LastChange, Error> {
        Err(Error::NotExact)
    }

    /// Returns true if an order resumes a live program, not a walk of its history.
    fn goes_live(&self, _order: &Order) -> bool {
        false
    }

    /// Returns the reason why the run could not continue, or its history could not be read.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Returns true if a live program is gone.
    fn is_over(&self) -> bool {
        false
    }

    /// Detaches from a live program, which continues without the debugger.
    fn leave(&mut self) {}

    /// Kills a live program.
    fn kill(&mut self) {}

    /// Ends the session: kills a program that it started, detaches from one that it attached to.
    fn abandon(&mut self) {}
}
