//! Loops of direct branches, reported round by round.

use super::super::{BranchKind, Config};
use super::{Seen, branch, finish, in_program};
use crate::common::Addr;

const KERNEL: Addr = Addr(0xffff_8000_0000_0000);

/// Returns the packets of a loop that is entered at `at`, goes from `last` back to `first` `rounds`
/// times, and is interrupted at `first`.
fn circle(config: Config, at: u64, first: u64, last: u64, rounds: usize) -> Vec<Seen> {
    let mut unit = in_program(config, at);
    for _ in 0..rounds {
        unit.branch(&branch(BranchKind::Jmp, last, first));
    }
    unit.interrupt(Addr(first), KERNEL, 0);
    finish(unit)
}

fn interruption(ip: u64) -> [Seen; 3] {
    [Seen::Fup(ip), Seen::Pgd(None), Seen::Pge(ip)]
}

const END: [Seen; 2] = [Seen::Fup(0x1000), Seen::Pgd(None)];

#[test]
fn a_processor_reports_one_round() {
    assert_eq!(circle(Config::user_only(), 0x1000, 0x1000, 0x1008, 1000), END);
}

#[test]
fn each_round_is_reported() {
    let found = circle(Config::user_only().with_circles(), 0x1000, 0x1000, 0x1008, 3);
    let mut wanted = interruption(0x1008).to_vec();
    for _ in 1..3 {
        wanted.extend(interruption(0x1000));
        wanted.extend(interruption(0x1008));
    }
    wanted.extend(END);
    assert_eq!(found, wanted);
}

#[test]
fn a_circle_that_runs_into_its_entry_from_above() {
    let found = circle(Config::user_only().with_circles(), 0x1004, 0x1000, 0x1008, 2);
    let wanted = [interruption(0x1000), interruption(0x1008)].concat();
    assert_eq!(found, [wanted, END.to_vec()].concat());
}

#[test]
fn a_branch_to_itself_reports_its_target() {
    let found = circle(Config::user_only().with_circles(), 0x1000, 0x1000, 0x1000, 2);
    let round = [Seen::Pgd(Some(0x1000)), Seen::Pge(0x1000)];
    assert_eq!(found, [round, round, END].concat());
}

#[test]
fn what_is_no_circle_costs_nothing() {
    let mut unit = in_program(Config::user_only().with_circles(), 0x1000);
    for _ in 0..100 {
        unit.branch(&branch(BranchKind::Call, 0x1000, 0x2000));
        unit.branch(&branch(BranchKind::Jmp, 0x2000, 0x1800));
        unit.branch(&branch(BranchKind::Jmp, 0x1800, 0x2800));
        unit.branch(&branch(BranchKind::Ret, 0x2800, 0x1004));
        unit.branch(&branch(BranchKind::Jmp, 0x1004, 0x1000));
    }
    let found = finish(unit);
    assert!(found.iter().all(|seen| matches!(seen, Seen::Tnt(..))), "{found:?}");
}
