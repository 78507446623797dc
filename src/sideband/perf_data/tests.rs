//! Reads back the writer's output, as a file, as a pipe and compressed. No input may cause a panic.

use super::*;
use crate::common::{Addr, AddrRange, Pid, Tid};
use proptest::prelude::*;

fn info() -> AuxInfo {
    AuxInfo {
        pmu: 8,
        clock: Some(PerfClock { zero_ns: u64::MAX - 5, multiplier: 672_770_566, shift: 31 }),
        sched_switch: 3,
        snapshot: false,
        tsc_bit: 0x400,
        noretcomp_bit: 0x800,
        mtc_bit: 0x200,
        mtc_freq_bits: 0x3c000,
        tsc_ctc_ratio: (266, 2),
        cyc_bit: 2,
        max_nonturbo_ratio: 32,
        per_cpu: true,
        filter: "filter 0x1000/0x200@/bin/p".to_owned(),
    }
}

fn events() -> Vec<PerfEvent> {
    let (pid, tid) = (Pid(7), Tid(8));
    let map = PerfMap {
        pid,
        tid,
        range: AddrRange::sized(Addr(0x40_0000), 0x3000),
        file_offset: 0x1000,
        writable: false,
        executable: true,
        shared: false,
        build_id: vec![1, 2, 3, 4, 5, 6, 7, 8],
        name: "/bin/p".to_owned(),
    };
    vec![
        PerfEvent::Comm { pid, tid, name: "p".to_owned(), exec: true },
        PerfEvent::Map(Box::new(PerfMap { build_id: Vec::new(), writable: true, ..map.clone() })),
        PerfEvent::Map(Box::new(map)),
        PerfEvent::Fork { child: (pid, Tid(9)), parent: (pid, tid) },
        PerfEvent::ItraceStart { pid, tid },
        PerfEvent::Switch { out: true, other: Some((Pid(0), Tid(0))) },
        PerfEvent::Switch { out: false, other: None },
        PerfEvent::Aux { offset: 16, size: 8, flags: 1 },
        PerfEvent::Lost(3),
        PerfEvent::Exit { pid, tid },
    ]
}

fn records() -> Vec<PerfRecord> {
    let record = |(number, event): (u64, PerfEvent)| {
        let time_ns = Some(1000 + number);
        let id = SampleId { task: Some((Pid(7), Tid(8))), time_ns, cpu: Some(2) };
        PerfRecord { offset: 0, id, event }
    };
    (0..).zip(events()).map(record).collect()
}

fn writer() -> PerfWriter {
    let mut writer = PerfWriter::new("GenuineIntel,6,94,3");
    writer.add_intel_pt_events(8, 0x300_e601);
    writer.set_aux_info(&info());
    writer.add_build_id(&BuildId { id: vec![9; 20], name: "/bin/p".to_owned() });
    for record in records() {
        writer.add_record(&record);
    }
    writer
}

const AREA: [u8; 21] = *b"these are the packets";

fn area() -> (AuxTrace, &'static [u8]) {
    let (tid, cpu) = (Some(Tid(8)), Some(2));
    let (record_offset, start, size_bytes, reference) = (0, 0, AREA.len(), 5);
    let piece = AuxTrace {
        record_offset,
        start,
        size_bytes,
        stream_offset: 64,
        reference,
        index: 1,
        tid,
        cpu,
    };
    (piece, &AREA)
}

fn file() -> Vec<u8> {
    let mut bytes = Vec::new();
    writer().write(&[area()], &mut bytes).unwrap();
    bytes
}

fn piped() -> Vec<u8> {
    let mut bytes = Vec::new();
    writer().write_to_pipe(&[area()], &mut bytes).unwrap();
    bytes
}

/// Returns the file with its records compressed into two, neither of which ends at a record
/// boundary.
fn compressed() -> Vec<u8> {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    let mut writer = writer();
    let frame = compress_to_vec(writer.records(), CompressionLevel::Fastest);
    let (one, two) = frame.split_at(frame.len() / 2);
    let record = |part: &[u8]| {
        let size = u16::try_from(8 + part.len()).unwrap();
        [&81_u32.to_le_bytes()[..], &[0, 0], &size.to_le_bytes(), part].concat()
    };
    let records = [record(one), record(two)].concat();
    writer.replace_records(records);
    let mut bytes = Vec::new();
    writer.write(&[area()], &mut bytes).unwrap();
    bytes
}

fn check(file: &[u8]) {
    let mut data = PerfData::parse(file).unwrap();
    for record in &mut data.records {
        assert!(record.offset > 0 && record.offset < file.len() as u64);
        record.offset = 0;
    }
    assert_eq!(data.records, records());
    assert_eq!(data.aux_info, Some(info()));
    assert_eq!(data.aux_info.unwrap().mtc_freq(0x300_e601), Some(3));
    assert_eq!(data.cpuid.as_deref(), Some("GenuineIntel,6,94,3"));
    let [trace] = data.aux_traces.as_slice() else { panic!("one area") };
    assert_eq!((trace.stream_offset, trace.reference, trace.index), (64, 5, 1));
    assert_eq!((trace.tid, trace.cpu, trace.size_bytes), (Some(Tid(8)), Some(2), 24));
    assert_eq!(file[trace.start..][..AREA.len()], AREA);
    let [pt, dummy] = data.attrs.as_slice() else { panic!("two events") };
    assert_eq!((pt.pmu, pt.config, pt.ids.as_slice()), (8, 0x300_e601, &[1][..]));
    assert!(pt.excludes_kernel() && dummy.excludes_kernel());
}

