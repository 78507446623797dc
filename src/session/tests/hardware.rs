//! The hardware backend's contract, kept with a model of a PMU: what it records opens, decodes, and
//! is the path that the stepping backend records of the same program.

use crate::capture::{
    Backend, Filter, History, Outcome, PtConfig, Request, can_listen, record, record_by_model,
};
use crate::common::{Pid, Tid};
use crate::pt::{Packet, Packets};
use crate::recording::{Exit, Reader, Store};
use crate::sideband::Event;
use crate::timeline::{Options, Timeline};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program, and the directory that it is in; none where it cannot be run so.
fn bare() -> Option<(tempfile::TempDir, PathBuf)> {
    if !can_listen() {
        return None;
    }
    let scene = tempfile::tempdir().unwrap();
    let program = scene.path().join("bare");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/bare.c");
    let flags = ["-O1", "-g", "-nostdlib", "-static", "-fno-stack-protector", "-o"];
    let built = Command::new("gcc").args(flags).arg(&program).arg(source).output();
    match built {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some((scene, program))
        }
        Err(error) => {
            let skipped = format_args!("SKIPPED: gcc: {error}\n");
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), skipped);
            None
        }
    }
}

fn request(scene: &Path, program: &Path, name: &str, history: History) -> Request {
    let log = scene.join(format!("{name}.log"));
    std::fs::create_dir(&log).unwrap();
    Request {
        attach: None,
        program: program.to_owned(),
        argv: vec![program.into()],
        aslr: false,
        follow_forks: false,
        history,
        start_at: None,
        filter: Filter::default(),
        psb_period_bytes: 2048,
        step_log: Some(log),
        pt_config: PtConfig::default(),
        output: Some(scene.join(name)),
        force: false,
        store: Store::new(scene.join("store")),
    }
}

/// The threads, the first one first.
fn threads(outcome: &Outcome) -> Vec<Tid> {
    let end = outcome.manifest.end.as_ref().unwrap();
    end.threads.iter().map(|thread| thread.tid).collect()
}

/// The addresses of the instructions that a thread's log has.
fn logged(request: &Request, tid: Tid) -> Vec<u64> {
    let log = request.step_log.as_ref().unwrap().join(format!("{tid}.log"));
    let bytes = std::fs::read(log).unwrap();
    bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect()
}

fn open(outcome: &Outcome) -> Timeline {
    let options = Options { workers: 1, ..Options::default() };
    Timeline::open(Reader::open(&outcome.recordings[0]).unwrap(), options).unwrap()
}

/// What a trace says of bytes that are missing.
fn overflows(timeline: &Timeline, tid: Tid) -> usize {
    let packets = Packets::new(timeline.trace(tid).unwrap().as_ref());
    packets.filter(|(_, packet)| *packet == Ok(Packet::Ovf)).count()
}

fn path(timeline: &Timeline, tid: Tid) -> Vec<u64> {
    (0..timeline.instructions(tid)).map(|n| timeline.pc(tid, n).unwrap().0).collect()
}

#[test]
fn what_the_hardware_backend_records_is_the_path_of_stepping() {
    let Some((scene, program)) = bare() else { return };
    let stepped = request(scene.path(), &program, "step", History::Full);
    let by_steps = record(Backend::Step, &stepped).unwrap();
    let traced = request(scene.path(), &program, "perf", History::Full);
    let log = traced.step_log.as_ref().unwrap();
    // Small areas, which come round many times.
    let (by_model, dropped) = record_by_model(&traced, 1 << 13, log, true).unwrap();
    assert_eq!((dropped, &by_model.notes), (0, &Vec::new()));
    let exit = |outcome: &Outcome| outcome.manifest.end.as_ref().unwrap().exit;
    assert!(matches!(exit(&by_steps), Some(Exit::Code(1..))));
    assert_eq!(exit(&by_model), exit(&by_steps));
    let (of_steps, of_model) = (threads(&by_steps), threads(&by_model));
    assert_eq!((of_steps.len(), of_model.len()), (2, 2));
    let timeline = open(&by_model);
    for (model, step) in of_model.iter().zip(of_steps) {
        assert_eq!(timeline.gaps(*model), []);
        let path = path(&timeline, *model);
        assert!(path.len() > 5000);
        assert!(path == logged(&stepped, step), "thread {model}: another path than that of steps");
        assert!(path == logged(&traced, *model), "thread {model}: another path than its log");
        let manifest = timeline.reader().manifest();
        let entry = manifest.end.as_ref().unwrap().threads.iter().find(|t| t.tid == *model);
        assert_eq!(timeline.path_end(*model), entry.unwrap().final_pc);
    }
    let capture = &timeline.reader().manifest().capture;
    assert_eq!((capture.backend.as_str(), capture.is_of_cpu()), ("perf", true));
    // What the kernel told by the other event: the code that was mapped by hand, and the handler.
    let told = |is_it: fn(&Event) -> bool| {
        timeline.records().iter().filter(|record| is_it(&record.event)).count()
    };
    assert_eq!(told(|event| matches!(event, Event::Signal { number: 10, .. })), 1);
    assert!(told(|event| matches!(event, Event::Map { .. })) >= 4);
    assert!(told(|event| matches!(event, Event::SwitchOut { .. })) > 0);
    assert!(timeline.reader().core().unwrap().is_some());
}

