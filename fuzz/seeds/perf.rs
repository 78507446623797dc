//! perf.data of one process with two threads, by the library's own writer: of threads, of CPUs, as
//! snapshots, and through a pipe.

use super::{CODE, CODE_AT, START_TSC, traces};
use contraflow::common::{AddrRange, Pid, Tid};
use contraflow::sideband::perf_data::{
    AuxInfo, AuxTrace, BuildId, PerfClock, PerfEvent, PerfMap, PerfRecord, PerfWriter, SampleId,
};

const PID: Pid = Pid(1);

struct Kind {
    of_cpu: bool,
    snapshot: bool,
    piped: bool,
}

/// Inputs of the target `perf`.
pub(crate) fn perf_data() -> Vec<Vec<u8>> {
    let kinds =
        [(false, false, false), (true, false, false), (true, true, false), (true, false, true)];
    let kinds = kinds.map(|(of_cpu, snapshot, piped)| Kind { of_cpu, snapshot, piped });
    let traces = traces();
    let files = kinds.iter().zip(traces.iter().cycle()).map(|(kind, trace)| file(kind, trace));
    files.chain(super::made::orders()).collect()
}

fn file(kind: &Kind, trace: &[u8]) -> Vec<u8> {
    let mut writer = PerfWriter::new("GenuineIntel,6,85,4");
    writer.add_intel_pt_events(8, 0x300_e601);
    writer.set_aux_info(&AuxInfo {
        pmu: 8,
        // Nanoseconds are ticks.
        clock: Some(PerfClock { zero_ns: 0, multiplier: 1, shift: 0 }),
        sched_switch: if kind.of_cpu { 3 } else { 0 },
        snapshot: kind.snapshot,
        mtc_bit: 0x200,
        mtc_freq_bits: 0x3c000,
        per_cpu: kind.of_cpu,
        filter: "filter 0x0/0x20@/program".to_owned(),
        ..AuxInfo::default()
    });
    writer.add_build_id(&BuildId { id: vec![1; 20], name: "/other".to_owned() });
    let cpu = kind.of_cpu.then_some(0);
    let mut tell = |time_ns: u64, tid: i32, event| {
        let time_ns = Some(time_ns).filter(|time_ns| *time_ns > 0);
        let id = SampleId { task: Some((PID, Tid(tid))), time_ns, cpu };
        writer.add_record(&PerfRecord { offset: 0, id, event });
    };
    let start = START_TSC;
    tell(0, 1, PerfEvent::Comm { pid: PID, tid: Tid(1), name: "sh".to_owned(), exec: false });
    tell(start, 1, PerfEvent::ItraceStart { pid: PID, tid: Tid(1) });
    tell(start, 1, PerfEvent::Comm { pid: PID, tid: Tid(1), name: "p".to_owned(), exec: true });
    for (time, name) in [(1, "/program"), (2, "[vdso]"), (3, "//anon"), (90_000, "/program")] {
        let at = CODE_AT.wrapping_add(if name == "/program" { 0 } else { 0x10_0000 * time });
        let map = PerfMap {
            pid: PID,
            tid: Tid(1),
            range: AddrRange::sized(at, CODE.len() as u64),
            file_offset: 0,
            writable: false,
            executable: true,
            shared: false,
            build_id: Vec::new(),
            name: name.to_owned(),
        };
        tell(start + time, 1, PerfEvent::Map(Box::new(map)));
    }
    tell(start + 9, 1, PerfEvent::Fork { child: (PID, Tid(2)), parent: (PID, Tid(1)) });
    let size = trace.len() as u64;
    tell(start + 9, 1, PerfEvent::Aux { offset: 0, size: size / 2, flags: 1 });
    tell(start + 9, 1, PerfEvent::Aux { offset: size / 2, size: size - size / 2, flags: 0 });
    for number in 0..6 {
        let (at, tid) = (start + 40_000 * (number + 1), 1 + i32::from(number % 4 > 1));
        let other = Some((PID, Tid(3 - tid)));
        tell(at, tid, PerfEvent::Switch { out: number % 2 == 0, other });
    }
    tell(start + 500_000, 1, PerfEvent::Lost(1));
    tell(start + 500_000, 2, PerfEvent::Exit { pid: PID, tid: Tid(2) });
    let (one, two) = trace.split_at(trace.len() / 16 * 8);
    let piece = |stream_offset: usize, bytes: &[u8]| AuxTrace {
        record_offset: 0,
        start: 0,
        size_bytes: bytes.len(),
        stream_offset: stream_offset as u64,
        reference: 0,
        index: 0,
        tid: Some(Tid(1)),
        cpu,
    };
    let second = if kind.snapshot { trace } else { two };
    let areas = [(piece(0, one), one), (piece(one.len(), second), second)];
    let mut bytes = Vec::new();
    let written = if kind.piped {
        writer.write_to_pipe(&areas, &mut bytes)
    } else {
        writer.write(&areas, &mut bytes)
    };
    written.expect("memory takes all");
    bytes
}
