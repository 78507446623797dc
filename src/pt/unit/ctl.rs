//! `IA32_RTIT_CTL` and `IA32_RTIT_STATUS` by their fields (SDM tables "`IA32_RTIT_CTL` MSR" and
//! "`IA32_RTIT_STATUS` MSR"). Does not check which values a processor rejects.

use std::ops::{BitOr, BitOrAssign};

/// A value of `IA32_RTIT_CTL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RtitCtl(pub u64);

impl RtitCtl {
    /// `TraceEn`: tracing is on.
    pub const TRACE_EN: Self = Self(1 << 0);
    /// `CYCEn`: CYC packets.
    pub const CYC_EN: Self = Self(1 << 1);
    /// `OS`: trace at CPL 0.
    pub const OS: Self = Self(1 << 2);
    /// `User`: trace at CPL 1 to 3.
    pub const USER: Self = Self(1 << 3);
    /// `PwrEvtEn`: power event packets.
    pub const PWR_EVT_EN: Self = Self(1 << 4);
    /// `FUPonPTW`: a FUP after each PTW.
    pub const FUP_ON_PTW: Self = Self(1 << 5);
    /// `FabricEn`: output goes to the trace transport subsystem.
    pub const FABRIC_EN: Self = Self(1 << 6);
    /// `CR3Filter`: trace only while CR3 matches `IA32_RTIT_CR3_MATCH`.
    pub const CR3_FILTER: Self = Self(1 << 7);
    /// `ToPA`: output goes to a table of physical addresses.
    pub const TOPA: Self = Self(1 << 8);
    /// `MTCEn`: MTC packets.
    pub const MTC_EN: Self = Self(1 << 9);
    /// `TSCEn`: TSC packets.
    pub const TSC_EN: Self = Self(1 << 10);
    /// `DisRETC`: no RET compression.
    pub const DIS_RETC: Self = Self(1 << 11);
    /// `PTWEn`: PTW packets.
    pub const PTW_EN: Self = Self(1 << 12);
    /// `BranchEn`: control flow packets.
    pub const BRANCH_EN: Self = Self(1 << 13);
    /// `EventEn`: event trace packets.
    pub const EVENT_EN: Self = Self(1 << 31);

    /// Returns true if all bits of `field` are set.
    #[must_use]
    pub const fn has(self, field: Self) -> bool {
        self.0 & field.0 == field.0
    }

    /// Returns this value without the bits of `field`.
    #[must_use]
    pub const fn without(self, field: Self) -> Self {
        Self(self.0 & !field.0)
    }

    /// Returns `MTCFreq`: the bit of the crystal clock counter whose toggles cause MTC packets.
    #[must_use]
    pub const fn mtc_freq(self) -> u8 {
        self.nibble(14)
    }

    /// Returns this value with `MTCFreq` set to the low 4 bits of `freq`.
    #[must_use]
    pub const fn with_mtc_freq(self, freq: u8) -> Self {
        self.with_nibble(14, freq)
    }

    /// Returns `CycThresh`: if it is n > 0, a CYC follows the last one after at least 2^(n - 1)
    /// core clocks; if it is 0, after at least one.
    #[must_use]
    pub const fn cyc_thresh(self) -> u8 {
        self.nibble(19)
    }

    /// Returns this value with `CycThresh` set to the low 4 bits of `threshold`.
    #[must_use]
    pub const fn with_cyc_thresh(self, threshold: u8) -> Self {
        self.with_nibble(19, threshold)
    }

    /// Returns `PSBFreq`: if it is n, a PSB is written about every 2^(n + 11) bytes of trace.
    #[must_use]
    pub const fn psb_freq(self) -> u8 {
        self.nibble(24)
    }

    /// Returns this value with `PSBFreq` set to the low 4 bits of `freq`.
    #[must_use]
    pub const fn with_psb_freq(self, freq: u8) -> Self {
        self.with_nibble(24, freq)
    }

    /// Returns `ADDRn_CFG` for n from 0 to 3: 0 unused, 1 a filter range, 2 a `TraceStop` range.
    #[must_use]
    pub const fn addr_cfg(self, n: usize) -> u8 {
        self.nibble(Self::addr_shift(n))
    }

    /// Returns this value with `ADDRn_CFG`, n from 0 to 3, set to the low 4 bits of `cfg`.
    #[must_use]
    pub const fn with_addr_cfg(self, n: usize, cfg: u8) -> Self {
        self.with_nibble(Self::addr_shift(n), cfg)
    }

    /// Returns the number of the lowest bit of `ADDRn_CFG`, n from 0 to 3. Takes 4 for 0, and so
    /// on.
    const fn addr_shift(n: usize) -> u32 {
        [32, 36, 40, 44][n % 4]
    }

    /// Returns the 4 bits from bit `shift` on.
    const fn nibble(self, shift: u32) -> u8 {
        (self.0 >> shift & 0xf) as u8
    }

    /// Returns this value with the 4 bits from bit `shift` on set to the low 4 bits of `value`.
    const fn with_nibble(self, shift: u32, value: u8) -> Self {
        Self(self.0 & !(0xf << shift) | (value as u64 & 0xf) << shift)
    }
}

impl BitOr for RtitCtl {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for RtitCtl {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// The flags of `IA32_RTIT_STATUS`, without `PacketByteCnt`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RtitStatus(pub u64);

impl RtitStatus {
    /// `FilterEn`: the ranges allow the IP to be traced.
    pub const FILTER_EN: Self = Self(1 << 0);
    /// `ContextEn`: privilege level, CR3 and enclave mode allow tracing.
    pub const CONTEXT_EN: Self = Self(1 << 1);
    /// `TriggerEn`: tracing is active.
    pub const TRIGGER_EN: Self = Self(1 << 2);
    /// `Error`: an operational error ended tracing.
    pub const ERROR: Self = Self(1 << 4);
    /// `Stopped`: a `TraceStop` range or a `ToPA` entry with STOP ended tracing.
    pub const STOPPED: Self = Self(1 << 5);

    /// Returns true if all bits of `field` are set.
    #[must_use]
    pub const fn has(self, field: Self) -> bool {
        self.0 & field.0 == field.0
    }

    /// Sets or clears the bits of `field`.
    pub fn set(&mut self, field: Self, on: bool) {
        self.0 = if on { self.0 | field.0 } else { self.0 & !field.0 };
    }
}
