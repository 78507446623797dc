//! perf.data by orders: each 8 bytes of an input are an event, so that a change of one byte is a
//! change of what happened, and not only damage.

use super::{CODE, CODE_AT, START_TSC, traces};
use contraflow::common::{Addr, AddrRange, Pid, Tid};
use contraflow::sideband::perf_data::{
    AuxInfo, AuxTrace, BuildId, PerfClock, PerfEvent, PerfMap, PerfRecord, PerfWriter, SampleId,
};

/// What inputs of orders begin with.
pub(crate) const MADE: &[u8] = b"made";
/// That of the core, too.
const PID: Pid = Pid(7);
/// Orders behind these are left out.
const LIMIT: usize = 256;
const NAMES: [&str; 10] = [
    "/program",
    "[vdso]",
    "/[vdso]",
    "//anon",
    "[anon]",
    "/[code]",
    "/[core]",
    "[core]",
    "/nowhere",
    "/./program",
];

/// How the areas were taken: bits of the byte behind [`MADE`].
struct Kind(u8);

impl Kind {
    fn of_cpus(&self) -> bool {
        self.0 & 1 != 0
    }

    fn is_snapshot(&self) -> bool {
        self.0 & 2 != 0
    }

    fn is_piped(&self) -> bool {
        self.0 & 4 != 0
    }

    fn has_clock(&self) -> bool {
        self.0 & 8 == 0
    }
}

/// Whether the import of such an input is given a core.
pub(crate) fn has_core(orders: &[u8]) -> bool {
    orders.first().is_some_and(|kind| kind & 16 != 0)
}

/// Inputs that make what a recorder would write: two threads or CPUs, switches, a loss, a mapping
/// of each name.
pub(crate) fn orders() -> Vec<Vec<u8>> {
    let events: &[[u8; 8]] = &[
        [1, 0, 0, 0, 0, 0, 0, 0],
        [4, 0, 0, 1, 0, 0, 0, 0],
        [1, 0, 0, 2, 1, 0, 0, 0],
        [0, 0, 0, 3, 0, 0, 2, 1],
        [0, 0, 0, 4, 1, 200, 2, 1],
        [0, 0, 0, 5, 5, 16, 1, 1],
        [0, 0, 0, 5, 7, 0, 1, 1],
        [2, 0, 0, 6, 1, 0, 0, 0],
        [6, 0, 0, 7, 0, 1, 0, 0],
        [6, 0, 0, 20, 1, 1, 0, 0],
        [6, 1, 0, 21, 0, 0, 0, 0],
        [8, 0, 0, 0, 0, 0, 40, 0],
        [5, 0, 0, 9, 0, 40, 1, 0],
        [8, 1, 1, 0, 0, 0, 60, 0],
        [7, 0, 0, 60, 1, 0, 0, 0],
        [0, 0, 0, 70, 5, 17, 1, 1],
        [3, 1, 0, 90, 0, 0, 0, 0],
    ];
    let kinds = [0, 1, 3, 5, 16, 17];
    kinds.map(|kind| [MADE, &[kind], events.concat().as_slice()].concat()).into()
}

/// The file that the orders make.
pub(crate) fn made(orders: &[u8]) -> Vec<u8> {
    let Some((kind, orders)) = orders.split_first() else { return Vec::new() };
    let kind = Kind(*kind);
    let mut writer = PerfWriter::new("GenuineIntel,6,85,4");
    writer.add_intel_pt_events(8, 0x300_e601);
    let clock = PerfClock { zero_ns: 0, multiplier: 1, shift: 0 };
    writer.set_aux_info(&AuxInfo {
        pmu: 8,
        clock: Some(clock).filter(|_| kind.has_clock()),
        sched_switch: if kind.of_cpus() { 3 } else { 0 },
        snapshot: kind.is_snapshot(),
        per_cpu: kind.of_cpus(),
        ..AuxInfo::default()
    });
    let all: Vec<u8> = traces().concat();
    let mut areas = Vec::new();
    for order in orders.as_chunks::<8>().0.iter().take(LIMIT) {
        let [what, tid, cpu, time, rest @ ..] = *order;
        let (tid, cpu) = (Tid(7 + i32::from(tid % 4)), u32::from(cpu % 4));
        if what % 10 == 8 {
            let [at, from, size, _] = rest.map(usize::from);
            let start = (from * 16).min(all.len());
            let bytes = &all[start..(start + size * 16).min(all.len())];
            let piece = AuxTrace {
                record_offset: 0,
                start: 0,
                size_bytes: bytes.len(),
                stream_offset: at as u64 * 16,
                reference: 1,
                index: cpu,
                tid: Some(tid),
                cpu: Some(cpu).filter(|_| kind.of_cpus()),
            };
            areas.push((piece, bytes));
        } else if let Some(event) = event(what, tid, rest) {
            let time_ns = (time > 0).then(|| START_TSC + 5000 * u64::from(time));
            let cpu = Some(cpu).filter(|_| kind.of_cpus());
            let id = SampleId { task: Some((PID, tid)), time_ns, cpu };
            writer.add_record(&PerfRecord { offset: 0, id, event });
        } else {
            let name = NAMES[usize::from(rest[0]) % NAMES.len()].to_owned();
            writer.add_build_id(&BuildId { id: vec![rest[1]; 20], name });
        }
    }
    let mut bytes = Vec::new();
    let written = if kind.is_piped() {
        writer.write_to_pipe(&areas, &mut bytes)
    } else {
        writer.write(&areas, &mut bytes)
    };
    written.expect("memory takes all");
    bytes
}

fn event(what: u8, tid: Tid, [a, b, c, d]: [u8; 4]) -> Option<PerfEvent> {
    let other = Tid(7 + i32::from(a % 4));
    // Of another process now and then.
    let pid = Pid(7 + i32::from(b / 250));
    Some(match what % 10 {
        0 => {
            let name = NAMES[usize::from(a) % NAMES.len()].to_owned();
            // The stack, which the core holds, or the program's place.
            let base = if b > 127 { Addr(0x7fff_0000) } else { CODE_AT };
            PerfEvent::Map(Box::new(PerfMap {
                pid: PID,
                tid,
                range: AddrRange::sized(
                    base.wrapping_add(u64::from(b % 128) * 16),
                    u64::from(c) * 16,
                ),
                file_offset: u64::from(d / 4) * 8,
                writable: d & 2 != 0,
                executable: d & 1 != 0,
                shared: false,
                build_id: Vec::new(),
                name,
            }))
        }
        1 => PerfEvent::Comm { pid, tid, name: "p".to_owned(), exec: a & 1 != 0 },
        2 => PerfEvent::Fork { child: (pid, other), parent: (PID, tid) },
        3 => PerfEvent::Exit { pid, tid },
        4 => PerfEvent::ItraceStart { pid, tid },
        5 => PerfEvent::Aux {
            offset: u64::from(a) * 16,
            size: u64::from(b) * 16 - u64::from(c / 16).min(u64::from(b) * 16),
            flags: u64::from(c % 16),
        },
        6 => PerfEvent::Switch { out: a & 1 != 0, other: (b & 1 != 0).then_some((PID, other)) },
        7 => PerfEvent::Lost(a.into()),
        _ => return None,
    })
}

/// What the directory with the files that ran holds.
pub(crate) fn files() -> [(&'static str, Vec<u8>); 3] {
    let code: Vec<u8> = CODE.repeat(4);
    [("program", CODE.to_vec()), ("[code]", code.clone()), ("[core]", code)]
}
