//! Unusual orders of threads, to find bugs that usual ones hide (`Schedule::Chaos`): time slices of
//! any length, the next thread by chance, and some threads only where no other can go on, as in
//! rr's chaos mode.

use crate::common::Tid;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// The longest slice is two to the power of this, in ticks.
const SLICE_BITS: u64 = 18;
/// One thread in so many has low priority.
const LOW_ODDS: u64 = 4;
/// One of so many turns of the recorder's loop (after a system call, for example) ends the slice.
const END_ODDS: u64 = 16;
/// The maximum time until priorities change: a thread that spins may wait for one of low priority.
const PRIORITIES_MS: u64 = 50;

/// The random choices of a scheduler.
#[derive(Debug)]
pub(super) struct Chaos {
    /// The state of the random numbers.
    state: u64,
    /// For each thread, true if it has low priority.
    is_low: BTreeMap<Tid, bool>,
    /// When all priorities are chosen again.
    redraw_at: Instant,
}

impl Chaos {
    /// Returns a source of choices that differ in each run.
    pub(super) fn new() -> Self {
        let state = RandomState::new().build_hasher().finish();
        Self { state, is_low: BTreeMap::new(), redraw_at: Instant::now() }
    }

    /// Returns a random number below `limit`, by `SplitMix64`.
    fn below(&mut self, limit: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % limit.max(1)
    }

    /// Returns the ticks of the next slice: short ones are as likely as long ones.
    pub(super) fn slice_ticks(&mut self) -> u64 {
        let most = 1 << self.below(SLICE_BITS + 1);
        1 + self.below(most)
    }

    /// Returns true if the current slice is to end now, which is decided at random in each call.
    pub(super) fn ends_slice(&mut self) -> bool {
        self.below(END_ODDS) == 0
    }

    /// Chooses one of the threads `ready`, which can go on, at random: one with low priority only
    /// if there are no others. `None` if there are none. Priorities are drawn anew after some time.
    pub(super) fn choose(&mut self, ready: &[Tid]) -> Option<Tid> {
        if Instant::now() >= self.redraw_at {
            let until = Duration::from_millis(self.below(PRIORITIES_MS + 1));
            self.redraw_at = Instant::now() + until;
            self.is_low.clear();
        }
        for tid in ready {
            if !self.is_low.contains_key(tid) {
                let is_low = self.below(LOW_ODDS) == 0;
                self.is_low.insert(*tid, is_low);
            }
        }
        let is_high = |tid: &&Tid| self.is_low.get(*tid) == Some(&false);
        let high: Vec<Tid> = ready.iter().filter(is_high).copied().collect();
        let among = if high.is_empty() { ready } else { &high };
        let chosen = self.below(among.len() as u64);
        among.get(usize::try_from(chosen).unwrap_or(0)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_is_chosen_and_slices_have_all_lengths() {
        let mut chaos = Chaos::new();
        let ready = [Tid(1), Tid(2), Tid(3)];
        let mut seen = BTreeMap::new();
        for _ in 0..1000 {
            chaos.redraw_at = Instant::now();
            *seen.entry(chaos.choose(&ready).unwrap()).or_insert(0) += 1;
        }
        assert!(ready.iter().all(|tid| seen[tid] > 100), "{seen:?}");
        assert_eq!(chaos.choose(&[]), None);
        let slices: Vec<u64> = (0..1000).map(|_| chaos.slice_ticks()).collect();
        for (low, high) in [(1, 100), (100, 10_000), (10_000, 1 << 18)] {
            assert!(slices.iter().any(|ticks| (low..=high).contains(ticks)), "{low} to {high}");
        }
    }
}
