//! Transactions, PTWRITE, power, event trace.

use super::super::{Config, FlowEvent, IpRange, PowerEntry, RtitCtl};
use super::{KERNEL, Seen, branch, finish, in_program};
use crate::common::{Addr, Tsc};
use crate::pt::unit::BranchKind;
use crate::pt::{Packet, PayloadSize};

fn tsx(in_tx: bool, aborted: bool) -> Seen {
    Seen::Other(Packet::ModeTsx { in_tx, aborted })
}

#[test]
fn transactions_report_begin_commit_and_abort() {
    let mut unit = in_program(Config::user_only(), 0x1000);
    unit.tx_begin(Addr(0x1000));
    unit.tx_begin(Addr(0x1008));
    unit.tx_commit(Addr(0x1010));
    unit.tx_begin(Addr(0x1020));
    unit.tx_abort(Addr(0x1028), Addr(0x1100));
    let expected = [
        tsx(true, false),
        Seen::Fup(0x1000),
        tsx(false, false),
        Seen::Fup(0x1010),
        tsx(true, false),
        Seen::Fup(0x1020),
        tsx(false, true),
        Seen::Fup(0x1028),
        Seen::Tip(0x1100),
    ];
    assert_eq!(finish(unit), expected);
}

#[test]
fn a_transaction_outside_the_filter_is_reported_without_ip() {
    let range = IpRange { first: Addr(0x2000), last: Addr(0x2fff) };
    let mut unit = in_program(Config::user_only().with_filter(0, range), 0x1000);
    unit.tx_begin(Addr(0x1000));
    unit.branch(&branch(BranchKind::Jmp, 0x1000, 0x2000));
    let expected = [tsx(true, false), super::MODE_64, Seen::Pge(0x2000)];
    assert_eq!(finish(unit), expected);
}

#[test]
fn ptwrite_gives_its_ip_on_demand() {
    let packet = |ip| Seen::Other(Packet::Ptw { value: 42, size: PayloadSize::Bytes4, ip });
    let config = Config::user_only().with(RtitCtl::PTW_EN);
    let with_fup = config.with(RtitCtl::FUP_ON_PTW);
    let cases: [(Config, &[Seen]); 3] = [
        (Config::user_only(), &[]),
        (config, &[packet(false)]),
        (with_fup, &[packet(true), Seen::Fup(0x1000)]),
    ];
    for (config, expected) in cases {
        let mut unit = in_program(config, 0x1000);
        unit.ptwrite(Addr(0x1000), 42, PayloadSize::Bytes4);
        assert_eq!(finish(unit), expected);
    }
}

/// Follows SDM table "`PwrEvtEn` and `PTWEn` Packet Generation under Different Enable Conditions".
#[test]
fn a_sleep_reports_its_states() {
    let mut unit = in_program(Config::user_only().with(RtitCtl::PWR_EVT_EN), 0x1000);
    let mwait = Some((0x20, 1));
    let entry = PowerEntry { ip: Addr(0x1004), mwait, hardware: false, state: 3, sub_state: 1 };
    unit.power_enter(&entry);
    unit.set_tsc(Tsc(77));
    unit.power_exit(2, 3, 1);
    unit.interrupt(Addr(0x1004), Addr(0xffff_8000_0000_0000), KERNEL);
    unit.power_enter(&entry);
    let power = Seen::Other(Packet::PwrE { hardware: false, state: 3, sub_state: 1 });
    let expected = [
        Seen::Other(Packet::Mwait { hints: 0x20, extensions: 1 }),
        power,
        Seen::Other(Packet::ExStop { ip: true }),
        Seen::Fup(0x1004),
        Seen::Other(Packet::Tsc(77)),
        Seen::Other(Packet::PwrX { last: 2, deepest: 3, wake: 1 }),
        Seen::Fup(0x1004),
        Seen::Pgd(None),
        power,
        Seen::Other(Packet::ExStop { ip: false }),
    ];
    assert_eq!(finish(unit), expected);
}

#[test]
fn event_trace_names_the_interrupt() {
    let mut unit = in_program(Config::user_only().with(RtitCtl::EVENT_EN), 0x1000);
    let event = FlowEvent { kind: 1, vector: 14, data: &[(0, 0xdead)] };
    unit.flow_event(Addr(0x1004), &event);
    unit.interrupt(Addr(0x1004), Addr(0xffff_8000_0000_0000), KERNEL);
    let expected = [
        Seen::Other(Packet::Evd { kind: 0, payload: 0xdead }),
        Seen::Other(Packet::Cfe { kind: 1, vector: 14, ip: false }),
        Seen::Fup(0x1004),
        Seen::Pgd(None),
    ];
    assert_eq!(finish(unit), expected);
}
