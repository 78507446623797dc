//! The entries of a log. An entry is an event of one thread, and the thread's position at the
//! event: the *ticks* since its last entry. A tick is a branch that is counted; every cycle of
//! control flow has one. *Within a tick* means after one tick and before the next: there, a thread
//! is at each address once at most, so its position is exact with the address ([`PlaceInTick`]).

use super::bytes::Bytes;
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::insn::Registers;
use crate::sideband::{ImageId, Protection};
use serde::{Deserialize, Serialize};

/// TF in EFLAGS: set while a thread is single-stepped.
const STEPS: u64 = 1 << 8;
/// RF in EFLAGS: set by the kernel as it returns from some stops.
const RESUME: u64 = 1 << 16;

/// One entry of the log: an event of one thread, and the thread's position at the event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The thread of the event.
    pub tid: Tid,
    /// The ticks that the thread executed since its last entry, or since it began.
    pub ticks: u64,
    /// The hash of the thread's registers before the event ([`check_of`]); 0 for events without
    /// registers to compare, such as [`LogEvent::Start`], [`LogEvent::Memory`], and
    /// [`LogEvent::Finish`] without a place.
    pub check: u32,
    /// The event.
    pub event: LogEvent,
}

/// An event of a thread: an input of the run, or what else a replay must repeat, such as the order
/// of threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogEvent {
    /// The thread's process executed a program, or the recording of a running one begins: memory
    /// and threads are new. Their state follows, as [`LogEvent::Memory`] and [`LogEvent::Born`].
    Start(Box<Start>),
    /// Memory of the program that begins, after [`LogEvent::Start`]. No instruction is executed
    /// before the last of these.
    Memory(Write),
    /// The thread made the system call at its position. No other thread executed anything during
    /// it.
    Call {
        /// The call's number.
        number: u64,
        /// The effects of the call.
        effects: CallEffects,
    },
    /// The thread entered the system call at its position, which did not return at once.
    Enters {
        /// The call's number.
        number: u64,
    },
    /// The system call that the thread had entered returned.
    Returns {
        /// The effects of the call.
        effects: CallEffects,
    },
    /// The thread executed the instruction at its position, whose result does not follow from its
    /// state.
    Executes {
        /// The thread's general registers after the instruction.
        registers: Box<Words>,
        /// The thread's extended state after the instruction, if that may have changed it.
        extended: Option<Bytes>,
        /// The memory that the instruction wrote.
        writes: Vec<Write>,
    },
    /// The thread received a signal. In a keyframe: the thread's last siginfo; there is no handler,
    /// the place is zeros, and nothing is written.
    Signal {
        /// The thread's place at the signal.
        place: PlaceInTick,
        /// The signal's `siginfo_t`.
        siginfo: Bytes,
        /// The thread's state at the beginning of the handler; `None` if no handler ran and the
        /// thread continued at its place.
        handler: Option<Box<ThreadState>>,
        /// All memory that the kernel wrote: the signal frame and the like.
        writes: Vec<Write>,
    },
    /// The thread stopped, and another thread executes next.
    Switch {
        /// The place where the thread stopped.
        place: PlaceInTick,
    },
    /// The thread was created, by a call that another thread made just before. After
    /// [`LogEvent::Start`] and its memory: the thread existed when the recording began.
    Born {
        /// The thread's first state.
        state: Box<ThreadState>,
        /// The memory that the kernel wrote when it created the thread.
        writes: Vec<Write>,
    },
    /// The thread ended.
    Ends {
        /// The memory that the kernel wrote when the thread ended.
        writes: Vec<Write>,
    },
    /// The thread's process ended, or the recording did. This is the last entry of a whole log.
    Finish {
        /// The thread's place; `None` if it is not known how far the thread executed after its last
        /// entry.
        place: Option<PlaceInTick>,
    },
    /// A debugger changed the thread's registers or memory, or the kernel wrote memory as the
    /// thread began to wait in a call. If the thread has a new state, the system call that it was
    /// in is not made.
    Changed {
        /// The thread's place at the change.
        place: PlaceInTick,
        /// The thread's new state; `None` if it did not change.
        state: Option<Box<ThreadState>>,
        /// The memory that the debugger or the kernel wrote.
        writes: Vec<Write>,
    },
    /// Processes outside the recording may write this memory from now on. The thread is about to
    /// execute.
    Foreign {
        /// The memory that these processes may write.
        range: AddrRange,
    },
    /// The thread executed the instruction at its place, which accessed memory that processes
    /// outside the recording may write ([`LogEvent::Foreign`]).
    Accesses {
        /// The thread's place before the instruction.
        place: PlaceInTick,
        /// The thread's general registers after the instruction.
        registers: Box<Words>,
        /// The thread's extended state after the instruction, if that changed it.
        extended: Option<Bytes>,
        /// The memory that the instruction wrote, and the foreign memory that it read.
        writes: Vec<Write>,
    },
    /// Only in a keyframe at the end of the run, after its [`LogEvent::Memory`]. Private mappings
    /// that begin as zeros take their remaining bytes from the final state, the core file; the
    /// `Memory` before has those that the core file lacks.
    FinalMemory,
}

