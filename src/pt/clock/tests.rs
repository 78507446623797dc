//! Tests the clock against the unit, whose time is known, and on real captures for consistency.

use super::{Clock, ClockConfig, CrystalRatio, TimeEstimate, TscToNs};
use crate::common::{Addr, Tsc};
use crate::pt::captures::{capture, packets};
use crate::pt::unit::{Branch, BranchKind, Config, RtitCtl, Unit};
use crate::pt::{Errata, Erratum, Packet, Packets};
use proptest::prelude::*;

const RATIO: CrystalRatio = CrystalRatio { ebx: 308, eax: 2 };
/// TSC ticks in a tick of the crystal clock.
const P: u64 = 154;

fn config(mtc_freq: u8) -> ClockConfig {
    ClockConfig { crystal_ratio: Some(RATIO), mtc_freq: Some(mtc_freq), nominal_ratio: Some(36) }
}

fn after(config: ClockConfig, packets: &[Packet]) -> Clock {
    let mut clock = Clock::new(config);
    for packet in packets {
        clock.packet(packet);
    }
    clock
}

fn tma(ctc: u16, fast_counter: u16) -> Packet {
    Packet::Tma { ctc, fast_counter }
}

fn times(now: Option<TimeEstimate>) -> Option<(u64, u64, Option<u64>)> {
    now.map(|now| (now.tsc.0, now.earliest.0, now.latest.map(|latest| latest.0)))
}

#[test]
fn mtc_moves_the_time_to_its_edge() {
    // 100 ticks after the edge to 0x1005; MTC uses bit 3 and up.
    let mut clock = after(config(3), &[Packet::Tsc(100_000), tma(0x1005, 100)]);
    let edge = |ctc: u64| 100_000 - 100 + (ctc - 0x1005) * P;
    assert_eq!(times(clock.now()), Some((100_000, 100_000, Some(edge(0x1008)))));
    clock.packet(&Packet::Mtc(1));
    assert_eq!(times(clock.now()), Some((edge(0x1008), edge(0x1008), Some(edge(0x1010)))));
    // Two MTCs were lost.
    clock.packet(&Packet::Mtc(4));
    assert_eq!(times(clock.now()), Some((edge(0x1020), edge(0x1020), Some(edge(0x1028)))));
    // Wraps.
    clock.packet(&Packet::Mtc(2));
    assert_eq!(clock.now().map(|now| now.tsc.0), Some(edge(0x1810)));
}

#[test]
fn an_mtc_that_the_tsc_overtook_moves_nothing() {
    for mtc in [0, 0xff] {
        let clock = after(config(3), &[Packet::Tsc(100_000), tma(0x1005, 0), Packet::Mtc(mtc)]);
        assert_eq!(clock.now().map(|now| now.tsc.0), Some(100_000));
    }
}

#[test]
fn mtc_means_nothing_without_the_ratio_or_tma() {
    let unknown = ClockConfig { crystal_ratio: None, ..config(3) };
    let zero = ClockConfig { crystal_ratio: Some(CrystalRatio { ebx: 0, eax: 2 }), ..config(3) };
    for config in [unknown, zero, ClockConfig { mtc_freq: None, ..config(3) }] {
        let clock = after(config, &[Packet::Tsc(50), tma(0, 0), Packet::Mtc(1)]);
        assert_eq!(times(clock.now()), Some((50, 50, None)));
    }
    let clock = after(config(3), &[Packet::Tsc(50), Packet::Mtc(1)]);
    assert_eq!(times(clock.now()), Some((50, 50, None)));
    assert_eq!(after(config(3), &[Packet::Mtc(1), tma(0, 0)]).now(), None);
}

#[test]
fn cycles_count_at_the_ratio_of_frequencies() {
    let start = [Packet::Tsc(1000), Packet::Cbr(18), Packet::Cyc(50), Packet::Cyc(50)];
    let mut clock =
        after(ClockConfig { nominal_ratio: Some(36), ..ClockConfig::default() }, &start);
    assert_eq!(clock.cycles(), None, "no packet yet that the CYC belongs to");
    clock.packet(&Packet::TraceStop);
    // Half the nominal frequency: two ticks a cycle.
    assert_eq!(times(clock.now()), Some((1200, 1000, None)));
    assert_eq!(clock.cycles(), Some(100));
    clock.packet(&Packet::TraceStop);
    assert_eq!(clock.cycles(), None);
}

