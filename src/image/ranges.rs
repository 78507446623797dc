//! A set of addresses. Knows nothing of what is there.

use crate::common::AddrRange;
use std::collections::BTreeMap;

/// Addresses, as ranges that do not touch. All that is asked or added costs O(log n), but for
/// ranges that become one, each of which has been added before.
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    /// Start and end.
    ends: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.ends.clear();
    }

    /// Whether an address of `range` is in it.
    pub fn overlaps(&self, range: AddrRange) -> bool {
        // Ranges begin in order and do not touch, so they end in order, too.
        let last = self.ends.range(..range.end.0).next_back();
        !range.is_empty() && last.is_some_and(|(_, end)| range.start.0 < *end)
    }

    /// Adds the addresses of `range`.
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
                // No two touch.
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