impl LogEvent {
    /// Returns true if this may be among the events right after [`LogEvent::Start`], which give
    /// the first state of a program: its memory or another of its threads.
    pub fn may_follow_start(&self) -> bool {
        matches!(self, Self::Memory(_) | Self::Born { .. })
    }

    /// Returns the memory that the event wrote, without changes of the mappings; empty if it wrote
    /// none. That of [`Self::Accesses`] includes the foreign memory that the instruction only read.
    pub fn writes(&self) -> &[Write] {
        match self {
            Self::Memory(write) => std::slice::from_ref(write),
            Self::Call { effects, .. } | Self::Returns { effects } => &effects.writes,
            Self::Executes { writes, .. }
            | Self::Signal { writes, .. }
            | Self::Born { writes, .. }
            | Self::Ends { writes }
            | Self::Changed { writes, .. }
            | Self::Accesses { writes, .. } => writes,
            Self::Start(_)
            | Self::Enters { .. }
            | Self::Switch { .. }
            | Self::Finish { .. }
            | Self::Foreign { .. }
            | Self::FinalMemory => &[],
        }
    }

    /// Returns true if this may be among the events after the memory of a keyframe, which give the
    /// rest of its state: the threads, the calls and signals that they are in, foreign memory, or
    /// [`LogEvent::FinalMemory`].
    pub fn may_follow_keyframe(&self) -> bool {
        match self {
            Self::Signal { handler: None, writes, .. } => writes.is_empty(),
            Self::Born { .. } | Self::Enters { .. } | Self::Foreign { .. } | Self::FinalMemory => {
                true
            }
            _ => false,
        }
    }
}

/// The effects of a completed system call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEffects {
    /// RAX after the call.
    pub result: i64,
    /// The memory that the kernel wrote.
    pub writes: Vec<Write>,
    /// The changes of the mappings, which happened before the writes.
    pub maps: Vec<MapChange>,
    /// The thread's state after the call; `None` if it follows from the state before
    /// ([`after_call`]).
    pub state: Option<Box<ThreadState>>,
}

/// Returns a thread's registers after a system call, given those before it and the call's result.
/// The call changed no registers but those that every call changes: RIP, RAX, RCX and R11.
pub fn after_call(before: &Registers, result: i64) -> Registers {
    /// Bytes of SYSCALL.
    const SYSCALL_BYTES: u64 = 2;
    let next = before.rip.wrapping_add(SYSCALL_BYTES);
    // SYSCALL leaves the return address in RCX, and the flags but for RF in R11 (SDM volume 2,
    // "SYSCALL").
    Registers {
        rip: next,
        rcx: next,
        r11: before.eflags & !RESUME,
        rax: result.cast_unsigned(),
        ..*before
    }
}

/// A process at its first recorded instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The ID of the process.
    pub pid: Pid,
    /// The path of the program.
    pub program: String,
    /// The auxiliary vector of the program.
    pub auxv: Bytes,
    /// The state of the entry's thread.
    pub state: ThreadState,
    /// All mappings of the process.
    pub mappings: Vec<Mapped>,
}

