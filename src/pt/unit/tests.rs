//! Tests the unit: packet sequences of the flows that the SDM describes.

mod circles;
mod compression;
mod enables;
mod events;
mod hostile;
mod output;
mod overflow;
mod registers;
mod time;
mod walk;

use super::{Branch, BranchKind, Config, Unit};
use crate::common::{Addr, Tsc};
use crate::insn::ExecMode;
use crate::pt::{LastIp, Packet, Packets, Tnt};

const USER: u8 = 3;
const KERNEL: u8 = 0;

/// A packet with its IP decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Tip(u64),
    Pge(u64),
    Pgd(Option<u64>),
    Fup(u64),
    Tnt(u64, u8),
    Other(Packet),
}

/// Decodes the trace; every byte of it must be part of a packet.
pub(super) fn seen(trace: &[u8]) -> Vec<Seen> {
    let mut last_ip = LastIp::new();
    let mut whole = |payload| last_ip.reconstruct(payload).map(|ip: Addr| ip.0);
    Packets::new(trace)
        .map(|(offset, packet)| match packet.unwrap_or_else(|e| panic!("at {offset}: {e}")) {
            Packet::Tip(ip) => Seen::Tip(whole(ip).expect("TIP with an IP")),
            Packet::TipPge(ip) => Seen::Pge(whole(ip).expect("TIP.PGE with an IP")),
            Packet::TipPgd(ip) => Seen::Pgd(whole(ip)),
            Packet::Fup(ip) => Seen::Fup(whole(ip).expect("FUP with an IP")),
            Packet::TntShort(Tnt { bits, len }) | Packet::TntLong(Tnt { bits, len }) => {
                Seen::Tnt(bits, len)
            }
            other => Seen::Other(other),
        })
        .collect()
}

pub(super) fn finish(mut unit: Unit) -> Vec<Seen> {
    unit.flush();
    seen(&unit.drain())
}

pub(super) const MODE_64: Seen =
    Seen::Other(Packet::ModeExec { mode: ExecMode::Bits64, interrupts: false });
const NOT_IN_TX: Seen = Seen::Other(Packet::ModeTsx { in_tx: false, aborted: false });
const PSB: Seen = Seen::Other(Packet::Psb);
const PSB_END: Seen = Seen::Other(Packet::PsbEnd);

/// Creates a branch at `ip`, four bytes long.
pub(super) fn branch(kind: BranchKind, ip: u64, target: u64) -> Branch {
    Branch { kind, ip: Addr(ip), next: Addr(ip + 4), target: Addr(target), cpl: USER }
}

/// Returns a user-only unit that has just entered a program at `ip`, with its output drained.
pub(super) fn in_program(config: Config, ip: u64) -> Unit {
    let mut unit = Unit::new(config);
    unit.enter(Addr(ip), USER);
    unit.drain();
    unit
}

#[test]
fn a_trace_begins_with_psb_and_enable() {
    let mut unit = Unit::new(Config { core_bus_ratio: Some(30), ..Config::user_only() });
    unit.set_tsc(Tsc(0x1234));
    unit.enter(Addr(0x40_1000), USER);
    let (tsc, cbr) = (Seen::Other(Packet::Tsc(0x1234)), Seen::Other(Packet::Cbr(30)));
    assert_eq!(finish(unit), [PSB, tsc, cbr, PSB_END, MODE_64, Seen::Pge(0x40_1000)]);
}

#[test]
fn a_system_call_is_disabled_without_ip_and_enabled_at_the_return() {
    let mut unit = in_program(Config::user_only(), 0x1000);
    unit.branch(&Branch { cpl: KERNEL, ..branch(BranchKind::Far, 0x1010, 0xffff_8000_0000_0000) });
    unit.set_tsc(Tsc(7));
    unit.stamp();
    unit.enter(Addr(0x1014), USER);
    let tsc = Seen::Other(Packet::Tsc(7));
    assert_eq!(finish(unit), [Seen::Pgd(None), tsc, Seen::Pge(0x1014)]);
}

#[test]
fn an_interrupt_is_a_fup_and_a_disable() {
    let mut unit = in_program(Config::user_only(), 0x1000);
    unit.branch(&branch(BranchKind::Jcc { taken: true }, 0x1000, 0x1100));
    unit.interrupt(Addr(0x1104), Addr(0xffff_8000_0000_0000), KERNEL);
    unit.enter(Addr(0x2000), USER);
    let expected = [Seen::Tnt(1, 1), Seen::Fup(0x1104), Seen::Pgd(None), Seen::Pge(0x2000)];
    assert_eq!(finish(unit), expected);
}

#[test]
fn psb_comes_by_cadence_with_the_state_and_resets_compression() {
    let mut unit = in_program(Config::user_only().with_psb_period(2048), 0x1000);
    unit.set_tsc(Tsc(99));
    unit.branch(&branch(BranchKind::Call, 0x1000, 0x5000));
    // Each TIP takes two bytes, so that the first PSB occurs in this loop.
    for i in 0..1000 {
        unit.branch(&branch(BranchKind::JmpIndirect, 0x5000, 0x5000 + i));
    }
    unit.branch(&branch(BranchKind::Ret, 0x6000, 0x1004));
    let found = finish(unit);
    let at = found.iter().position(|seen| *seen == PSB).expect("a PSB");
    let (Seen::Tip(before), tsc) = (found[at - 1], Seen::Other(Packet::Tsc(99))) else {
        panic!("a TIP before the PSB");
    };
    assert_eq!(found[at..at + 6], [PSB, tsc, NOT_IN_TX, MODE_64, Seen::Fup(before), PSB_END]);
    assert_eq!(found.iter().filter(|seen| **seen == PSB).count(), 1);
    assert_eq!(found.last(), Some(&Seen::Tip(0x1004)));
}
