//! A set of addresses. Knows nothing of their contents.

use crate::common::AddrRange;
use std::collections::BTreeMap;

/// Addresses, as ranges that do not touch. Every operation costs O(log n) amortized: merging
/// removes ranges that were inserted before.
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    /// The end of each range by its start.
    ends: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Removes all addresses.
    pub fn clear(&mut self) {
        self.ends.clear();
    }

    /// Returns true if an address of `range` is in the set; false for an empty range.
    pub fn overlaps(&self, range: AddrRange) -> bool {
        // Ranges are ordered by start and do not touch, so they are ordered by end, too.
        let last = self.ends.range(..range.end.0).next_back();
        !range.is_empty() && last.is_some_and(|(_, end)| range.start.0 < *end)
    }

    /// Adds the addresses of `range`, merged with the ranges that it overlaps or touches.
    pub fn insert(&mut self, range: AddrRange) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start.0, range.end.0);
        while let Some((low, high)) = self.ends.range(..=end).next_back() {
            let (low, high) = (*low, *high);
            if high < start {
                break;
            }
            (start, end) = (start.min(low), end.max(high));
            self.ends.remove(&low);
        }
        self.ends.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::Addr;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn is_the_set_of_the_addresses(ranges in prop::collection::vec((0..60_u64, 0..20_u64), 0..30)) {
            let (mut ours, mut plain) = (RangeSet::default(), BTreeSet::new());
            for (start, size) in ranges {
                let range = AddrRange::sized(Addr(start), size);
                let addresses = start..start + size;
                let expected = addresses.clone().any(|addr| plain.contains(&addr));
                prop_assert_eq!(ours.overlaps(range), expected);
                ours.insert(range);
                plain.extend(addresses);
                prop_assert_eq!(ours.is_empty(), plain.is_empty());
                // No two ranges touch.
                let ends: Vec<_> = ours.ends.iter().collect();
                prop_assert!(ends.windows(2).all(|pair| pair[0].1 < pair[1].0));
            }
            for addr in 0..100 {
                let one = AddrRange::sized(Addr(addr), 1);
                prop_assert_eq!(ours.overlaps(one), plain.contains(&addr));
            }
        }
    }
}
