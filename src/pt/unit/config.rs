//! What the unit is told to trace, and how it packs it.

use super::{IpRange, RtitCtl};
use crate::pt::CrystalRatio;

/// How branch outcomes are packed. Real processors write short packets mostly; long ones make
/// traces of branches alone a tenth smaller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TntForm {
    /// Up to 6 in one byte.
    #[default]
    Short,
    /// Up to 47 in eight bytes; a rest of 6 or fewer is written short.
    Long,
}

impl TntForm {
    /// How many branch outcomes a full packet holds.
    #[must_use]
    pub const fn capacity(self) -> u8 {
        match self {
            Self::Short => 6,
            Self::Long => 47,
        }
    }
}

/// The unit's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// `IA32_RTIT_CTL`.
    pub ctl: RtitCtl,
    /// `IA32_RTIT_CR3_MATCH`.
    pub cr3_match: u64,
    /// `IA32_RTIT_ADDRn_A` and `IA32_RTIT_ADDRn_B`.
    pub ranges: [IpRange; 4],
    /// How branch outcomes are packed.
    pub tnt: TntForm,
    /// Whether TIPs of indirect jumps and calls wait for the TNT before them to fill up (SDM
    /// section "Deferred TIPs"). Never while CYC packets are on.
    pub deferred_tips: bool,
    /// Whether the rounds of circles of direct branches are told, as if tracing were interrupted
    /// in each. A processor tells one round of all.
    pub tell_circles: bool,
    /// TSC to crystal clock; without it there are no MTC and TMA packets.
    pub crystal_ratio: Option<CrystalRatio>,
    /// Core:bus ratio for CBR packets; none where it is not known.
    pub core_bus_ratio: Option<u8>,
}

impl Config {
    /// What `ctl` alone sets, the rest as it is at reset.
    #[must_use]
    pub fn new(ctl: RtitCtl) -> Self {
        Self {
            ctl,
            cr3_match: 0,
            ranges: [IpRange::default(); 4],
            tnt: TntForm::default(),
            deferred_tips: false,
            tell_circles: false,
            crystal_ratio: None,
            core_bus_ratio: None,
        }
    }

    /// What perf sets for `intel_pt//u`: branches and time stamps at CPL 1 to 3 with RET
    /// compression; a PSB every 4 KiB.
    #[must_use]
    pub fn user_only() -> Self {
        let enables = RtitCtl::TRACE_EN | RtitCtl::USER | RtitCtl::BRANCH_EN | RtitCtl::TSC_EN;
        Self::new(enables.with_psb_freq(1))
    }

    /// This configuration with a PSB about every `period_bytes` bytes, rounded up to a power of
    /// two from 2 KiB to 64 MiB.
    #[must_use]
    pub fn with_psb_period(mut self, period_bytes: u32) -> Self {
        let log2 = period_bytes.clamp(1 << 11, 1 << 26).next_power_of_two().ilog2();
        #[expect(clippy::cast_possible_truncation, reason = "log2 is from 11 to 26")]
        let freq = (log2 - 11) as u8;
        self.ctl = self.ctl.with_psb_freq(freq);
        self
    }

    /// This configuration with branch outcomes packed as `tnt` says.
    #[must_use]
    pub const fn with_tnt(mut self, tnt: TntForm) -> Self {
        self.tnt = tnt;
        self
    }

    /// This configuration with the rounds of circles of direct branches told.
    #[must_use]
    pub const fn with_circles(mut self) -> Self {
        self.tell_circles = true;
        self
    }

    /// This configuration with `more` set in `IA32_RTIT_CTL`.
    #[must_use]
    pub fn with(mut self, more: RtitCtl) -> Self {
        self.ctl |= more;
        self
    }

    /// This configuration with `ADDRn`, n from 0 to 3, as a filter range: only code in `range` (and
    /// other filter ranges) is traced.
    #[must_use]
    pub fn with_filter(self, n: usize, range: IpRange) -> Self {
        self.with_range(n, range, 1)
    }

    /// This configuration with `ADDRn`, n from 0 to 3, as a `TraceStop` range: a branch into `range`
    /// ends the trace.
    #[must_use]
    pub fn with_trace_stop(self, n: usize, range: IpRange) -> Self {
        self.with_range(n, range, 2)
    }

    fn with_range(mut self, n: usize, range: IpRange, cfg: u8) -> Self {
        if let Some(slot) = self.ranges.get_mut(n) {
            *slot = range;
            self.ctl = self.ctl.with_addr_cfg(n, cfg);
        }
        self
    }

    /// Bytes of trace from one PSB to when the next is due.
    pub(super) const fn psb_period_bytes(&self) -> u64 {
        1 << (self.ctl.psb_freq() + 11)
    }
}
