//! Runs a given number of branches. Every exit of a superblock subtracts the branches of its path
//! from a budget in R11 instead of writing a record, and becomes a request when the budget is
//! overdrawn. Near the goal, bounded superblocks end exactly there.
//!
//! The branches counted are those that a PT unit reports: conditional branches, taken or not, near
//! returns, indirect near jumps and calls. So the count does not depend on how the code is divided
//! into superblocks.

use super::address_map::AddressMap;
use super::edge::Edge;
use super::insn::{Treatment, decode, treat};
use super::slots;
use super::superblock::Location;
use super::superblock::Outcome;
use super::translator::{CacheMemory, TranslateError, Translator};
use super::{Limits, ProgramCode};

/// The value of R11 for bounded superblocks: each of their exits becomes a request.
pub const SPENT: u64 = 1 << 63;
/// The largest budget. A budget is spent if the upper half of R11 is not 0.
const LARGEST: u64 = u32::MAX as u64;

/// The end of a bounded superblock, if no other exit is taken first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// After this many branches, at least 1.
    Branches(u64),
    /// After this many instructions, at least 1.
    Instructions(u64),
}

impl Bound {
    /// Returns true if a path has reached the bound.
    pub(super) fn is_reached(self, branches: u8, instructions: usize) -> bool {
        match self {
            Self::Branches(most) => u64::from(branches) >= most,
            Self::Instructions(most) => instructions as u64 >= most,
        }
    }
}

/// Bounded superblocks, by start address.
pub(super) type Bounded = AddressMap<u64, Vec<(Bound, u32)>>;

impl Edge {
    /// Returns the number of branches on the path, including the exit.
    pub fn branches(&self) -> u8 {
        self.bit_count + u8::from(self.kind.is_indirect())
    }
}

/// Returns true if the instruction with these bytes counts as a branch. For instructions that the
/// caller executes.
pub fn is_counted(bytes: &[u8]) -> bool {
    let treatment = decode(bytes, 0).map(|(insn, _)| {
        // Untranslatable instructions may be branches too.
        let is_indirect = insn.is_jmp_near_indirect() || insn.is_call_near_indirect();
        let is_return = insn.mnemonic() == iced_x86::Mnemonic::Ret;
        if is_indirect || is_return { Treatment::Indirect { call: false } } else { treat(&insn) }
    });
    matches!(
        treatment,
        Some(Treatment::Jcc { .. } | Treatment::ShortJcc { .. } | Treatment::Indirect { .. })
    )
}

/// Returns true if a counter, the value of R11, shows that the budget is spent, which then caused
/// the request.
pub const fn is_spent(counter: u64) -> bool {
    counter > LARGEST
}

impl<M: CacheMemory> Translator<M> {
    /// Creates a translator without zones whose code counts branches and records nothing. It leaves
    /// instructions whose result does not follow from the program's state to the caller
    /// ([`super::Hook`]).
    pub fn counting(memory: M, table_offset: u64, limits: Limits) -> Self {
        let mut translator = Self::new(memory, table_offset, limits);
        translator.counts = true;
        translator
    }

    /// Returns the R11 for a thread that must execute at most `branches` more branches. When it is
    /// spent, a few branches are left. `None` if so few are left that it takes a bounded
    /// superblock.
    pub fn budget(&self, branches: u64) -> Option<u64> {
        // One path overdraws by at most its own branches.
        let longest = u64::from(self.limits.bits) + 1;
        branches.checked_sub(longest).map(|budget| budget.min(LARGEST))
    }

    /// Returns the superblock at `addr` that ends at a bound, for one thread that starts it with
    /// [`SPENT`]: every exit makes a request. Ignores a stop at `addr` itself.
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
    /// counter.
    pub fn way_out(&self, number: u32, request: u64, counter: u64) -> Option<Edge> {
        if request != slots::INDIRECT {
            let edge = usize::try_from(request).ok().and_then(|edge| self.edges.get(edge))?;
            return Some(*edge).filter(|edge| edge.superblock == number);
        }
        // Of the indirect edges, no two have the same number of branches.
        let branches = SPENT.wrapping_sub(counter);
        let of_superblock = self.edges_of(number).filter(|edge| edge.kind.is_indirect());
        of_superblock.copied().find(|edge| u64::from(edge.branches()) == branches)
    }

    fn edges_of(&self, number: u32) -> impl Iterator<Item = &Edge> {
        // Edges are numbered in the order of their superblocks.
        let start = self.edges.partition_point(|edge| edge.superblock < number);
        self.edges[start..].iter().take_while(move |edge| edge.superblock == number)
    }

    /// Returns the executed branches of a superblock's path that are not yet subtracted from the
    /// budget.
    pub fn branches_to(&self, location: &Location) -> u64 {
        if location.point.state.recorded {
            return 0;
        }
        let done = self.path(location.superblock).iter().take(location.point.index.into());
        let counts =
            |outcome| matches!(outcome, Outcome::Taken | Outcome::NotTaken | Outcome::Return);
        done.filter(|step| counts(step.outcome)).count() as u64
    }
}
