//! What the session needs to know of a finished run. No decoding and no I/O happen here; the
//! rooms below implement the trait.

use super::{
    Called, Description, FileBytes, GapInfo, Happening, HappeningSearch, Library, Older, Place,
    Region, Registers, TraceSize, Wanted,
};
use crate::common::{Addr, Pid, Tid};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// One thread of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadInfo {
    /// The kernel's number of the thread.
    pub tid: Tid,
    /// The process that it belongs to.
    pub pid: Pid,
    /// Its name as the kernel had it, possibly empty.
    pub name: String,
    /// The first position at which it exists.
    pub first: u64,
    /// The first position at which it no longer exists; `None` when it lived to the end of the
    /// history, which is also how threads count that died with the whole process.
    pub ended: Option<u64>,
}

impl ThreadInfo {
    /// Whether the thread exists at position `g`.
    pub fn is_alive_at(&self, g: u64) -> bool {
        self.first <= g && self.ended.is_none_or(|end| g < end)
    }
}

/// Which way through time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// As the program ran.
    Forward,
    /// Against it.
    Backward,
}

/// A search for the nearest position whose instruction lies at one of some addresses.
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// Where to start; this position itself is not looked at.
    pub from: u64,
    /// The last position to look at. Nothing is looked at when it lies on the wrong side of
    /// `from`.
    pub until: u64,
    /// Which way to go.
    pub direction: Direction,
    /// Look only at instructions of this thread.
    pub only: Option<Tid>,
    /// The addresses wanted.
    pub addrs: &'a BTreeSet<Addr>,
}

/// What a [`Search`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// This position is the nearest hit.
    At(u64),
    /// No hit up to and including [`Search::until`].
    Nothing,
    /// The caller interrupted: no hit between the start and this position, this one included.
    Interrupted(u64),
}

/// One activation of a function, as the path's calls and returns tell it. By default one of which
/// nothing is known: its call precedes the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallFrame {
    /// The position of the call instruction (or of the interrupted instruction, for a signal
    /// handler): unique to this activation. `None` when the call precedes the history.
    pub activation: Option<u64>,
    /// Where the callee begins: the target of the call.
    pub entry: Option<Addr>,
    /// Address of the call instruction.
    pub call_site: Option<Addr>,
    /// Where the caller goes on when this activation returns.
    pub return_address: Option<Addr>,
    /// Entered by a signal and not by a call.
    pub signal_handler: bool,
}

/// A finished run as one total order of the instructions of all its threads.
///
/// A position `g` in `0..=total` means that instruction `g` is about to execute. All methods take
/// any `g` and any thread: what does not exist is `None`, empty or zero, never a panic.
pub trait History {
    /// Every thread that ever ran, in the order of their first positions.
    fn threads(&self) -> Vec<ThreadInfo>;

    /// How many instructions the history holds.
    fn total(&self) -> u64;

    /// The thread that executes instruction `g`; at `total`, the thread whose exit or fault ended
    /// the history, where that is known.
    fn running_at(&self, g: u64) -> Option<Tid>;

    /// How many instructions `tid` has executed before `g`.
    fn index_of(&self, tid: Tid, g: u64) -> u64;

    /// The position at which `tid` is about to execute its instruction number `index`; `None` when
    /// it never executes that many.
    fn position_of(&self, tid: Tid, index: u64) -> Option<u64>;

    /// The address of the next instruction that `tid` executes at or after `g`; behind its last
    /// one, where its final state says it stands.
    fn pc(&self, tid: Tid, g: u64) -> Option<Addr>;

    /// Whether the next instruction that `tid` executes at or after `g` is followed by another one of
    /// the same activation of a function. False where that is not known.
    fn stays(&self, _tid: Tid, _g: u64) -> bool {
        false
    }

