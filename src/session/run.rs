//! The common interface of live and recorded runs.
//!
//! A run is a [`Recorded`](super::Recorded) path, a [`Replayed`](super::Replayed) exact recording,
//! or a [`Live`](super::Live) program, which has one of the other two as its past. A default method
//! is that of a run without the ability. Several processes may be stopped in a live run: one is the
//! *program*; others, after a fork, are *beside* it until the debugger detaches from one or kills
//! it. A *diversion* is a state of an exact recording that the debugger has changed; it ends, and
//! the recorded state is back, once the run moves.

use super::{
    Breakpoints, CallFrame, Catches, CodeLocation, Description, Error, FileBytes, Forks,
    FunctionArrival, GapInfo, History, KnownRegisters, Library, MissingFrames, Order, Position,
    Protection, Region, Register, Start, Stop, ThreadInfo, Value, Watchpoint,
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

/// A callback for each execution that a search finds, newest first. Its first argument is the run,
/// at the position of the execution.
pub type ExecutionSink<'a> = &'a mut dyn FnMut(&dyn Run, Execution);

/// The end of a search for executions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEnd {
    /// The callback got all executions.
    Complete,
    /// There are earlier executions than the requested number.
    HasMore,
    /// The user interrupted the search.
    Interrupted,
}

/// A live or recorded run, stopped at a position.
pub trait Run {
    /// Returns the threads that exist at the current position. Once all have ended, returns one of
    /// them, so never none unless the history has no threads.
    fn threads(&self) -> Vec<ThreadInfo>;

    /// Returns the thread to show at the current position if no run has stopped there: at the
    /// start, and after a move.
    fn default_thread(&self) -> Tid;

    /// Returns the current position; `None` for a run without a history. At the live end of a
    /// program, it is the end of the history so far.
    fn position(&self) -> Option<Position>;

    /// Resumes the run and waits for the stop, which it returns. `last` is the current stop: the
    /// breakpoint, system call or signal that it reported does not stop the run here again. Calls
    /// `interrupted` regularly, and stops if it returns true. If the run cannot continue, the stop
    /// is at an edge of the history, or says that a live program is gone.
    fn resume(
        &mut self,
        order: &Order,
        last: &Stop,
        breakpoints: &Breakpoints,
        interrupted: &dyn Fn() -> bool,
    ) -> Stop;

    /// Runs while the order's thread stays in a range of code, in place of single steps. Stops with
    /// [`StopReason::Step`](super::StopReason::Step) once the thread has left the range or is about
    /// to execute an instruction that may leave it, or earlier at any other stop. Returns `None`,
    /// perhaps after a move, if the caller has to single-step the thread from here.
    fn run_within(
        &mut self,
        _order: &Order,
        _range: AddrRange,
        _breakpoints: &Breakpoints,
        _interrupted: &dyn Fn() -> bool,
    ) -> Option<Stop> {
        None
    }

    /// Moves to the position of the history with this number ([`Position::at`]). Ends a diversion.
    /// Fails if there is no such position, and may stay or move elsewhere then. In an exact
    /// recording, a moment that has fewer instructions means its last one, and the last moment
    /// without instructions the end of the run.
    fn seek(&mut self, position: u64) -> Result<(), Error>;

    /// Prepares data for later commands while the client waits for its user. Changes nothing that
    /// the user sees. Ends soon after `interrupted` returns true.
    fn use_idle_time(&mut self, _interrupted: &dyn Fn() -> bool) {}

    /// Returns the address of a thread's next instruction; `None` if unknown.
    fn pc(&self, tid: Tid) -> Option<Addr>;

    /// Returns true if a thread's next instruction leads to another one of the same activation of a
    /// function: it neither calls nor returns. Returns false if that is unknown.
    fn stays_in_activation(&self, _tid: Tid) -> bool {
        false
    }

    /// Returns a thread's registers, each known or unknown.
    fn registers(&self, tid: Tid) -> KnownRegisters;

    /// Reads memory of a thread's process at `addr` into `buf`, up to the first unknown byte.
    /// Returns the number of bytes read.
    fn read_memory(&self, tid: Tid, addr: Addr, buf: &mut [u8]) -> usize;

    /// Writes a register of a thread of a live program, or in a diversion of an exact recording.
    /// Fails elsewhere.
    fn write_register(&mut self, tid: Tid, register: Register, value: Value) -> Result<(), Error>;

