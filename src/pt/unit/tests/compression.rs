//! RET compression, TNT packing and deferred TIPs.

use super::super::{BranchKind, Config, TntForm};
use super::{Seen, branch, finish, in_program};
use crate::common::Addr;

#[test]
fn matched_returns_are_taken_bits() {
    let mut unit = in_program(Config::user_only(), 0x1000);
    unit.branch(&branch(BranchKind::Call, 0x1000, 0x2000));
    unit.branch(&branch(BranchKind::CallIndirect, 0x2000, 0x3000));
    unit.branch(&branch(BranchKind::Ret, 0x3000, 0x2004));
    unit.branch(&branch(BranchKind::Jcc { taken: false }, 0x2004, 0x2000));
    unit.branch(&branch(BranchKind::Ret, 0x2008, 0x1004));
    unit.branch(&branch(BranchKind::Ret, 0x1004, 0x1f00));
    assert_eq!(finish(unit), [Seen::Tip(0x3000), Seen::Tnt(0b101, 3), Seen::Tip(0x1f00)]);
}

#[test]
fn a_mismatched_return_empties_the_stack() {
    let mut unit = in_program(Config::user_only(), 0x1000);
    unit.branch(&branch(BranchKind::Call, 0x1000, 0x2000));
    unit.branch(&branch(BranchKind::Call, 0x2000, 0x3000));
    unit.branch(&branch(BranchKind::Ret, 0x3000, 0x3500));
    unit.branch(&branch(BranchKind::Ret, 0x3500, 0x1004));
    assert_eq!(finish(unit), [Seen::Tip(0x3500), Seen::Tip(0x1004)]);
}

#[test]
fn a_call_to_the_next_instruction_is_not_a_call() {
    let mut unit = in_program(Config::user_only(), 0x1000);
    unit.branch(&branch(BranchKind::Call, 0x1000, 0x2000));
    unit.branch(&branch(BranchKind::Call, 0x2000, 0x2004));
    unit.branch(&branch(BranchKind::Ret, 0x2010, 0x1004));
    assert_eq!(finish(unit), [Seen::Tnt(1, 1)]);
}

#[test]
fn only_the_innermost_64_calls_are_remembered() {
    let mut unit = in_program(Config::user_only().with_tnt(TntForm::Long), 0);
    for depth in 0..70 {
        unit.branch(&branch(BranchKind::Call, depth * 0x100, (depth + 1) * 0x100));
    }
    for depth in (0..70).rev() {
        unit.branch(&branch(BranchKind::Ret, 0x8000, depth * 0x100 + 4));
    }
    let found = finish(unit);
    let compressed: u32 = found
        .iter()
        .map(|seen| if let Seen::Tnt(_, len) = seen { u32::from(*len) } else { 0 })
        .sum();
    let tips = found.iter().filter(|seen| matches!(seen, Seen::Tip(_))).count();
    assert_eq!((compressed, tips), (64, 6));
}

#[test]
fn outcomes_fill_packets_of_the_chosen_form() {
    for (form, lens) in
        [(TntForm::Short, vec![6, 6, 6, 6, 6, 6, 6, 6, 2]), (TntForm::Long, vec![47, 3])]
    {
        let mut unit = in_program(Config::user_only().with_tnt(form), 0x1000);
        for i in 0..50 {
            unit.branch(&branch(BranchKind::Jcc { taken: i % 3 == 0 }, 0x1000, 0x1000));
        }
        let found: Vec<_> = finish(unit)
            .iter()
            .filter_map(|seen| if let Seen::Tnt(_, len) = seen { Some(*len) } else { None })
            .collect();
        assert_eq!(found, lens);
    }
}

#[test]
fn no_return_is_compressed_when_it_is_turned_off() {
    let config = Config::user_only().with(super::super::RtitCtl::DIS_RETC);
    let mut unit = in_program(config, 0x1000);
    unit.branch(&branch(BranchKind::Call, 0x1000, 0x2000));
    unit.branch(&branch(BranchKind::Ret, 0x2000, 0x1004));
    assert_eq!(finish(unit), [Seen::Tip(0x1004)]);
}

#[test]
fn no_return_is_compressed_across_a_system_call() {
    let mut unit = in_program(Config::user_only(), 0x1000);
    unit.branch(&branch(BranchKind::Call, 0x1000, 0x2000));
    unit.interrupt(Addr(0x2000), Addr(0xffff_8000_0000_0000), super::KERNEL);
    unit.enter(Addr(0x2000), super::USER);
    unit.branch(&branch(BranchKind::Ret, 0x2000, 0x1004));
    assert_eq!(finish(unit).last(), Some(&Seen::Tip(0x1004)));
}

/// Follows SDM table "TNT Examples with Deferred TIPs".
#[test]
fn deferred_tips_follow_the_tnt() {
    let plain = Config::user_only();
    let expected_plain = [
        Seen::Tnt(0b0, 1),
        Seen::Tip(0x1308),
        Seen::Tnt(0b010, 3),
        Seen::Tip(0x1100),
        Seen::Tnt(0b0, 1),
        Seen::Fup(0x110c),
        Seen::Pgd(None),
    ];
    let deferring = Config { deferred_tips: true, ..plain };
    let expected_deferring = [
        Seen::Tnt(0b00100, 5),
        Seen::Tip(0x1308),
        Seen::Tip(0x1100),
        Seen::Fup(0x110c),
        Seen::Pgd(None),
    ];
    for (config, expected) in [(plain, &expected_plain[..]), (deferring, &expected_deferring)] {
        let mut unit = in_program(config, 0x1000);
        let jcc = |taken| BranchKind::Jcc { taken };
        unit.branch(&branch(jcc(false), 0x1004, 0x2000));
        unit.branch(&branch(BranchKind::JmpIndirect, 0x1008, 0x1308));
        unit.branch(&branch(jcc(false), 0x130c, 0x2000));
        unit.branch(&branch(jcc(true), 0x1314, 0x1500));
        unit.branch(&branch(jcc(false), 0x1504, 0x2000));
        unit.branch(&branch(BranchKind::JmpIndirect, 0x1508, 0x1100));
        unit.branch(&branch(jcc(false), 0x1104, 0x1000));
        unit.interrupt(Addr(0x110c), Addr(0xffff_8000_0000_0000), super::KERNEL);
        assert_eq!(finish(unit), expected);
    }
}
