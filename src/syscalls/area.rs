//! Areas: the buffers of one call at their addresses, and how much of each a result fills.

use super::errno::Outcome;
use super::memory::{CallerMemory, read_number};
use super::write::When;
use crate::common::{Addr, AddrRange};

/// Above all addresses of programs, with five levels of page tables too (`TASK_SIZE_MAX`).
const USER_END: u64 = 1 << 56;

/// A place that a call may write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) start: Addr,
    /// The most that is written.
    pub(super) limit_bytes: u64,
    pub(super) size: Size,
    pub(super) when: When,
    /// The least result with which it is written at all.
    pub(super) least_result: u64,
}

/// The part of an area that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// Up to its limit.
    Whole,
    /// By a count.
    Counted(Counted),
}

/// `header_bytes + count * unit_bytes - skip_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) count: Count,
    pub(super) header_bytes: u64,
    pub(super) unit_bytes: u64,
    /// The part of the same count that areas before this one took.
    pub(super) skip_bytes: u64,
}

/// The unit that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// The call's result.
    Result,
    /// A word of memory after the call.
    Word { at: Addr, width_bytes: usize },
}

impl Area {
    /// Returns the range that the call writes at most; `None` if it is empty or starts at 0.
    pub(super) fn limit(&self) -> Option<AddrRange> {
        range(self.start, self.limit_bytes)
    }

    /// Returns the part that was written.
    pub(super) fn written(&self, outcome: Outcome, memory: &dyn CallerMemory) -> Option<AddrRange> {
        let size_bytes = match (outcome, self.when) {
            (Outcome::Succeeded(result), _) if result < self.least_result => 0,
            (Outcome::Succeeded(result), _) => self.counted_bytes(result, memory),
            (Outcome::Refused, When::Success | When::Interrupted)
            | (Outcome::Interrupted, When::Success) => 0,
            (Outcome::Failed | Outcome::Interrupted | Outcome::Refused, _) => self.limit_bytes,
        };
        range(self.start, size_bytes)
    }

    fn counted_bytes(&self, result: u64, memory: &dyn CallerMemory) -> u64 {
        let Size::Counted(counted) = self.size else { return self.limit_bytes };
        // A count that cannot be read any more limits nothing.
        let Some(count) = counted.count.read(result, memory) else { return self.limit_bytes };
        let all = counted.header_bytes.saturating_add(count.saturating_mul(counted.unit_bytes));
        all.saturating_sub(counted.skip_bytes).min(self.limit_bytes)
    }
}

impl Count {
    fn read(self, result: u64, memory: &dyn CallerMemory) -> Option<u64> {
        match self {
            Self::Result => Some(result),
            Self::Word { at, width_bytes } => read_number(memory, at, width_bytes),
        }
    }
}

/// Returns the part of a range that a program can have; none if that is nothing. A null pointer
/// asks for no result.
fn range(start: Addr, size_bytes: u64) -> Option<AddrRange> {
    let range = AddrRange::sized(start, size_bytes.min(USER_END.saturating_sub(start.0)));
    (start.0 != 0 && !range.is_empty()).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_stay_where_programs_can_be() {
        assert_eq!(range(Addr(0), 8), None);
        assert_eq!(range(Addr(8), 0), None);
        assert_eq!(range(Addr(u64::MAX), u64::MAX), None);
        assert_eq!(range(Addr(USER_END), 1), None);
        assert_eq!(range(Addr(USER_END - 2), 9), Some(AddrRange::sized(Addr(USER_END - 2), 2)));
    }
}
