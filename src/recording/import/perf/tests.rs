//! Synthetic perf.data files: the assignment of trace bytes and code, and rejected files.

use super::super::imported::{Imported, ImportedEventKind, MappedCode};
use super::super::trace_bytes::TraceBytes;
use super::{PerfOptions, open_perf};
use crate::common::{Addr, AddrRange, Pid, Tid};
use crate::recording::{ErrorKind, Reader, TraceId};
use crate::sideband::perf_data::{
    AuxInfo, AuxTrace, PerfClock, PerfEvent, PerfMap, PerfRecord, PerfWriter, SampleId,
};
use crate::sideband::{Event, SwitchKind};
use std::fs;

const PSB: [u8; 16] = [2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82];
const OVF: [u8; 2] = [0x02, 0xf3];
/// A TIP with 2 bytes of IP.
const TIP: [u8; 3] = [0x2d, 1, 2];
const PID: Pid = Pid(7);

fn psb_and(packets: &[u8]) -> Vec<u8> {
    [&PSB, packets].concat()
}

struct Made {
    writer: PerfWriter,
    areas: Vec<(AuxTrace, Vec<u8>)>,
    dir: tempfile::TempDir,
}

impl Made {
    fn new(info: &AuxInfo) -> Self {
        let mut writer = PerfWriter::new("GenuineIntel,6,94,3");
        writer.add_intel_pt_events(8, 1);
        writer.set_aux_info(info);
        Self { writer, areas: Vec::new(), dir: tempfile::tempdir().unwrap() }
    }

    fn record(&mut self, time_ns: u64, tid: i32, cpu: Option<u32>, event: PerfEvent) {
        let time_ns = Some(time_ns).filter(|time_ns| *time_ns > 0);
        let id = SampleId { task: Some((PID, Tid(tid))), time_ns, cpu };
        self.writer.add_record(&PerfRecord { offset: 0, id, event });
    }

    fn map(&mut self, time_ns: u64, pid: Pid, start: u64, name: &str) {
        self.map_at(time_ns, pid, (start, 0), name);
    }

    /// Adds a mapping of a page at `start` with the file's bytes from `file_offset` on.
    fn map_at(&mut self, time_ns: u64, pid: Pid, (start, file_offset): (u64, u64), name: &str) {
        let map = PerfMap {
            pid,
            tid: Tid(pid.0),
            range: AddrRange::sized(Addr(start), 0x1000),
            file_offset,
            writable: false,
            executable: true,
            shared: false,
            build_id: Vec::new(),
            name: name.to_owned(),
        };
        self.record(time_ns, PID.0, None, PerfEvent::Map(Box::new(map)));
    }

    fn area(&mut self, tid: Option<i32>, cpu: Option<u32>, stream_offset: u64, bytes: &[u8]) {
        let (tid, index) = (tid.map(Tid), cpu.unwrap_or(0));
        let size_bytes = bytes.len();
        let (record_offset, start) = (0, 0);
        let piece = AuxTrace {
            record_offset,
            start,
            size_bytes,
            stream_offset,
            reference: 0,
            index,
            tid,
            cpu,
        };
        self.areas.push((piece, bytes.to_vec()));
    }

    fn open(&self, options: &PerfOptions) -> Result<Imported, ErrorKind> {
        let path = self.dir.path().join("perf.data");
        let areas: Vec<_> = self.areas.iter().map(|(piece, bytes)| (*piece, &bytes[..])).collect();
        self.writer.write(&areas, &mut fs::File::create(&path).unwrap()).unwrap();
        open_perf(&path, options).map_err(|error| error.kind)
    }

    fn opened(&self) -> Imported {
        self.open(&PerfOptions::default()).unwrap()
    }
}

/// Returns AUX info with a clock of one tick per nanosecond.
fn info() -> AuxInfo {
    let clock = Some(PerfClock { zero_ns: 0, multiplier: 1, shift: 0 });
    AuxInfo { pmu: 8, clock, sched_switch: 3, ..AuxInfo::default() }
}

fn all(trace: &TraceBytes) -> Vec<u8> {
    trace.parts().flat_map(|(bytes, _)| bytes.to_vec()).collect()
}

