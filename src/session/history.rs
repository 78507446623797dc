//! The session's view of a path, the instructions that a run executed. No decoding and no I/O
//! happen here. `Recording` implements the trait for recordings, `Scripted` for tests.

use super::{
    CodeLocation, Description, EventSearch, EventsAt, FileBytes, FunctionArrival, GapInfo,
    KnownRegisters, Library, MissingFrames, Region, RequestedEvents, TraceSize,
};
use crate::common::{Addr, Pid, Tid};
use crate::timeline::{Found, Search};
use std::path::{Path, PathBuf};

/// One thread of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadInfo {
    /// The kernel's thread ID.
    pub tid: Tid,
    /// The process of the thread.
    pub pid: Pid,
    /// The thread's name in the kernel, possibly empty.
    pub name: String,
    /// The first position at which the thread exists; 0 at the live end of a program, and in an
    /// exact recording.
    pub first: u64,
    /// The first position at which the thread no longer exists; `None` if it lived to the end of
    /// the history or died together with the whole process. Also `None` at the live end of a
    /// program, and in an exact recording.
    pub ended: Option<u64>,
}

impl ThreadInfo {
    /// Returns true if the thread exists at position `g`.
    pub fn is_alive_at(&self, g: u64) -> bool {
        self.first <= g && self.ended.is_none_or(|end| g < end)
    }
}

/// One activation of a function: one call of it that has not returned, derived from the calls and
/// returns of the path. The default value is an unknown activation, whose call precedes the
/// history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallFrame {
    /// The position of the call instruction (or of the interrupted instruction, for a signal
    /// handler), unique to this activation. `None` if the call precedes the history.
    pub activation: Option<u64>,
    /// The first instruction of the callee: the target of the call.
    pub entry: Option<Addr>,
    /// The address of the call instruction.
    pub call_site: Option<Addr>,
    /// The address at which the caller continues after the return.
    pub return_address: Option<Addr>,
    /// True if a signal entered the function, not a call.
    pub signal_handler: bool,
}

/// A finished run as one total order of the instructions of all its threads.
///
/// A position `g` in `0..=total` means that instruction `g` is about to execute. All methods accept
/// any `g` and any thread. For a thread that does not exist they return `None`, empty or zero; only
/// memory is that of all threads. For a `g` after `total` the results have no meaning.
pub trait History {
    /// Returns every thread that ever ran, ordered by first position.
    fn threads(&self) -> Vec<ThreadInfo>;

    /// Returns the number of instructions in the history.
    fn total(&self) -> u64;

    /// Returns the thread that executes instruction `g`; at `total`, the thread whose exit or fault
    /// ended the history, if known.
    fn running_at(&self, g: u64) -> Option<Tid>;

    /// Returns the number of instructions that `tid` executed before `g`.
    fn index_of(&self, tid: Tid, g: u64) -> u64;

    /// Returns the position at which `tid` is about to execute its instruction number `index`, or
    /// `None` if it executes fewer instructions.
    fn position_of(&self, tid: Tid, index: u64) -> Option<u64>;

    /// Returns the address of the next instruction that `tid` executes at or after `g`; after its
    /// last instruction, the address in its final state.
    fn pc(&self, tid: Tid, g: u64) -> Option<Addr>;

    /// Returns true if the next instruction that `tid` executes at or after `g` leads to another
    /// one of the same activation: it neither calls nor returns, and no signal interrupts it.
    /// Returns false if that is unknown.
    fn stays_in_activation(&self, _tid: Tid, _g: u64) -> bool {
        false
    }

