//! perf.data that tells of very much: what costs the square of it would take the test's patience.

use crate::support::{Scene, contraflow, text};
use contraflow::common::{Addr, AddrRange, Pid, Tid};
use contraflow::sideband::perf_data::{
    AuxInfo, AuxTrace, PerfClock, PerfEvent, PerfMap, PerfRecord, PerfWriter, SampleId,
};
use std::fs;

const PID: Pid = Pid(7);
/// PSB (SDM, "Packet Stream Boundary (PSB) Packet"), TSC, PSBEND, and another time.
const TRACE: [u8; 34] = [
    2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, //
    0x19, 1, 0, 0, 0, 0, 0, 0, 2, 0x23, 0x19, 0, 0, 0, 1, 0, 0, 0,
];

fn told(events: impl Iterator<Item = (u64, PerfEvent)>) -> Vec<u8> {
    let mut writer = PerfWriter::new("GenuineIntel,6,94,3");
    writer.add_intel_pt_events(8, 1);
    // Nanoseconds are ticks.
    let clock = Some(PerfClock { zero_ns: 0, multiplier: 1, shift: 0 });
    writer.set_aux_info(&AuxInfo { pmu: 8, clock, ..AuxInfo::default() });
    let exec = PerfEvent::Comm { pid: PID, tid: Tid(7), name: "p".to_owned(), exec: true };
    for (time_ns, event) in std::iter::once((1, exec)).chain(events) {
        let id = SampleId { task: Some((PID, Tid(7))), time_ns: Some(time_ns), cpu: None };
        writer.add_record(&PerfRecord { offset: 0, id, event });
    }
    let piece = AuxTrace {
        record_offset: 0,
        start: 0,
        size_bytes: TRACE.len(),
        stream_offset: 0,
        reference: 1,
        index: 0,
        tid: Some(Tid(7)),
        cpu: None,
    };
    let mut bytes = Vec::new();
    writer.write(&[(piece, &TRACE)], &mut bytes).unwrap();
    bytes
}

/// Imports it; gives what `dump sideband` says.
fn imported(bytes: &[u8]) -> String {
    let scene = Scene::new();
    let (file, out) = (scene.path("perf.data"), scene.path("recording"));
    fs::write(&file, bytes).unwrap();
    let mut import = contraflow();
    import.env("CONTRAFLOW_HOME", scene.path("store")).arg("import").arg(&file).arg("-o").arg(&out);
    let output = import.output().expect("contraflow runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let dumped = contraflow().args(["dump", "sideband"]).arg(&out).output();
    text(&dumped.expect("contraflow runs").stdout)
}

#[test]
fn a_hundred_thousand_mappings_are_imported() {
    const MAPPINGS: u64 = 100_000;
    let map = |number: u64| {
        // Every other one over one before it.
        let place = if number.is_multiple_of(2) { number } else { number / 2 };
        let map = PerfMap {
            pid: PID,
            tid: Tid(7),
            range: AddrRange::sized(Addr(0x1000 * (place + 1)), 0x1000),
            file_offset: 0,
            writable: false,
            executable: true,
            shared: false,
            build_id: Vec::new(),
            name: format!("/nowhere/{number}"),
        };
        (number + 2, PerfEvent::Map(Box::new(map)))
    };
    let dumped = imported(&told((0..MAPPINGS).map(map)));
    assert_eq!(dumped.matches(" map 0x").count() as u64, MAPPINGS, "{dumped:.2000}");
}

#[test]
fn three_thousand_threads_are_imported() {
    const THREADS: i32 = 3000;
    let fork = |number: i32| {
        let child = (PID, Tid(8 + number));
        let event = PerfEvent::Fork { child, parent: (PID, Tid(7)) };
        let name =
            PerfEvent::Comm { pid: PID, tid: child.1, name: format!("w{number}"), exec: false };
        let time = 2 + u64::from(number.unsigned_abs());
        [(time, event), (time, name)]
    };
    let dumped = imported(&told((0..THREADS).flat_map(fork)));
    assert!(dumped.contains("w2999"), "{dumped:.2000}");
}
