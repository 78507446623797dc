//! What the unit is told to trace, and how it packs it.

use super::RtitCtl;

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
    /// How branch outcomes are packed.
    pub tnt: TntForm,
    /// Core:bus ratio for the CBR packet in PSB+; none where it is not known.
    pub core_bus_ratio: Option<u8>,
}

impl Config {
    /// What perf sets for `intel_pt//u`: branches and time stamps at CPL 1 to 3 with RET
    /// compression; a PSB every 4 KiB.
    #[must_use]
    pub fn user_only() -> Self {
        let enables = RtitCtl::TRACE_EN | RtitCtl::USER | RtitCtl::BRANCH_EN | RtitCtl::TSC_EN;
        let ctl = enables.with_psb_freq(1);
        Self { ctl, tnt: TntForm::default(), core_bus_ratio: None }
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

    /// Bytes of trace from one PSB to when the next is due.
    pub(super) const fn psb_period_bytes(&self) -> u64 {
        1 << (self.ctl.psb_freq() + 11)
    }
}
