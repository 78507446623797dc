//! RDMSR and WRMSR: the accesses that fault and those that do not.

use super::super::{
    At, Capabilities, Config, GeneralProtection, IA32_RTIT_ADDR0_A, IA32_RTIT_CR3_MATCH,
    IA32_RTIT_CTL, IA32_RTIT_OUTPUT_BASE, IA32_RTIT_OUTPUT_MASK_PTRS, IA32_RTIT_STATUS, Memory,
    Rtit, RtitCtl,
};
use GeneralProtection::{
    Encoding, NoOutput, NotCanonical, ReservedBits, TraceEnabled, Unsupported,
};

fn rtit(capabilities: Capabilities) -> Rtit {
    Rtit::new(Some(capabilities), Config::user_only(), Memory::new())
}

fn write(rtit: &mut Rtit, msr: u32, value: u64) -> Result<(), GeneralProtection> {
    rtit.wrmsr(msr, value, At::default())
}

/// Returns all capabilities except bit `bit` of EBX.
fn without_ebx(bit: u32) -> Capabilities {
    Capabilities { ebx: Capabilities::ALL.ebx & !(1 << bit), ..Capabilities::ALL }
}

fn without_ecx(bit: u32) -> Capabilities {
    Capabilities { ecx: Capabilities::ALL.ecx & !(1 << bit), ..Capabilities::ALL }
}

#[test]
fn a_processor_without_pt_has_no_registers() {
    let mut rtit = Rtit::new(None, Config::user_only(), Memory::new());
    assert_eq!(rtit.rdmsr(IA32_RTIT_CTL), Err(Unsupported(IA32_RTIT_CTL)));
    assert_eq!(write(&mut rtit, IA32_RTIT_STATUS, 0), Err(Unsupported(IA32_RTIT_STATUS)));
}

#[test]
fn registers_are_there_by_capability() {
    let last = IA32_RTIT_ADDR0_A + 7;
    let two_ranges = Capabilities { sub_leaf_1_eax: 2, ..Capabilities::ALL };
    let cases = [
        (Capabilities::ALL, last, true),
        (Capabilities::ALL, last + 1, false),
        (two_ranges, IA32_RTIT_ADDR0_A + 3, true),
        (two_ranges, IA32_RTIT_ADDR0_A + 4, false),
        (without_ebx(2), IA32_RTIT_ADDR0_A, false),
        (without_ebx(0), IA32_RTIT_CR3_MATCH, false),
        (without_ecx(0), IA32_RTIT_OUTPUT_BASE, true),
        (Capabilities { ecx: 8, ..Capabilities::ALL }, IA32_RTIT_OUTPUT_BASE, false),
        (Capabilities { ecx: 8, ..Capabilities::ALL }, IA32_RTIT_OUTPUT_MASK_PTRS, false),
    ];
    for (capabilities, msr, there) in cases {
        let mut rtit = rtit(capabilities);
        assert_eq!(rtit.rdmsr(msr).is_ok(), there, "{msr:#x}");
        assert_eq!(write(&mut rtit, msr, 0).is_ok(), there, "{msr:#x}");
    }
}

#[test]
fn ctl_refuses_what_the_processor_cannot_do() {
    let ctl = |bits: RtitCtl| bits.0;
    let all = Capabilities::ALL;
    let no_freqs = Capabilities { sub_leaf_1_eax: 4, sub_leaf_1_ebx: 0, ..all };
    let cases = [
        (all, 1 << 18, Err(ReservedBits(1 << 18))),
        (all, 1 << 63, Err(ReservedBits(1 << 63))),
        (without_ebx(0), ctl(RtitCtl::CR3_FILTER), Err(ReservedBits(1 << 7))),
        (without_ebx(1), ctl(RtitCtl::CYC_EN), Err(ReservedBits(1 << 1))),
        (without_ebx(1), 1 << 24, Err(ReservedBits(1 << 24))),
        (without_ebx(2), 1 << 32, Err(ReservedBits(1 << 32))),
        (without_ebx(3), ctl(RtitCtl::MTC_EN), Err(ReservedBits(1 << 9))),
        (without_ebx(4), ctl(RtitCtl::PTW_EN), Err(ReservedBits(1 << 12))),
        (without_ebx(4), ctl(RtitCtl::FUP_ON_PTW), Err(ReservedBits(1 << 5))),
        (without_ebx(5), ctl(RtitCtl::PWR_EVT_EN), Err(ReservedBits(1 << 4))),
        (without_ebx(7), ctl(RtitCtl::EVENT_EN), Err(ReservedBits(1 << 31))),
        (without_ecx(0), ctl(RtitCtl::TOPA), Err(ReservedBits(1 << 8))),
        (without_ecx(3), ctl(RtitCtl::FABRIC_EN), Err(ReservedBits(1 << 6))),
        (all, 3 << 44, Err(Encoding("ADDRn_CFG"))),
        (no_freqs, 3 << 14, Err(Encoding("MTCFreq"))),
        (Capabilities { sub_leaf_1_ebx: 1, ..all }, 1 << 19, Err(Encoding("CycThresh"))),
        (Capabilities { sub_leaf_1_ebx: 0x1_0001, ..all }, 1 << 24, Err(Encoding("PSBFreq"))),
        (without_ecx(2), ctl(RtitCtl::TRACE_EN), Err(NoOutput)),
        (without_ecx(2), ctl(RtitCtl::BRANCH_EN), Ok(())),
        (all, ctl(RtitCtl::USER | RtitCtl::BRANCH_EN) | 2 << 36 | 5 << 14, Ok(())),
    ];
    for (capabilities, value, expected) in cases {
        assert_eq!(write(&mut rtit(capabilities), IA32_RTIT_CTL, value), expected, "{value:#x}");
    }
}

