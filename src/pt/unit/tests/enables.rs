//! Enables: contexts, filter ranges, `TraceStop`, `TraceEn`.

use super::super::{BranchKind, Config, IpRange, Paging, RtitCtl, RtitStatus, Unit};
use super::{KERNEL, MODE_64, PSB, PSB_END, Seen, USER, branch, finish, in_program, seen};
use crate::common::Addr;
use crate::insn::ExecMode;
use crate::pt::Packet;

const TRACE_STOP: Seen = Seen::Other(Packet::TraceStop);
/// The range of SDM table "IP Filtering Packet Example".
const RANGE: IpRange = IpRange { first: Addr(0x2000), last: Addr(0x2010) };

fn pip(cr3: u64) -> Seen {
    Seen::Other(Packet::Pip { cr3, non_root: false })
}

/// Follows SDM table "IP Filtering Packet Example".
#[test]
fn code_in_a_filter_range_is_traced() {
    let mut unit = in_program(Config::user_only().with_filter(0, RANGE), 0x1000);
    unit.branch(&branch(BranchKind::Jmp, 0x1000, 0x2000));
    unit.branch(&branch(BranchKind::Jcc { taken: false }, 0x2000, 0x2008));
    unit.branch(&branch(BranchKind::Jmp, 0x2008, 0x2011));
    unit.branch(&branch(BranchKind::Jcc { taken: true }, 0x2020, 0x1000));
    let expected = [MODE_64, Seen::Pge(0x2000), Seen::Tnt(0, 1), Seen::Pgd(Some(0x2011))];
    assert_eq!(finish(unit), expected);
}

#[test]
fn falling_out_of_a_filter_range_goes_unnoticed() {
    let mut unit = in_program(Config::user_only().with_filter(0, RANGE), 0x2000);
    unit.branch(&branch(BranchKind::Jcc { taken: false }, 0x2010, 0x2000));
    unit.branch(&branch(BranchKind::Jcc { taken: true }, 0x2014, 0x2018));
    assert_eq!(finish(unit), [Seen::Tnt(0, 1), Seen::Pgd(None)]);
}

#[test]
fn the_payload_of_a_disable_depends_on_the_branch() {
    let kinds = [
        (BranchKind::Jcc { taken: true }, None),
        (BranchKind::Jmp, Some(0x3000)),
        (BranchKind::Call, Some(0x3000)),
        (BranchKind::CallIndirect, Some(0x3000)),
        (BranchKind::Ret, Some(0x3000)),
        (BranchKind::Far, Some(0x3000)),
    ];
    for (kind, payload) in kinds {
        let mut unit = in_program(Config::user_only().with_filter(3, RANGE), 0x2000);
        unit.branch(&branch(kind, 0x2000, 0x3000));
        assert_eq!(finish(unit), [Seen::Pgd(payload)], "{kind:?}");
    }
}

#[test]
fn a_branch_into_a_trace_stop_range_ends_the_trace() {
    let mut unit = in_program(Config::user_only().with_trace_stop(1, RANGE), 0x1000);
    unit.branch(&branch(BranchKind::JmpIndirect, 0x1000, 0x2010));
    assert!(unit.status().has(RtitStatus::STOPPED));
    unit.branch(&branch(BranchKind::JmpIndirect, 0x2010, 0x1000));
    assert_eq!(finish(unit), [Seen::Pgd(Some(0x2010)), TRACE_STOP]);
}

#[test]
fn trace_stop_wins_where_ranges_overlap() {
    let stop = IpRange { first: Addr(0x2008), last: Addr(0x3000) };
    let config = Config::user_only().with_filter(0, RANGE).with_trace_stop(2, stop);
    let mut unit = in_program(config, 0x1000);
    unit.branch(&branch(BranchKind::Jmp, 0x1000, 0x2000));
    unit.branch(&branch(BranchKind::Jmp, 0x2000, 0x2008));
    let expected = [MODE_64, Seen::Pge(0x2000), Seen::Pgd(Some(0x2008)), TRACE_STOP];
    assert_eq!(finish(unit), expected);
    let mut unit = in_program(config, 0x1000);
    unit.branch(&branch(BranchKind::Jmp, 0x1000, 0x2010));
    assert_eq!(finish(unit), [TRACE_STOP]);
}

