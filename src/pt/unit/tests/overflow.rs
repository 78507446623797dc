//! Internal buffer overflow.

use super::super::{BranchKind, Config, IpRange, RtitStatus};
use super::{KERNEL, NOT_IN_TX, PSB, PSB_END, Seen, USER, branch, finish, in_program};
use crate::common::Addr;
use crate::insn::ExecMode;
use crate::pt::Packet;

const OVF: Seen = Seen::Other(Packet::Ovf);

#[test]
fn an_overflow_that_ends_in_traced_code_gives_the_ip() {
    let mut unit = in_program(Config::user_only(), 0x1000);
    unit.branch(&branch(BranchKind::Call, 0x1000, 0x2000));
    unit.branch(&branch(BranchKind::Jcc { taken: true }, 0x2000, 0x2010));
    unit.overflow_begin();
    unit.branch(&branch(BranchKind::JmpIndirect, 0x2010, 0x2020));
    unit.branch(&branch(BranchKind::Jcc { taken: true }, 0x2020, 0x2030));
    unit.overflow_end();
    unit.branch(&branch(BranchKind::Ret, 0x2030, 0x1004));
    assert_eq!(finish(unit), [OVF, Seen::Fup(0x2030), Seen::Tip(0x1004)]);
}

#[test]
fn ips_after_an_overflow_are_whole() {
    let mut unit = in_program(Config::user_only(), 0x1000);
    unit.overflow_begin();
    unit.overflow_end();
    // OVF, and a FUP with an opcode and six bytes.
    assert_eq!(unit.pending_bytes(), 2 + 7);
}

#[test]
fn an_overflow_that_ends_out_of_context_waits_for_the_enable() {
    let mut unit = in_program(Config::user_only(), 0x1000);
    unit.overflow_begin();
    unit.interrupt(Addr(0x1000), Addr(0x10), KERNEL);
    unit.overflow_end();
    unit.enter(Addr(0x1100), USER);
    assert_eq!(finish(unit), [OVF, Seen::Pge(0x1100)]);
}

#[test]
fn a_mode_change_that_was_lost_is_reported_with_a_psb() {
    let mut unit = in_program(Config::user_only(), 0x1000);
    unit.overflow_begin();
    unit.set_mode(ExecMode::Bits32, false);
    unit.enter(Addr(0x2000), USER);
    unit.overflow_end();
    let mode = Seen::Other(Packet::ModeExec { mode: ExecMode::Bits32, interrupts: false });
    assert_eq!(finish(unit), [OVF, PSB, NOT_IN_TX, mode, Seen::Fup(0x2000), PSB_END]);
}

#[test]
fn filters_go_on_during_an_overflow() {
    let range = IpRange { first: Addr(0x2000), last: Addr(0x2fff) };
    let mut unit = in_program(Config::user_only().with_filter(0, range), 0x2000);
    unit.overflow_begin();
    unit.branch(&branch(BranchKind::Jmp, 0x2000, 0x3000));
    unit.overflow_end();
    unit.branch(&branch(BranchKind::Jmp, 0x3000, 0x2000));
    assert_eq!(finish(unit), [OVF, Seen::Pge(0x2000)]);
}

#[test]
fn a_trace_stop_during_an_overflow_is_reported_at_its_end() {
    let range = IpRange { first: Addr(0x2000), last: Addr(0x2fff) };
    let mut unit = in_program(Config::user_only().with_trace_stop(0, range), 0x1000);
    unit.overflow_begin();
    unit.branch(&branch(BranchKind::Jmp, 0x1000, 0x2000));
    assert!(unit.status().has(RtitStatus::STOPPED));
    unit.overflow_end();
    assert_eq!(finish(unit), [OVF, Seen::Other(Packet::TraceStop)]);
}

#[test]
fn psbs_wait_for_the_end_of_an_overflow() {
    let mut unit = in_program(Config::user_only(), 0x1000);
    unit.overflow_begin();
    unit.psb();
    for _ in 0..5000 {
        unit.branch(&branch(BranchKind::JmpIndirect, 0x1000, 0x1000));
    }
    assert_eq!(unit.pending_bytes(), 0);
    unit.overflow_end();
    assert_eq!(finish(unit), [OVF, Seen::Fup(0x1000)]);
}
