//! The pace of code whose core clocks are known.

use super::trace::Raw;
use crate::common::Addr;
use crate::flow::{Code, Config, Decoder, FlowItem, Meter, Pace};
use crate::pt::ClockConfig;
use crate::pt::unit::{self, Branch, BranchKind, RtitCtl, Unit};
use proptest::prelude::*;

/// Three NOPs and JZ to the first of them; then SYSCALL, and JMP to the first.
const CODE: Raw = Raw(0x1000, &[0x90, 0x90, 0x90, 0x74, 0xfb, 0x0f, 0x05, 0xeb, 0xf7]);
const LOOP_INSNS: u64 = 4;
/// The number of outcomes in a short TNT packet.
const BITS: usize = 6;
const KERNEL_CYCLES: u64 = 1_000_000;

/// Runs the loop's rounds, each with its number of core clocks.
fn rounds(unit: &mut Unit, cycles: &[u64]) {
    for (left, cycles) in (0..cycles.len()).rev().zip(cycles) {
        unit.advance_cycles(*cycles);
        let kind = BranchKind::Jcc { taken: left > 0 };
        let (ip, next, target) = (Addr(0x1003), Addr(0x1005), Addr(0x1000));
        unit.branch(&Branch { kind, ip, next, target, cpl: 3 });
    }
}

/// Spends one core clock on the system call itself, many in the kernel, and jumps back.
fn system_call(unit: &mut Unit) {
    unit.advance_cycles(1);
    let (ip, next, target) = (Addr(0x1005), Addr(0x1007), Addr(0xffff_ffff_8100_0000));
    unit.branch(&Branch { kind: BranchKind::Far, ip, next, target, cpl: 0 });
    unit.advance_cycles(KERNEL_CYCLES);
    unit.enter(next, 3);
    let (ip, next, target) = (Addr(0x1007), Addr(0x1009), Addr(0x1000));
    unit.branch(&Branch { kind: BranchKind::Jmp, ip, next, target, cpl: 3 });
}

fn paces(trace: &[u8]) -> Vec<Pace> {
    let config = Config { clock: Some(ClockConfig::default()), ..Config::default() };
    let (mut decoder, mut code) = (Decoder::new(trace, config), Code::new(&CODE));
    let (mut meter, mut paces) = (Meter::default(), Vec::new());
    while let Some(item) = decoder.next(&mut code) {
        let last = match item {
            FlowItem::Block(span) => code.last(&span),
            FlowItem::Event(_) => None,
            FlowItem::Gap(gap) => panic!("{gap}"),
        };
        paces.extend(meter.timing_of(&decoder, &item, last).pace);
    }
    paces
}

fn started() -> Unit {
    let mut unit = Unit::new(unit::Config::user_only().with(RtitCtl::CYC_EN));
    unit.advance_cycles(1);
    unit.enter(Addr(0x1000), 3);
    unit
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Checks that a CYC gives the time of the first branch in a TNT: from one to the next there
    /// are as many rounds as a packet has bits.
    #[test]
    fn a_loop_has_the_pace_that_it_ran_at(cycles in prop::collection::vec(1..5000_u64, 1..100)) {
        let mut unit = started();
        rounds(&mut unit, &cycles);
        unit.flush();
        let first = [Pace { insns: LOOP_INSNS, cycles: cycles[0] }];
        let others = cycles[1..].chunks_exact(BITS).map(|cycles| Pace {
            insns: LOOP_INSNS * BITS as u64,
            cycles: cycles.iter().sum(),
        });
        let expected: Vec<_> = first.into_iter().chain(others).collect();
        prop_assert_eq!(paces(&unit.drain()), expected);
    }

    /// Checks that the kernel's clocks do not count as the program's.
    #[test]
    fn the_clocks_of_the_kernel_are_left_out(
        stretches in prop::collection::vec(prop::collection::vec(1..5000_u64, 1..20), 1..20),
    ) {
        let mut unit = started();
        for cycles in &stretches {
            rounds(&mut unit, cycles);
            system_call(&mut unit);
        }
        unit.flush();
        let calls = stretches.len() as u64;
        let rounds = stretches.iter().flatten().count() as u64;
        let paces = paces(&unit.drain());
        let insns: u64 = paces.iter().map(|pace| pace.insns).sum();
        let cycles: u64 = paces.iter().map(|pace| pace.cycles).sum();
        // No packet follows the last jump.
        prop_assert_eq!(insns, LOOP_INSNS * rounds + 2 * calls - 1);
        prop_assert_eq!(cycles, stretches.iter().flatten().sum::<u64>() + calls);
    }
}
