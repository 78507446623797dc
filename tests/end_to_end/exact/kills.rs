//! Recorders killed at any moment: nothing hangs, and what they leave replays as far as it goes.

use super::{PART, WHOLE};
use crate::support::{Random, Scene, contraflow, have, recordings_in, text};
use contraflow::recording::Reader;
use contraflow::recording::log::LogEvent;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Seconds after which something hangs.
const PATIENCE_SECONDS: u64 = 120;
/// The status of a command that `timeout` killed.
const HANGS: Option<i32> = Some(128 + 9);

/// A program that is recorded, with the rounds that make it run for about a second under a recorder.
struct Subject {
    source: &'static str,
    rounds: usize,
    options: &'static [&'static str],
}

const SUBJECTS: [Subject; 4] = [
    Subject { source: "exact/kills/calls.c", rounds: 2000, options: &[] },
    Subject { source: "exact/kills/threads.c", rounds: 400, options: &[] },
    Subject { source: "exact/kills/forks.c", rounds: 700, options: &["--follow-forks"] },
    Subject { source: "exact/kills/jit.c", rounds: 2000, options: &[] },
];

/// Everything that was found out.
#[derive(Debug, Default)]
struct Tally {
    kills: usize,
    /// Recordings that were left, and those of them without an entry.
    recordings: usize,
    empty: usize,
    entries: u64,
    /// Those that are complete, as their program ended before, or they are of children.
    whole: usize,
}

/// Returns a command that is killed if it takes too long.
fn patiently(command: &Command) -> Output {
    let mut timed = Command::new("timeout");
    timed.args(["-s", "KILL", &PATIENCE_SECONDS.to_string()]);
    timed.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            timed.env(name, value);
        }
    }
    timed.stdin(Stdio::null()).env_remove("DEBUGINFOD_URLS").output().expect("timeout runs")
}

/// Returns the processes that have a path among their arguments.
fn processes_of(path: &Path) -> Vec<String> {
    let path = path.as_os_str().as_encoded_bytes();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let named = all.filter_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let is_named = line.split(|&byte| byte == 0).any(|word| word == path);
        let status = || std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        is_named.then(|| format!("{}: {}", entry.file_name().to_string_lossy(), status()))
    });
    named.collect()
}

fn record(scene: &Scene, program: &Path, subject: &Subject, options: &[&str]) -> Command {
    let mut recorder = contraflow();
    recorder.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "-q"]);
    recorder.args(subject.options).args(options).arg("--").arg(program).arg(scene.path("marker"));
    recorder.arg(subject.rounds.to_string());
    recorder.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    recorder
}

