//! The contract of the hardware backend, checked with a model of a PMU: its recordings open and
//! decode to the path that the stepping backend records of the same program.

use crate::capture::{
    Backend, Code, Filter, History, Outcome, PtConfig, Request, Schedule, ask_thread,
    attach_blindly, attach_by_model, can_listen, counts, record, record_by_model, this_thread,
};
use crate::common::{Pid, Tid};
use crate::pt::{Packet, Packets};
use crate::recording::{BackendName, Exit, Reader, Store};
use crate::sideband::Event;
use crate::timeline::{Options, Timeline};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

const SIGINT: i32 = 2;
const SIGUSR2: i32 = 12;

/// A lock, since a recorder needs exclusive use of its process's signals.
static ONE: Mutex<()> = Mutex::new(());

/// Returns the lock, a directory and the program in it; `None` if this machine cannot run the
/// model.
pub(super) fn bare() -> Option<(MutexGuard<'static, ()>, tempfile::TempDir, PathBuf)> {
    if !can_listen() {
        return None;
    }
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let scene = tempfile::tempdir().unwrap();
    let program = scene.path().join("bare");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/bare.c");
    let flags = ["-O1", "-g", "-nostdlib", "-static", "-fno-stack-protector", "-o"];
    let built = Command::new("gcc").args(flags).arg(&program).arg(source).output();
    match built {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some((one, scene, program))
        }
        Err(error) => {
            let skipped = format_args!("SKIPPED: gcc: {error}\n");
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), skipped);
            None
        }
    }
}

pub(super) fn request(scene: &Path, program: &Path, name: &str, history: History) -> Request {
    let log = scene.join(format!("{name}.log"));
    std::fs::create_dir(&log).unwrap();
    Request {
        env: None,
        directory: None,
        report: None,
        attach: None,
        only_thread: None,
        program: program.to_owned(),
        argv: vec![program.into()],
        aslr: false,
        follow_forks: false,
        history,
        start_at: None,
        filter: Filter::default(),
        psb_period_bytes: 2048,
        step_log: Some(log),
        witness: None,
        keep: None,
        keyframe_period: crate::capture::KEYFRAME_PERIOD,
        schedule: Schedule::InTurn,
        pt_config: PtConfig::default(),
        output: Some(scene.join(name)),
        force: false,
        store: Store::new(scene.join("store")),
    }
}

/// Returns the threads, the first one first.
fn threads(outcome: &Outcome) -> Vec<Tid> {
    let end = outcome.manifest.end.as_ref().unwrap();
    end.threads.iter().map(|thread| thread.tid).collect()
}

/// Returns the addresses of the instructions in a thread's log.
pub(super) fn logged(request: &Request, tid: Tid) -> Vec<u64> {
    let log = request.step_log.as_ref().unwrap().join(format!("{tid}.log"));
    let bytes = std::fs::read(log).unwrap();
    bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect()
}

fn open(outcome: &Outcome) -> Timeline {
    let options = Options { workers: 1, ..Options::default() };
    Timeline::open(Reader::open(&outcome.recordings[0]).unwrap(), options).unwrap()
}

/// Returns the number of OVF packets, which mark missing bytes.
fn overflows(timeline: &Timeline, tid: Tid) -> usize {
    let packets = Packets::new(timeline.trace(tid).unwrap().as_ref());
    packets.filter(|(_, packet)| *packet == Ok(Packet::Ovf)).count()
}

pub(super) fn path(timeline: &Timeline, tid: Tid) -> Vec<u64> {
    (0..timeline.instructions(tid)).map(|n| timeline.pc(tid, n).unwrap().0).collect()
}

#[test]
fn what_the_hardware_backend_records_is_the_path_of_stepping() {
    let Some((_one, scene, program)) = bare() else { return };
    let stepped = request(scene.path(), &program, "step", History::Full);
    let by_steps = record(Backend::Step, &stepped).unwrap();
    let traced = request(scene.path(), &program, "perf", History::Full);
    let log = traced.step_log.as_ref().unwrap();
    // Small areas, which wrap around many times.
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
    assert_eq!((&capture.backend, capture.is_of_cpu()), (&BackendName::Perf, true));
    // The kernel's second event reported the code that was mapped by hand, and the handler.
    let count_of = |is_it: fn(&Event) -> bool| {
        timeline.records().iter().filter(|record| is_it(&record.event)).count()
    };
    assert_eq!(count_of(|event| matches!(event, Event::Signal { number: 10, .. })), 1);
    assert!(count_of(|event| matches!(event, Event::Map { .. })) >= 4);
    assert!(count_of(|event| matches!(event, Event::SwitchOut { .. })) > 0);
    assert!(timeline.reader().core().unwrap().is_some());
}

