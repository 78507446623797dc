//! The buffers of one system call at their addresses, and how much of each a result fills.

use super::errno::Outcome;
use super::memory::{CallerMemory, read_number};
use super::write::When;
use crate::common::{Addr, AddrRange};

/// An address above all addresses of programs, even with five levels of page tables
/// (`TASK_SIZE_MAX`).
const USER_END: u64 = 1 << 56;

/// A range of memory that a call may write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) start: Addr,
    /// The maximum number of bytes that are written.
    pub(super) limit_bytes: u64,
    pub(super) size: Size,
    pub(super) when: When,
    /// The minimum result with which anything is written to the area.
    pub(super) least_result: u64,
}

/// The part of an area that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// The whole area, up to its limit.
    Whole,
    /// As many bytes as follow from a count.
    Counted(Counted),
}

/// A size of `header_bytes + count * unit_bytes - skip_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) count: Count,
    pub(super) header_bytes: u64,
    pub(super) unit_bytes: u64,
    /// The bytes that earlier areas with the same count took.
    pub(super) skip_bytes: u64,
}

/// The source of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// The call's result.
    Result,
    /// A number in memory, read after the call.
    Word { at: Addr, width_bytes: usize },
}

impl Area {
    /// Returns the whole range that the call may write; `None` if it is empty, starts at address 0,
    /// or is above the addresses of programs. One that reaches above them is cut there.
    pub(super) fn limit(&self) -> Option<AddrRange> {
        range(self.start, self.limit_bytes)
    }

    /// Returns the part that was written, or may have been after an error; `None` if nothing was.
    /// To be called after the call, since a count may be in memory. If that cannot be read, the
    /// whole area counts as written.
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

    /// Returns the number of bytes that a call wrote if it succeeded with `result`.
    fn counted_bytes(&self, result: u64, memory: &dyn CallerMemory) -> u64 {
        let Size::Counted(counted) = self.size else { return self.limit_bytes };
        // If the count can no longer be read, the whole area may have been written.
        let Some(count) = counted.count.read(result, memory) else { return self.limit_bytes };
        let all = counted.header_bytes.saturating_add(count.saturating_mul(counted.unit_bytes));
        all.saturating_sub(counted.skip_bytes).min(self.limit_bytes)
    }
}

impl Count {
    /// Reads the count after a call; `None` if it is in memory that cannot be read.
    fn read(self, result: u64, memory: &dyn CallerMemory) -> Option<u64> {
        match self {
            Self::Result => Some(result),
            Self::Word { at, width_bytes } => read_number(memory, at, width_bytes),
        }
    }
}

/// Returns the part of a range that can belong to a program; `None` if there is none. With a null
/// pointer, a program asks for no result.
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
