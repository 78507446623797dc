//! Output: the unit's bytes must arrive in memory, and the conditions that end output.

use super::super::{
    At, BranchKind, Capabilities, Config, IA32_RTIT_CTL, IA32_RTIT_OUTPUT_BASE,
    IA32_RTIT_OUTPUT_MASK_PTRS, IA32_RTIT_STATUS, Memory, OnRestricted, OperationalError, Rtit,
    RtitCtl, RtitStatus, TopaEntry, Unit,
};
use super::{USER, branch};
use crate::common::Addr;
use proptest::prelude::*;

const TABLE: u64 = 0x1_0000;
const REGIONS: u64 = 0x10_0000;
const KIB_4: u64 = 4096;

/// Returns a processor whose unit is configured for output with `ctl`.
fn tracing(
    capabilities: Capabilities,
    memory: Memory,
    base: u64,
    mask_ptrs: u64,
    ctl: RtitCtl,
) -> Rtit {
    let mut rtit = Rtit::new(Some(capabilities), Config::user_only(), memory);
    let on = RtitCtl::TRACE_EN | RtitCtl::USER | RtitCtl::BRANCH_EN | ctl;
    let writes = [
        (IA32_RTIT_OUTPUT_BASE, base),
        (IA32_RTIT_OUTPUT_MASK_PTRS, mask_ptrs),
        (IA32_RTIT_CTL, on.0),
    ];
    for (msr, value) in writes {
        rtit.wrmsr(msr, value, At::default()).expect("a legal write");
    }
    rtit
}

fn topa(capabilities: Capabilities, memory: Memory, index: u64) -> Rtit {
    tracing(capabilities, memory, TABLE, index << 7, RtitCtl::TOPA)
}

fn with_table(entries: &[TopaEntry]) -> Memory {
    let mut memory = Memory::new();
    for (at, entry) in (TABLE..).step_by(8).zip(entries) {
        memory.write_u64(at, entry.0);
    }
    memory
}

/// Executes `count` indirect jumps.
fn jump(unit: &mut Unit, count: u64) {
    unit.enter(Addr(0x1000), USER);
    for i in 0..count {
        unit.branch(&branch(BranchKind::JmpIndirect, 0x1000, 0x1000 + i % 0x1_0000));
    }
}

/// Returns the bytes that the unit writes when it executes `event` and is then turned off.
fn reference(event: impl FnOnce(&mut Unit)) -> Vec<u8> {
    let mut rtit = tracing(Capabilities::ALL, Memory::new(), 0, 0x7f, RtitCtl::FABRIC_EN);
    rtit.execute(event);
    off(&mut rtit);
    rtit.transport().to_vec()
}

fn off(rtit: &mut Rtit) {
    let ctl = RtitCtl(rtit.rdmsr(IA32_RTIT_CTL).expect("a register"));
    rtit.wrmsr(IA32_RTIT_CTL, ctl.without(RtitCtl::TRACE_EN).0, At::default()).expect("off");
}

fn status(rtit: &Rtit) -> RtitStatus {
    RtitStatus(rtit.rdmsr(IA32_RTIT_STATUS).expect("a register"))
}

#[test]
fn a_single_range_wraps() {
    let mask = 0xfff;
    let mut rtit = tracing(Capabilities::ALL, Memory::new(), REGIONS, mask, RtitCtl(0));
    rtit.execute(|unit| jump(unit, 3000));
    off(&mut rtit);
    let expected = reference(|unit| jump(unit, 3000));
    let end = expected.len() as u64 & mask;
    assert_eq!(rtit.rdmsr(IA32_RTIT_OUTPUT_MASK_PTRS), Ok(end << 32 | mask));
    let (newer, older) =
        (expected.len() - usize::try_from(end).expect("small"), expected.len() - 4096);
    let range = rtit.memory().bytes(REGIONS, 4096);
    assert_eq!(range, [&expected[newer..], &expected[older..newer]].concat());
}

#[test]
fn a_single_range_is_checked_at_the_start() {
    let cases = [
        (REGIONS, 0x1_ff7f, OperationalError::MaskNotContiguous(0x1_ff7f)),
        (REGIONS | 0x80, 0xfff, OperationalError::BaseMisaligned(REGIONS | 0x80)),
        (REGIONS, 0x1000 << 32 | 0xfff, OperationalError::OffsetOutside(0x1000)),
    ];
    for (base, mask_ptrs, error) in cases {
        let mut rtit = tracing(Capabilities::ALL, Memory::new(), base, mask_ptrs, RtitCtl(0));
        rtit.execute(|unit| jump(unit, 10));
        assert_eq!(rtit.operational_error(), Some(error));
        assert!(status(&rtit).has(RtitStatus::ERROR));
        assert!(!status(&rtit).has(RtitStatus::TRIGGER_EN));
        assert_eq!(rtit.memory().bytes(REGIONS, 64), [0; 64]);
    }
}