fn comm(pid: Pid, exec: bool) -> PerfEvent {
    PerfEvent::Comm { pid, tid: Tid(pid.0), name: "p".to_owned(), exec }
}

#[test]
fn pieces_of_a_thread_make_its_trace_without_their_padding() {
    let mut made = Made::new(&info());
    made.record(0, 7, None, comm(PID, false));
    let (one, two) = (psb_and(&TIP), psb_and(&[0, 0, 0x2d]));
    made.area(Some(7), None, 0, &one);
    made.area(Some(7), None, one.len() as u64, &two);
    let size = (one.len() + two.len()) as u64;
    made.record(5, 7, None, PerfEvent::Aux { offset: 0, size, flags: 0 });
    let imported = made.opened();
    let [(id, trace)] = imported.traces.as_slice() else { panic!("one trace") };
    assert_eq!((*id, all(trace)), (TraceId::Thread(Tid(7)), [one, two].concat()));
    assert_eq!(trace.size_bytes(), size);
    assert_eq!((imported.pid, imported.threads), (PID, vec![Tid(7)]));
}

#[test]
fn what_is_missing_is_an_overflow_between_whole_packets() {
    // Cut in the middle of a packet: by a flag, then by a gap in the stream.
    for flag in [true, false] {
        let mut made = Made::new(&info());
        made.record(0, 7, None, comm(PID, false));
        let one = [&psb_and(&TIP)[..], &TIP[..2]].concat();
        let two = [&[0xff, 0xff][..], &psb_and(&TIP)].concat();
        let size = one.len() as u64;
        if flag {
            // One piece has both: the loss is inside it.
            made.area(Some(7), None, 0, &[&one[..], &two].concat());
            made.record(5, 7, None, PerfEvent::Aux { offset: 0, size, flags: 1 });
            let aux = PerfEvent::Aux { offset: size, size: two.len() as u64, flags: 0 };
            made.record(6, 7, None, aux);
        } else {
            made.area(Some(7), None, 0, &one);
            made.area(Some(7), None, 1000, &two);
            made.record(5, 7, None, PerfEvent::Aux { offset: 0, size, flags: 0 });
            let aux = PerfEvent::Aux { offset: 1000, size: two.len() as u64, flags: 0 };
            made.record(6, 7, None, aux);
        }
        let expected = [&psb_and(&TIP)[..], &OVF, &psb_and(&TIP)].concat();
        let imported = made.opened();
        assert_eq!(all(&imported.traces[0].1)[..expected.len()], expected, "{flag}");
        assert!(all(&imported.traces[0].1)[expected.len()..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn snapshots_that_share_bytes_are_joined() {
    let mut made = Made::new(&AuxInfo { snapshot: true, ..info() });
    made.record(0, 7, None, comm(PID, false));
    let ring: Vec<u8> = (0..9).flat_map(|n| psb_and(&[0x2d, n, n])).collect();
    let ring = &ring[..ring.len() / 8 * 8];
    made.area(Some(7), None, 0, &ring[..96]);
    made.area(Some(7), None, 0, &ring[40..144]);
    let imported = made.opened();
    assert_eq!(all(&imported.traces[0].1), ring[..144]);
    // perf pads sizes to multiples of 8 bytes.
    let mut made = Made::new(&AuxInfo { snapshot: true, ..info() });
    made.record(0, 7, None, comm(PID, false));
    made.area(Some(7), None, 0, &ring[..93]);
    made.area(Some(7), None, 0, &ring[40..144]);
    assert_eq!(all(&made.opened().traces[0].1), ring[..144]);
    // Without an overlap there is a loss.
    let mut made = Made::new(&AuxInfo { snapshot: true, ..info() });
    made.record(0, 7, None, comm(PID, false));
    made.area(Some(7), None, 0, &psb_and(&[0x2d, 1, 1, 0, 0, 0, 0, 0]));
    made.area(Some(7), None, 0, &psb_and(&[0x2d, 2, 2, 0, 0, 0, 0, 0]));
    let joined = all(&made.opened().traces[0].1);
    assert_eq!(joined[24..26], OVF);
    assert_eq!(joined[26..42], PSB);
}

#[test]
fn pieces_that_lie_over_each_other_are_refused() {
    let mut made = Made::new(&info());
    made.area(Some(7), None, 0, &psb_and(&[0; 32]));
    made.area(Some(7), None, 16, &psb_and(&[0; 32]));
    made.record(0, 7, None, comm(PID, false));
    let refused = made.open(&PerfOptions::default());
    assert!(matches!(refused, Err(ErrorKind::Overlapping { offset }) if offset > 100));
}

#[test]
fn cpus_get_the_threads_that_they_ran() {
    let mut made = Made::new(&info());
    made.area(Some(7), Some(1), 0, &psb_and(&TIP));
    made.record(0, 7, None, comm(PID, false));
    let child = PerfEvent::Fork { child: (PID, Tid(8)), parent: (PID, Tid(7)) };
    made.record(10, 7, Some(1), child);
    made.record(20, 7, Some(1), PerfEvent::ItraceStart { pid: PID, tid: Tid(7) });
    made.record(30, 7, Some(1), PerfEvent::Switch { out: true, other: Some((PID, Tid(8))) });
    made.record(31, 8, Some(1), PerfEvent::Switch { out: false, other: Some((PID, Tid(7))) });
    // A CPU without a trace does not matter, nor do its losses.
    made.record(32, 7, Some(2), PerfEvent::Switch { out: false, other: None });
    made.record(33, 7, Some(2), PerfEvent::Lost(1));
    made.record(34, 7, Some(1), PerfEvent::Lost(2));
    let imported = made.opened();
    assert_eq!(imported.threads, [Tid(7), Tid(8)]);
    let found: Vec<_> = imported.switches.iter().map(|s| (s.cpu, s.tsc.0, s.kind)).collect();
    let expected = [
        (1, 20, SwitchKind::In(PID, Tid(7))),
        (1, 30, SwitchKind::Out(PID, Tid(7))),
        (1, 31, SwitchKind::In(PID, Tid(8))),
        (1, 34, SwitchKind::Lost),
    ];
    assert_eq!(found, expected);
    assert!(imported.notes.iter().any(|note| note.contains("lost 3 records in 2 places")));
}

/// Tests that the traces can contain thread 7, its descendants, and others that wrote to the area.
#[test]
fn traces_of_cpus_hold_the_threads_that_were_traced() {
    let of = |tid: Option<i32>, lost: bool| {
        let mut made = Made::new(&info());
        made.area(tid, Some(1), 0, &psb_and(&TIP));
        made.record(0, 7, None, comm(PID, false));
        made.record(10, 7, Some(1), PerfEvent::Switch { out: false, other: None });
        let child = |tid| (Pid(tid), Tid(tid));
        made.record(11, 7, None, PerfEvent::Fork { child: child(8), parent: (PID, Tid(7)) });
        made.record(12, 8, None, PerfEvent::Fork { child: child(9), parent: child(8) });
        made.record(13, 5, None, PerfEvent::Fork { child: child(6), parent: child(5) });
        made.record(14, 4, Some(1), PerfEvent::Aux { offset: 0, size: 8, flags: 0 });
        made.record(15, 3, Some(1), PerfEvent::ItraceStart { pid: Pid(3), tid: Tid(3) });
        if lost {
            made.record(16, 7, Some(2), PerfEvent::Lost(1));
        }
        made.open(&PerfOptions { pid: Some(PID), ..PerfOptions::default() }).unwrap().import.traced
    };
    assert_eq!(of(Some(7), false), Some([3, 4, 7, 8, 9].map(Tid).to_vec()));
    assert_eq!(of(None, false), None);
    assert_eq!(of(Some(7), true), None);
}

#[test]
fn traces_of_cpus_need_switches_and_a_clock() {
    let refused = |info: &AuxInfo| {
        let mut made = Made::new(info);
        made.area(None, Some(1), 0, &psb_and(&TIP));
        made.record(0, 7, None, comm(PID, false));
        made.open(&PerfOptions::default()).unwrap_err().to_string()
    };
    assert!(refused(&info()).contains("no context switches"));
    assert!(refused(&AuxInfo { sched_switch: 1, ..info() }).contains("sched:sched_switch"));
    assert!(refused(&AuxInfo { clock: None, ..info() }).contains("clock is unknown"));
}

#[test]
fn of_several_processes_one_is_chosen() {
    let mut made = Made::new(&info());
    made.area(None, Some(1), 0, &psb_and(&TIP));
    made.record(0, 7, None, comm(PID, false));
    made.record(0, 9, None, comm(Pid(9), false));
    made.record(20, 7, Some(1), PerfEvent::ItraceStart { pid: PID, tid: Tid(7) });
    let refused = made.open(&PerfOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("several processes: 7 (p), 9 (p)"), "{refused}");
    let chosen = made.open(&PerfOptions { pid: Some(Pid(9)), ..PerfOptions::default() }).unwrap();
    assert_eq!((chosen.pid, chosen.threads), (Pid(9), vec![Tid(9)]));
    let refused =
        made.open(&PerfOptions { pid: Some(Pid(5)), ..PerfOptions::default() }).unwrap_err();
    assert!(refused.to_string().contains("has no process 5"), "{refused}");
}

/// Tests that a child has its parent's mappings, up to its own exec.
#[test]
fn memory_is_inherited_up_to_exec() {
    let mut made = Made::new(&info());
    made.area(Some(9), None, 0, &psb_and(&TIP));
    let (parent, child) = (PID, Pid(9));
    made.record(0, 7, None, comm(parent, false));
    made.map(10, parent, 0x1000, "/nowhere/a");
    let fork = PerfEvent::Fork { child: (child, Tid(9)), parent: (parent, Tid(7)) };
    made.record(20, 7, None, fork);
    made.map(21, parent, 0x2000, "/nowhere/b");
    made.map(22, child, 0x3000, "/nowhere/c");
    made.map(23, child, 0x3000, "/nowhere/d");
    let reported = |imported: &Imported| -> Vec<(u64, String)> {
        let name = |event: &super::super::imported::ImportedEvent| match &event.kind {
            ImportedEventKind::Map(MappedCode::File(section)) => {
                Some((event.tsc.0, section.name.to_string()))
            }
            ImportedEventKind::Sideband(Event::Exec { path }) => {
                Some((event.tsc.0, format!("exec {path}")))
            }
            _ => None,
        };
        imported.history.iter().filter_map(name).collect()
    };
    let names = |list: &[(u64, &str)]| -> Vec<(u64, String)> {
        list.iter().map(|(at, name)| (*at, (*name).to_owned())).collect()
    };
    let expected = [(0, "/nowhere/a"), (0, "/nowhere/c"), (23, "/nowhere/d")];
    assert_eq!(reported(&made.opened()), names(&expected));
    made.record(30, 9, None, comm(child, true));
    made.map(31, child, 0x3000, "/nowhere/e");
    let imported = made.opened();
    let expected = [
        (0, "/nowhere/a"),
        (0, "/nowhere/c"),
        (23, "/nowhere/d"),
        (30, "exec /nowhere/e"),
        (30, "/nowhere/e"),
    ];
    assert_eq!(reported(&imported), names(&expected));
    assert_eq!(imported.program, "/nowhere/e");
    assert!(imported.notes.iter().any(|note| note.contains("/nowhere/e: not found")));
}

#[test]
fn files_are_taken_below_the_root_and_checked() {
    let program = fs::read("/proc/self/exe").unwrap();
    let mut made = Made::new(&info());
    made.area(Some(7), None, 0, &psb_and(&TIP));
    made.record(0, 7, None, comm(PID, false));
    made.map(10, PID, 0x1000, "/../../bin/p");
    let root = made.dir.path().join("root");
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::write(root.join("bin/p"), &program).unwrap();
    let options = PerfOptions { symfs: Some(root.clone()), ..PerfOptions::default() };
    let code = |imported: &Imported| -> usize {
        let reported = imported.history.iter().find_map(|event| match &event.kind {
            ImportedEventKind::Map(MappedCode::File(section)) => Some(section.bytes.len()),
            _ => None,
        });
        reported.unwrap()
    };
    assert_eq!(code(&made.open(&options).unwrap()), program.len());
    made.writer.add_build_id(&crate::sideband::perf_data::BuildId {
        id: vec![0xab; 20],
        name: "/../../bin/p".to_owned(),
    });
    let has_build_id = crate::image::elf::Elf::parse(&program.clone().into()).unwrap().build_id;
    if has_build_id.is_some() {
        assert!(matches!(made.open(&options), Err(ErrorKind::OtherBinary)));
        let forced = PerfOptions { any_binary: true, ..options };
        assert_eq!(code(&made.open(&forced).unwrap()), program.len());
    }
}

/// Tests that a filter is cut to the executable mapping of its file, as by the kernel.
#[test]
fn a_filter_is_cut_to_the_code_that_is_mapped() {
    for (filter, expected) in [
        ("filter 0x0/0x5000@/nowhere/p", Some((0x40_1000, 0x1000))),
        ("filter 0x1200/0x5000@/nowhere/p", Some((0x40_1200, 0xe00))),
        ("filter 0x1200/0x100@/nowhere/p", Some((0x40_1200, 0x100))),
        ("filter 0x0/0x1000@/nowhere/p", None),
        ("filter 0x2000/0x1000@/nowhere/p", None),
    ] {
        let mut made = Made::new(&AuxInfo { filter: filter.to_owned(), ..info() });
        made.area(Some(7), None, 0, &psb_and(&TIP));
        made.record(0, 7, None, comm(PID, false));
        made.map_at(10, PID, (0x40_1000, 0x1000), "/nowhere/p");
        let ranges = made.opened().import.filter;
        let expected = expected.map(|(start, size)| AddrRange::sized(Addr(start), size));
        assert_eq!(ranges, Vec::from_iter(expected), "{filter}");
    }
}

#[test]
fn what_holds_no_user_trace_is_refused() {
    let mut made = Made::new(&info());
    made.record(0, 7, None, comm(PID, false));
    assert!(matches!(made.open(&PerfOptions::default()), Err(ErrorKind::NoTrace)));
    let mut writer = PerfWriter::new("");
    writer.add_event("cpu-clock", 1, 0, 0);
    made.writer = writer;
    assert!(matches!(made.open(&PerfOptions::default()), Err(ErrorKind::NoIntelPt)));
    let mut writer = PerfWriter::new("");
    writer.add_event("intel_pt//", 8, 1, 0);
    writer.set_aux_info(&info());
    made.writer = writer;
    assert!(matches!(made.open(&PerfOptions::default()), Err(ErrorKind::TracesKernel)));
}

/// Writes an import as a recording and opens it.
fn written(imported: &Imported) -> (tempfile::TempDir, Reader) {
    let dir = tempfile::tempdir().unwrap();
    imported.write(&dir.path().join("recording")).unwrap();
    let reader = Reader::open(&dir.path().join("recording")).unwrap();
    (dir, reader)
}

#[test]
fn a_thread_that_nobody_traced_has_an_empty_trace() {
    let mut made = Made::new(&info());
    made.record(0, 7, None, comm(PID, false));
    made.record(1, 7, None, PerfEvent::Fork { child: (PID, Tid(8)), parent: (PID, Tid(7)) });
    made.area(Some(7), None, 0, &psb_and(&TIP));
    let (_dir, reader) = written(&made.opened());
    assert_eq!(reader.threads().unwrap(), [Tid(7), Tid(8)]);
    let size = |tid| reader.trace(TraceId::Thread(Tid(tid))).unwrap().as_ref().len();
    // The size includes padding, since no record has the exact size.
    assert_eq!((size(7), size(8)), (psb_and(&TIP).len().next_multiple_of(8), 0));
    assert_eq!(reader.find_damage().len(), 0);
}

#[test]
fn many_threads_have_no_need_of_as_many_open_files() {
    let mut made = Made::new(&info());
    made.record(0, 7, None, comm(PID, false));
    // With two open files for each thread, there would be more than a process may have by default.
    for tid in 8..1600 {
        made.record(1, 7, None, PerfEvent::Fork { child: (PID, Tid(tid)), parent: (PID, Tid(7)) });
        made.area(Some(tid), None, 0, &psb_and(&TIP));
    }
    let (_dir, reader) = written(&made.opened());
    assert_eq!(reader.threads().unwrap().len(), 1593);
}

/// Tests that successive losses of all CPUs are reported once for each CPU, up to its next switch.
#[test]
fn losses_in_a_row_are_one() {
    let mut made = Made::new(&info());
    made.record(0, 7, None, comm(PID, false));
    for cpu in 0..3 {
        made.area(None, Some(cpu), 0, &psb_and(&TIP));
    }
    let switch = || PerfEvent::Switch { out: false, other: None };
    made.record(1, 7, Some(1), switch());
    for time in 2..100 {
        made.record(time, 7, None, PerfEvent::Lost(1));
    }
    made.record(100, 7, Some(1), switch());
    made.record(101, 7, None, PerfEvent::Lost(1));
    let reported: Vec<_> =
        made.opened().switches.iter().map(|s| (s.tsc.0, s.cpu, s.kind)).collect();
    let expected = [
        (1, 1, SwitchKind::In(PID, Tid(7))),
        (2, 0, SwitchKind::Lost),
        (2, 1, SwitchKind::Lost),
        (2, 2, SwitchKind::Lost),
        (100, 1, SwitchKind::In(PID, Tid(7))),
        (101, 1, SwitchKind::Lost),
    ];
    assert_eq!(reported, expected);
}

/// Tests that a thread whose tracing starts after a loss is running, also if it ran before that.
#[test]
fn a_thread_whose_tracing_starts_after_a_loss_is_running() {
    let mut made = Made::new(&info());
    made.record(0, 7, None, comm(PID, false));
    made.area(None, Some(1), 0, &psb_and(&TIP));
    let start = || PerfEvent::ItraceStart { pid: PID, tid: Tid(7) };
    made.record(1, 7, Some(1), start());
    made.record(2, 7, Some(1), PerfEvent::Lost(1));
    made.record(3, 7, Some(1), start());
    made.record(4, 7, Some(1), start());
    made.record(5, 7, None, PerfEvent::Lost(1));
    made.record(6, 7, Some(1), start());
    made.record(7, 7, Some(1), PerfEvent::Lost(1));
    // It is not known that thread 8 ran since the loss.
    let other = Some((PID, Tid(8)));
    made.record(8, 7, Some(1), PerfEvent::Switch { out: false, other });
    let found: Vec<_> = made.opened().switches.iter().map(|s| (s.tsc.0, s.kind)).collect();
    let (runs, lost) = (SwitchKind::In(PID, Tid(7)), SwitchKind::Lost);
    let expected = [(1, runs), (2, lost), (3, runs), (5, lost), (6, runs), (7, lost), (8, runs)];
    assert_eq!(found, expected);
}

/// Tests that perf.data that maps more exported code than there is gets unknown code for the
/// excess.
#[test]
fn code_of_an_export_is_reported_once_and_no_more() {
    let mut made = Made::new(&info());
    let symfs = made.dir.path().join("symfs");
    fs::create_dir(&symfs).unwrap();
    fs::write(symfs.join("[code]"), [0x90; 0x1800]).unwrap();
    made.record(0, 7, None, comm(PID, true));
    for start in [0x10_000, 0x20_000, 0x30_000] {
        made.map(1, PID, start, "/[code]");
    }
    made.area(Some(7), None, 0, &psb_and(&TIP));
    let options = PerfOptions { symfs: Some(symfs), ..PerfOptions::default() };
    let reported = made.open(&options).unwrap().history;
    let sizes = reported.iter().filter_map(|event| match &event.kind {
        ImportedEventKind::Sideband(Event::Code { bytes, .. }) => Some(bytes.len()),
        ImportedEventKind::Map(MappedCode::Anonymous(_)) => Some(0),
        _ => None,
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [0x1000, 0, 0]);
}
