//! Runs a given number of ticks. Every exit of a superblock subtracts the ticks of its path from a
//! budget in R11 instead of writing a record, and becomes a *request* when the budget is overdrawn:
//! the thread stops and asks its tracer for the code of the exit's target. Near the goal, *bounded*
//! superblocks end exactly there.
//!
//! R11 is an address in memory that has a byte for each tick of the largest budget, and none below.
//! An exit stores a byte there, which takes one instruction, no register and no flags, and faults
//! if the budget is spent (overdrawn). The bytes mean nothing.
//!
//! An instruction ticks or it does not, whatever its outcome (`tick`). So the count does not depend
//! on how the code is divided into superblocks.

use super::address_map::AddressMap;
use super::edge::Edge;
use super::emit::{STORE_AT_DIRECT, STORE_AT_INDIRECT};
use super::logged::CallHandling;
use super::saves::Components;
use super::slots;
use super::translator::{CacheMemory, TranslateError, Translator};
use super::{Limits, ProgramCode};

/// The value of R11 with which a thread enters a bounded superblock: each exit becomes a request.
pub const SPENT: u64 = 1 << 63;
/// The largest budget, in ticks and in bytes of memory: some milliseconds.
pub const LARGEST_BUDGET: u64 = 4 << 20;

/// The end of a bounded superblock, if no other exit is taken first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// After this many ticks, at least 1.
    Ticks(u64),
    /// After this many instructions, at least 1.
    Instructions(u64),
}

impl Bound {
    /// Returns true if a path with these ticks and instructions has reached the bound, or is past
    /// it.
    pub(super) fn is_reached(self, ticks: u8, instructions: usize) -> bool {
        match self {
            Self::Ticks(most) => u64::from(ticks) >= most,
            Self::Instructions(most) => instructions as u64 >= most,
        }
    }
}

/// The limit in bytes on the zones within reach of any one address, in code that counts ticks: when
/// they are full, all code can be dropped.
const SIZE_LIMIT_BYTES: u64 = 512 << 20;

/// The instructions of an exit after its check (SDM volume 2, "Opcode Map"): NOPs, JMP to its
/// target, and its request, which stores RCX in a slot and loads ECX.
const NOP: u8 = 0x90;
const JUMP: u8 = 0xe9;
const MOV_ECX: u8 = 0xb9;
/// Bytes of a JMP, of a store to a slot, of MOV to ECX, and of the most NOPs before a JMP.
const JUMP_BYTES: usize = 5;
const STORE_BYTES: usize = 9;
const MOV_BYTES: usize = 5;
const MOST_NOPS: usize = 3;
/// Bytes of the code that [`Translator::request_of_spent`] needs.
pub const CHECK_BYTES: usize =
    STORE_AT_DIRECT.len() + MOST_NOPS + JUMP_BYTES + STORE_BYTES + MOV_BYTES;

/// Bounded superblocks, by start address.
pub(super) type Bounded = AddressMap<u64, Vec<(Bound, u32)>>;

impl<M: CacheMemory> Translator<M> {
    /// Returns a translator without zones whose code counts ticks and records nothing. Its code
    /// stops before instructions with a [`super::Hook`], whose result does not follow from the
    /// program's state, for the caller to execute them.
    pub fn counting(memory: M, table_offset: u64, limits: Limits) -> Self {
        let mut translator = Self::new(memory, table_offset, limits);
        (translator.counts, translator.leaves_hooks) = (true, true);
        translator.size_limit = SIZE_LIMIT_BYTES;
        translator
    }

    /// Returns a translator without zones whose code counts ticks, as [`Self::counting`] does, and
    /// logs system calls or answers them.
    pub fn logging(
        memory: M,
        table_offset: u64,
        limits: Limits,
        call_handling: CallHandling,
    ) -> Self {
        let mut translator = Self::counting(memory, table_offset, limits);
        translator.call_handling = Some(call_handling);
        translator
    }

    /// Returns a translator without zones whose code writes records, and stops before instructions
    /// with a [`super::Hook`]: for a run that is repeated to get its path.
    pub fn rerecording(memory: M, table_offset: u64, limits: Limits) -> Self {
        let mut translator = Self::new(memory, table_offset, limits);
        translator.leaves_hooks = true;
        translator
    }

