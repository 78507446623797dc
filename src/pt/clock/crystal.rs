//! The crystal clock, from TMA and MTC packets. An MTC is written at each *edge* of the clock: when
//! bit `MTCFreq` of its counter toggles. Knows nothing of cycles.

use super::{ClockConfig, CrystalRatio};

/// The crystal clock counter, aligned with the time-stamp counter by a TMA packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crystal {
    ratio: CrystalRatio,
    /// `MTCFreq`, below 16.
    freq: u8,
    /// The TSC when the counter last incremented before the TMA.
    anchor_tsc: u64,
    /// Crystal ticks from `anchor_tsc` to the last packet.
    elapsed: u64,
    /// The counter's low bits: 16 from a TMA, `freq` + 8 from an MTC.
    counter: u64,
    /// True if there was no MTC since the TMA.
    fresh: bool,
}

impl Crystal {
    /// Creates the counter from a TMA packet that belongs to the TSC packet `tsc`; `None` if a
    /// setting is unknown.
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

    /// Takes an MTC packet. Returns the TSC at its edge, if that advances the clock.
    ///
    /// Assumes the smallest advance that fits: a loss of 256 MTCs goes unnoticed.
    pub(super) fn advance(&mut self, mtc: u8) -> Option<u64> {
        // The MTC is bits `freq` to `freq + 7` of the counter. A TMA has only the low 16 bits, so
        // the first comparison after it is limited to the bits that both have.
        let common_bits = if self.fresh { 8.min(16 - self.freq) } else { 8 };
        let mask = (1_u64 << common_bits) - 1;
        let periods = (u64::from(mtc).wrapping_sub(self.counter >> self.freq)) & mask;
        let is_before_tma = self.fresh && periods == mask;
        if periods == 0 || is_before_tma {
            // A late MTC, whose edge was before the TMA: the last one (0 periods) or the one before
            // that (-1, which is `mask`). Without a TMA since the last MTC, a repeated MTC.
            return None;
        }
        // Ticks from the last edge to the TMA; 0 after an MTC, which is at an edge.
        let into_period = self.counter & ((1 << self.freq) - 1);
        self.elapsed += (periods << self.freq) - into_period;
        self.counter = u64::from(mtc) << self.freq;
        self.fresh = false;
        Some(self.anchor_tsc.saturating_add(self.ratio.to_tsc(self.elapsed)))
    }

    /// Returns the TSC at which the next MTC is due.
    pub(super) fn next_edge_tsc(&self) -> u64 {
        let into_period = self.counter & ((1 << self.freq) - 1);
        let elapsed = self.elapsed + (1 << self.freq) - into_period;
        self.anchor_tsc.saturating_add(self.ratio.to_tsc(elapsed))
    }

    /// Returns the TSC ticks until MTC repeats the same value.
    pub(super) fn wrap_tsc(&self) -> u64 {
        self.ratio.to_tsc(256 << self.freq)
    }
}
