//! From when on code that a CPU's trace shows may be taken for mapped. A trace tells times now and
//! then only (TSC packets), so what it shows may have been executed later than its last time says. Where nothing was mapped
//! before, nothing else can have been executed: that is mapped from the beginning of its program
//! on. What is mapped over something keeps its time.

use super::RangeSet;
use crate::common::{AddrRange, Tsc};

/// What has been mapped since the program began.
#[derive(Debug, Default)]
pub struct Floors {
    /// When it began: from ever, if nothing was mapped before.
    since: Tsc,
    mapped: RangeSet,
}

impl Floors {
    /// Another program begins; gives when that may be taken to have been.
    pub fn exec(&mut self, tsc: Tsc) -> Tsc {
        if !self.mapped.is_empty() {
            self.since = tsc;
            self.mapped.clear();
        }
        self.since
    }

    /// A mapping; gives when it may be taken to have been made.
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