    /// Writes memory of a live program, or in a diversion of an exact recording. Fails elsewhere.
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

    /// Returns the activations of a thread, innermost first, by the calls and returns of the path.
    /// The last one is that of the function that made the outermost call; its own call is unknown.
    /// Empty if there is no path, as in an exact recording.
    fn call_stack(&self, tid: Tid) -> Vec<CallFrame>;

    /// Returns the kind of the frames outside the thread's outermost activation: why
    /// [`Self::call_stack`] does not have them. Without a path, [`MissingFrames::Nothing`].
    fn missing_frames(&self, _tid: Tid) -> MissingFrames {
        MissingFrames::Nothing
    }

    /// Returns the time of the current position, in nanoseconds since the start of the recording;
    /// `None` if unknown.
    fn time_ns(&self) -> Option<u64>;

    /// Returns the thread to show and the signal that killed the program, if the run is at the end
    /// of a recording and a signal did.
    fn fatal_signal(&self) -> Option<(Tid, i32)>;

    /// Returns the gaps of the path; none in an exact recording.
    fn gaps(&self) -> Vec<GapInfo>;

    /// Returns the program, its arguments, the end of the run, the CPU and the backend.
    fn describe(&self) -> Description;

    /// Returns the ELF auxiliary vector; `None` if it is unknown. In a path, that of the program at
    /// its end.
    fn auxv(&self) -> Option<Vec<u8>>;

    /// Returns the path of the executable; `None` if it is unknown. In a path, that of the program
    /// at its end.
    fn exec_file(&self) -> Option<PathBuf>;

    /// Returns the program, with an empty path, and its shared libraries, as the dynamic linker
    /// lists them; `None` if unknown. In a path, those at its end ([`History::libraries`]), which
    /// may lack the program.
    fn libraries(&self) -> Option<Vec<Library>>;

    /// Returns the current memory mappings, ordered by address; `None` if they are unknown.
    fn regions(&self) -> Option<Vec<Region>> {
        None
    }

    /// Returns the `siginfo_t` of the signal that stopped a thread; `None` if unknown.
    fn siginfo(&self, tid: Tid) -> Option<Vec<u8>>;

    /// Changes the `siginfo_t` of the signal that stopped a thread of a live program, or that it
    /// receives next. Fails in the past.
    fn write_siginfo(&mut self, _tid: Tid, _info: &[u8]) -> Result<(), Error> {
        Err(Error::PastIsFixed)
    }

    /// Returns a file of the run by its path on the recorded machine: one that is mapped, or some
    /// of `/proc/PID`. Returns `None` for others.
    fn file(&self, path: &Path) -> Option<Box<dyn FileBytes>>;

    /// Returns the target of one of the links in `/proc/PID` of a live program; `None` for others.
    fn link(&self, _path: &Path) -> Option<PathBuf> {
        None
    }

    /// Returns the PT packets of a thread up to the current position, from position `since` on;
    /// from the beginning if they cannot be cut there, which the result does not show. `None`
    /// without packets of this thread alone, without a known path, and in an exact recording before
    /// [`Self::prepare_path`].
    fn pt_trace(&self, tid: Tid, since: u64) -> Option<Vec<u8>>;

    /// Returns family, model and stepping of the CPU that wrote the packets; `None` for packets
    /// without errata.
    fn pt_cpu(&self) -> Option<(u16, u8, u8)>;

    /// Makes the path of an exact recording, unless it exists: [`Self::pt_trace`] and
    /// [`Self::calls_around`] need it. Calls `goes_on` with the ticks done and those of the whole
    /// run, or with (0, 1) while another process makes the path; fails if it returns false. Does
    /// nothing in other runs; fails for a live program that is recorded exactly.
    fn prepare_path(&self, _goes_on: &mut dyn FnMut(u64, u64) -> bool) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the last `count` arrivals of a thread in functions before the current position, and
    /// the first `count` from there on, in the order of the path. Fewer if the searched part of the
    /// path has fewer; none without a path.
    fn calls_around(&self, tid: Tid, count: usize) -> Vec<FunctionArrival> {
        let here = self.position().map_or(0, |position| position.at);
        self.path_history()
            .map(|history| history.calls_around(tid, here, count))
            .unwrap_or_default()
    }