#[test]
fn a_recording_that_begins_late() {
    let Some((_one, scene, program)) = bare() else { return };
    let traced = request(scene.path(), &program, "perf", History::Full);
    let start_at = Some(Code::Function("fib".to_owned()));
    let traced = Request { start_at, ..traced };
    let log = traced.step_log.as_ref().unwrap();
    let (outcome, _) = record_by_model(&traced, 1 << 13, log, true).unwrap();
    let timeline = open(&outcome);
    let tids = threads(&outcome);
    let path = path(&timeline, tids[0]);
    let capture = &outcome.manifest.capture;
    assert_eq!((tids.len(), capture.filter.as_slice()), (2, ["from fib".to_owned()].as_slice()));
    assert!(path == logged(&traced, tids[0]) && path.len() > 5000, "{}", path.len());
    // The program ran natively up to there, and no INT3 of its stop is left.
    let never = Request {
        start_at: Some(Code::Function("nowhere_in_it".to_owned())),
        output: Some(scene.path().join("never")),
        ..traced.clone()
    };
    let refused = record_by_model(&never, 1 << 13, log, true).unwrap_err().to_string();
    assert!(refused.contains("without reaching nowhere_in_it"), "{refused}");
}

#[test]
fn what_does_not_fit_is_a_gap_and_the_rest_is_right() {
    let Some((_one, scene, program)) = bare() else { return };
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
    let Some((_one, scene, program)) = bare() else { return };
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

#[test]
fn who_asks_gets_what_is_in_the_ring_at_that_time() {
    let Some((_one, scene, program)) = bare() else { return };
    let history = History::Ring { bytes: 1 << 16 };
    let traced = request(scene.path(), &program, "perf", history);
    let log = traced.step_log.clone().unwrap();
    let recorder = this_thread();
    let asks = log.clone();
    let dir = traced.output.clone().unwrap();
    // The snapshot is requested after the first thread has executed some thousands of instructions.
    let asking = std::thread::spawn(move || {
        let has_begun = || {
            let logs = std::fs::read_dir(&asks).unwrap().flatten();
            logs.filter_map(|log| log.metadata().ok()).any(|log| log.len() > 8000)
        };
        while !has_begun() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(counts(&dir), Some((0, 0)));
        ask_thread(recorder, SIGUSR2);
        let is_over = || dir.join("manifest.json").exists();
        while counts(&dir).is_none_or(|(_, done)| done == 0) && !is_over() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // Every snapshot reported as written is on the disk and opens.
        let files = std::fs::read_dir(dir.join("trace")).unwrap().flatten();
        assert!(files.filter_map(|file| file.metadata().ok()).any(|file| file.len() > 16));
        Reader::open(&dir).unwrap()
    });
    let (outcome, _) = record_by_model(&traced, 3 << 10, &log, true).unwrap();
    asking.join().unwrap();
    let timeline = open(&outcome);
    let first = threads(&outcome)[0];
    let (path, whole) = (path(&timeline, first), logged(&traced, first));
    // The ring has overwritten the beginning by the end of the run.
    assert_eq!(path.first(), whole.first());
    assert_eq!(path.last(), whole.last());
    // The common part of both times is joined; without a common part there is a gap.
    let gaps = overflows(&timeline, first);
    assert!(gaps <= 1 && (gaps == 1 || path == whole));
    is_part_of(&path, &whole, gaps);
}

pub(super) fn built(scene: &Path, name: &str) -> PathBuf {
    let program = scene.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let built = Command::new("gcc").args(["-pthread", "-o"]).arg(&program).arg(source).status();
    assert!(built.unwrap().success());
    program
}

/// Returns a program that runs natively with `count` threads, the first one first.
pub(super) fn started(program: &Path, count: usize) -> (Child, Pid, Vec<Tid>) {
    let child = Command::new(program).stdin(Stdio::piped()).spawn().unwrap();
    let pid = Pid(i32::try_from(child.id()).unwrap());
    let tids = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let tids = tasks.map(|task| Tid(task.file_name().to_str().unwrap().parse().unwrap()));
        let mut tids: Vec<Tid> = tids.collect();
        tids.sort_unstable();
        tids
    };
    while tids().len() < count {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    (child, pid, tids())
}

pub(super) fn tracer(pid: Pid, tid: Tid) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).unwrap();
    line.trim().to_owned()
}

