//! The blocks that a segment executed, in compact form. Each decoding thread of the index, a
//! *worker*, numbers the blocks that it meets in its own [`Dictionary`]; a segment has the numbers
//! of its blocks in a [`BlockSet`].

use crate::common::Addr;
use crate::flow::Bounds;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The blocks that one worker met, indexed by their numbers: the addresses of the first and the
/// last instruction of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Dictionary {
    pub(super) blocks: Vec<Bounds>,
}

impl Dictionary {
    /// Returns the numbers of the blocks with at least one of these addresses between their first
    /// and their last instruction, both included.
    pub(super) fn numbers_with(&self, addrs: &BTreeSet<Addr>) -> BTreeSet<u32> {
        let holds = |ip: Addr, last: Addr| addrs.range(ip..=last.max(ip)).next().is_some();
        let blocks = self.blocks.iter().zip(0..).filter(|((ip, last), _)| holds(*ip, *last));
        blocks.map(|(_, number)| number).collect()
    }
}

/// A set of block numbers as a sparse bitmap: each nonzero byte follows the number of zero bytes
/// before it, in LEB128. Blocks that execute together were mostly met together, and so have
/// consecutive numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BlockSet(Box<[u8]>);

impl BlockSet {
    /// Returns the set with these words of 64 bits. Each word has its index, in ascending order,
    /// and its bits: bit `b` of word `w` is the number `64 * w + b`.
    pub(super) fn new(words: impl Iterator<Item = (u32, u64)>) -> Self {
        let mut bytes = Vec::with_capacity(256);
        let mut next = 0;
        for (word, mut bits) in words {
            while bits != 0 {
                let inside = bits.trailing_zeros() / 8;
                let byte = bits.to_le_bytes()[inside as usize];
                bits &= !(0xff << (8 * inside));
                let at = u64::from(word) << 3 | u64::from(inside);
                push_leb128(&mut bytes, at - next);
                bytes.push(byte);
                next = at + 1;
            }
        }
        Self(bytes.into())
    }

    /// Returns the numbers in ascending order.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        let mut rest = self.0.iter();
        let mut next = 0_u64;
        let bytes = std::iter::from_fn(move || {
            let at = next.wrapping_add(take_leb128(&mut rest)?);
            next = at.wrapping_add(1);
            Some((at, *rest.next()?))
        });
        bytes.flat_map(|(at, byte)| {
            let numbers = (0..8).filter(move |bit| byte >> bit & 1 != 0);
            // A damaged set may contain numbers beyond 32 bits, which become the number of no
            // block.
            numbers.map(move |bit| u32::try_from(at << 3 | bit).unwrap_or(u32::MAX))
        })
    }
}

fn push_leb128(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}

/// Removes and returns the next number; `None` at the end of the bytes.
fn take_leb128<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.next()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn a_block_set_gives_its_numbers_back(far: BTreeSet<u32>, near: BTreeSet<u8>) {
            let numbers: BTreeSet<u32> = far.into_iter().chain(near.into_iter().map(u32::from)).collect();
            let mut words: BTreeMap<u32, u64> = BTreeMap::new();
            for number in &numbers {
                *words.entry(number >> 6).or_default() |= 1 << (number & 63);
            }
            let set = BlockSet::new(words.into_iter());
            prop_assert_eq!(set.numbers().collect::<BTreeSet<_>>(), numbers);
        }
    }
}