#[test]
fn trace_stop_out_of_context_is_none() {
    let mut unit = in_program(Config::user_only().with_trace_stop(1, RANGE), 0x1000);
    unit.interrupt(Addr(0x1000), Addr(0x2000), KERNEL);
    assert_eq!(finish(unit), [Seen::Fup(0x1000), Seen::Pgd(None)]);
}

#[test]
fn trace_en_begins_and_ends_a_trace() {
    let kernel = RtitCtl::OS | RtitCtl::USER | RtitCtl::BRANCH_EN;
    let mut unit = Unit::new(Config::new(kernel));
    unit.branch(&branch(BranchKind::Far, 0x10, 0x20));
    assert_eq!(unit.pending_bytes(), 0);
    unit.enable(Addr(0x100), 0);
    unit.branch(&branch(BranchKind::JmpIndirect, 0x104, 0x200));
    unit.disable(Addr(0x204));
    unit.branch(&branch(BranchKind::JmpIndirect, 0x208, 0x300));
    unit.enable(Addr(0x304), 100);
    let in_psb = [pip(0), Seen::Other(Packet::ModeTsx { in_tx: false, aborted: false })];
    let mut expected = vec![PSB];
    expected.extend(in_psb);
    expected.extend([PSB_END, MODE_64, Seen::Pge(0x100), Seen::Tip(0x200)]);
    expected.extend([Seen::Fup(0x204), Seen::Pgd(None), MODE_64, Seen::Pge(0x304)]);
    assert_eq!(finish(unit), expected);
}

#[test]
fn cr3_switches_the_context() {
    let ctl = RtitCtl::OS | RtitCtl::USER | RtitCtl::BRANCH_EN | RtitCtl::CR3_FILTER;
    let mut unit = Unit::new(Config { cr3_match: 0x5000, ..Config::new(ctl) });
    unit.enable(Addr(0x100), 0);
    unit.drain();
    unit.mov_cr3(Addr(0x108), 0x5001);
    unit.mov_cr3(Addr(0x110), 0x6000);
    assert_eq!(finish(unit), [pip(0x5000), MODE_64, Seen::Pge(0x108), Seen::Pgd(None)]);
}

#[test]
fn a_task_switch_reports_paging_and_mode_before_the_target() {
    let ctl = RtitCtl::TRACE_EN | RtitCtl::OS | RtitCtl::USER | RtitCtl::BRANCH_EN;
    let mut unit = in_program(Config::new(ctl), 0x100);
    unit.set_mode(ExecMode::Bits32, false);
    unit.set_paging(Paging { cr3: 0x7000, non_root: true });
    unit.interrupt(Addr(0x104), Addr(0x200), KERNEL);
    let expected = [
        Seen::Fup(0x104),
        Seen::Other(Packet::Pip { cr3: 0x7000, non_root: true }),
        Seen::Other(Packet::ModeExec { mode: ExecMode::Bits32, interrupts: false }),
        Seen::Tip(0x200),
    ];
    assert_eq!(finish(unit), expected);
}

#[test]
fn an_enclave_is_out_of_context() {
    let mut unit = in_program(Config::user_only(), 0x1000);
    unit.set_enclave(true);
    unit.interrupt(Addr(0x1000), Addr(0x9000), USER);
    unit.branch(&branch(BranchKind::JmpIndirect, 0x9000, 0x9100));
    unit.set_enclave(false);
    unit.enter(Addr(0x1008), USER);
    assert_eq!(finish(unit), [Seen::Fup(0x1000), Seen::Pgd(None), Seen::Pge(0x1008)]);
}

#[test]
fn a_psb_outside_the_filter_reports_no_address() {
    let mut unit = in_program(Config::user_only().with_filter(0, RANGE), 0x1000);
    unit.psb();
    unit.branch(&branch(BranchKind::Jmp, 0x1000, 0x2000));
    let found = seen(&unit.drain());
    assert!(!found.iter().any(|seen| matches!(seen, Seen::Fup(_))));
    assert_eq!(found[found.len() - 3..], [PSB_END, MODE_64, Seen::Pge(0x2000)]);
}
