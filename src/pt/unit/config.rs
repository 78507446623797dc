//! The unit's configuration: what it traces, and how it packs the trace.

use super::{IpRange, RtitCtl};
use crate::pt::CrystalRatio;

/// The packing of branch outcomes. Real processors mostly write short packets; long ones make
/// traces of branches alone a tenth smaller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TntForm {
    /// Up to 6 outcomes in one byte.
    #[default]
    Short,
    /// Up to 47 outcomes in eight bytes; a remainder of 6 or fewer is written as a short packet.
    Long,
}

impl TntForm {
    /// Returns how many branch outcomes a full packet holds.
    #[must_use]
    pub const fn capacity(self) -> u8 {
        match self {
            Self::Short => 6,
            Self::Long => 47,
        }
    }
}

/// The configuration of a PT unit: its registers, and settings that no register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// `IA32_RTIT_CTL`.
    pub ctl: RtitCtl,
    /// `IA32_RTIT_CR3_MATCH`.
    pub cr3_match: u64,
    /// `IA32_RTIT_ADDRn_A` and `IA32_RTIT_ADDRn_B`.
    pub ranges: [IpRange; 4],
    /// The packing of branch outcomes.
    pub tnt: TntForm,
    /// True if TIPs of indirect jumps and calls wait until the TNT before them is full (SDM section
    /// "Deferred TIPs"). Has no effect while CYC packets are enabled.
    pub deferred_tips: bool,
    /// True if the trace shows each round of a loop of direct branches (see `circle`). Such a loop
    /// writes no packets, so without this, as on a processor, all rounds but the first are lost.
    /// With it, the unit writes the packets of an interruption in each round: FUP, TIP.PGD,
    /// TIP.PGE.
    pub report_circles: bool,
    /// The ratio of TSC to crystal clock; without it there are no MTC and TMA packets.
    pub crystal_ratio: Option<CrystalRatio>,
    /// Core:bus ratio for CBR packets; `None` if it is unknown.
    pub core_bus_ratio: Option<u8>,
}

impl Config {
    /// Creates a configuration from `ctl`, with all other registers as at reset and all other
    /// settings off or unknown.
    #[must_use]
    pub fn new(ctl: RtitCtl) -> Self {
        Self {
            ctl,
            cr3_match: 0,
            ranges: [IpRange::default(); 4],
            tnt: TntForm::default(),
            deferred_tips: false,
            report_circles: false,
            crystal_ratio: None,
            core_bus_ratio: None,
        }
    }

    /// Returns a configuration for the code of a program, with tracing on: branches and time stamps
    /// at CPL 1 to 3 with RET compression; a PSB every 4 KiB. There are no MTC and CYC packets.
    /// perf's `intel_pt//u` differs, where the CPU can do that: MTC packets, a PSB every 16 KiB.
    #[must_use]
    pub fn user_only() -> Self {
        let enables = RtitCtl::TRACE_EN | RtitCtl::USER | RtitCtl::BRANCH_EN | RtitCtl::TSC_EN;
        Self::new(enables.with_psb_freq(1))
    }

    /// Sets the PSB period to `period_bytes`, rounded up to a power of two from 2 KiB to 64 MiB.
    #[must_use]
    pub fn with_psb_period(mut self, period_bytes: u32) -> Self {
        let log2 = period_bytes.clamp(1 << 11, 1 << 26).next_power_of_two().ilog2();
        #[expect(clippy::cast_possible_truncation, reason = "log2 is from 11 to 26")]
        let freq = (log2 - 11) as u8;
        self.ctl = self.ctl.with_psb_freq(freq);
        self
    }

    /// Sets the packing of branch outcomes.
    #[must_use]
    pub const fn with_tnt(mut self, tnt: TntForm) -> Self {
        self.tnt = tnt;
        self
    }

    /// Sets the unit to report each round of loops of direct branches: see
    /// [`Config::report_circles`].
    #[must_use]
    pub const fn with_circles(mut self) -> Self {
        self.report_circles = true;
        self
    }

    /// Sets the bits `more` in `IA32_RTIT_CTL`, and clears none: a field of several bits gets the
    /// bits of both values.
    #[must_use]
    pub fn with(mut self, more: RtitCtl) -> Self {
        self.ctl |= more;
        self
    }

    /// Sets `ADDRn`, n from 0 to 3, as a filter range: only code in `range` (and other filter
    /// ranges) is traced. Does nothing for another n.
    #[must_use]
    pub fn with_filter(self, n: usize, range: IpRange) -> Self {
        self.with_range(n, range, 1)
    }

    /// Sets `ADDRn`, n from 0 to 3, as a `TraceStop` range: a branch into `range` ends the trace.
    /// Does nothing for another n.
    #[must_use]
    pub fn with_trace_stop(self, n: usize, range: IpRange) -> Self {
        self.with_range(n, range, 2)
    }

    /// Sets `ADDRn` to `range` and `ADDRn_CFG` to `cfg`. Does nothing if n is not below 4.
    fn with_range(mut self, n: usize, range: IpRange, cfg: u8) -> Self {
        if let Some(slot) = self.ranges.get_mut(n) {
            *slot = range;
            self.ctl = self.ctl.with_addr_cfg(n, cfg);
        }
        self
    }

    /// Returns the number of bytes of trace after a PSB at which the next one is due, from
    /// `PSBFreq`.
    pub(super) const fn psb_period_bytes(&self) -> u64 {
        1 << (self.ctl.psb_freq() + 11)
    }
}
