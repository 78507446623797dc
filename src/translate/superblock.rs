//! A translated piece of the program: its path of [`Step`]s, and the program's [`State`] at each
//! [`Point`] of its code in the cache. A *slot* is a word of a thread's area ([`super::slots`]).

use super::hook::Hook;
use super::links::ExitList;

/// The outcome of an instruction on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The next instruction followed: no packet.
    Plain,
    /// A direct jump, or a call that only reads the instruction pointer: no packet.
    Jump,
    /// A conditional branch that was not taken.
    NotTaken,
    /// A conditional branch that was taken.
    Taken,
    /// A call, whose return address was pushed onto the RET compression stack.
    Call,
    /// A return to a call of the same path.
    Return,
}

/// An instruction of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The instruction's address.
    pub ip: u64,
    /// The instruction's size in bytes.
    pub len: u8,
    /// The outcome with which the path continues. Edges that leave here may have another outcome.
    pub outcome: Outcome,
    /// True if the instruction ticks ([`super::is_tick`]).
    pub ticks: bool,
}

/// The location of the program's registers at a point of the translated code, and the progress of
/// the program there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that hold independently of each other")]
pub struct State {
    /// True if the program is between two instructions. Then the fields describe its whole state.
    /// It holds at the point's own address only ([`Location::exact`]).
    pub exact: bool,
    /// True if the program's RCX is in its slot.
    pub rcx_in_slot: bool,
    /// True if the program's RDX is in its slot.
    pub rdx_in_slot: bool,
    /// True if the program's RCX is the point's `ip`, as SYSCALL leaves it.
    pub rcx_is_ip: bool,
    /// True if the program's R11 is in its slot, and the register holds the trace pointer or
    /// budget.
    pub r11_in_slot: bool,
    /// True if the record of the whole path is in the trace.
    pub recorded: bool,
    /// True if the record of a SYSCALL that is not executed yet is in the trace: the trace pointer
    /// in its slot is after that record, which must be removed.
    pub has_early_record: bool,
    /// True if the thread stops here before it executes the instruction.
    pub stops: bool,
    /// True in the midst of an instruction's stores. The registers are those before it, so it can
    /// be executed again.
    pub is_amid_stores: bool,
}

/// A point of the translated code. It applies up to the next point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Offset in bytes from the superblock's first byte.
    pub offset: u32,
    /// The number of instructions of the path that were executed before the point.
    pub index: u16,
    /// The program's instruction pointer.
    pub ip: u64,
    /// The location of the registers.
    pub state: State,
}

/// A translated superblock. Addresses are those of the traced process.
///
/// The table of indirect branch targets has a *bucket* for each value of the low 16 bits of an
/// address: a list of superblocks. At `entry`, the code compares the target in RDX with `start`,
/// and jumps to the entry of the next superblock of the bucket if they differ. At `accepted`, it
/// loads the program's RCX and RDX from their slots. At `body`, the path begins.
#[derive(Clone, Debug)]
pub struct Superblock {
    /// The start address in the program.
    pub start: u64,
    /// The address of the code's first byte in the cache: the entry for indirect branches, with the
    /// target in RDX and the program's RCX and RDX in their slots.
    pub entry: u64,
    /// The entry for an indirect branch whose target is known to match, with RCX and RDX in their
    /// slots.
    pub accepted: u64,
    /// The entry for direct branches.
    pub body: u64,
    /// The address after the superblock's code.
    pub end: u64,
    /// True if a thread can stop in the superblock for its tracer: it is a single untranslated
    /// instruction, which the tracer executes in place, or starts with a stop.
    pub native: bool,
    /// The hook of the single instruction, where hooks are left to the tracer: it supplies the
    /// result and resumes the thread after it.
    pub hook: Option<Hook>,
    /// True if the superblock has no stop at its own start, even if a stop is set there.
    pub(super) ignores_stop: bool,
    /// Its path, packed, in the bytes of all superblocks.
    pub(super) path: PackedRange,
    /// Its points, packed, in the same bytes.
    pub(super) points: PackedRange,
    /// The index of the zone that contains its code.
    pub(super) zone: usize,
    /// The address of the 8 bytes of the cache that hold the entry of the next superblock in its
    /// bucket; at the end, the address of the code that requests the target.
    pub(super) next_literal: u64,
    /// The exits that are linked to this superblock.
    pub(super) incoming: ExitList,
    /// The number of the next superblock in its bucket; `None` at the end.
    pub(super) next_in_bucket: Option<u32>,
    /// False for a dropped or dormant superblock.
    pub(super) alive: bool,
}

impl Superblock {
    /// A superblock without code, which is never used.
    pub(super) const UNUSED: Self = Self {
        start: 0,
        entry: 0,
        accepted: 0,
        body: 0,
        end: 0,
        native: false,
        hook: None,
        ignores_stop: false,
        path: PackedRange::at(0, 0),
        points: PackedRange::at(0, 0),
        zone: 0,
        next_literal: 0,
        incoming: ExitList::EMPTY,
        next_in_bucket: None,
        alive: false,
    };
}

/// A range of the bytes that hold the paths and points of all superblocks (`packed`).
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedRange {
    first: usize,
    len: u32,
}

impl PackedRange {
    /// Returns the range of `len` bytes from index `first` on, in the bytes of all superblocks.
    pub(super) const fn at(first: usize, len: u32) -> Self {
        Self { first, len }
    }

    /// Returns the number of bytes.
    pub(super) const fn len(self) -> usize {
        self.len as usize
    }

    /// Calls `append` to append bytes to `to`, the bytes of all superblocks, and returns their
    /// range.
    pub(super) fn append(to: &mut Vec<u8>, append: impl FnOnce(&mut Vec<u8>)) -> Self {
        let first = to.len();
        append(to);
        // A superblock has less than 64 KiB of code.
        Self { first, len: u32::try_from(to.len() - first).unwrap_or(u32::MAX) }
    }

    /// Returns these bytes of `all`, the bytes of all superblocks; empty if they are not all there.
    pub(super) fn of(self, all: &[u8]) -> &[u8] {
        all.get(self.first..self.first + self.len as usize).unwrap_or_default()
    }
}

/// A place in the translated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The number of the superblock.
    pub superblock: u32,
    /// The last point at or before the place.
    pub point: Point,
    /// True if the place is the point itself and its state ([`State::exact`]) is exact.
    pub exact: bool,
}