#[test]
fn configuration_is_fixed_while_trace_en_is_set() {
    let mut rtit = rtit(Capabilities::ALL);
    let on = (RtitCtl::TRACE_EN | RtitCtl::FABRIC_EN | RtitCtl::USER).0;
    assert_eq!(write(&mut rtit, IA32_RTIT_CTL, on), Ok(()));
    for msr in [IA32_RTIT_STATUS, IA32_RTIT_CR3_MATCH, IA32_RTIT_OUTPUT_BASE, IA32_RTIT_ADDR0_A] {
        assert_eq!(write(&mut rtit, msr, 0), Err(TraceEnabled(msr)));
    }
    let more = on | RtitCtl::BRANCH_EN.0;
    assert_eq!(write(&mut rtit, IA32_RTIT_CTL, more), Err(TraceEnabled(IA32_RTIT_CTL)));
    assert_eq!(write(&mut rtit, IA32_RTIT_CTL, on), Ok(()), "the same value again");
    let off = more & !RtitCtl::TRACE_EN.0;
    assert_eq!(write(&mut rtit, IA32_RTIT_CTL, off), Ok(()), "a change that turns it off");
    assert_eq!(rtit.rdmsr(IA32_RTIT_CTL), Ok(off));
    assert_eq!(write(&mut rtit, IA32_RTIT_ADDR0_A, 0), Ok(()));
}

#[test]
fn values_are_checked_and_read_back() {
    let mut rtit = rtit(Capabilities { physical_address_bits: 40, ..Capabilities::ALL });
    let count = 0x1_2345_u64 << 32;
    let cases = [
        (IA32_RTIT_CR3_MATCH, 0x1000, Ok(0x1000)),
        (IA32_RTIT_CR3_MATCH, 0x1010, Err(ReservedBits(0x10))),
        (IA32_RTIT_OUTPUT_BASE, 0x80, Ok(0x80)),
        (IA32_RTIT_OUTPUT_BASE, 0xc0, Err(ReservedBits(0x40))),
        (IA32_RTIT_OUTPUT_BASE, 1 << 40, Err(ReservedBits(1 << 40))),
        (IA32_RTIT_OUTPUT_MASK_PTRS, 5 << 32 | 0x80, Ok(5 << 32 | 0xff)),
        (IA32_RTIT_ADDR0_A, 0xffff_8000_0000_0000, Ok(0xffff_8000_0000_0000)),
        (IA32_RTIT_ADDR0_A + 1, 1 << 47, Err(NotCanonical(1 << 47))),
        (IA32_RTIT_STATUS, count | 0x30, Ok(count | 0x30)),
        (IA32_RTIT_STATUS, 7, Ok(0)),
        (IA32_RTIT_STATUS, 8, Err(ReservedBits(8))),
        (IA32_RTIT_STATUS, 1 << 49, Err(ReservedBits(1 << 49))),
    ];
    for (msr, value, expected) in cases {
        // Writes do not change FilterEn, ContextEn and TriggerEn.
        let mask = if msr == IA32_RTIT_STATUS { !7 } else { u64::MAX };
        let found = write(&mut rtit, msr, value);
        let found = found.and_then(|()| rtit.rdmsr(msr)).map(|value| value & mask);
        assert_eq!(found, expected, "{msr:#x} = {value:#x}");
    }
    let mut first = self::rtit(Capabilities::FIRST);
    assert_eq!(write(&mut first, IA32_RTIT_STATUS, count), Err(ReservedBits(count)));
}