    /// Lets stores follow each translated XSAVEC whose mask is known: they complete its result, so
    /// it needs no hook. Others keep theirs. `components` are those of the processor. Call this
    /// before any code is translated.
    pub fn complete_saves(&mut self, components: Components) {
        self.saves = Some(components);
    }

    /// Returns how the code logs or answers system calls; `None` if it does neither.
    pub fn call_handling(&self) -> Option<CallHandling> {
        self.call_handling
    }

    /// Returns a number of records that a thread can always write, in code that records again,
    /// before it has executed `ticks` ticks, even if each record has the longest path. It may be 0.
    pub fn records_within(&self, ticks: u64) -> u64 {
        // The path is executed before a thread stops for lack of room for its record.
        (ticks.saturating_sub(1) / self.most_ticks_of_path()).saturating_sub(1)
    }

    /// Returns an upper bound of the ticks of one superblock's path, which ends once it has
    /// `limits.bits` of them.
    fn most_ticks_of_path(&self) -> u64 {
        u64::from(self.limits.bits) + 1
    }

    /// Returns the budget of a thread that must execute at most `ticks` more ticks: less than that,
    /// since its last path may overdraw the budget, and at most [`LARGEST_BUDGET`]. It may be 0.
    /// When the budget is spent, some ticks are left. `None` if so few are left that the thread
    /// needs a bounded superblock ([`Self::get_bounded`]).
    pub fn budget(&self, ticks: u64) -> Option<u64> {
        // One path overdraws by at most its own ticks.
        ticks.checked_sub(self.most_ticks_of_path()).map(|budget| budget.min(LARGEST_BUDGET))
    }

    /// Returns the request, as [`slots::REQUEST`] has it, of an exit whose check of the budget has
    /// faulted. `code` are the bytes from the faulting instruction on, [`CHECK_BYTES`] of them.
    /// `None` if that is no check of a budget, or the bytes are too few.
    pub fn request_of_spent(code: &[u8]) -> Option<u64> {
        if code.starts_with(&STORE_AT_INDIRECT) {
            return Some(slots::INDIRECT);
        }
        let padded = code.strip_prefix(&STORE_AT_DIRECT)?;
        let jump = padded.iter().position(|byte| *byte != NOP)?;
        let request = padded[jump..].strip_prefix(&[JUMP])?.get(JUMP_BYTES - 1 + STORE_BYTES..)?;
        let edge = request.strip_prefix(&[MOV_ECX])?.first_chunk()?;
        Some(u32::from_le_bytes(*edge).into())
    }

    /// Returns the number of the superblock at `addr` that ends at a bound, and translates it if
    /// there is none. A thread has to enter it with [`SPENT`] in R11; all of its exits are
    /// requests. It ends at a stop, but has none at `addr` itself.
    pub fn get_bounded(
        &mut self,
        addr: u64,
        bound: Bound,
        code: &mut dyn ProgramCode,
    ) -> Result<u32, TranslateError> {
        let made = self.bounded.get(&addr).into_iter().flatten();
        if let Some((_, number)) = made.copied().find(|(of, _)| *of == bound) {
            return Ok(number);
        }
        let number = self.translate_bounded(addr, bound, code)?;
        self.bounded.entry(addr).or_default().push((bound, number));
        Ok(number)
    }

    /// Returns the edge by which a thread left a bounded superblock, from its request and its
    /// counter ([`slots::COUNTER`]), which was [`SPENT`] at the start; `None` if no edge of the
    /// superblock fits.
    pub fn edge_taken(&self, number: u32, request: u64, counter: u64) -> Option<Edge> {
        if request != slots::INDIRECT {
            let edge = usize::try_from(request).ok().and_then(|edge| self.edges.get(edge))?;
            return Some(*edge).filter(|edge| edge.superblock == number);
        }
        // An indirect edge's last instruction ticks, so no two of them have the same count.
        let ticks = SPENT.wrapping_sub(counter);
        let of_superblock = self.edges_of(number).filter(|edge| edge.kind.is_indirect());
        of_superblock.copied().find(|edge| u64::from(edge.ticks) == ticks)
    }

    /// Returns the edges of a superblock, by number; none if there is no such superblock.
    fn edges_of(&self, number: u32) -> impl Iterator<Item = &Edge> {
        // Edges are numbered in the order of their superblocks.
        let start = self.edges.partition_point(|edge| edge.superblock < number);
        self.edges[start..].iter().take_while(move |edge| edge.superblock == number)
    }
}