/// The registers of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadState {
    /// The general registers.
    pub registers: Words,
    /// The extended state, in the layout of XSAVE (`NT_X86_XSTATE`).
    pub extended: Bytes,
}

/// General registers as words in the kernel's order (`user_regs_struct`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words(#[serde(with = "words")] [u64; 27]);

impl From<Registers> for Words {
    fn from(registers: Registers) -> Self {
        Self(registers.to_words())
    }
}

impl From<Words> for Registers {
    fn from(words: Words) -> Self {
        Self::from_words(words.0)
    }
}

/// The exact instruction of a thread at an event that none of its instructions caused: within a
/// tick, [`Entry::ticks`] does not determine it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceInTick {
    /// The thread's instruction pointer. Within a tick, no address occurs twice.
    pub ip: Addr,
    /// The thread's RCX: within a REP instruction, the number of iterations left.
    pub rcx: u64,
}

/// Bytes that were written to memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// The address of the first byte.
    pub addr: Addr,
    /// The bytes that were written.
    pub bytes: Bytes,
}

/// A change of a process's mappings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapChange {
    /// A new mapping, in place of anything that was mapped there.
    Map(Mapped),
    /// These addresses are no longer mapped.
    Unmap(AddrRange),
    /// Pages have another protection.
    Protect {
        /// The pages.
        range: AddrRange,
        /// The new protection.
        protection: Protection,
    },
    /// Pages moved, or their number changed (`mremap(2)`).
    Move {
        /// The old pages.
        from: AddrRange,
        /// The new pages.
        to: AddrRange,
    },
    /// The kernel discarded the pages, so they have their first contents again (`MADV_DONTNEED` and
    /// the like).
    Discard(AddrRange),
}

/// A mapping of the recorded process. (The bytes of a file of the recording are a
/// `recording::Mapped`.)
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapped {
    /// The addresses of the mapping.
    pub range: AddrRange,
    /// The protection of the mapping.
    pub protection: Protection,
    /// True if the mapping grows down, as stacks do.
    pub grows_down: bool,
    /// The first contents of the mapping.
    pub content: Content,
    /// The path of the mapped file, a name in brackets, or empty.
    pub name: String,
    /// The identity of the bytes, which other mappings of the program can show as well; `None` for
    /// a private mapping.
    pub shared: Option<Shared>,
}

/// The identity of the bytes of a shared mapping: an offset in a file, or in shared memory without
/// a name. Two mappings with the same one show the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// A number made of the file's device and inode, by which mappings of one file are found.
    pub file: u64,
    /// The offset of the mapping's first byte in that file.
    pub offset: u64,
}

/// The first contents of a mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// Zeros.
    Zeros,
    /// A file that is stored in the recording.
    File {
        /// The stored file.
        image: ImageId,
        /// The offset of the mapping's first byte in the stored file.
        offset: u64,
    },
}

/// Returns a hash of a thread's general registers, which a replay compares with [`Entry::check`].
/// `orig_rax`, and TF and RF of EFLAGS, do not count.
pub fn check_of(registers: &Registers) -> u32 {
    const ORIG_RAX: usize = 15;
    const EFLAGS: usize = 18;
    let mut bytes = [[0; 8]; 27];
    for (bytes, word) in bytes.iter_mut().zip(registers.to_words()) {
        *bytes = word.to_le_bytes();
    }
    bytes[ORIG_RAX] = [0; 8];
    bytes[EFLAGS] = (registers.eflags & !(STEPS | RESUME)).to_le_bytes();
    crc32fast::hash(bytes.as_flattened())
}

/// The registers as serde stores them: a sequence, whose length is checked as it is read.
mod words {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(words: &[u64; 27], to: S) -> Result<S::Ok, S::Error> {
        words.as_slice().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u64; 27], D::Error> {
        let words = Vec::deserialize(from)?;
        words.try_into().map_err(|_| D::Error::custom("a thread has 27 general registers"))
    }
}
