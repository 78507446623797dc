//! Computes when a mapping in a CPU's trace took effect at the earliest. The trace contains times
//! only at intervals (TSC packets), so the last time before an instruction can be earlier than the
//! mapping of its code. Where nothing was mapped before, no other code can have been executed: such
//! a mapping takes effect from the start of its program. A mapping over another one keeps its time.

use super::RangeSet;
use crate::common::{AddrRange, Tsc};

/// The mappings of a program so far. They determine the floor of the next mapping: the time from
/// which it counts. Where nothing was mapped before, that is the start of the program; elsewhere,
/// it is the mapping's own time. Unmapped addresses count as mapped before: nothing is removed
/// until the next program.
#[derive(Debug, Default)]
pub struct Floors {
    /// The time at which the program started; 0 if nothing was mapped before.
    since: Tsc,
    /// The addresses that were mapped since then.
    mapped: RangeSet,
}

impl Floors {
    /// Starts another program at `tsc`, without mappings. Returns the floor of its first mappings:
    /// `tsc`, or the start of the previous program if that had no mappings. Before the first call,
    /// the program counts as started at 0.
    pub fn exec(&mut self, tsc: Tsc) -> Tsc {
        if !self.mapped.is_empty() {
            self.since = tsc;
            self.mapped.clear();
        }
        self.since
    }

    /// Adds a mapping that was made at `tsc`. Returns the time from which it counts: `tsc` if
    /// something was mapped at one of its addresses before, even if it was unmapped since; else the
    /// start of the program, but not later than `tsc`.
    pub fn map(&mut self, tsc: Tsc, range: AddrRange) -> Tsc {
        let is_over = self.mapped.overlaps(range);
        self.mapped.insert(range);
        if is_over { tsc } else { self.since.min(tsc) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::Addr;

    #[test]
    fn what_lies_over_nothing_was_there_from_the_beginning() {
        let mut floors = Floors::default();
        let range = |start, end| AddrRange::new(Addr(start), Addr(end));
        assert_eq!(floors.exec(Tsc(5)), Tsc(0));
        assert_eq!(floors.map(Tsc(10), range(10, 20)), Tsc(0));
        assert_eq!(floors.map(Tsc(11), range(30, 40)), Tsc(0));
        assert_eq!(floors.map(Tsc(12), range(20, 30)), Tsc(0));
        assert_eq!(floors.map(Tsc(13), range(15, 16)), Tsc(13));
        assert_eq!(floors.map(Tsc(14), range(0, 100)), Tsc(14));
        assert_eq!(floors.map(Tsc(15), range(100, 101)), Tsc(0));
        assert_eq!(floors.exec(Tsc(20)), Tsc(20));
        assert_eq!(floors.map(Tsc(21), range(10, 20)), Tsc(20));
        assert_eq!(floors.map(Tsc(22), range(19, 20)), Tsc(22));
    }
}
