//! A translated stretch of the program: its path, and for each point of its code in the cache
//! what the program's state is there.

use super::hook::Hook;
use super::links::List;

/// What an instruction of a path did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The next instruction followed: nothing to tell.
    Plain,
    /// A direct jump, or a call that only reads the instruction pointer: nothing to tell either.
    Jump,
    /// A conditional branch that was not taken.
    NotTaken,
    /// A conditional branch that was taken.
    Taken,
    /// A call, whose return address came onto the stack of RET compression.
    Call,
    /// A return to the call of the same path.
    Return,
}

/// An instruction of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its address.
    pub ip: u64,
    /// Its size in bytes.
    pub len: u8,
    /// What it did, as far as the path goes on behind it.
    pub outcome: Outcome,
}

/// Where the program's registers are, at a point of the translated code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
pub struct State {
    /// The program stands between two instructions, and this and the other fields say all.
    pub exact: bool,
    /// RCX is in its slot.
    pub rcx_in_slot: bool,
    /// RDX is in its slot.
    pub rdx_in_slot: bool,
    /// RCX is the address itself, as SYSCALL leaves it.
    pub rcx_is_ip: bool,
    /// R11 is in its slot, and the register is the trace pointer.
    pub r11_in_slot: bool,
    /// The trace has the whole path as a record.
    pub recorded: bool,
    /// A SYSCALL is recorded that is not executed yet: its record is to be taken back.
    pub early: bool,
}

/// A point of the translated code, up to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Bytes from the superblock's first.
    pub offset: u32,
    /// Instructions of the path that are executed.
    pub index: u16,
    /// The program's instruction pointer.
    pub ip: u64,
    /// The registers.
    pub state: State,
}

/// A translated superblock. Addresses are those of the traced process.
#[derive(Clone, Debug)]
pub struct Superblock {
    /// The program's address.
    pub start: u64,
    /// The first byte of its code in the cache: the entry for indirect branches, with the target
    /// in RDX and the program's RCX and RDX in their slots.
    pub entry: u64,
    /// The entry for an indirect branch whose target is known to be this one.
    pub accepted: u64,
    /// The entry for direct branches.
    pub body: u64,
    /// The first byte behind its code.
    pub end: u64,
    /// It is a single instruction that is not translated: the tracer executes it where it is.
    pub native: bool,
    /// What that instruction asks for, where branches are counted: the tracer answers it and goes on
    /// behind it.
    pub hook: Option<Hook>,
    /// Where its path is among those of all.
    pub(super) path: Stretch,
    /// Where its points are, by offset.
    pub(super) points: Stretch,
    /// The zone its code is in.
    pub(super) zone: usize,
    /// The address of the literal that leads to the next superblock of its slot in the table.
    pub(super) chain: u64,
    /// The ways out that are linked to it.
    pub(super) incoming: List,
    /// The next superblock of its slot.
    pub(super) next_of_slot: Option<u32>,
    pub(super) alive: bool,
}

/// A stretch of a vector that all superblocks share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    first: usize,
    len: u32,
}

impl Stretch {
    /// Puts `items` behind those that are there.
    pub(super) fn append<T: Copy>(to: &mut Vec<T>, items: &[T]) -> Self {
        let first = to.len();
        to.extend_from_slice(items);
        // A superblock has less than 64 KiB of code.
        Self { first, len: u32::try_from(items.len()).unwrap_or(u32::MAX) }
    }

    pub(super) fn of<T>(self, all: &[T]) -> &[T] {
        all.get(self.first..self.first + self.len as usize).unwrap_or_default()
    }
}

/// A place in translated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Index of the superblock.
    pub superblock: u32,
    /// The last point at or before the place.
    pub point: Point,
    /// The place is the point itself, and there the state is exact.
    pub exact: bool,
}