    /// Notes a signal that the next resume delivers to a thread of a live program, besides the
    /// signal of the order.
    fn queue_signal(&mut self, _tid: Tid, _signal: i32) {}

    /// Sets the signals that do not stop the run, as a bit set: signal 1 in bit 0. A live program
    /// receives them without a stop.
    fn set_passed_signals(&mut self, _signals: u64) {}

    /// Returns the history of the path so far, for searches; `None` if the run has no path, as in
    /// an exact recording.
    fn path_history(&self) -> Option<&dyn History> {
        None
    }

    /// Starts a program or attaches to a process, in place of the current program. Fails for a
    /// recording.
    fn start(&mut self, _start: &Start) -> Result<(), Error> {
        Err(Error::NotRunAgain)
    }

    /// Returns the process that is debugged; `None` once a live program is gone.
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

    /// Returns true if a thread belongs to a process beside the program: a stopped child that the
    /// debugger does not follow yet, or the stopped parent of one that it follows.
    fn is_beside(&self, _tid: Tid) -> bool {
        false
    }

    /// Returns the reason why the run cannot execute an order; `None` if it can.
    fn refusal(&self, _order: &Order) -> Option<Error> {
        None
    }

    /// Detaches from a process, which continues without the debugger. If it was the program, a
    /// process beside it becomes the program. By default, detaches from the only process there is.
    fn detach_process(&mut self, _pid: Pid) -> Result<(), Error> {
        self.detach();
        Ok(())
    }

    /// Kills the program, or a process beside it.
    fn kill_process(&mut self, _pid: Pid) {
        self.kill();
    }

    /// Detaches from the processes beside the program.
    fn detach_all_beside(&mut self) {}

    /// Returns the number of system calls at which the last resume may have missed a requested
    /// stop, since their numbers are unknown.
    fn unknown_calls(&self) -> u64 {
        0
    }

    /// Returns true if the run can stop at the accesses of all these watchpoints; false in a path.
    /// A live program whose path is recorded can do so at its live end only
    /// ([`Error::NoPastWatches`]).
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

    /// Returns the code addresses that a user names by a location, in an exact recording: a
    /// function, `FILE:LINE`, or `*ADDRESS` in hexadecimal. Returns none if there is no such code.
    fn addresses_of(&self, _location: &str) -> Vec<Addr> {
        Vec::new()
    }

    /// Returns the function and the source line of code, in an exact recording; `None` if the
    /// function is unknown, and in other recordings.
    fn location_of(&self, _addr: Addr) -> Option<CodeLocation> {
        None
    }

    /// Searches backwards for executions of instructions in an exact recording, and calls `sink`
    /// for each. Ends a diversion. Moves back to the current position in the end, but after an
    /// error may be elsewhere. Stops if `interrupted` returns true. Fails in a run that is not
    /// exact.
    fn find_executions(
        &mut self,
        _search: &ExecutionSearch<'_>,
        _sink: ExecutionSink<'_>,
        _interrupted: &dyn Fn() -> bool,
    ) -> Result<SearchEnd, Error> {
        Err(Error::NoHistory)
    }

    /// Moves back to the last write that changed memory, in an exact recording: its instruction is
    /// about to execute then. Writes of the same value do not count. Ends a diversion. Stays where
    /// it is unless the result is [`LastChange::Here`], but after an error may be elsewhere. Fails
    /// in a run that is not exact.
    fn go_to_last_change(
        &mut self,
        _range: AddrRange,
        _interrupted: &dyn Fn() -> bool,
    ) -> Result<LastChange, Error> {
        Err(Error::NotExact)
    }

    /// Returns true if an order makes a live program execute; false if it moves in the history.
    fn resumes_live(&self, _order: &Order) -> bool {
        false
    }

    /// Returns the last reason why the run could not continue, or its history could not be read, as
    /// a sentence for the user; `None` if nothing failed. Later successes do not remove it.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Returns true if a live program is gone.
    fn is_over(&self) -> bool {
        false
    }

    /// Detaches from a live program, which continues without the debugger. Does nothing in a
    /// recording.
    fn detach(&mut self) {}

    /// Kills a live program; if it is gone, detaches from the processes beside it. Does nothing in
    /// a recording.
    fn kill(&mut self) {}

    /// Ends the session: kills a program that it started, detaches from one that it attached to.
    /// Does nothing in a recording.
    fn end_session(&mut self) {}
}
