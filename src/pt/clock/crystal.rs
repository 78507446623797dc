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
    /// True if the next MTC is the first one since the TMA.
    is_first_mtc_next: bool,
}

impl Crystal {
    /// Creates the counter from the fields of a TMA packet and the time of the TSC packet that it
    /// belongs to. `None` if the crystal ratio or `MTCFreq` is unknown or invalid.
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
            is_first_mtc_next: true,
        })
    }

    /// Advances the counter to the edge of an MTC packet. Returns the TSC there; `None`, without an
    /// advance, if the packet is late or repeated.
    ///
    /// Assumes the smallest advance that fits: a loss of 256 MTCs goes unnoticed.
    pub(super) fn advance(&mut self, mtc: u8) -> Option<u64> {
        // The MTC is bits `freq` to `freq + 7` of the counter. A TMA has only the low 16 bits, so
        // the first comparison after it is limited to the bits that both have.
        let common_bits = if self.is_first_mtc_next { 8.min(16 - self.freq) } else { 8 };
        let mask = (1_u64 << common_bits) - 1;
        let periods = (u64::from(mtc).wrapping_sub(self.counter >> self.freq)) & mask;
        let is_before_tma = self.is_first_mtc_next && periods == mask;
        if periods == 0 || is_before_tma {
            // A late MTC, whose edge was before the TMA: the last one (0 periods) or the one before
            // that (-1, which is `mask`). Without a TMA since the last MTC, a repeated MTC.
            return None;
        }
        // Ticks from the last edge to the TMA; 0 after an MTC, which is at an edge.
        let into_period = self.counter & ((1 << self.freq) - 1);
        self.elapsed += (periods << self.freq) - into_period;
        self.counter = u64::from(mtc) << self.freq;
        self.is_first_mtc_next = false;
        Some(self.anchor_tsc.saturating_add(self.ratio.to_tsc(self.elapsed)))
    }

    /// Returns the TSC at which the next MTC is due: at the first edge after the last MTC, or after
    /// the TMA if there was none. Advances nothing.
    pub(super) fn next_edge_tsc(&self) -> u64 {
        let into_period = self.counter & ((1 << self.freq) - 1);
        let elapsed = self.elapsed + (1 << self.freq) - into_period;
        self.anchor_tsc.saturating_add(self.ratio.to_tsc(elapsed))
    }

    /// Returns the TSC ticks in which MTC comes back to the same value: 256 edges.
    pub(super) fn wrap_tsc(&self) -> u64 {
        self.ratio.to_tsc(256 << self.freq)
    }
}