#[test]
fn a_short_overflow_leaves_no_upper_bound_and_a_long_one_no_time() {
    let start = [Packet::Tsc(0), tma(0, 0), Packet::Cbr(36)];
    let mut clock = after(config(0), &start);
    clock.packet(&Packet::Ovf);
    assert_eq!(times(clock.now()), Some((0, 0, None)));
    clock.packet(&Packet::Mtc(3));
    assert_eq!(times(clock.now()), Some((3 * P, 3 * P, None)));
    clock.packet(&Packet::Tsc(9_000_000));
    clock.packet(&tma(5, 0));
    assert_eq!(times(clock.now()), Some((9_000_000, 9_000_000, Some(9_000_000 + P))));

    let mut clock = after(config(0), &start);
    clock.packet(&Packet::Cyc(256 * P));
    clock.packet(&Packet::Ovf);
    clock.packet(&Packet::Mtc(3));
    assert_eq!(clock.now(), None);
    clock.packet(&Packet::Tsc(9_000_000));
    assert!(clock.now().is_some());
}

#[test]
fn skl168_a_cyc_missing_before_a_psb_reports_no_speed() {
    let now = |errata| {
        let mut clock = after(config(3), &[]).with_errata(errata);
        for packet in [
            Packet::Tsc(100_000),
            tma(0x1000, 0),
            Packet::Cyc(900),
            Packet::Mtc(1),
            // The CYC of the PSB is missing.
            Packet::Psb,
            Packet::PsbEnd,
            Packet::Cyc(100),
            Packet::Mtc(2),
            Packet::Cyc(50),
            Packet::TraceStop,
        ] {
            clock.packet(&packet);
        }
        clock.now().map(|now| now.tsc.0)
    };
    let edge = 100_000 + 16 * P;
    assert_eq!(now(Errata::NONE), Some(edge + 50 * 8 * P / 100));
    // Nor is the earlier speed known: no CYC is bound to the TSC.
    assert_eq!(now(Errata::NONE.with(Erratum::Skl168)), Some(edge));
}

/// Generates the steps of a run: TSC ticks until each, and its kind.
fn run() -> impl Strategy<Value = Vec<(u64, u8)>> {
    // Shorter than 256 MTC periods, which MTC cannot express.
    prop::collection::vec((0..30_000_u64, 0..8_u8), 1..300)
}

proptest! {
    /// Checks that the true time is within the clock's bounds in any run, and that the estimate by
    /// cycles is close once MTC has given the core's speed.
    #[test]
    fn the_true_time_is_in_bounds(
        steps in run(),
        mtc_freq in 0..12_u8,
        thresh in 0..8_u8,
        start in 0..1_u64 << 50,
        cycles_a_tick in 1..4_u64,
    ) {
        let ctl = RtitCtl::MTC_EN | RtitCtl::CYC_EN;
        let mut unit_config = Config { crystal_ratio: Some(RATIO), ..Config::user_only().with(ctl) };
        unit_config.ctl = unit_config.ctl.with_mtc_freq(mtc_freq).with_cyc_thresh(thresh);
        let mut unit = Unit::new(unit_config);
        let mut clock = Clock::new(config(mtc_freq));
        let mut now = start;
        unit.set_tsc(Tsc(now));
        unit.enter(Addr(0x1000), 3);
        for (ticks, what) in steps {
            now += ticks;
            unit.advance_cycles(ticks * cycles_a_tick);
            unit.set_tsc(Tsc(now));
            let (ip, target) = (Addr(0x1000), Addr(0x2000));
            let kind = BranchKind::JmpIndirect;
            match what {
                0 => unit.stamp(),
                1 => unit.psb(),
                _ => unit.branch(&Branch { kind, ip, next: ip, target, cpl: 3 }),
            }
            for (_, packet) in Packets::new(&unit.drain()) {
                clock.packet(&packet.expect("a packet"));
            }
            let estimate = clock.now().expect("a time");
            let latest = estimate.latest.expect("a bound").0;
            // A tick for each of the two roundings of the crystal clock.
            prop_assert!(estimate.earliest.0 <= now + 2, "{:?} at {}", estimate, now);
            prop_assert!(now <= latest + 2, "{:?} at {}", estimate, now);
            prop_assert!(estimate.earliest <= estimate.tsc && estimate.tsc.0 <= latest.max(estimate.earliest.0));
        }
    }

    #[test]
    fn any_packets_give_ordered_bounds(bytes in prop::collection::vec(any::<u8>(), 0..400), freq in 0..20_u8) {
        let mut clock = Clock::new(config(freq));
        for (_, packet) in Packets::new(&bytes) {
            if let Ok(packet) = packet {
                clock.packet(&packet);
                if let Some(now) = clock.now() {
                    prop_assert!(now.earliest <= now.tsc);
                }
            }
        }
    }

    #[test]
    fn nanoseconds_come_back(tsc in 0..1_u64 << 54, mhz in 100..10_000_u64) {
        let scale = TscToNs::from_frequency(mhz * 1_000_000).expect("a frequency");
        let back = scale.tsc(scale.ns(Tsc(tsc)));
        prop_assert!(back.0 <= tsc);
        prop_assert_eq!(scale.ns(back), scale.ns(Tsc(tsc)));
    }
}