    /// Returns the nearest position in the range of a search at which one of its addresses is about
    /// to execute. Calls `interrupted` regularly, and stops if it returns true.
    fn find(&self, search: &Search<'_>, interrupted: &dyn Fn() -> bool) -> Found;

    /// Returns true if the positions of system calls and signals are known, so that a run can stop
    /// at them ([`Self::events_at`], [`Self::find_event`]).
    fn knows_kernel_events(&self) -> bool {
        false
    }

    /// Returns the requested events at `g`, of the thread that executes there.
    fn events_at(&self, _g: u64, _wanted: &RequestedEvents) -> EventsAt {
        EventsAt::default()
    }

    /// Returns the nearest position with a requested event. If `interrupted` returns true, returns
    /// [`Found::Interrupted`] with the start of the search: no event is certain to be the nearest.
    fn find_event(&self, _search: &EventSearch<'_>, _interrupted: &dyn Fn() -> bool) -> Found {
        Found::Nothing
    }

    /// Returns the activations of `tid` at `g`, innermost first. The outermost, whose call precedes
    /// the history, may be missing.
    fn call_stack(&self, tid: Tid, g: u64) -> Vec<CallFrame>;

    /// Returns the kind of the frames outside the outermost activation of `tid`: why the call stack
    /// does not have them.
    fn missing_frames(&self, _tid: Tid, _g: u64) -> MissingFrames {
        MissingFrames::Nothing
    }

    /// Returns the registers of `tid`, each known or unknown.
    fn registers(&self, tid: Tid, g: u64) -> KnownRegisters;

    /// Reads memory of `tid` at `addr` into `buf`, up to the first unknown byte. Returns the number
    /// of bytes read.
    fn read_memory(&self, tid: Tid, g: u64, addr: Addr, buf: &mut [u8]) -> usize;

    /// Returns the time range in which the order of other threads' instructions and the next one of
    /// `tid` at `g` is unknown; `None` if the order is known. Its start and end are in nanoseconds
    /// since the start of the recording, each `None` if unknown.
    fn overlap_ns(&self, _tid: Tid, _g: u64) -> Option<(Option<u64>, Option<u64>)> {
        None
    }

    /// Returns true if `addr` is in the program's executable, not in a library; false if unknown.
    fn is_program_code(&self, _addr: Addr) -> bool {
        false
    }

    /// Returns the time at `g`, in nanoseconds since the start of the recording; `None` if unknown.
    fn time_ns(&self, g: u64) -> Option<u64>;

    /// Returns the gaps of the path, ordered by position.
    fn gaps(&self) -> Vec<GapInfo>;

    /// Returns the program, its arguments, the end of the run, the CPU and the backend.
    fn describe(&self) -> Description;

    /// Returns the ELF auxiliary vector that the kernel passed to the program, if known.
    fn auxv(&self) -> Option<Vec<u8>> {
        None
    }

    /// Returns the path of the executable on the machine of the recording.
    fn exec_file(&self) -> Option<PathBuf> {
        None
    }

    /// Returns the entries of the dynamic linker's list at the end of the run: the program, with an
    /// empty path, and its shared libraries. If that list is unknown, only the libraries that are
    /// mapped, without the program. `None` if both are unknown.
    fn libraries(&self) -> Option<Vec<Library>> {
        None
    }

    /// Returns the kernel's `siginfo_t` of the signal that stopped `tid` at `g`; `None` if it is
    /// unknown, as in most of the past.
    fn siginfo(&self, _tid: Tid, _g: u64) -> Option<Vec<u8>> {
        None
    }

    /// Returns a file of the recording by its path on the machine of the recording; `None` if the
    /// recording does not contain it.
    fn file(&self, _path: &Path) -> Option<Box<dyn FileBytes>> {
        None
    }

    /// Returns the PT packets of `tid` up to `g`: from `since` on, or from the beginning if they
    /// cannot be cut there, which the result does not show. `None` without packets of this thread
    /// alone.
    fn pt_trace(&self, _tid: Tid, _since: u64, _g: u64) -> Option<Vec<u8>> {
        None
    }

    /// Returns the known memory mappings at `g`, ordered by address.
    fn regions(&self, _g: u64) -> Option<Vec<Region>> {
        None
    }

    /// Returns the size of the trace of `tid`.
    fn trace_size(&self, _tid: Tid) -> Option<TraceSize> {
        None
    }

    /// Returns the start of the recording, in nanoseconds since 1970.
    fn started_unix_ns(&self) -> Option<u64> {
        None
    }

    /// Returns the function and the source line of the code at `addr`; `None` if the function is
    /// unknown.
    fn location_of(&self, _addr: Addr) -> Option<CodeLocation> {
        None
    }

    /// Returns the code addresses that a user names by a location: a function, `FILE:LINE`, or
    /// `*ADDRESS` in hexadecimal. Returns none if there is no such code.
    fn addresses_of(&self, _location: &str) -> Vec<Addr> {
        Vec::new()
    }

    /// Returns the last `count` arrivals of `tid` in functions before `g`, and the first `count`
    /// from `g` on, in the order of the path; depths are relative to the outermost of these. Fewer
    /// if the part of the path that is searched, which is limited, has fewer.
    fn calls_around(&self, _tid: Tid, _g: u64, _count: usize) -> Vec<FunctionArrival> {
        Vec::new()
    }

    /// Returns family, model and stepping of the Intel CPU whose PT unit wrote the packets; `None`
    /// for packets without errata.
    fn pt_cpu(&self) -> Option<(u16, u8, u8)> {
        None
    }
}
