//! The times at which exits of superblocks are sampled. A *tick* is a branch that is counted
//! ([`crate::translate::is_tick`]); a sample ends the thread's run at an exit.

/// The smallest mean distance of two samples, in ticks. It is used while the program executes
/// branches whose targets are not known well.
const MIN_MEAN_TICKS: u64 = 1 << 12;
/// The largest mean distance of two samples, in ticks: a millisecond or two, of which a sample
/// takes a hundredth.
const MAX_MEAN_TICKS: u64 = 1 << 20;
/// The mean distance, in ticks, to the first sample.
const FIRST: u64 = 1 << 16;
/// The factor of a linear congruential generator (Knuth, "MMIX").
const FACTOR: u64 = 6_364_136_223_846_793_005;

/// The state by which the distance to the next sample is chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampling {
    /// The mean distance of two samples, in ticks.
    period: u64,
    /// The state of the random number generator.
    random: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { period: FIRST, random: 1 }
    }
}

impl Sampling {
    /// Returns the ticks to the next sample: a random number around the mean distance, so that no
    /// loop keeps in step with samples.
    pub(super) fn ticks_to_next(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(FACTOR).wrapping_add(1);
        self.period / 2 + (self.random >> 32) % self.period
    }

    /// Adjusts the mean distance after a sample: samples become more frequent if `helps` is true,
    /// as more samples like it may improve the code, else rarer.
    pub(super) fn note_sample(&mut self, helps: bool) {
        let period = if helps { self.period / 4 } else { self.period * 5 / 4 };
        self.period = period.clamp(MIN_MEAN_TICKS, MAX_MEAN_TICKS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_frequent_where_they_help() {
        let mut sampling = Sampling::default();
        let mean = |sampling: &mut Sampling| {
            (0..1000).map(|_| sampling.ticks_to_next()).sum::<u64>() / 1000
        };
        for (helps, period) in [(true, MIN_MEAN_TICKS), (false, MAX_MEAN_TICKS)] {
            (0..60).for_each(|_| sampling.note_sample(helps));
            let mean = mean(&mut sampling);
            assert!((period * 9 / 10..period * 11 / 10).contains(&mean), "{mean} of {period}");
        }
    }
}
