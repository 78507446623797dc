//! The order in which earlier runs of a program executed its code. The code that comes next there
//! is translated together with the code that a thread asks for, so that it need not stop for each
//! superblock.

use super::super::address_map::AddressMap;
use super::super::builder::ProgramCode;
use super::{CacheMemory, Purpose, Translator};
use std::ops::Range;

/// The minimum and the maximum number of addresses that are translated ahead at a time.
const SHORTEST: usize = 8;
const LONGEST: usize = 512;
/// The maximum number of addresses in each of the lists of an [`Order`].
const MOST: usize = 1 << 18;

/// Program addresses at which threads requested code, in the order of the requests.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The addresses of earlier runs.
    expected: Vec<u64>,
    index: AddressMap<u64, usize>,
    /// The addresses of this run that were not expected, if `is_learning`.
    unexpected: Vec<u64>,
    is_learning: bool,
    /// The end of the last part of `expected` that was translated ahead.
    reached: usize,
    /// The length of that part.
    length: usize,
}

impl Order {
    /// Returns true if the addresses of this run are noted. Then only requested and expected code
    /// is to be translated.
    pub(super) fn is_learning(&self) -> bool {
        self.is_learning
    }

    /// Appends addresses to the expected ones, up to `MOST`, except for those already there.
    fn expect(&mut self, addresses: impl IntoIterator<Item = u64>) {
        for addr in addresses {
            if self.expected.len() < MOST && !self.index.contains_key(&addr) {
                self.index.insert(addr, self.expected.len());
                self.expected.push(addr);
            }
        }
    }

    /// Notes an address of this run, if `is_learning` and it was not expected; at most `MOST` of
    /// them, and one again if it is requested again.
    fn note(&mut self, addr: u64) {
        let is_new = self.is_learning && !self.index.contains_key(&addr);
        if is_new && self.unexpected.len() < MOST {
            self.unexpected.push(addr);
        }
    }

    /// Returns the indexes of the expected addresses to translate after a requested one; empty if
    /// that was not expected. The ranges get longer while the run goes on as the earlier one did.
    fn after(&mut self, addr: u64) -> Range<usize> {
        let Some(&at) = self.index.get(&addr) else { return 0..0 };
        // True if the address comes soon after the last part: code in between may be translated
        // already.
        let goes_on = at >= self.reached && at - self.reached < LONGEST;
        self.length = if goes_on { (2 * self.length).clamp(SHORTEST, LONGEST) } else { SHORTEST };
        self.reached = (at + 1 + self.length).min(self.expected.len());
        at + 1..self.reached
    }
}

impl<M: CacheMemory> Translator<M> {
    /// Notes the addresses at which threads request code, for [`Self::unexpected`]. From now on,
    /// only requested and expected code is translated.
    pub fn learn_order(&mut self) {
        self.order.is_learning = true;
    }

    /// Adds addresses at which code is expected to be requested, in this order; leaves out those
    /// already there, and those above a limit. That decides only which code is translated early, so
    /// it may be wrong.
    pub fn expect(&mut self, addresses: impl IntoIterator<Item = u64>) {
        self.order.expect(addresses);
    }

    /// Returns the addresses at which fixed code was requested without being expected, in the order
    /// of the requests. An address is there again if its code was dropped and requested again.
    /// Empty without [`Self::learn_order`].
    pub fn unexpected(&self) -> &[u64] {
        &self.order.unexpected
    }

    /// Notes an address at which code was requested and translated, and translates the code that is
    /// expected next. Does nothing for code that may change. Stops silently if the cache has no
    /// room.
    pub(super) fn follow_order(&mut self, addr: u64, code: &mut dyn ProgramCode) {
        if !code.is_fixed(addr) {
            return;
        }
        self.order.note(addr);
        for at in self.order.after(addr) {
            let next = self.order.expected[at];
            let is_wanted = !self.by_start.contains_key(&next) && code.is_fixed(next);
            if is_wanted && self.translate(next, Purpose::Plain, code).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_get_longer_while_the_run_goes_on_as_before() {
        let mut order = Order::default();
        order.expect((0..5000).map(|n| n * 16));
        assert_eq!(order.after(0), 1..9);
        assert_eq!(order.after(9 * 16), 10..26);
        assert_eq!(order.after(30 * 16), 31..63);
        assert_eq!(order.after(10 * 16), 11..19, "the run went back");
        assert_eq!(order.after(5), 0..0, "no earlier run executed it");
        while order.reached < 5000 {
            let _ = order.after(order.expected[order.reached]);
        }
        assert_eq!(order.length, LONGEST);
    }

    #[test]
    fn only_unexpected_code_is_noted() {
        let mut order = Order::default();
        order.note(1);
        assert!(order.unexpected.is_empty(), "nothing is learnt");
        order.is_learning = true;
        order.expect([5, 3, 5]);
        for addr in [9, 3, 4] {
            order.note(addr);
        }
        assert_eq!((order.expected, order.unexpected), (vec![5, 3], vec![9, 4]));
    }
}
