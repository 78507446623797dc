//! Which blocks a segment executed, in few bytes.

use crate::common::Addr;
use crate::flow::Bounds;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};

/// Numbers for the blocks of a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Dictionary {
    numbers: HashMap<Bounds, u32>,
}

impl Dictionary {
    pub(super) fn number(&mut self, block: Bounds) -> u32 {
        let fresh = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(block).or_insert(fresh)
    }

    /// The blocks that hold one of these addresses.
    pub(super) fn with(&self, addrs: &BTreeSet<Addr>) -> BTreeSet<u32> {
        let holds = |ip: Addr, last: Addr| addrs.range(ip..=last.max(ip)).next().is_some();
        let blocks = self.numbers.iter().filter(|((ip, last), _)| holds(*ip, *last));
        blocks.map(|(_, number)| *number).collect()
    }

    /// The blocks in the order of their numbers.
    pub(super) fn in_order(&self) -> Vec<Bounds> {
        let mut blocks: Vec<_> = self.numbers.iter().collect();
        blocks.sort_unstable_by_key(|(_, number)| **number);
        blocks.into_iter().map(|(block, _)| *block).collect()
    }
}

impl FromIterator<Bounds> for Dictionary {
    fn from_iter<I: IntoIterator<Item = Bounds>>(blocks: I) -> Self {
        Self { numbers: blocks.into_iter().zip(0..).collect() }
    }
}

/// Numbers of blocks: sorted, each as the difference to the one before, in LEB128.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BlockSet(Box<[u8]>);

impl BlockSet {
    /// A set of numbers, in any order.
    pub(super) fn new(mut numbers: Vec<u32>) -> Self {
        numbers.sort_unstable();
        numbers.dedup();
        let mut bytes = Vec::with_capacity(numbers.len() * 2);
        let mut before = 0;
        for number in numbers {
            push_leb128(&mut bytes, number - before);
            before = number;
        }
        Self(bytes.into())
    }

    /// The numbers.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        let mut rest = self.0.iter();
        let mut number = 0_u32;
        std::iter::from_fn(move || {
            let mut value = 0_u32;
            for shift in (0..32).step_by(7) {
                let byte = *rest.next()?;
                value |= u32::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
            }
            number = number.wrapping_add(value);
            Some(number)
        })
    }
}

fn push_leb128(bytes: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_block_set_gives_its_numbers_back(numbers: BTreeSet<u32>) {
            let set = BlockSet::new(numbers.iter().rev().copied().collect());
            prop_assert_eq!(set.numbers().collect::<BTreeSet<_>>(), numbers);
        }
    }
}
