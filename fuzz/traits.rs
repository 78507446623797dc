//! What an input made its target do, as a set of numbers: which packets, events, gaps, errors and
//! replies came, and which after which. An input that does something new is worth keeping. No
//! coverage of code is measured.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

/// What one input did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traits {
    noted: BTreeSet<u64>,
    last: u64,
}

impl Traits {
    /// Notes that something happened.
    pub(crate) fn note(&mut self, what: impl Hash) {
        let number = hash(&what);
        // What repeats itself repeats itself often.
        if number != self.last {
            self.noted.insert(number);
            self.last = number;
        }
    }

    /// Notes how many of something there were, by their magnitude.
    pub(crate) fn magnitude(&mut self, what: &str, count: usize) {
        self.note((what, usize::BITS - count.leading_zeros()));
    }

    /// How many different things it did.
    pub(crate) fn count(&self) -> usize {
        self.noted.len()
    }

    /// Whether it did all that another set has.
    pub(crate) fn has_all(&self, wanted: &BTreeSet<u64>) -> bool {
        wanted.is_subset(&self.noted)
    }

    /// What it did that `known` does not have.
    pub(crate) fn beyond(&self, known: &BTreeSet<u64>) -> BTreeSet<u64> {
        self.noted.difference(known).copied().collect()
    }
}

/// The same in each run and with each compiler, unlike the hash of the standard library.
pub(crate) fn hash(what: &(impl Hash + ?Sized)) -> u64 {
    let mut fnv = Fnv(0xcbf2_9ce4_8422_2325);
    what.hash(&mut fnv);
    fnv.finish()
}

/// Fowler, Noll and Vo's, 1a, of 64 bits.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