    /// The nearest position that a search asks for. Calls `interrupted` now and then, and gives up
    /// when it says so.
    fn find(&self, search: &Search<'_>, interrupted: &dyn Fn() -> bool) -> Found;

    /// Whether system calls and signals are known, to stop at them.
    fn knows_happenings(&self) -> bool {
        false
    }

    /// What of that which is wanted happens at `g` to the thread that runs there.
    fn happening_at(&self, _g: u64, _wanted: &Wanted) -> Happening {
        Happening::default()
    }

    /// The nearest position at which something happens that is wanted.
    fn find_happening(
        &self,
        _search: &HappeningSearch<'_>,
        _interrupted: &dyn Fn() -> bool,
    ) -> Found {
        Found::Nothing
    }

    /// The activations that `tid` is in, innermost first. The outermost, whose call precedes the
    /// history, may be left out.
    fn call_stack(&self, tid: Tid, g: u64) -> Vec<CallFrame>;

    /// What is around the outermost of them.
    fn older_frames(&self, _tid: Tid, _g: u64) -> Older {
        Older::Nothing
    }

    /// The registers of `tid`, each known or not.
    fn registers(&self, tid: Tid, g: u64) -> Registers;

    /// Fills `buf` from memory at `addr`, as far as it is known without a hole; how many bytes.
    fn read_memory(&self, tid: Tid, g: u64, addr: Addr, buf: &mut [u8]) -> usize;

    /// Whether other threads executed instructions of which nobody knows whether they came before
    /// or after the one that `tid` executes next at `g`; and in which time, in nanoseconds since the
    /// start, as far as that is known.
    fn unordered(&self, _tid: Tid, _g: u64) -> Option<(Option<u64>, Option<u64>)> {
        None
    }

    /// Whether `addr` lies in the program itself, and not in a library.
    fn is_own_code(&self, _addr: Addr) -> bool {
        false
    }

    /// Nanoseconds since the start of the recording at `g`.
    fn time_ns(&self, g: u64) -> Option<u64>;

    /// Where the path has holes, in the order of their positions.
    fn gaps(&self) -> Vec<GapInfo>;

    /// What was recorded, and how it ended.
    fn describe(&self) -> Description;

    /// The ELF auxiliary vector that the kernel gave to the program, as far as it is known.
    fn auxv(&self) -> Option<Vec<u8>> {
        None
    }

    /// The path of the executable on the machine of the recording.
    fn exec_file(&self) -> Option<PathBuf> {
        None
    }

    /// The shared libraries at the end of the run.
    fn libraries(&self) -> Option<Vec<Library>> {
        None
    }

    /// The kernel's `siginfo_t` of the signal at which `tid` stands.
    fn siginfo(&self, _tid: Tid, _g: u64) -> Option<Vec<u8>> {
        None
    }

    /// A file that belongs to the recording, by its path on the machine of the recording.
    fn file(&self, _path: &Path) -> Option<Box<dyn FileBytes>> {
        None
    }

    /// The PT packets of `tid` from its start up to `g`, where the run has them as such.
    fn pt_trace(&self, _tid: Tid, _g: u64) -> Option<Vec<u8>> {
        None
    }

    /// What is mapped at `g`, by address.
    fn regions(&self, _g: u64) -> Option<Vec<Region>> {
        None
    }

    /// How much of a trace there is of `tid`.
    fn trace_size(&self, _tid: Tid) -> Option<TraceSize> {
        None
    }

    /// Nanoseconds from the beginning of 1970 to the start of the recording.
    fn started_unix_ns(&self) -> Option<u64> {
        None
    }

    /// The function and the line of the code at `addr`.
    fn place(&self, _addr: Addr) -> Option<Place> {
        None
    }

    /// Where the code of a function, of `FILE:LINE`, or of `*ADDRESS` begins.
    fn code_of(&self, _what: &str) -> Vec<Addr> {
        Vec::new()
    }

    /// The functions that `tid` came to: up to `count` before `g`, and as many from there on.
    fn calls_around(&self, _tid: Tid, _g: u64, _count: usize) -> Vec<Called> {
        Vec::new()
    }

    /// Family, model and stepping of the Intel CPU whose PT unit wrote the packets; `None` for
    /// packets without errata.
    fn pt_cpu(&self) -> Option<(u16, u8, u8)> {
        None
    }
}
