//! The entries of a log.

use super::bytes::Bytes;
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::insn::Registers;
use crate::sideband::{ImageId, Protection};
use serde::{Deserialize, Serialize};

/// TF: set while a thread is stepped.
const STEPS: u64 = 1 << 8;
/// RF: set by the kernel as it returns from some stops.
const RESUME: u64 = 1 << 16;

/// One entry: an event of one thread, and where the thread was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The thread.
    pub tid: Tid,
    /// The ticks that it executed since its last entry, or since it began.
    pub ticks: u64,
    /// The [`check_of`] its registers there.
    pub check: u32,
    /// The event.
    pub happening: Happening,
}

/// An event of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Happening {
    /// Its process executed a program, or the recording of a running one begins: everything begins
    /// anew. The memory follows, as [`Happening::Memory`].
    Start(Box<Start>),
    /// Memory of the program that begins. No instruction is executed before the last of these.
    Memory(Write),
    /// It made the system call that it is at, during which no other thread executed anything.
    Call {
        /// The call's number.
        number: u64,
        /// The effects of the call.
        done: Done,
    },
    /// It entered the system call that it is at, which did not return at once.
    Enters {
        /// The call's number.
        number: u64,
    },
    /// The system call returned which it entered before.
    Returns {
        /// The effects of the call.
        done: Done,
    },
    /// It executed the instruction that it is at, whose result does not follow from its state.
    Executes {
        /// Its registers after the instruction.
        registers: Box<Words>,
        /// Its extended state after it, if the instruction may have changed that.
        extended: Option<Bytes>,
        /// The memory that the instruction wrote.
        writes: Vec<Write>,
    },
    /// It received a signal.
    Signal {
        /// Where it was.
        place: Place,
        /// The `siginfo_t`.
        siginfo: Bytes,
        /// Its state at the beginning of the handler; none if it went on where it was.
        handler: Option<Box<ThreadState>>,
        /// The frame, and what else the kernel wrote.
        writes: Vec<Write>,
    },
    /// Another thread executes next.
    Switch {
        /// Where it was.
        place: Place,
    },
    /// It was born, by a call that another thread made just before. After [`Happening::Start`] and
    /// its memory: it was there when the recording began.
    Born {
        /// Its state.
        state: Box<ThreadState>,
        /// The memory that the kernel wrote at its birth.
        writes: Vec<Write>,
    },
    /// It ended.
    Ends {
        /// The memory that the kernel wrote at its end.
        writes: Vec<Write>,
    },
    /// Its process ended, or the recording did: the last entry of a whole log.
    Finish {
        /// Where it was; none where that is not known, after its last entry.
        place: Option<Place>,
    },
    /// A debugger changed its registers, or memory: a system call that it was in is not made if it
    /// has a new state. Or the kernel wrote memory as it began to wait in a call.
    Changed {
        /// Where it was.
        place: Place,
        /// Its new state; none if that is as it was.
        state: Option<Box<ThreadState>>,
        /// The memory that was written.
        writes: Vec<Write>,
    },
    /// Processes outside the recording may write this memory from now on. The thread is about to
    /// execute.
    Foreign {
        /// The memory.
        range: AddrRange,
    },
    /// It executed the next instruction, which accessed foreign memory.
    Accesses {
        /// Where it was.
        place: Place,
        /// Its registers after the instruction.
        registers: Box<Words>,
        /// Its extended state after it, if the instruction changed that.
        extended: Option<Bytes>,
        /// The memory that the instruction wrote, and the foreign memory that it read.
        writes: Vec<Write>,
    },
    /// In a keyframe at the end of the run: private mappings that are zeros at first have the bytes
    /// of the final state. [`Happening::Memory`] before this has those that the final state lacks.
    FinalMemory,
}

impl Happening {
    /// Returns true for what belongs to the beginning of a program, right after
    /// [`Happening::Start`]: its memory and its other threads.
    pub fn may_follow_start(&self) -> bool {
        matches!(self, Self::Memory(_) | Self::Born { .. })
    }

    /// Returns the memory that was written, except for changes of the mappings.
    pub fn writes(&self) -> &[Write] {
        match self {
            Self::Memory(write) => std::slice::from_ref(write),
            Self::Call { done, .. } | Self::Returns { done } => &done.writes,
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

    /// Returns true if this may follow the memory of a keyframe: what its threads are in.
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

/// The effects of a system call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// RAX after it.
    pub result: i64,
    /// The memory that the kernel wrote.
    pub writes: Vec<Write>,
    /// The changes of the mappings, before the writes.
    pub maps: Vec<MapChange>,
    /// The thread's state after it, if that is not [`after_call`].
    pub state: Option<Box<ThreadState>>,
}

/// Returns the registers of a thread after a system call that changed nothing else.
pub fn after_call(before: &Registers, result: i64) -> Registers {
    /// Bytes of SYSCALL.
    const SYSCALL_BYTES: u64 = 2;
    let next = before.rip.wrapping_add(SYSCALL_BYTES);
    // SYSCALL leaves the flags, but for RF, and the return address (SDM volume 2, "SYSCALL").
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
    /// The process.
    pub pid: Pid,
    /// The path of the program.
    pub program: String,
    /// Its auxiliary vector.
    pub auxv: Bytes,
    /// The thread's state.
    pub state: ThreadState,
    /// All mappings.
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

/// The place of a thread at an event that no instruction of the thread asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its instruction pointer. Within a tick no address occurs twice.
    pub ip: Addr,
    /// RCX: the iterations left of a REP instruction that was begun.
    pub rcx: u64,
}

/// Bytes that were written to memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Where.
    pub addr: Addr,
    /// The bytes.
    pub bytes: Bytes,
}

/// A change of what is mapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapChange {
    /// Something was mapped, in place of what was there.
    Map(Mapped),
    /// Nothing is mapped there any more.
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
    /// The kernel forgot what was written to pages (`MADV_DONTNEED` and its kin).
    Discard(AddrRange),
}

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapped {
    /// Its addresses.
    pub range: AddrRange,
    /// Its protection.
    pub protection: Protection,
    /// True if it grows down, as stacks do.
    pub grows_down: bool,
    /// Its contents at first.
    pub content: Content,
    /// The path of its file, a name in brackets, or empty.
    pub name: String,
    /// Where its bytes are that other mappings of the program can show as well; none if it is
    /// private.
    pub shared: Option<Shared>,
}

/// A part of what is mapped shared: a file, or memory without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// A number of the file in this recording, of its device and inode.
    pub file: u64,
    /// The offset of the mapping's first byte.
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
        /// The offset of the mapping's first byte in it.
        offset: u64,
    },
}

/// Returns a hash of a thread's general registers, by which a replay checks itself. The number of
/// the last system call and the flag of single steps are no part of it.
pub fn check_of(registers: &Registers) -> u32 {
    let eflags = registers.eflags & !(STEPS | RESUME);
    let compared = Registers { orig_rax: 0, eflags, ..*registers };
    crc32fast::hash(compared.to_words().map(u64::to_le_bytes).as_flattened())
}

/// serde knows no arrays of 27.
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
