//! What a trace does not say of the clocks, and the tracer has to have noted.

/// Ticks of the time-stamp counter for each tick of the core crystal clock, as CPUID leaf 15H
/// gives it. A ratio with 0 in it is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CrystalRatio {
    /// CPUID.15H:EBX, the numerator.
    pub ebx: u32,
    /// CPUID.15H:EAX, the denominator.
    pub eax: u32,
}

impl CrystalRatio {
    /// The ratio, unless there is a 0 in it.
    #[must_use]
    pub const fn usable(self) -> Option<Self> {
        if self.ebx == 0 || self.eax == 0 { None } else { Some(self) }
    }

    /// How many TSC ticks `ticks` of the crystal clock are, rounded down.
    #[must_use]
    pub fn to_tsc(self, ticks: u64) -> u64 {
        let tsc = u128::from(ticks) * u128::from(self.ebx) / u128::from(self.eax.max(1));
        u64::try_from(tsc).unwrap_or(u64::MAX)
    }
}

/// What is known of a trace's clocks. What is not known leaves its packets unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClockConfig {
    /// TSC to crystal clock: for MTC and TMA.
    pub crystal_ratio: Option<CrystalRatio>,
    /// `IA32_RTIT_CTL.MTCFreq`, 0 to 15: for MTC and TMA.
    pub mtc_freq: Option<u8>,
    /// Ratio of the nominal (maximum non-turbo) frequency, `MSR_PLATFORM_INFO` bits 15 to 8: to
    /// use CBR for CYC before MTC tells better.
    pub nominal_ratio: Option<u8>,
}
