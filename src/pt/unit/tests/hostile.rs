//! Random operations on a processor: no panic, no hang, and the trace decodes.

use super::super::{
    At, Branch, BranchKind, Capabilities, Config, IA32_RTIT_ADDR0_A, IA32_RTIT_CTL,
    IA32_RTIT_OUTPUT_BASE, Memory, Paging, Rtit, RtitCtl, Unit,
};
use crate::common::{Addr, Tsc};
use crate::pt::{CrystalRatio, Packets};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Deed {
    Wrmsr(u32, u64),
    Store(u64, u64),
    Branch(u8, u64, u64, u8),
    Interrupt(u64, u64, u8),
    Clock(u64, u64),
    State(u8, u64),
}

fn deed() -> impl Strategy<Value = Deed> {
    let msr = prop_oneof![
        0x560..0x562_u32,
        Just(IA32_RTIT_CTL),
        0x570..0x573_u32,
        IA32_RTIT_ADDR0_A..0x589
    ];
    // Few bits, so that values are often legal.
    let sparse = (0..64_u32, 0..64_u32, any::<bool>())
        .prop_map(|(a, b, both)| 1 << a | if both { 1 << b } else { 0 });
    let value = prop_oneof![sparse, Just(0), any::<u64>(), Just(0x2a0d), Just(0x212d)];
    let address = prop_oneof![0..0x1_0000_u64, any::<u64>()];
    prop_oneof![
        3 => (msr, value.clone()).prop_map(|(msr, value)| Deed::Wrmsr(msr, value)),
        1 => (address.clone(), value.clone()).prop_map(|(at, value)| Deed::Store(at, value)),
        6 => (0..8_u8, address.clone(), address.clone(), 0..4_u8)
            .prop_map(|(kind, ip, target, cpl)| Deed::Branch(kind, ip, target, cpl)),
        1 => (address.clone(), address, 0..4_u8)
            .prop_map(|(ip, target, cpl)| Deed::Interrupt(ip, target, cpl)),
        1 => (any::<u64>(), any::<u64>()).prop_map(|(tsc, cycles)| Deed::Clock(tsc, cycles)),
        1 => (0..8_u8, value).prop_map(|(what, value)| Deed::State(what, value)),
    ]
}

fn perform(rtit: &mut Rtit, deed: &Deed) {
    match *deed {
        Deed::Wrmsr(msr, value) => drop(rtit.wrmsr(msr, value, At::default())),
        Deed::Store(at, value) => rtit.memory_mut().write_u64(at & 0xffff_ffff, value),
        Deed::Branch(kind, ip, target, cpl) => rtit.execute(|unit| {
            let kind = [
                BranchKind::Jcc { taken: true },
                BranchKind::Jcc { taken: false },
                BranchKind::Jmp,
                BranchKind::Call,
                BranchKind::JmpIndirect,
                BranchKind::CallIndirect,
                BranchKind::Ret,
                BranchKind::Far,
            ][usize::from(kind)];
            let next = Addr(ip).wrapping_add(4);
            unit.branch(&Branch { kind, ip: Addr(ip), next, target: Addr(target), cpl });
        }),
        Deed::Interrupt(ip, target, cpl) => {
            rtit.execute(|unit| unit.interrupt(Addr(ip), Addr(target), cpl));
        }
        Deed::Clock(tsc, cycles) => rtit.execute(|unit| {
            unit.set_tsc(Tsc(tsc));
            unit.advance_cycles(cycles);
        }),
        Deed::State(what, value) => rtit.execute(|unit| change(unit, what, value)),
    }
}

fn change(unit: &mut Unit, what: u8, value: u64) {
    match what {
        0 => unit.overflow_begin(),
        1 => unit.overflow_end(),
        2 => unit.tx_begin(Addr(value)),
        3 => unit.tx_abort(Addr(value), Addr(value)),
        4 => unit.mov_cr3(Addr(value), value),
        5 => unit.set_paging(Paging { cr3: value, non_root: value & 1 != 0 }),
        6 => unit.psb(),
        _ => unit.stamp(),
    }
}

proptest! {
    #[test]
    fn nothing_panics(deeds in prop::collection::vec(deed(), 0..200), ratio in any::<[u32; 2]>()) {
        let crystal_ratio = Some(CrystalRatio { ebx: ratio[0], eax: ratio[1] });
        let model = Config { crystal_ratio, ..Config::user_only() };
        let mut rtit = Rtit::new(Some(Capabilities::ALL), model, Memory::new());
        rtit.wrmsr(IA32_RTIT_OUTPUT_BASE, 0x1000, At::default()).expect("legal");
        for deed in &deeds {
            perform(&mut rtit, deed);
        }
    }

    #[test]
    fn every_trace_is_packets(deeds in prop::collection::vec(deed(), 0..200), bits in any::<u64>()) {
        let model = Config { deferred_tips: bits & 1 != 0, ..Config::user_only() };
        let mut rtit = Rtit::new(Some(Capabilities::ALL), model, Memory::new());
        let ctl = RtitCtl::TRACE_EN | RtitCtl::FABRIC_EN | RtitCtl::BRANCH_EN | RtitCtl::USER;
        let more = bits & (RtitCtl::OS.0 | RtitCtl::CYC_EN.0 | RtitCtl::TSC_EN.0);
        rtit.wrmsr(IA32_RTIT_CTL, ctl.0 | more, At::default()).expect("legal");
        for deed in deeds.iter().filter(|deed| !matches!(deed, Deed::Wrmsr(..))) {
            perform(&mut rtit, deed);
        }
        for (offset, packet) in Packets::new(rtit.transport()) {
            prop_assert!(packet.is_ok(), "{:?} at {}", packet, offset);
        }
    }
}
