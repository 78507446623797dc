//! The path of an exact recording, which a replay makes in code that records, has the instructions
//! that single steps of the replay execute.

use super::record;
use crate::support::{Scene, contraflow, have, text};
use contraflow::common::Tid;
use contraflow::recording::Reader;
use contraflow::recording::log::LogEvent;
use contraflow::replay::{MoveEnd, Replay};
use contraflow::timeline::{Options, Timeline};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

/// The part of a run that is compared: its last moments, which are its ticks and entries.
const MOMENTS: u64 = 3000;

/// Returns true if an entry executes no instruction of its thread: it comes before the one where that
/// is, or ends a call whose instruction was executed by the entry of its beginning.
fn executes_nothing(event: &LogEvent) -> bool {
    use LogEvent::{Changed, Finish, Returns, Signal, Switch};
    matches!(event, Switch { .. } | Signal { .. } | Finish { .. } | Returns { .. } | Changed { .. })
}

/// Returns the addresses of the last instructions that each thread executes, by single steps.
fn steps(dir: &Path) -> BTreeMap<Tid, Vec<u64>> {
    let mut replay = Replay::open(Reader::open(dir).unwrap()).expect("it opens");
    let start = replay.last_moment().saturating_sub(MOMENTS);
    replay.seek(replay.position_of_moment(start)).expect("it is a position");
    let mut cursor = replay.reader().log().unwrap().expect("it has a log").cursor();
    let mut entry = cursor.read().unwrap();
    let mut threads: BTreeMap<Tid, Vec<u64>> = BTreeMap::new();
    loop {
        let (tid, at) = (replay.running(), replay.position());
        let ip = tid.map(|tid| replay.thread(tid).unwrap().expect("it is there").registers.rip);
        let end = replay.step_in_order(&[]).expect("it steps") == MoveEnd::NoMoreHistory;
        let mut is_executed = true;
        if end || replay.position().entry != at.entry {
            while cursor.index() <= at.entry {
                entry = cursor.read().unwrap();
            }
            is_executed = !executes_nothing(&entry.as_ref().expect("there is an entry").event);
        }
        if let (Some(tid), Some(ip), true) = (tid, ip, is_executed) {
            threads.entry(tid).or_default().push(ip);
        }
        if end {
            return threads;
        }
    }
}

/// Compares the path of a recording with single steps.
fn compare(dir: &Path, source: &str) {
    let index = contraflow().arg("index").arg(dir).output().expect("contraflow runs");
    assert!(index.status.success(), "{}", text(&index.stderr));
    let reader = Reader::open(dir).unwrap().kept_path().expect("there is a path");
    let timeline = Timeline::open(reader, Options::default()).expect("it opens");
    assert_eq!(timeline.miscounts().len(), 0);
    for (tid, stepped) in steps(dir) {
        let indices = (0..timeline.instructions(tid)).rev();
        assert!(stepped.len() as u64 <= timeline.instructions(tid), "{source}: thread {tid}");
        for (index, ip) in indices.zip(stepped.into_iter().rev()) {
            let pc = timeline.pc(tid, index).map(|pc| pc.0);
            assert_eq!(pc, Some(ip), "{source}: instruction {index} of thread {tid}");
        }
    }
}

fn of_program(source: &str) {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile(source, &["-w", "-O1", "-pthread"]);
        let (dir, _) = record(&scene, &[program.to_str().unwrap()]);
        compare(&dir, source);
    }
}

#[test]
fn a_path_has_the_instructions_of_the_run() {
    of_program("exact/waiting.c");
    of_program("exact/races.c");
    of_program("exact/signals.c");
    of_program("exact/epochs.c");
    of_program("exact/repeated.c");
    of_program("strings.c");
    of_program("selfmod.c");
    of_program("moved_code.c");
}

#[test]
fn loops_without_packets_have_all_their_rounds() {
    of_program("exact/cancelled.c");
}

/// Whoever asks while another process makes the path waits for that.
#[test]
fn several_processes_ask_for_the_path_at_once() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("recursion.c", &["-O0"]);
    let (dir, _) = record(&scene, &[program.to_str().unwrap()]);
    let ask = || {
        let mut calls = contraflow();
        calls.args(["calls", "--function", "walk", "--csv"]).arg(&dir);
        calls.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("contraflow runs")
    };
    let asked: Vec<_> = (0..6).map(|_| ask()).collect();
    let answers = asked.into_iter().map(|asked| asked.wait_with_output().expect("it ends"));
    for answer in answers {
        assert!(answer.status.success(), "{}", text(&answer.stderr));
        let rows = text(&answer.stdout).lines().count();
        // One for each of 9 nodes and 10 missing ones.
        assert_eq!(rows, 1 + 19, "{}{}", text(&answer.stderr), text(&answer.stdout));
    }
}