proptest! {
    /// Checks that the trace is where the entries specify, for all sizes and orders of regions, in
    /// one table or in two.
    #[test]
    fn tables_hold_the_trace(sizes in prop::collection::vec(0..3_u8, 1..6), split in 1..5_usize) {
        let second = TABLE + 0x2000;
        let regions: Vec<_> = sizes.iter().enumerate().map(|(i, size)| {
            // Aligned to the largest size, and not in the table's order.
            (REGIONS + (7 - i as u64) * 0x1_0000, KIB_4 << size, *size)
        }).collect();
        let (head, tail) = regions.split_at(split.min(regions.len()));
        let entry = |&(base, _, size): &(u64, u64, u8)| TopaEntry::region(base, size, TopaEntry::INT);
        let mut table: Vec<_> = head.iter().map(entry).collect();
        table.push(TopaEntry::end(if tail.is_empty() { TABLE } else { second }));
        let mut memory = with_table(&table);
        for (at, region) in (second..).step_by(8).zip(tail) {
            memory.write_u64(at, entry(region).0);
        }
        memory.write_u64(second + 8 * tail.len() as u64, TopaEntry::end(TABLE).0);

        let mut rtit = topa(Capabilities::ALL, memory, 0);
        rtit.execute(|unit| jump(unit, 6000));
        off(&mut rtit);
        prop_assert_eq!(rtit.operational_error(), None);

        let expected = reference(|unit| jump(unit, 6000));
        let mut rest = &expected[..];
        let mut filled = 0;
        let mut held = std::collections::BTreeMap::new();
        for &(base, size_bytes, _) in regions.iter().cycle() {
            let (now, later) = rest.split_at(rest.len().min(usize::try_from(size_bytes)?));
            held.insert(base, now);
            filled += u64::from(now.len() as u64 == size_bytes);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        for (base, bytes) in held {
            prop_assert_eq!(rtit.memory().bytes(base, bytes.len()), bytes);
        }
        prop_assert_eq!(rtit.topa_pmis(), filled);
    }
}

#[test]
fn a_region_with_stop_ends_tracing_when_it_is_full() {
    let stop = TopaEntry::region(REGIONS, 0, TopaEntry::STOP | TopaEntry::INT);
    let memory = with_table(&[stop, TopaEntry::end(TABLE)]);
    let mut rtit = topa(Capabilities::ALL, memory, 0);
    rtit.execute(|unit| jump(unit, 5000));
    rtit.execute(|unit| jump(unit, 5000));
    assert!(status(&rtit).has(RtitStatus::STOPPED));
    assert_eq!(rtit.topa_pmis(), 1);
    // The pointers are at the end of the region, in the entry with STOP.
    assert_eq!(rtit.rdmsr(IA32_RTIT_OUTPUT_MASK_PTRS), Ok(KIB_4 << 32 | 0x7f));
    let expected = reference(|unit| jump(unit, 5000));
    assert_eq!(rtit.memory().bytes(REGIONS, 4096), expected[..4096]);
    assert_eq!(rtit.memory().bytes(REGIONS + KIB_4, 16), [0; 16]);
    // If Stopped is cleared and nothing else changes, the offset is an error.
    off(&mut rtit);
    rtit.wrmsr(IA32_RTIT_STATUS, 0, At::default()).expect("off");
    let on = RtitCtl::TRACE_EN | RtitCtl::USER | RtitCtl::BRANCH_EN | RtitCtl::TOPA;
    rtit.wrmsr(IA32_RTIT_CTL, on.0, At::default()).expect("legal");
    assert_eq!(rtit.operational_error(), Some(OperationalError::OffsetOutside(KIB_4)));
}

#[test]
fn malformed_tables_are_operational_errors() {
    use OperationalError as E;
    let good = TopaEntry::region(REGIONS, 0, 0);
    let end = TopaEntry::end(TABLE);
    let one = Capabilities { ecx: 1, ..Capabilities::ALL };
    let second = TABLE + 8;
    let cases: [(Capabilities, &[TopaEntry], OperationalError); 9] = [
        (Capabilities::ALL, &[TopaEntry(good.0 | 2)], E::ReservedBits(TABLE)),
        (Capabilities::ALL, &[TopaEntry(good.0 | 1 << 46)], E::ReservedBits(TABLE)),
        (Capabilities::ALL, &[TopaEntry::region(KIB_4, 1, 0)], E::RegionMisaligned(TABLE)),
        (Capabilities::ALL, &[end], E::EndFirst(TABLE)),
        (Capabilities::ALL, &[good, TopaEntry(end.0 | TopaEntry::STOP)], E::EndCombined(second)),
        (Capabilities::ALL, &[good, TopaEntry(end.0 | TopaEntry::INT)], E::EndCombined(second)),
        (Capabilities::ALL, &[good, TopaEntry::end(0x800_0000)], E::RegionMisaligned(0x800_0000)),
        (one, &[good, good], E::NotCircular(second)),
        (one, &[good, TopaEntry::end(TABLE + KIB_4)], E::NotCircular(second)),
    ];
    for (capabilities, table, error) in cases {
        let mut memory = with_table(table);
        memory.write_u64(0x800_0000, TopaEntry::region(KIB_4, 1, 0).0);
        let mut rtit = topa(capabilities, memory, 0);
        rtit.execute(|unit| jump(unit, 5000));
        assert_eq!(rtit.operational_error(), Some(error));
        assert!(status(&rtit).has(RtitStatus::ERROR));
    }
    let rtit = tracing(Capabilities::ALL, with_table(&[good, end]), TABLE | 0x80, 0, RtitCtl::TOPA);
    assert_eq!(rtit.operational_error(), Some(E::TableMisaligned(TABLE | 0x80)));
}

#[test]
fn with_one_region_the_interrupt_comes_early() {
    let entry = TopaEntry::region(REGIONS, 0, TopaEntry::INT);
    let one = Capabilities { ecx: 1, ..Capabilities::ALL };
    let mut rtit = topa(one, with_table(&[entry, TopaEntry::end(TABLE)]), 0);
    let mut jumps = 0;
    while rtit.topa_pmis() == 0 && jumps < 10_000 {
        rtit.execute(|unit| jump(unit, 1));
        jumps += 1;
    }
    let offset = rtit.rdmsr(IA32_RTIT_OUTPUT_MASK_PTRS).expect("a register") >> 32;
    assert!((KIB_4 / 2..KIB_4).contains(&offset), "{offset:#x}");
}

#[test]
fn restricted_output_is_dropped_or_ends_tracing() {
    let expected = reference(|unit| jump(unit, 200));
    for on_restricted in [OnRestricted::Drop, OnRestricted::Error] {
        let mut memory = with_table(&[TopaEntry::region(REGIONS, 0, 0), TopaEntry::end(TABLE)]);
        memory.restrict(REGIONS + 64..REGIONS + 128, on_restricted);
        let mut rtit = topa(Capabilities::ALL, memory, 0);
        rtit.execute(|unit| jump(unit, 200));
        off(&mut rtit);
        let held = rtit.memory().bytes(REGIONS, expected.len());
        assert_eq!(held[..64], expected[..64]);
        assert_eq!(held[64..128], [0xff; 64]);
        if on_restricted == OnRestricted::Drop {
            assert_eq!(held[128..], expected[128..]);
            assert_eq!(rtit.operational_error(), None);
        } else {
            assert_eq!(held[128..160], [0; 32]);
            assert_eq!(rtit.operational_error(), Some(OperationalError::Restricted(REGIONS + 64)));
        }
    }
}

#[test]
fn a_restricted_table_ends_tracing() {
    let mut memory = with_table(&[TopaEntry::region(REGIONS, 0, 0), TopaEntry::end(TABLE)]);
    memory.restrict(TABLE + 8..TABLE + 16, OnRestricted::Drop);
    let mut rtit = topa(Capabilities::ALL, memory, 0);
    rtit.execute(|unit| jump(unit, 5000));
    assert_eq!(rtit.operational_error(), Some(OperationalError::Restricted(TABLE + 8)));
    assert_eq!(rtit.memory().bytes(REGIONS, 4096), reference(|unit| jump(unit, 5000))[..4096]);
}

#[test]
fn tracing_goes_on_after_where_it_was_turned_off() {
    let memory = with_table(&[TopaEntry::region(REGIONS, 4, 0), TopaEntry::end(TABLE)]);
    let mut rtit = topa(Capabilities::ALL, memory, 0);
    rtit.execute(|unit| jump(unit, 100));
    off(&mut rtit);
    let end = rtit.rdmsr(IA32_RTIT_OUTPUT_MASK_PTRS).expect("a register") >> 32;
    let on = RtitCtl::TRACE_EN | RtitCtl::USER | RtitCtl::BRANCH_EN | RtitCtl::TOPA;
    rtit.wrmsr(IA32_RTIT_CTL, on.0, At::default()).expect("legal");
    rtit.execute(|unit| jump(unit, 100));
    off(&mut rtit);
    let end = usize::try_from(end).expect("small");
    let held = rtit.memory().bytes(REGIONS, 2 * end + 64);
    // No PSB, since PacketByteCnt is not 0: MODE.Exec and TIP.PGE first.
    assert_eq!(held[end..end + 3], [0x99, 0x01, 0x71]);
    assert_eq!(super::seen(&held[..end]).len(), super::seen(&reference(|u| jump(u, 100))).len());
}