#[test]
fn nanoseconds_follow_perf() {
    let scale = TscToNs { zero_ns: 18_432_465_230_457_941_137, multiplier: 715_828_121, shift: 31 };
    // A third of a nanosecond per tick, from a zero before boot.
    assert_eq!(scale.ns(Tsc(1_000_000_000_000)), 18_432_465_230_457_941_137 + 333_333_444_315);
    assert_eq!(TscToNs::from_frequency(999), None);
    let scale = TscToNs::from_frequency(3_700_000_000).expect("a frequency");
    assert_eq!(scale.duration_ns(3_700_000_000), 999_999_998);
}

/// Checks on real captures that the estimate by core clocks matches the time of the next MTC.
#[test]
fn captured_cycles_and_crystal_clock_agree() {
    for name in ["hello-cyc", "hello-libc"] {
        let Some(trace) = capture(&format!("dynamorio/{name}/pt.bin")) else { return };
        let mut clock = Clock::new(ClockConfig { nominal_ratio: Some(37), ..config(3) });
        let (mut mtcs, mut close) = (0_u32, 0);
        for packet in packets(&trace) {
            let before = clock.now();
            clock.packet(&packet);
            let (Packet::Mtc(_), Some(before), Some(after)) = (packet, before, clock.now()) else {
                continue;
            };
            assert_eq!(before.latest, Some(after.earliest), "{name}: no MTC is missing");
            mtcs += 1;
            // A twentieth of a period.
            close += u32::from(after.tsc.0.abs_diff(before.tsc.0) < P * 8 / 20);
        }
        assert!(mtcs > 500 && close * 20 > mtcs * 19, "{name}: {close} of {mtcs} are close");
    }
}

/// Checks that TMA counts as many crystal clocks as TSC between two TSC packets of a real capture.
#[test]
fn captured_tsc_and_crystal_clock_agree() {
    let folder = "hase/control_flow-20180404T163033";
    let Some(trace) = capture(&format!("{folder}/perf.data.1-aux-idx1.bin")) else { return };
    let (mut tsc, mut last, mut checked) = (0, None, 0);
    for packet in packets(&trace) {
        match packet {
            Packet::Tsc(now) => tsc = now,
            Packet::Tma { fast_counter, .. } => {
                let edge = tsc - u64::from(fast_counter);
                // CPUID.15H:EBX and EAX are 266 and 2 on that machine.
                if let Some(last) = last.replace(edge) {
                    let ticks: u64 = edge - last;
                    assert_eq!(ticks % 133, 0, "{ticks} TSC ticks");
                    checked += 1;
                }
            }
            _ => {}
        }
    }
    assert_eq!(checked, 5);
}
