//! The `IA32_RTIT_*` registers: their addresses, and the writes that a processor rejects (SDM
//! section "Enabling and Configuration MSRs").

use super::{Capabilities, Capability, RtitCtl};
use thiserror::Error;

/// Address of `IA32_RTIT_OUTPUT_BASE`.
pub const IA32_RTIT_OUTPUT_BASE: u32 = 0x560;
/// Address of `IA32_RTIT_OUTPUT_MASK_PTRS`.
pub const IA32_RTIT_OUTPUT_MASK_PTRS: u32 = 0x561;
/// Address of `IA32_RTIT_CTL`.
pub const IA32_RTIT_CTL: u32 = 0x570;
/// Address of `IA32_RTIT_STATUS`.
pub const IA32_RTIT_STATUS: u32 = 0x571;
/// Address of `IA32_RTIT_CR3_MATCH`.
pub const IA32_RTIT_CR3_MATCH: u32 = 0x572;
/// Address of `IA32_RTIT_ADDR0_A`; `ADDR0_B`, `ADDR1_A` and so on follow it.
pub const IA32_RTIT_ADDR0_A: u32 = 0x580;

/// The reason why RDMSR or WRMSR raised a general-protection exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum GeneralProtection {
    /// The processor does not have this register.
    #[error("MSR {0:#x} is not supported")]
    Unsupported(u32),
    /// The register cannot be written while `TraceEn` is set.
    #[error("MSR {0:#x} cannot be written while TraceEn is set")]
    TraceEnabled(u32),
    /// These bits are reserved, or the processor lacks their capability.
    #[error("reserved bits {0:#x} are set")]
    ReservedBits(u64),
    /// A field has an encoding that the processor does not support.
    #[error("unsupported encoding in {0}")]
    Encoding(&'static str),
    /// An address is not canonical.
    #[error("address {0:#x} is not canonical")]
    NotCanonical(u64),
    /// `TraceEn` without `ToPA` and `FabricEn`, on a processor without single-range output.
    #[error("single-range output is not supported")]
    NoOutput,
}

/// One of the `IA32_RTIT_*` registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Register {
    OutputBase,
    OutputMaskPtrs,
    Ctl,
    Status,
    Cr3Match,
    /// A register of range n: its B register if true, else its A register.
    Addr(usize, bool),
}

impl Register {
    /// Returns the register with the address `msr`. Fails if the processor does not have it;
    /// `capabilities` is `None` for a processor without PT.
    pub(super) fn at(
        msr: u32,
        capabilities: Option<&Capabilities>,
    ) -> Result<Self, GeneralProtection> {
        let unsupported = GeneralProtection::Unsupported(msr);
        let capabilities = capabilities.ok_or(unsupported)?;
        let (register, is_supported) = match msr {
            IA32_RTIT_CTL => (Self::Ctl, true),
            IA32_RTIT_STATUS => (Self::Status, true),
            IA32_RTIT_OUTPUT_BASE => (Self::OutputBase, capabilities.has_memory_output()),
            IA32_RTIT_OUTPUT_MASK_PTRS => (Self::OutputMaskPtrs, capabilities.has_memory_output()),
            IA32_RTIT_CR3_MATCH => (Self::Cr3Match, capabilities.has(Capability::Cr3Filtering)),
            IA32_RTIT_ADDR0_A..0x588 => {
                let n = (msr - IA32_RTIT_ADDR0_A) as usize;
                (Self::Addr(n / 2, n % 2 == 1), n / 2 < capabilities.address_ranges())
            }
            _ => return Err(unsupported),
        };
        if is_supported { Ok(register) } else { Err(unsupported) }
    }

    /// Checks a write of `value` to a register other than `IA32_RTIT_CTL`, while `TraceEn` is
    /// clear. Fails if the processor rejects it. Writes nothing.
    pub(super) fn check(
        self,
        value: u64,
        capabilities: &Capabilities,
    ) -> Result<(), GeneralProtection> {
        let reserved = match self {
            Self::OutputBase => LOW_7 | capabilities.reserved_address_bits(),
            Self::Cr3Match => 0x1f,
            Self::Status if capabilities.has(Capability::PsbAndCyc) => !STATUS_BITS,
            // Without a PSB frequency, there is no byte count.
            Self::Status => !STATUS_BITS | PACKET_BYTE_COUNT,
            Self::Addr(..) if !is_canonical(value) => {
                return Err(GeneralProtection::NotCanonical(value));
            }
            Self::Addr(..) | Self::Ctl | Self::OutputMaskPtrs => 0,
        };
        match value & reserved {
            0 => Ok(()),
            bits => Err(GeneralProtection::ReservedBits(bits)),
        }
    }
}