/// Kills a recorder after a time. Waits for the program's end, and for that of the recorders of its
/// children.
fn kill(scene: &Scene, program: &Path, subject: &Subject, options: &[&str], after: Duration) {
    let mut recorder = record(scene, program, subject, options).spawn().expect("it runs");
    std::thread::sleep(after);
    recorder.kill().expect("it is ours");
    recorder.wait().expect("it ends");
    let begun = Instant::now();
    loop {
        let left = processes_of(&scene.path("marker"));
        if left.is_empty() {
            return;
        }
        let is_late = begun.elapsed() > Duration::from_secs(PATIENCE_SECONDS);
        assert!(!is_late, "{} {options:?} killed after {after:?} hangs: {left:#?}", subject.source);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the recordings of a store.
fn recordings(scene: &Scene) -> Vec<PathBuf> {
    recordings_in(&scene.path("store"))
}

/// Returns how many entries of a log can be replayed: all that can be read, but for that of the end.
fn entries_of(dir: &Path) -> u64 {
    let reader = Reader::open(dir).expect("it is a recording");
    let Some(log) = reader.log().expect("it is readable") else { return 0 };
    let (mut cursor, mut last) = (log.cursor(), None);
    while let Some(entry) = cursor.read().expect("it is readable") {
        last = Some(entry);
    }
    let is_finished = last.is_some_and(|last| matches!(last.event, LogEvent::Finish { .. }));
    cursor.index() - u64::from(is_finished)
}

/// Checks what a killed recorder left.
fn check(dir: &Path, what: &str, tally: &mut Tally) {
    tally.recordings += 1;
    let checked = patiently(contraflow().arg("check").arg(dir));
    assert_ne!(checked.status.code(), HANGS, "{what}: check hangs");
    let (said, failed) = (text(&checked.stdout), text(&checked.stderr));
    if failed.contains("it has neither manifest.json nor starting.json") {
        // Killed before it began a recording in the directory that it had just made.
        let log = std::fs::metadata(dir.join("log.bin")).map_or(0, |log| log.len());
        assert_eq!(log, 0, "{what}: {failed}");
        tally.empty += 1;
        return;
    }
    if failed.contains("the log is empty") {
        assert_eq!(
            (failed.lines().count(), checked.status.code()),
            (1, Some(2)),
            "{what}: {failed}"
        );
        assert_eq!(entries_of(dir), 0, "{what}");
        tally.empty += 1;
        return;
    }
    assert!(checked.status.success(), "{what}: {said}{failed}");
    let verdict = said.strip_prefix(PART).or_else(|| {
        tally.whole += 1;
        said.strip_prefix(WHOLE)
    });
    let verdict = verdict.unwrap_or_else(|| panic!("{what}: {said}{failed}"));
    let entries = verdict.split_whitespace().next().and_then(|number| number.parse().ok());
    assert_eq!(entries, Some(entries_of(dir)), "{what}: {said}");
    tally.entries += entries.unwrap_or_default();
}

/// Walks in gdb from the end of what was left.
fn walk(dir: &Path, what: &str) {
    let mut gdb = contraflow();
    gdb.arg("replay").arg(dir).args(["--", "-nx", "-batch"]);
    for command in ["cf-seek end", "reverse-stepi", "stepi", "info registers rip", "cf-when"] {
        gdb.args(["-ex", command]);
    }
    let walked = patiently(&gdb);
    assert_ne!(walked.status.code(), HANGS, "{what}: gdb hangs");
    let said = text(&walked.stdout) + &text(&walked.stderr);
    assert!(said.contains("\nrip  "), "{what}: {said}");
    assert!(!said.contains("differs from the recording"), "{what}: {said}");
}

/// Kills the recorders of all programs, `kills` of them, at random moments.
fn at_random_moments(kills: usize, parts: usize, seed: u64) {
    if !have("gcc") || !have("timeout") {
        return;
    }
    let (mut tally, mut random) = (Tally::default(), Random(seed));
    for (number, subject) in SUBJECTS.iter().enumerate() {
        let subject = Subject { rounds: subject.rounds / parts, ..*subject };
        let compiled = Scene::new();
        let program = compiled.compile(subject.source, &["-w", "-O1"]);
        let begun = Instant::now();
        let status = record(&compiled, &program, &subject, &[]).status().expect("it runs");
        assert!(status.code().is_some_and(|code| code < 2), "{}: {status}", subject.source);
        let whole = begun.elapsed();
        for _ in (number..kills).step_by(SUBJECTS.len()) {
            let scene = Scene::new();
            let goes_on = ["--on-recorder-death", "go-on"];
            let options: &[&str] = if random.below(2) == 0 { &[] } else { &goes_on };
            let after = whole * u32::try_from(random.below(1100)).unwrap() / 1000;
            kill(&scene, &program, &subject, options, after);
            tally.kills += 1;
            let what = format!("{} {options:?} killed after {after:?}", subject.source);
            for dir in recordings(&scene) {
                let empty = tally.empty;
                check(&dir, &format!("{what}: {}", dir.display()), &mut tally);
                if tally.empty == empty && tally.recordings.is_multiple_of(4) && have("gdb") {
                    walk(&dir, &what);
                }
            }
        }
        println!("up to {}: {tally:?}", subject.source);
    }
}

#[test]
fn what_a_killed_recorder_leaves_replays() {
    at_random_moments(6, 10, 0x1234_5678_9abc_def1);
}

#[test]
#[ignore = "takes minutes: make check-long"]
fn what_many_killed_recorders_leave_replays() {
    at_random_moments(200, 1, 0x0f1e_2d3c_4b5a_6978);
}

/// A recording that cannot be finished, as its directory is gone, holds up neither its recorder nor the program,
/// whose threads are all at their end.
#[test]
fn a_recorder_that_cannot_write_the_end_ends() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let subject = Subject { rounds: 1_000_000, ..SUBJECTS[1] };
    let program = scene.compile(subject.source, &["-pthread"]);
    let dir = scene.path("recording");
    let options = ["-o", dir.to_str().unwrap()];
    let mut recorder = record(&scene, &program, &subject, &options).spawn().expect("it runs");
    let begun = Instant::now();
    let is_late = || begun.elapsed() > Duration::from_secs(PATIENCE_SECONDS);
    let logged = || std::fs::metadata(dir.join("log.bin")).map_or(0, |log| log.len());
    while logged() < 50_000 && !is_late() {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::remove_dir_all(&dir).expect("the recording is there");
    let pid = recorder.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
    let mut ended = None;
    while ended.is_none() && !is_late() {
        std::thread::sleep(Duration::from_millis(20));
        ended = recorder.try_wait().expect("it is ours");
    }
    // For nothing, unless it hangs.
    let _ = recorder.kill();
    recorder.wait().expect("it ends");
    let mut left = processes_of(&scene.path("marker"));
    while !left.is_empty() && !is_late() {
        std::thread::sleep(Duration::from_millis(20));
        left = processes_of(&scene.path("marker"));
    }
    assert!(ended.is_some_and(|status| !status.success()), "{ended:?}: {left:#?}");
    assert_eq!(left, Vec::<String>::new());
}

/// A check that the user interrupted has not found that the replay is the recorded run.
#[test]
fn a_check_that_is_interrupted_is_no_success() {
    let scene = Scene::new();
    let dir = scene.path("exact");
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let recorded = contraflow()
        .env("CONTRAFLOW_HOME", scene.path("store"))
        .args(["record", "--exact", "-q", "-o"])
        .arg(&dir)
        .args(["--", "sh", "-c", script])
        .status();
    assert!(recorded.expect("contraflow runs").success());
    let mut check = contraflow();
    check.arg("check").arg(&dir).stdout(Stdio::piped()).stderr(Stdio::piped());
    let check = check.spawn().expect("contraflow runs");
    // Not before it handles the signal.
    let status = format!("/proc/{}/status", check.id());
    let handles = |line: &str| {
        let caught = line.strip_prefix("SigCgt:").map(str::trim);
        caught
            .is_some_and(|set| u64::from_str_radix(set, 16).unwrap() & 1 << (libc::SIGINT - 1) > 0)
    };
    while !std::fs::read_to_string(&status).unwrap().lines().any(handles) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let id = check.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = check.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{said}");
    assert!(said.contains("interrupted"), "{said}");
}
