//! Programs with races, whose outcome is what they print: each recording replays to the same outcome,
//! whatever it was.

use super::{WHOLE, check};
use crate::support::{Scene, have, text};
use contraflow::recording::Reader;
use contraflow::replay::{Goals, KernelEvent, MoveEnd, Replay};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

/// The programs of tests/programs/exact/races, with the options of their compiler.
const PROGRAMS: [(&str, &[&str]); 20] = [
    ("atomics.c", &[]),
    ("barriers.c", &[]),
    ("conditions.c", &[]),
    ("counters.c", &[]),
    ("destructors.c", &[]),
    ("futexes.c", &[]),
    ("heap.c", &[]),
    ("initialized.c", &[]),
    ("kicks.c", &[]),
    ("mutexes.c", &[]),
    ("pingpong.c", &[]),
    ("pool.c", &[]),
    ("rwlocks.c", &[]),
    ("scheduler.c", &[]),
    ("semaphores.c", &[]),
    ("stack.c", &[]),
    ("wakeups.c", &[]),
    ("workers.c", &[]),
    ("async.cpp", &["-lstdc++"]),
    ("openmp.c", &["-fopenmp"]),
];

const WRITE: u64 = 1;
const STDOUT: u64 = 1;

/// Returns what a replayed program writes to its standard output: the bytes that are in its memory at
/// each such call.
fn replayed_output(dir: &Path) -> Vec<u8> {
    let mut replay = Replay::open(Reader::open(dir).expect("it is a recording")).expect("it opens");
    let mut output = Vec::new();
    let none = BTreeSet::new();
    let events = |event| event == KernelEvent::Call(WRITE);
    let mut goals = Goals { events: &events, ..Goals::at(&none, &|| false) };
    while replay.run_forward(&goals, &[]).expect("it replays") != MoveEnd::NoMoreHistory {
        goals.passed = Some(replay.position().entry);
        let tid = replay.running().expect("it calls");
        let registers = replay.thread(tid).expect("it is readable").expect("it is there").registers;
        if registers.rdi == STDOUT {
            let mut bytes = vec![0; usize::try_from(registers.rdx).unwrap()];
            assert_eq!(replay.read(registers.rsi.into(), &mut bytes), bytes.len());
            output.extend(bytes);
        }
    }
    output
}

/// Returns the verdict on a recording, without the time that it took.
fn verdict(dir: &Path) -> String {
    let said = check(dir);
    said.rsplit_once(" (").map_or(said.clone(), |(verdict, _)| verdict.to_owned())
}

/// Records a program and replays it. Returns what it printed.
fn run(program: &Path, rounds: &str, options: &[&str]) -> String {
    let scene = Scene::new();
    let dir = scene.path("recording");
    let mut recorder = Command::new("timeout");
    recorder.args(["-s", "KILL", "60"]).arg(env!("CARGO_BIN_EXE_contraflow"));
    recorder.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "--exact", "-o"]);
    recorder.arg(&dir).args(options).arg("--").arg(program).arg(rounds).stdin(Stdio::null());
    let output = recorder.output().expect("timeout runs");
    let what = format!("{} {options:?}: {}", program.display(), text(&output.stderr));
    let keep = |scene: Scene, why: &str| panic!("{why}\n{what}\n{}", scene.keep().display());
    if output.status.code() != Some(0) {
        keep(scene, &format!("it ends with {}", output.status));
    } else if !verdict(&dir).starts_with(WHOLE) || verdict(&dir) != verdict(&dir) {
        let verdicts = format!("{} {}", verdict(&dir), verdict(&dir));
        keep(scene, &verdicts);
    } else if replayed_output(&dir) != output.stdout {
        let outputs = format!("{} {}", text(&replayed_output(&dir)), text(&output.stdout));
        keep(scene, &outputs);
    }
    text(&output.stdout)
}

/// Runs some programs, with usual orders of threads and with unusual ones in turn. Returns the
/// numbers of their outcomes.
fn race(programs: &[(&str, &[&str])], runs: usize, rounds: &str) -> Vec<usize> {
    if !have("gcc") || !have("timeout") {
        return Vec::new();
    }
    let scene = Scene::new();
    let outcomes = programs.iter().enumerate().filter_map(|(index, (source, options))| {
        let program = scene
            .try_compile(&format!("exact/races/{source}"), &[&["-w", "-O1"], *options].concat())?;
        let mut outcomes = [BTreeSet::new(), BTreeSet::new()];
        for number in index..index + runs {
            let options: &[&str] = if number % 2 == 0 { &["--chaos"] } else { &[] };
            let outcome = run(&program, rounds, options);
            assert!(!outcome.is_empty(), "{source} prints nothing");
            outcomes[number % 2].insert(outcome);
        }
        let [unusual, usual] = outcomes;
        let all = usual.union(&unusual).count();
        println!(
            "{source}: {runs} runs, {all} outcomes; {} as usual, {} in chaos",
            usual.len(),
            unusual.len()
        );
        Some(all)
    });
    outcomes.collect()
}

#[test]
fn locks_replay() {
    race(&PROGRAMS[..7], 1, "1");
}

#[test]
fn messages_replay() {
    race(&PROGRAMS[7..13], 1, "1");
}

#[test]
fn schedulers_replay() {
    race(&PROGRAMS[13..], 1, "1");
}

/// `CONTRAFLOW_RACES=20` makes fewer runs of each program than 200; `CONTRAFLOW_PROGRAMS=pool.c,heap.c`:
/// these programs only.
#[test]
#[ignore = "takes minutes: make check-long"]
fn many_orders_of_threads_replay() {
    let asked = std::env::var("CONTRAFLOW_RACES").ok();
    let runs = asked.map_or(200, |runs| runs.parse().expect("a number"));
    let chosen = std::env::var("CONTRAFLOW_PROGRAMS").ok();
    let is_chosen = |source: &str| {
        chosen.as_ref().is_none_or(|names| names.split(',').any(|name| name == source))
    };
    let programs: Vec<_> = PROGRAMS.into_iter().filter(|(source, _)| is_chosen(source)).collect();
    assert!(!programs.is_empty(), "no such program: {chosen:?}");
    let outcomes = race(&programs, runs, "3");
    assert!(outcomes.iter().all(|outcomes| *outcomes >= 10), "{outcomes:?}");
}
