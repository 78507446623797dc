//! Runs a given number of ticks. Every exit of a superblock subtracts the ticks of its path from a
//! budget in R11 instead of writing a record, and becomes a request when the budget is overdrawn.
//! Near the goal, bounded superblocks end exactly there.
//!
//! An instruction ticks or it does not, whatever its outcome (`tick`). So the count does not depend
//! on how the code is divided into superblocks.

use super::address_map::AddressMap;
use super::edge::Edge;
use super::logged::CallLog;
use super::saves::Components;
use super::slots;
use super::superblock::Location;
use super::translator::{CacheMemory, TranslateError, Translator};
use super::{Limits, ProgramCode};

/// The value of R11 for bounded superblocks: each of their exits becomes a request.
pub const SPENT: u64 = 1 << 63;
/// The largest budget. A budget is spent if the upper half of R11 is not 0.
const LARGEST: u64 = u32::MAX as u64;

/// The end of a bounded superblock, if no other exit is taken first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// After this many ticks, at least 1.
    Ticks(u64),
    /// After this many instructions, at least 1.
    Instructions(u64),
}

impl Bound {
    /// Returns true if a path has reached the bound.
    pub(super) fn is_reached(self, ticks: u8, instructions: usize) -> bool {
        match self {
            Self::Ticks(most) => u64::from(ticks) >= most,
            Self::Instructions(most) => instructions as u64 >= most,
        }
    }
}

/// The most bytes of zones within reach of some code, where all code can be dropped.
const ROOM_BYTES: u64 = 512 << 20;

/// Bounded superblocks, by start address.
pub(super) type Bounded = AddressMap<u64, Vec<(Bound, u32)>>;

/// Returns true if a counter, the value of R11, shows that the budget is spent, which then caused
/// the request.
pub const fn is_spent(counter: u64) -> bool {
    counter > LARGEST
}

impl<M: CacheMemory> Translator<M> {
    /// Creates a translator without zones whose code counts ticks and records nothing. It leaves
    /// instructions whose result does not follow from the program's state to the caller
    /// ([`super::Hook`]).
    pub fn counting(memory: M, table_offset: u64, limits: Limits) -> Self {
        let mut translator = Self::new(memory, table_offset, limits);
        (translator.counts, translator.hooks) = (true, true);
        translator.room = ROOM_BYTES;
        translator
    }

    /// Creates a translator without zones whose code counts, and logs system calls or answers them.
    pub fn logging(memory: M, table_offset: u64, limits: Limits, call_log: CallLog) -> Self {
        let mut translator = Self::counting(memory, table_offset, limits);
        translator.call_log = Some(call_log);
        translator
    }

    /// Creates a translator without zones whose code records, and leaves the same instructions to
    /// the caller: that of a run which is repeated to get its path.
    pub fn rerecording(memory: M, table_offset: u64, limits: Limits) -> Self {
        let mut translator = Self::new(memory, table_offset, limits);
        translator.hooks = true;
        translator
    }

    /// Lets XSAVEC be followed by stores that complete it, where its mask is known. For a processor
    /// with these components, before any code is translated.
    pub fn complete_saves(&mut self, components: Components) {
        self.saves = Some(components);
    }

    /// Returns how the code logs system calls, if it does.
    pub fn call_log(&self) -> Option<CallLog> {
        self.call_log
    }

    /// Returns the number of records that can be written before `ticks` are executed.
    pub fn records_within(&self, ticks: u64) -> u64 {
        // One path is executed before there is no room for its record.
        (ticks.saturating_sub(1) / self.longest()).saturating_sub(1)
    }

    /// Returns the most ticks of a path.
    fn longest(&self) -> u64 {
        u64::from(self.limits.bits) + 1
    }

    /// Returns the R11 for a thread that must execute at most `ticks` more ticks. When it is spent,
    /// a few ticks are left. `None` if so few are left that it takes a bounded superblock.
    pub fn budget(&self, ticks: u64) -> Option<u64> {
        // One path overdraws by at most its own ticks.
        ticks.checked_sub(self.longest()).map(|budget| budget.min(LARGEST))
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
        // An indirect edge's last instruction ticks, so no two of them have the same count.
        let ticks = SPENT.wrapping_sub(counter);
        let of_superblock = self.edges_of(number).filter(|edge| edge.kind.is_indirect());
        of_superblock.copied().find(|edge| u64::from(edge.ticks) == ticks)
    }

    fn edges_of(&self, number: u32) -> impl Iterator<Item = &Edge> {
        // Edges are numbered in the order of their superblocks.
        let start = self.edges.partition_point(|edge| edge.superblock < number);
        self.edges[start..].iter().take_while(move |edge| edge.superblock == number)
    }

    /// Returns the executed ticks of a superblock's path that are not yet subtracted from the
    /// budget.
    pub fn ticks_to(&self, location: &Location) -> u64 {
        if location.point.state.recorded {
            return 0;
        }
        let done = self.path(location.superblock).iter().take(location.point.index.into());
        done.filter(|step| step.ticks).count() as u64
    }
}