#[test]
fn what_is_written_is_read() {
    check(&file());
    check(&piped());
    check(&compressed());
    let build_ids = PerfData::parse(&file()).unwrap().build_ids;
    assert_eq!(build_ids, [BuildId { id: vec![9; 20], name: "/bin/p".to_owned() }]);
    assert!(is_perf_data(&file()) && is_perf_data(&piped()) && !is_perf_data(b"{"));
}

#[test]
fn filters_are_stored_as_perf_stores_them() {
    // The length is without the NULs, of which the text has at least one (`intel_pt_info_fill` of
    // tools/perf/arch/x86/util/intel-pt.c).
    let words = |length: u64| [8, 31, 1, 0, 1, 0, 0, 3, 0, 1, 0, 0, 2, 2, 0, 32, length];
    for filter in ["", "filter 0x1000/0x200@/bin/p", "filter 0x1000/0x200@/bin/pro"] {
        let length = filter.len();
        let padded = if length == 0 { 0 } else { (length + 1).next_multiple_of(8) };
        let mut record: Vec<u8> =
            words(length as u64).into_iter().flat_map(u64::to_le_bytes).collect();
        record.extend(filter.as_bytes());
        record.resize(17 * 8 + padded, 0);
        // perf 5.17 and later: whether the CPU has event trace.
        record.extend(1_u64.to_le_bytes());
        let parsed = AuxInfo::parse(fields::Fields::new(&record)).unwrap();
        assert_eq!(parsed.filter, filter);
        let mut writer = PerfWriter::new("");
        writer.set_aux_info(&parsed);
        let mut file = Vec::new();
        writer.write(&[], &mut file).unwrap();
        record.truncate(17 * 8 + padded);
        assert!(file.windows(record.len()).any(|part| part == record), "{filter}");
    }
}

#[test]
fn a_file_that_is_cut_is_refused_with_a_place_inside() {
    for whole in [file(), compressed()] {
        for size in 0..whole.len() {
            let bad = PerfData::parse(&whole[..size]).unwrap_err();
            assert!(bad.offset <= whole.len() as u64, "{size}: {bad}");
            assert!(bad.to_string().starts_with("at offset 0x"), "{bad}");
        }
    }
    // A pipe has no end other than that of its last record.
    let whole = piped();
    let fine = (0..whole.len()).filter(|size| PerfData::parse(&whole[..*size]).is_ok());
    assert!(fine.count() < 20);
}

/// Errors contain the offset of the fault.
#[test]
fn faults_have_their_places() {
    let parse = |bytes: &[u8]| PerfData::parse(bytes).unwrap_err();
    assert_eq!(parse(b"nonsense").offset, 0);
    assert!(parse(b"2ELIFREP").what.contains("byte order"));
    let whole = file();
    let area = PerfData::parse(&whole).unwrap().aux_traces[0];
    // An area that extends past the end.
    let mut bytes = whole.clone();
    let at = usize::try_from(area.record_offset).unwrap();
    bytes[at + 8..at + 16].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(parse(&bytes).offset, area.record_offset);
    // A record without a size.
    let mut bytes = whole.clone();
    bytes[at + 6..at + 8].fill(0);
    assert_eq!(parse(&bytes).offset, area.record_offset);
    // Attributes that extend past the end.
    let mut bytes = whole;
    bytes[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(parse(&bytes).what.contains("attributes"));
}

/// Zeros that compress a thousandfold must not fill the memory.
#[test]
fn what_grows_without_measure_is_refused() {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    let mut record = 9_u32.to_le_bytes().to_vec();
    record.extend([0, 0, 0xf8, 0xff]);
    record.resize(0xfff8, 0);
    let frame = compress_to_vec(record.repeat(1000).as_slice(), CompressionLevel::Fastest);
    let mut writer = writer();
    let part = |part: &[u8]| {
        let size = u16::try_from(8 + part.len()).unwrap();
        [&81_u32.to_le_bytes()[..], &[0, 0], &size.to_le_bytes(), part].concat()
    };
    writer.replace_records(frame.chunks(60_000).flat_map(part).collect());
    let mut bytes = Vec::new();
    writer.write(&[], &mut bytes).unwrap();
    assert!(bytes.len() < 1 << 20, "{}", bytes.len());
    let bad = PerfData::parse(&bytes).unwrap_err();
    assert!(bad.what.contains("too large"), "{bad}");
}

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_change_reads_or_is_refused(
        which in 0_usize..3, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = vec![file(), piped(), compressed()].swap_remove(which);
        for (at, to) in changes {
            let at = at.index(bytes.len());
            bytes[at] = to;
        }
        match PerfData::parse(&bytes) {
            Ok(data) => {
                prop_assert!(data.records.len() <= bytes.len());
                for area in data.aux_traces {
                    prop_assert!(area.start + area.size_bytes <= bytes.len());
                }
            }
            Err(bad) => prop_assert!(bad.offset <= bytes.len() as u64),
        }
    }

    #[test]
    fn any_bytes_read_or_are_refused(bytes: Vec<u8>) {
        prop_assert!(PerfData::parse(&bytes).is_err());
    }
}
