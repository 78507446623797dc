//! The common interface of live and recorded runs.

use super::{
    Breakpoints, CallFrame, Called, Catches, Description, Error, FileBytes, Forks, GapInfo,
    History, KnownRegisters, Library, MissingFrames, Order, Place, Position, Protection, Region,
    Register, Start, Stop, ThreadInfo, Value, Watchpoint,
};
use crate::common::{Addr, AddrRange, Pid, Tid};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The result of a search for the last change of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastChange {
    /// The run is at the last change: the instruction that makes it is about to execute.
    Here,
    /// The recording contains no earlier change.
    Nowhere,
    /// The user interrupted the search.
    Interrupted,
}

/// An execution of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// The position at which the instruction is about to execute ([`Position::at`]).
    pub at: u64,
    /// The thread that executes the instruction.
    pub tid: Tid,
    /// The instruction's address.
    pub pc: Addr,
    /// If the instruction is the first of a function: the address to which the function returns.
    pub returns_to: Option<Addr>,
}

/// A search backwards for executions of some instructions.
#[derive(Clone, Copy, Debug)]
pub struct ExecutionSearch<'a> {
    /// The addresses of the instructions.
    pub addrs: &'a BTreeSet<Addr>,
    /// The position where the search begins, excluded; `None` for the end of the run.
    pub from: Option<u64>,
    /// The maximum number of executions to find.
    pub count: usize,
}

/// A callback for each execution that a search finds, newest first, with the run at that position.
pub type ExecutionSink<'a> = &'a mut dyn FnMut(&dyn Run, Execution);

/// The end of a search for executions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEnd {
    /// There are no earlier executions.
    Complete,
    /// There are earlier executions.
    HasMore,
    /// The user interrupted the search.
    Interrupted,
}

/// A live or recorded run, stopped at a position.
pub trait Run {
    /// Returns the threads that exist now, never none.
    fn threads(&self) -> Vec<ThreadInfo>;

    /// Returns the thread to show at the current position if no run has stopped there: at the
    /// start, and after a move.
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

    /// Runs while the order's thread stays in a range of code, in place of single steps. Stops, as
    /// after a step, once the thread has left the range or is about to execute an instruction that
    /// may leave it. Returns `None` if the thread has to be stepped.
    fn run_within(
        &mut self,
        _order: &Order,
        _range: AddrRange,
        _breakpoints: &Breakpoints,
        _interrupted: &dyn Fn() -> bool,
    ) -> Option<Stop> {
        None
    }

    /// Moves to a position of the history.
    fn seek(&mut self, position: u64) -> Result<(), Error>;

    /// Prepares data for later commands while the client waits for its user. Changes nothing that
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
    fn registers(&self, tid: Tid) -> KnownRegisters;

    /// Reads memory at `addr` into `buf` up to the first unknown byte and returns the byte count.
    fn read_memory(&self, tid: Tid, addr: Addr, buf: &mut [u8]) -> usize;

    /// Writes a register.
    fn write_register(&mut self, tid: Tid, register: Register, value: Value) -> Result<(), Error>;

    /// Writes memory.
    fn write_memory(&mut self, tid: Tid, addr: Addr, bytes: &[u8]) -> Result<(), Error>;

    /// Allocates memory for the debugger's own use. Returns `None` if the run cannot do so without
    /// a change of the program.
    fn allocate(&mut self, _size: u64, _protection: Protection) -> Option<Result<Addr, Error>> {
        None
    }

    /// Frees memory that [`allocate`](Self::allocate) returned. Returns false if `addr` is not such
    /// memory.
    fn free(&mut self, _addr: Addr) -> bool {
        false
    }

    /// Returns the activations of a thread, innermost first.
    fn call_stack(&self, tid: Tid) -> Vec<CallFrame>;

    /// Returns the kind of the frames outside the thread's outermost activation.
    fn missing_frames(&self, _tid: Tid) -> MissingFrames {
        MissingFrames::Nothing
    }

