//! Memory that other processes write: what a program read there is in its recording.

use super::forks::follow;
use super::{WHOLE, assert_replays, check, record};
use crate::support::{Scene, contraflow, have, run_gdb, text};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

const SOURCE: &str = "exact/shared.c";
const FLAGS: [&str; 4] = ["-w", "-g", "-O1", "-pthread"];
/// What the program does, and how many other processes run its code.
const PARTS: [(&str, usize); 11] = [
    ("forks", 1),
    ("changes", 2),
    ("calls", 3),
    ("threads", 1),
    ("robust", 1),
    ("leftovers", 1),
    ("signals", 1),
    ("copies", 1),
    ("faults", 1),
    ("strangers", 4),
    ("files", 2),
];

#[test]
fn what_other_processes_wrote_is_replayed() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile(SOURCE, &FLAGS);
        for (part, _) in PARTS {
            assert_replays(&[program.to_str().unwrap(), part]);
        }
    }
}

#[test]
fn each_of_those_that_share_memory_is_replayed() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile(SOURCE, &FLAGS);
        for (part, others) in PARTS {
            let scene = Scene::new();
            let family = follow(&scene, &[program.to_str().unwrap(), part]);
            assert_eq!(family.recordings.len(), 1 + others, "{part}: {}", family.said);
        }
    }
}

#[test]
fn buffers_that_go_on_in_shared_memory_are_used_as_a_whole() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile("exact/crossing.c", &["-w", "-O1"]);
        assert_replays(&[program.to_str().unwrap()]);
    }
}

/// Code that a program writes at another address than it executes is the new one, also while a child has
/// its memory. When the child has it no more, accesses are not logged.
#[test]
fn code_in_memory_that_a_child_has_too_is_executed_as_it_is() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/dual.c", &["-w", "-O1"]);
    let program = program.to_str().unwrap();
    let accesses = ["none", "executes", "leaves", "stays"].map(|child| {
        let scene = Scene::new();
        let native = Command::new(program).arg(child).output().expect("it runs");
        let (dir, recorded) = record(&scene, &[program, child]);
        assert_eq!(text(&recorded.stdout), text(&native.stdout), "{child}");
        let verdict = check(&dir);
        assert!(verdict.starts_with(WHOLE), "{child}: {verdict}\n{}", text(&recorded.stderr));
        let log = contraflow().args(["dump", "log"]).arg(&dir).output().expect("contraflow runs");
        text(&log.stdout).lines().filter(|line| line.contains(" accesses ")).count()
    });
    let [none, executes, leaves, stays] = accesses;
    assert_eq!(none, 0);
    assert!(executes < stays && leaves < stays, "{accesses:?}");
}

/// A pool of processes with queues, locks and shared values.
#[test]
#[ignore = "takes a minute: make check-long"]
fn a_pool_of_processes_is_replayed() {
    const POOL: &str = "import multiprocessing as m\n\
        def add(v):\n    for _ in range(20):\n        with v.get_lock(): v.value += 1\n\
        if __name__ == '__main__':\n    v = m.Value('i', 0)\n\
        \x20   with m.Pool(2) as p: print(p.map(abs, range(-9, 0)))\n\
        \x20   ps = [m.Process(target=add, args=(v,)) for _ in range(2)]\n\
        \x20   [p.start() for p in ps]; [p.join() for p in ps]; print(v.value)\n";
    if have("python3") {
        let scene = Scene::new();
        std::fs::write(scene.path("pool.py"), POOL).unwrap();
        assert_replays(&["python3", scene.path("pool.py").to_str().unwrap()]);
    }
}

/// The values of each moment are those that the program read, and a watchpoint finds where it first
/// saw them.
#[test]
fn shared_memory_is_shown_as_the_program_last_saw_it() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile(SOURCE, &FLAGS);
    let (dir, recorded) = record(&scene, &[program.to_str().unwrap(), "forks"]);
    assert!(text(&recorded.stderr).contains("shares memory with other processes"));
    let mut gdb = contraflow();
    gdb.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    let said = run_gdb(
        gdb,
        "break ended
        reverse-continue
        up
        print board->text
        print board->words[63]
        watch -l board->words[63]
        reverse-continue
        reverse-continue",
    );
    for expected in [
        "\"round 39 of the child\"",
        "= 2457\n",
        "Old value = 2457\nNew value = 2394\n",
        "Old value = 2394\nNew value = 2331\n",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

/// The memory is closed to the program while it is recorded, and open when it goes on by itself.
#[test]
fn a_recorder_that_leaves_opens_what_it_closed() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile(SOURCE, &FLAGS);
    let command = [program.to_str().unwrap(), "forks", "400"];
    let native = Command::new(command[0]).args(&command[1..]).output().expect("it runs");
    for after in [100, 300, 500] {
        let mut recorder = contraflow();
        recorder.args(["record", "-q", "--on-recorder-death", "go-on", "-o"]);
        recorder.arg(scene.path(&after.to_string())).arg("--").args(command);
        let mut recorder = recorder.stdout(Stdio::piped()).spawn().expect("contraflow runs");
        let mut said = BufReader::new(recorder.stdout.take().expect("it is piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("it says something");
        std::thread::sleep(Duration::from_millis(after));
        recorder.kill().expect("it is ours");
        recorder.wait().expect("it ends");
        said.read_to_string(&mut line).expect("it says something");
        assert_eq!(line, text(&native.stdout), "killed after {after} ms");
    }
}
