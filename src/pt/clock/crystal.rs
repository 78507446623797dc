//! The crystal clock as TMA and MTC tell it. Knows nothing of cycles.

use super::{ClockConfig, CrystalRatio};

/// The crystal clock counter, aligned with the time-stamp counter by a TMA packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crystal {
    ratio: CrystalRatio,
    /// `MTCFreq`, below 16.
    freq: u8,
    /// The TSC at the counter's last edge before the TMA.
    anchor_tsc: u64,
    /// Crystal ticks since then, up to what the last packet told.
    elapsed: u64,
    /// The counter's low bits: 16 from a TMA, `freq` + 8 from an MTC.
    counter: u64,
    /// No MTC came since the TMA.
    fresh: bool,
}

impl Crystal {
    /// From a TMA packet that belongs to the TSC packet `tsc`.
    pub(super) fn aligned(
        config: &ClockConfig,
        tsc: u64,
        ctc: u16,
        fast_counter: u16,
    ) -> Option<Self> {
        Some(Self {
            ratio: config.crystal_ratio?.usable()?,
            freq: config.mtc_freq.filter(|freq| *freq < 16)?,
            anchor_tsc: tsc.saturating_sub(u64::from(fast_counter)),
            elapsed: 0,
            counter: u64::from(ctc),
            fresh: true,
        })
    }

    /// Takes an MTC packet and gives the TSC at its edge, if that is news.
    ///
    /// The smallest advance that fits is taken: of 256 lost MTCs, none would be noticed.
    pub(super) fn advance(&mut self, mtc: u8) -> Option<u64> {
        // A TMA has 16 bits of the counter. Where MTC looks at higher ones, only those that both
        // have can be compared the first time.
        let common_bits = if self.fresh { 8.min(16 - self.freq) } else { 8 };
        let mask = (1_u64 << common_bits) - 1;
        let periods = (u64::from(mtc).wrapping_sub(self.counter >> self.freq)) & mask;
        let late = self.fresh && periods == mask;
        if periods == 0 || late {
            // The TSC packet went ahead of it.
            return None;
        }
        let into_period = self.counter & ((1 << self.freq) - 1);
        self.elapsed += (periods << self.freq) - into_period;
        self.counter = u64::from(mtc) << self.freq;
        self.fresh = false;
        Some(self.anchor_tsc.saturating_add(self.ratio.to_tsc(self.elapsed)))
    }

    /// The TSC at which the next MTC is due.
    pub(super) fn next_edge_tsc(&self) -> u64 {
        let into_period = self.counter & ((1 << self.freq) - 1);
        let elapsed = self.elapsed + (1 << self.freq) - into_period;
        self.anchor_tsc.saturating_add(self.ratio.to_tsc(elapsed))
    }

    /// TSC ticks until MTC comes round to the same value.
    pub(super) fn wrap_tsc(&self) -> u64 {
        self.ratio.to_tsc(256 << self.freq)
    }
}
