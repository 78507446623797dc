//! A run as a recording in a temporary directory.

use super::machine::RanProgram;
use crate::common::{Addr, AddrRange, Pid, Tid, Tsc};
use crate::recording::{
    BackendName, Capture, End, HostCpu, Manifest, Reader, ThreadEntry, TscClock, Writer,
};
use crate::sideband::{Backing, Event, FileId, Protection, Record};
use crate::timeline::{Options, Timeline};
use std::path::PathBuf;

/// A recording that is removed on drop.
pub(super) struct Recorded {
    pub(super) dir: tempfile::TempDir,
}

pub(super) fn tid(thread: usize) -> Tid {
    Tid(100 + i32::try_from(thread).unwrap())
}

impl Recorded {
    pub(super) fn new(ran: &RanProgram) -> Self {
        let traces: Vec<&[u8]> = ran.threads.iter().map(|notes| notes.trace.as_slice()).collect();
        Self::with_traces(ran, &traces)
    }

    /// Records the run's code and threads, with these bytes as their traces.
    pub(super) fn with_traces(ran: &RanProgram, traces: &[&[u8]]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let threads = traces.iter().zip(&ran.threads).enumerate();
        let entry =
            |(number, (trace, notes)): (usize, (&&[u8], &super::machine::Notes))| ThreadEntry {
                tid: tid(number),
                pid: Pid(100),
                name: "t".to_owned(),
                trace_bytes: trace.len() as u64,
                instructions: notes.addrs.len() as u64,
                final_pc: Some(notes.final_pc),
            };
        let manifest = manifest(threads.map(entry).collect());
        let mut writer = Writer::create(&dir.path().join("r"), &manifest).unwrap();
        let code = ran.program.bytes();
        let (file, image) = (FileId(0), writer.image_from_bytes(&code).unwrap());
        let range = AddrRange::sized(ran.program.addrs[0], code.len() as u64);
        let protection = Protection { read: true, execute: true, ..Protection::default() };
        let backing = Backing::File { file, offset: 0 };
        for event in [
            Event::File { file, path: "/p".to_owned() },
            Event::Image { file, image },
            Event::Map { range, protection, backing },
        ] {
            let record = Record { tsc: Tsc(1), pid: Pid(100), tid: tid(0), event };
            writer.sideband(&record).unwrap();
        }
        for (number, trace) in traces.iter().enumerate() {
            writer.start_thread(tid(number)).unwrap();
            // In pieces, so that there are several chunks with checksums.
            for piece in trace.chunks(1000) {
                writer.trace(tid(number), piece).unwrap();
                writer.flush().unwrap();
            }
        }
        writer.finish(&manifest).unwrap();
        Self { dir }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().join("r")
    }

    pub(super) fn reader(&self) -> Reader {
        Reader::open(&self.path()).unwrap()
    }

    pub(super) fn open(&self, workers: usize, cache_bytes: usize) -> Timeline {
        let options = Options { workers, cache_bytes, use_saved_index: false };
        Timeline::open(self.reader(), options).unwrap()
    }

    pub(super) fn open_saved(&self) -> Timeline {
        let options = Options { workers: 1, cache_bytes: 0, use_saved_index: true };
        Timeline::open(self.reader(), options).unwrap()
    }
}

/// Returns the contents of a timeline as text, for comparison.
pub(super) fn reported(timeline: &Timeline) -> Vec<String> {
    let mut reported = vec![format!("{} instructions", timeline.total())];
    for g in 0..=timeline.total() {
        reported.push(format!("{:?} {:?}", timeline.running_at(g), timeline.time_at(g)));
    }
    for tid in timeline.threads() {
        reported.push(format!("{} segments {:?}", timeline.segments(tid), timeline.gaps(tid)));
        for index in 0..=timeline.instructions(tid) {
            let addr: Option<Addr> = timeline.pc(tid, index);
            let bounds = timeline.segment_bounds(tid, index);
            let global = timeline.global_of(tid, index);
            reported.push(format!("{addr:?} {bounds:?} {global:?}"));
            if index % 7 == 0 || index == timeline.instructions(tid) {
                reported.push(format!("{:?}", timeline.call_stack(tid, index)));
            }
        }
    }
    reported
}

fn manifest(threads: Vec<ThreadEntry>) -> Manifest {
    let (format, written_by) = Manifest::versions();
    let end = End {
        exit: None,
        duration_ns: 1,
        instructions: threads.iter().map(|thread| thread.instructions).sum(),
        clock: TscClock { start: Tsc(0), ticks_per_second: 1e9 },
        threads,
        cpus: vec![],
        log: None,
        ring_since_ns: None,
    };
    Manifest {
        format,
        written_by,
        program: "/p".to_owned(),
        argv: vec!["/p".to_owned()],
        env: vec![],
        cwd: "/".to_owned(),
        pid: Pid(100),
        started_unix_ns: 0,
        cpu: HostCpu::default(),
        features: Vec::new(),
        capture: Capture {
            backend: BackendName::Step,
            psb_period_bytes: 4096,
            aslr: false,
            filter: Vec::new(),
            history: String::new(),
            import: None,
            hardware: None,
        },
        end: Some(end),
    }
}