#[test]
fn what_does_not_fit_is_a_gap_and_the_rest_is_right() {
    let Some((scene, program)) = bare() else { return };
    let traced = request(scene.path(), &program, "perf", History::Full);
    let log = traced.step_log.as_ref().unwrap();
    let (outcome, dropped) = record_by_model(&traced, 3 << 10, log, false).unwrap();
    let timeline = open(&outcome);
    let gaps: usize = threads(&outcome).iter().map(|tid| overflows(&timeline, *tid)).sum();
    assert!(dropped > 0 && gaps > 0, "{dropped} bytes dropped, {gaps} gaps");
    assert!(outcome.notes.iter().any(|note| note.contains(" gaps: ")), "{:?}", outcome.notes);
    for tid in threads(&outcome) {
        assert_eq!(timeline.gaps(tid), []);
        is_part_of(&path(&timeline, tid), &logged(&traced, tid), overflows(&timeline, tid));
    }
}

#[test]
fn a_ring_keeps_the_end() {
    let Some((scene, program)) = bare() else { return };
    let history = History::Ring { bytes: 1 << 16 };
    let traced = request(scene.path(), &program, "perf", history);
    let log = traced.step_log.as_ref().unwrap();
    let (outcome, _) = record_by_model(&traced, 3 << 10, log, true).unwrap();
    let timeline = open(&outcome);
    let mut is_cut = false;
    for tid in threads(&outcome) {
        let (path, whole) = (path(&timeline, tid), logged(&traced, tid));
        let (held, all) = (path.len(), whole.len());
        assert!(held > 100, "thread {tid}: {held} of {all}");
        is_cut |= held < all;
        assert!(whole.ends_with(&path), "thread {tid}: not the end");
        assert_eq!(timeline.gaps(tid), []);
    }
    assert!(is_cut, "all of it was in the ring");
}

/// What is decoded is in the log, in its order, in as many pieces as there are gaps and one.
fn is_part_of(path: &[u64], log: &[u64], gaps: usize) {
    let (mut at, mut pieces, mut rest) = (0, 0, path);
    while !rest.is_empty() {
        // The longest run that is somewhere in what is left of the log.
        let run = |from: &usize| {
            log[*from..].iter().zip(rest).take_while(|(logged, told)| logged == told).count()
        };
        let (from, length) = (at..log.len())
            .map(|from| (from, run(&from)))
            .max_by_key(|(from, n)| (*n, usize::MAX - from))
            .unwrap();
        assert!(length > 0, "{:#x} was not executed there", rest[0]);
        (at, rest, pieces) = (from + length, &rest[length..], pieces + 1);
    }
    assert!(pieces <= gaps + 1, "{pieces} pieces with {gaps} gaps");
}

#[test]
fn a_process_that_is_gone_cannot_be_attached_to() {
    let scene = tempfile::tempdir().unwrap();
    let gone = Pid(i32::MAX);
    let request =
        Request { attach: Some(gone), ..request(scene.path(), Path::new("/"), "x", History::Full) };
    assert!(record(Backend::Perf, &request).is_err());
}