#[test]
fn one_thread_alone_is_recorded() {
    let Some((_one, scene, _)) = bare() else { return };
    let program = built(scene.path(), "endless");
    let (mut child, pid, tids) = started(&program, 3);
    let (only, others) = (tids[1], [tids[0], tids[2]]);
    let request = request(scene.path(), &program, "perf", History::Full);
    let request = Request { attach: Some(pid), only_thread: Some(only), ..request };
    let log = request.step_log.clone().unwrap();
    let (recorder, steps) = (this_thread(), log.join(format!("{only}.log")));
    let asking = std::thread::spawn(move || {
        while steps.metadata().map_or(0, |steps| steps.len()) < 1 << 16 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let tracers = others.map(|other| tracer(pid, other));
        let traced = tracer(pid, only);
        ask_thread(recorder, SIGINT);
        (tracers, traced)
    });
    let outcome = attach_by_model(&request, pid, &log).unwrap();
    let (tracers, traced) = asking.join().unwrap();
    assert_eq!(tracers, ["0", "0"], "the others are left alone");
    assert_ne!(traced, "0");
    let left = child.try_wait().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((left, threads(&outcome)), (None, vec![only]));
    let timeline = open(&outcome);
    let path = path(&timeline, only);
    assert_eq!(timeline.gaps(only), []);
    assert!(path == logged(&request, only) && path.len() > 5000, "another path than its log");
    let words = &outcome.manifest.capture.filter;
    assert_eq!(words, &[format!("only thread {only}")]);
}

#[test]
fn the_recording_of_one_thread_ends_with_it() {
    let Some((_one, scene, _)) = bare() else { return };
    let program = built(scene.path(), "leaver");
    let (mut child, pid, tids) = started(&program, 2);
    let request = request(scene.path(), &program, "perf", History::Full);
    let request = Request { attach: Some(pid), only_thread: Some(tids[1]), ..request };
    let (input, began) = (child.stdin.take(), request.output.clone().unwrap().join("trace"));
    let ending = std::thread::spawn(move || {
        while std::fs::read_dir(&began).map_or(0, |traces| traces.flatten().count()) < 2 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        drop(input);
    });
    let outcome = attach_blindly(&request, pid).unwrap();
    ending.join().unwrap();
    let left = child.try_wait().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((left, threads(&outcome)), (None, vec![tids[1]]));
    let end = outcome.manifest.end.as_ref().unwrap();
    assert!(end.exit.is_none() && end.threads[0].final_pc.is_some());
    assert!(Reader::open(&outcome.recordings[0]).unwrap().core().unwrap().is_some());
    // The other backends refuse to record a single thread.
    for backend in [Backend::Soft, Backend::Step] {
        let refused = record(backend, &request).unwrap_err().to_string();
        assert!(refused.contains("records whole processes"), "{refused}");
    }
}

#[test]
fn a_process_is_attached_to_and_left() {
    let Some((_one, scene, _)) = bare() else { return };
    let program = built(scene.path(), "endless");
    let (mut child, pid, _) = started(&program, 3);
    let request = request(scene.path(), &program, "perf", History::Full);
    let request = Request { attach: Some(pid), ..request };
    let recorder = this_thread();
    let began = request.output.clone().unwrap().join("trace");
    let asking = std::thread::spawn(move || {
        // All three threads have a trace.
        let count = || std::fs::read_dir(&began).map_or(0, |traces| traces.flatten().count());
        while count() < 6 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        ask_thread(recorder, SIGINT);
    });
    let outcome = attach_blindly(&request, pid).unwrap();
    asking.join().unwrap();
    let left = child.try_wait().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(left, None, "it runs on");
    let end = outcome.manifest.end.as_ref().unwrap();
    assert_eq!((end.exit, end.threads.len()), (None, 3));
    assert!(end.threads.iter().all(|thread| thread.final_pc.is_some()));
    let reader = Reader::open(&outcome.recordings[0]).unwrap();
    assert!(reader.core().unwrap().is_some());
    let is_of_program = |event: &Event| matches!(event, Event::File { path, .. } if *path == program.to_string_lossy());
    assert!(reader.sideband().unwrap().iter().any(|record| is_of_program(&record.event)));
}

/// Asserts that the decoded path is in the log in order, in one more piece than there are gaps.
fn is_part_of(path: &[u64], log: &[u64], gaps: usize) {
    let (mut at, mut pieces, mut rest) = (0, 0, path);
    while !rest.is_empty() {
        // The longest run found anywhere in the rest of the log.
        let run = |from: &usize| {
            log[*from..].iter().zip(rest).take_while(|(logged, listed)| logged == listed).count()
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
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let scene = tempfile::tempdir().unwrap();
    let gone = Pid(i32::MAX);
    let request =
        Request { attach: Some(gone), ..request(scene.path(), Path::new("/"), "x", History::Full) };
    assert!(record(Backend::Perf, &request).is_err());
}
