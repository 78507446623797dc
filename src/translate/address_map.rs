//! Hash tables with addresses or small numbers as keys. Every step of a translation looks into one;
//! a hash that resists chosen keys would dominate its cost.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A [`HashMap`] with plain numbers as keys.
pub type AddressMap<K, V> = HashMap<K, V, BuildHasherDefault<Multiply>>;

/// A [`HashSet`] of plain numbers.
pub(super) type AddressSet<K> = HashSet<K, BuildHasherDefault<Multiply>>;

/// Hashes a number by multiplication (Knuth, "The Art of Computer Programming", 6.4).
#[derive(Clone, Copy, Debug, Default)]
pub struct Multiply(u64);

/// 2^64 divided by the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        // The table takes its index from the low bits; the best ones are the high bits.
        self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    /// Hashes the number of an enumeration's variant.
    fn write_isize(&mut self, number: isize) {
        self.write_usize(number.cast_unsigned());
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(FACTOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher, RandomState};

    fn low_bits<B: BuildHasher>(build: &B, keys: impl Iterator<Item = u64>) -> usize {
        keys.map(|key| build.hash_one(key) & 0xfff).collect::<HashSet<_>>().len()
    }

    #[test]
    fn pages_and_code_spread_as_with_the_default() {
        let fast = BuildHasherDefault::<Multiply>::default();
        for stride in [1, 4, 16, 0x1000, 0x10_0000] {
            let keys = || (0..4096).map(|n| 0x5555_5555_4000 + n * stride);
            let [ours, theirs] = [low_bits(&fast, keys()), low_bits(&RandomState::new(), keys())];
            assert!(ours * 10 > theirs * 8, "stride {stride:#x}: {ours} against {theirs}");
        }
    }
}