const LOW_7: u64 = 0x7f;
/// `IA32_RTIT_STATUS.PacketByteCnt`.
pub(super) const PACKET_BYTE_COUNT: u64 = 0x1_ffff << 32;
/// The bits of `IA32_RTIT_STATUS` that are not reserved.
const STATUS_BITS: u64 = PACKET_BYTE_COUNT | 0x37;

/// Checks a write that changes `IA32_RTIT_CTL` from `old` to `new`. Fails if the processor rejects
/// it. While `TraceEn` stays set, nothing else may change; the same value is accepted.
pub(super) fn check_ctl(
    old: RtitCtl,
    new: RtitCtl,
    capabilities: &Capabilities,
) -> Result<(), GeneralProtection> {
    let stays_on = old.has(RtitCtl::TRACE_EN) && new.has(RtitCtl::TRACE_EN);
    if stays_on && old != new {
        return Err(GeneralProtection::TraceEnabled(IA32_RTIT_CTL));
    }
    match new.0 & !allowed_ctl(capabilities) {
        0 => {}
        bits => return Err(GeneralProtection::ReservedBits(bits)),
    }
    check_encodings(new, capabilities)?;
    let to_range = !new.has(RtitCtl::TOPA) && !new.has(RtitCtl::FABRIC_EN);
    if new.has(RtitCtl::TRACE_EN) && to_range && !capabilities.has(Capability::SingleRange) {
        return Err(GeneralProtection::NoOutput);
    }
    Ok(())
}

/// Checks that the fields of several bits have values that the processor supports.
fn check_encodings(ctl: RtitCtl, capabilities: &Capabilities) -> Result<(), GeneralProtection> {
    let fields = [
        ("MTCFreq", capabilities.accepts_mtc_freq(ctl.mtc_freq())),
        ("CycThresh", capabilities.accepts_cyc_thresh(ctl.cyc_thresh())),
        ("PSBFreq", capabilities.accepts_psb_freq(ctl.psb_freq())),
        ("ADDRn_CFG", (0..4).all(|n| ctl.addr_cfg(n) <= 2)),
    ];
    match fields.into_iter().find(|(_, supported)| !supported) {
        Some((field, _)) => Err(GeneralProtection::Encoding(field)),
        None => Ok(()),
    }
}

/// Returns the bits of `IA32_RTIT_CTL` that the processor supports.
fn allowed_ctl(capabilities: &Capabilities) -> u64 {
    let always = RtitCtl::TRACE_EN
        | RtitCtl::OS
        | RtitCtl::USER
        | RtitCtl::TSC_EN
        | RtitCtl::DIS_RETC
        | RtitCtl::BRANCH_EN;
    let nibble = |shift: u32| RtitCtl(0xf << shift);
    let optional = [
        (Capability::Cr3Filtering, RtitCtl::CR3_FILTER),
        (Capability::PsbAndCyc, RtitCtl::CYC_EN | nibble(19) | nibble(24)),
        (Capability::Mtc, RtitCtl::MTC_EN | nibble(14)),
        (Capability::PtWrite, RtitCtl::PTW_EN | RtitCtl::FUP_ON_PTW),
        (Capability::PowerEvents, RtitCtl::PWR_EVT_EN),
        (Capability::EventTrace, RtitCtl::EVENT_EN),
        (Capability::Topa, RtitCtl::TOPA),
        (Capability::Transport, RtitCtl::FABRIC_EN),
    ];
    let supported = optional.into_iter().filter(|(capability, _)| capabilities.has(*capability));
    let bits = supported.fold(always, |bits, (_, field)| bits | field);
    let ranges = (1_u64 << (4 * capabilities.address_ranges())) - 1;
    bits.0 | ranges << 32
}

/// Returns true if bits 63 to 47 are equal.
fn is_canonical(address: u64) -> bool {
    matches!(address >> 47, 0 | 0x1_ffff)
}
