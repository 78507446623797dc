//! Running a known number of branches. Every way out of a superblock takes the branches of its path
//! from a budget in R11 instead of writing a record, and becomes a request when that is overdrawn.
//! Near the goal, superblocks are made that end there.
//!
//! A branch is what a PT unit tells: a conditional branch, taken or not, a near return, an indirect
//! near jump or call. So the count does not depend on how the code is cut into superblocks.

use super::address_map::AddressMap;
use super::edge::Edge;
use super::insn::{Treatment, decode, treat};
use super::slots;
use super::superblock::Location;
use super::superblock::Outcome;
use super::translator::{CacheMemory, TranslateError, Translator};
use super::{Limits, ProgramCode};

/// R11 for bounded superblocks: each of their ways out is a request.
pub const SPENT: u64 = 1 << 63;
/// The largest budget: it is spent where the upper half of R11 is not 0.
const LARGEST: u64 = u32::MAX as u64;

/// Where a bounded superblock ends, if no other way out is taken before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// Behind so many branches, at least 1.
    Branches(u64),
    /// Behind so many instructions, at least 1.
    Instructions(u64),
}

impl Bound {
    /// Whether a path has come there.
    pub(super) fn is_reached(self, branches: u8, instructions: usize) -> bool {
        match self {
            Self::Branches(most) => u64::from(branches) >= most,
            Self::Instructions(most) => instructions as u64 >= most,
        }
    }
}

/// Bounded superblocks, by where they begin.
pub(super) type Bounded = AddressMap<u64, Vec<(Bound, u32)>>;

impl Edge {
    /// Branches of the path and of the way out.
    pub fn branches(&self) -> u8 {
        self.bit_count + u8::from(self.kind.is_indirect())
    }
}

/// Whether the instruction with these bytes counts as a branch, for those that the caller executes.
pub fn is_counted(bytes: &[u8]) -> bool {
    let treatment = decode(bytes, 0).map(|(insn, _)| {
        // What must stay where it is may branch all the same.
        let is_indirect = insn.is_jmp_near_indirect() || insn.is_call_near_indirect();
        let is_return = insn.mnemonic() == iced_x86::Mnemonic::Ret;
        if is_indirect || is_return { Treatment::Indirect { call: false } } else { treat(&insn) }
    });
    matches!(
        treatment,
        Some(Treatment::Jcc { .. } | Treatment::ShortJcc { .. } | Treatment::Indirect { .. })
    )
}

impl<M: CacheMemory> Translator<M> {
    /// A translator without zones whose code counts branches and records nothing.
    /// Instructions whose outcome does not follow from the program's state are left to the caller
    /// ([`super::Hook`]).
    pub fn counting(memory: M, table_offset: u64, limits: Limits) -> Self {
        let mut translator = Self::new(memory, table_offset, limits);
        translator.counts = true;
        translator
    }

    /// R11 for a thread that is to execute `branches` branches more, and is not to go beyond. When it
    /// is spent, a few are left. None: so few are left that a bounded superblock is needed.
    pub fn budget(&self, branches: u64) -> Option<u64> {
        // A path overdraws by no more than itself.
        let longest = u64::from(self.limits.bits) + 1;
        branches.checked_sub(longest).map(|budget| budget.min(LARGEST))
    }

    /// Whether a counter, in R11, says that the budget is spent: a request is made for that then.
    pub const fn is_spent(counter: u64) -> bool {
        counter > LARGEST
    }

    /// The superblock at `addr` that ends at a bound, for one thread that begins it with [`SPENT`]:
    /// whichever way it leaves, it makes a request. A stop at `addr` itself is passed.
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

    /// The way by which a thread left a bounded superblock, by its request and its counter.
    pub fn way_out(&self, number: u32, request: u64, counter: u64) -> Option<Edge> {
        if request != slots::INDIRECT {
            let edge = usize::try_from(request).ok().and_then(|edge| self.edges.get(edge))?;
            return Some(*edge).filter(|edge| edge.superblock == number);
        }
        // Of those, no two have the same number of branches.
        let branches = SPENT.wrapping_sub(counter);
        let of_superblock = self.edges_of(number).filter(|edge| edge.kind.is_indirect());
        of_superblock.copied().find(|edge| u64::from(edge.branches()) == branches)
    }

    fn edges_of(&self, number: u32) -> impl Iterator<Item = &Edge> {
        // Edges are numbered as their superblocks are.
        let start = self.edges.partition_point(|edge| edge.superblock < number);
        self.edges[start..].iter().take_while(move |edge| edge.superblock == number)
    }

    /// Branches that were executed of a superblock's path, and are not taken from the budget yet.
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
