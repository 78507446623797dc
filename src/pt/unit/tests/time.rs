//! Timing packets.

use super::super::{BranchKind, Config, RtitCtl};
use super::{Seen, USER, branch, finish, in_program};
use crate::common::{Addr, Tsc};
use crate::pt::{CrystalRatio, Packet};

fn cyc(cycles: u64) -> Seen {
    Seen::Other(Packet::Cyc(cycles))
}

/// Follows SDM table "An Illustrative CYC Packet Example" on thresholds: the times of eight
/// packets, and which of them follow a CYC.
#[test]
fn cyc_keeps_to_the_threshold() {
    let times = [9, 15, 30, 38, 46, 64, 71];
    let cases: [(u8, &[u64]); 4] =
        [(0, &[9, 6, 15, 8, 8, 18, 7]), (5, &[30, 16, 18]), (6, &[38, 33]), (7, &[64])];
    for (threshold, expected) in cases {
        let mut config = Config::user_only().with(RtitCtl::CYC_EN);
        config.ctl = config.ctl.with_cyc_thresh(threshold);
        let mut unit = in_program(config, 0x1000);
        let mut now = 0;
        for time in times {
            unit.advance_cycles(time - now);
            now = time;
            unit.branch(&branch(BranchKind::JmpIndirect, 0x1000, 0x1000));
        }
        let cycs: Vec<_> = finish(unit)
            .into_iter()
            .filter_map(|seen| match seen {
                Seen::Other(Packet::Cyc(cycles)) => Some(cycles),
                _ => None,
            })
            .collect();
        assert_eq!(cycs, expected, "threshold {threshold}");
    }
}

/// Follows SDM example "An Illustrative CYC Packet Example" on branches.
#[test]
fn cyc_gives_the_time_of_the_first_branch_in_a_tnt() {
    let mut unit = in_program(Config::user_only().with(RtitCtl::CYC_EN), 0x1000);
    unit.branch(&branch(BranchKind::CallIndirect, 0x1000, 0x2000));
    unit.advance_cycles(2);
    unit.branch(&branch(BranchKind::CallIndirect, 0x2000, 0x3000));
    unit.advance_cycles(6);
    unit.branch(&branch(BranchKind::Jcc { taken: false }, 0x3000, 0x4000));
    unit.advance_cycles(1);
    unit.branch(&branch(BranchKind::Ret, 0x3004, 0x2004));
    unit.advance_cycles(3);
    unit.branch(&branch(BranchKind::Jcc { taken: true }, 0x2004, 0x2100));
    unit.advance_cycles(4);
    unit.branch(&branch(BranchKind::Ret, 0x2100, 0x9000));
    let expected = [
        Seen::Tip(0x2000),
        cyc(2),
        Seen::Tip(0x3000),
        cyc(6),
        Seen::Tnt(0b011, 3),
        cyc(8),
        Seen::Tip(0x9000),
    ];
    assert_eq!(finish(unit), expected);
}

#[test]
fn a_cyc_stands_alone_before_the_counter_wraps() {
    let mut unit = in_program(Config::user_only().with(RtitCtl::CYC_EN), 0x1000);
    unit.branch(&branch(BranchKind::Jcc { taken: true }, 0x1000, 0x1000));
    unit.advance_cycles(1 << 16);
    unit.branch(&branch(BranchKind::Jcc { taken: true }, 0x1000, 0x1000));
    assert_eq!(finish(unit), [Seen::Tnt(1, 1), cyc(1 << 16), Seen::Tnt(1, 1)]);
}

fn with_mtc(freq: u8) -> Config {
    let crystal_ratio = Some(CrystalRatio { ebx: 308, eax: 2 });
    let mut config = Config { crystal_ratio, ..Config::user_only().with(RtitCtl::MTC_EN) };
    config.ctl = config.ctl.with_mtc_freq(freq);
    config
}

#[test]
fn mtc_comes_with_every_period_of_the_crystal_clock() {
    let mut unit = in_program(with_mtc(3), 0x1000);
    // 154 TSC ticks a crystal clock, eight of those a period.
    let period = 154 * 8;
    unit.set_tsc(Tsc(255 * period - 1));
    unit.set_tsc(Tsc(255 * period));
    unit.set_tsc(Tsc(256 * period - 1));
    unit.set_tsc(Tsc(257 * period));
    let mtcs: Vec<_> = [255, 0, 1].map(|ctc| Seen::Other(Packet::Mtc(ctc))).into();
    assert_eq!(finish(unit), mtcs);
}

#[test]
fn tma_aligns_the_crystal_clock_with_the_tsc() {
    let mut unit = in_program(with_mtc(0), 0x1000);
    let ctc = 0x1_2345;
    unit.set_tsc(Tsc(ctc * 154 + 53));
    unit.stamp();
    let expected = [
        Seen::Other(Packet::Tsc(ctc * 154 + 53)),
        Seen::Other(Packet::Tma { ctc: 0x2345, fast_counter: 53 }),
    ];
    assert_eq!(finish(unit), expected);
}

#[test]
fn more_periods_than_mtc_can_count_are_reported_by_tsc() {
    let mut unit = in_program(with_mtc(0), 0x1000);
    unit.set_tsc(Tsc(154));
    unit.set_tsc(Tsc(154 * 257));
    let expected = [
        Seen::Other(Packet::Tsc(154 * 257)),
        Seen::Other(Packet::Tma { ctc: 257, fast_counter: 0 }),
    ];
    assert_eq!(finish(unit), expected);
}

#[test]
fn a_frequency_change_reports_the_ratio() {
    let mut unit = in_program(Config::user_only(), 0x1000);
    unit.set_tsc(Tsc(5));
    unit.set_core_bus_ratio(36);
    unit.branch(&branch(BranchKind::JmpIndirect, 0x1000, 0x2000));
    unit.enter(Addr(0x3000), USER);
    let expected = [
        Seen::Other(Packet::Tsc(5)),
        Seen::Other(Packet::Cbr(36)),
        Seen::Tip(0x2000),
        Seen::Tip(0x3000),
    ];
    assert_eq!(finish(unit), expected);
}
