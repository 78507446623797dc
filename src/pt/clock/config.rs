//! The clock settings that a trace does not contain, and that the tracer must record.

/// Ticks of the time-stamp counter per tick of the core crystal clock, from CPUID leaf 15H. A ratio
/// with a 0 is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CrystalRatio {
    /// CPUID.15H:EBX, the numerator.
    pub ebx: u32,
    /// CPUID.15H:EAX, the denominator.
    pub eax: u32,
}

impl CrystalRatio {
    /// Returns the ratio, unless it contains a 0.
    #[must_use]
    pub const fn usable(self) -> Option<Self> {
        if self.ebx == 0 || self.eax == 0 { None } else { Some(self) }
    }

    /// Returns the TSC ticks in `ticks` of the crystal clock, rounded down; `u64::MAX` if there are
    /// more. For ratios that are [`Self::usable`].
    #[must_use]
    pub fn to_tsc(self, ticks: u64) -> u64 {
        let tsc = u128::from(ticks) * u128::from(self.ebx) / u128::from(self.eax.max(1));
        u64::try_from(tsc).unwrap_or(u64::MAX)
    }
}

/// The known settings of a trace's clocks. Packets that need an unknown setting are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClockConfig {
    /// The ratio of the time-stamp counter to the crystal clock: for MTC and TMA.
    pub crystal_ratio: Option<CrystalRatio>,
    /// `IA32_RTIT_CTL.MTCFreq`, 0 to 15: for MTC and TMA.
    pub mtc_freq: Option<u8>,
    /// Ratio of the nominal (maximum non-turbo) frequency, `MSR_PLATFORM_INFO` bits 15 to 8:
    /// converts CBR to a core speed for CYC until MTC gives a better one.
    pub nominal_ratio: Option<u8>,
}