    /// Returns the current time, in nanoseconds since the start.
    fn time_ns(&self) -> Option<u64>;

    /// Returns the signal that killed the run and the thread that received it, if the run is at its
    /// end.
    fn fatal_signal(&self) -> Option<(Tid, i32)>;

    /// Returns the gaps of the path.
    fn gaps(&self) -> Vec<GapInfo>;

    /// Returns the program, its arguments, the end of the run, the CPU and the backend.
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

    /// Returns the PT packets of a thread up to the current position: from position `since` on, or
    /// from the beginning if the packets cannot be cut there.
    fn pt_trace(&self, tid: Tid, since: u64) -> Option<Vec<u8>>;

    /// Returns family, model and stepping of the CPU that wrote the packets; `None` for packets
    /// without errata.
    fn pt_cpu(&self) -> Option<(u16, u8, u8)>;

    /// Makes the path of an exact recording, which packets and calls need, unless it exists. Calls
    /// `goes_on` with the ticks done and those of the whole run; if it returns false, fails with an
    /// error.
    fn prepare_path(&self, _goes_on: &mut dyn FnMut(u64, u64) -> bool) -> Result<(), Error> {
        Ok(())
    }

    /// Returns up to `count` functions that a thread reached before the current position, and as
    /// many from there on.
    fn calls_around(&self, tid: Tid, count: usize) -> Vec<Called> {
        let here = self.position().map_or(0, |position| position.at);
        self.recorded().map(|history| history.calls_around(tid, here, count)).unwrap_or_default()
    }

    /// Delivers a signal to a thread of a live program at the next resume, besides the signal of
    /// the order.
    fn give_signal(&mut self, _tid: Tid, _signal: i32) {}

    /// Sets the signals that do not stop the run; signal 1 in bit 0.
    fn pass_signals(&mut self, _signals: u64) {}

    /// Returns the history so far, for searches; `None` if the run has no path.
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

    /// Returns true if a software breakpoint can be at an address. In the past this is always true,
    /// since code may be there at another time.
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

    /// Returns the reason why the run cannot execute an order; `None` if it can.
    fn refusal(&self, _order: &Order) -> Option<Error> {
        None
    }

    /// Detaches from a process, which continues without the debugger. If it was the program, a
    /// process beside it becomes the program. By default, detaches from the only process there is.
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

    /// Returns the number of system calls at which the last resume may have missed a requested
    /// stop, since their numbers are unknown.
    fn unknown_calls(&self) -> u64 {
        0
    }

    /// Returns true if the run can stop at the accesses of all these watchpoints.
    fn can_watch(&self, _watchpoints: &[Watchpoint]) -> bool {
        false
    }

    /// Returns true for a live program.
    fn is_live(&self) -> bool {
        false
    }

    /// Returns true if all values of the past are known, so that watchpoints hold there. The
    /// numbers of positions are then those of [`Position::exact`].
    fn is_exact(&self) -> bool {
        false
    }

    /// Returns the code addresses that `what` names in an exact recording: a function, `FILE:LINE`,
    /// or `*ADDRESS` in hexadecimal.
    fn code_of(&self, _what: &str) -> Vec<Addr> {
        Vec::new()
    }

    /// Returns the source location of code, in an exact recording.
    fn place(&self, _addr: Addr) -> Option<Place> {
        None
    }

    /// Searches backwards for executions of instructions in an exact recording, then returns to the
    /// current position.
    fn executions(
        &mut self,
        _search: &ExecutionSearch<'_>,
        _sink: ExecutionSink<'_>,
        _interrupted: &dyn Fn() -> bool,
    ) -> Result<SearchEnd, Error> {
        Err(Error::NoHistory)
    }

    /// Moves back to where memory was last changed, in an exact recording: the instruction that
    /// writes is next. Stays where it is unless [`LastChange::Here`] is the result.
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
