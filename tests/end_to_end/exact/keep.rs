//! Recordings of which only the end is kept (`--keep`).

use super::forks::wait_until;
use super::{WHOLE, check, record_with};
use crate::support::{Scene, answer, contraflow, have, run_gdb, text};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// A time that is much shorter than the run.
const KEEP: [&str; 4] = ["--keep", "150ms", "--keyframe-period", "10"];
/// Rounds that take some times as long.
const ROUNDS: &str = "4000";

fn tools() -> bool {
    have("gcc") && have("gdb")
}

/// Returns the numbers in the names of files.
fn numbers(dir: &Path, prefix: &str) -> Vec<u64> {
    let files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().file_name());
    let number = |name: std::ffi::OsString| {
        name.to_str()?.strip_prefix(prefix)?.strip_suffix(".bin")?.parse().ok()
    };
    let mut numbers: Vec<u64> = files.filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// Asserts that the beginning of the log was dropped, with its keyframes. Returns the first entry.
fn assert_is_end(dir: &Path) -> u64 {
    assert!(!dir.join("log.bin").exists());
    let (parts, keyframes) = (numbers(dir, "log-"), numbers(&dir.join("keyframes"), ""));
    // Two that are kept, one before them that reaches far enough back, and one more for a moment.
    assert!((1..=4).contains(&parts.len()), "{parts:?}");
    assert_eq!(parts.first(), keyframes.first());
    assert!(parts.iter().all(|part| keyframes.contains(part)), "{parts:?} {keyframes:?}");
    parts[0]
}

fn replay(dir: &Path, commands: &str) -> String {
    let mut replay = contraflow();
    replay.arg("replay").arg(dir).args(["--", "-nx", "-batch"]);
    run_gdb(replay, &format!("set width 0\n{commands}"))
}

/// Returns an answer without the number that gdb gives a value.
fn value<'a>(said: &'a str, command: &str, nth: usize) -> &'a str {
    let answer = answer(said, command, nth);
    let value = answer.strip_prefix('$').and_then(|rest| rest.split_once(" = "));
    value.map_or(answer, |(_, value)| value)
}

const LOOK: &str = "p number\np state\np mean\np line\np counts[1000]@40\ninfo registers\n";

/// The run is the same each time, so a recording of all of it shows what is right.
#[test]
fn the_end_is_that_of_the_whole_run() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/rounds.c", &["-O1"]);
    let command = [program.to_str().unwrap(), ROUNDS];
    let (dir, _) = record_with(&scene, &KEEP, &command);
    assert!(assert_is_end(&dir) > 0);
    let verdict = check(&dir);
    assert!(verdict.starts_with(WHOLE), "{verdict}");
    let kept = scene.path("kept");
    std::fs::rename(&dir, &kept).unwrap();
    let (whole, _) = record_with(&scene, &[], &command);

    let said = replay(
        &kept,
        &format!(
            "cf-seek 0%\nbacktrace -1\nreverse-stepi\ncf-when\nbreak round_of\ncontinue\n{LOOK}\
             delete\nwatch counts[1000]\ncontinue\n{LOOK}delete\nreverse-continue\ncf-when\n"
        ),
    );
    assert!(answer(&said, "backtrace -1", 0).contains(" in main ("), "{said}");
    assert!(answer(&said, "reverse-stepi", 0).contains("No more reverse-execution"), "{said}");
    for nth in 0..2 {
        assert!(answer(&said, "cf-when", nth).contains("position 0 of"), "{said}");
    }
    let number = answer(&said, "p number", 0).rsplit(' ').next().unwrap();
    assert!(number.parse::<u64>().unwrap() > 10, "{said}");
    let of_whole = replay(
        &whole,
        &format!(
            "cf-seek 0%\nbreak round_of if number == {number}\ncontinue\n{LOOK}\
             delete\nwatch counts[1000]\ncontinue\n{LOOK}"
        ),
    );
    let looks = LOOK.lines().flat_map(|look| [(look, 0), (look, 1)]);
    for (look, nth) in looks {
        assert_eq!(value(&said, look, nth), value(&of_whole, look, nth), "{look}");
    }

    // What the program wrote before is not taken for what it began with.
    let origin =
        contraflow().arg("origin").arg(&kept).args(["--at", "1", "line"]).output().unwrap();
    let origin = text(&origin.stdout) + &text(&origin.stderr);
    assert!(origin.contains("when the recording began"), "{origin}");
    let origin =
        contraflow().arg("origin").arg(&kept).args(["--at", "1", "$r15"]).output().unwrap();
    let origin = text(&origin.stdout) + &text(&origin.stderr);
    assert!(origin.contains("when the recording began"), "{origin}");

    let calls = |dir: &Path| -> Vec<String> {
        let dumped = contraflow().args(["dump", "calls"]).arg(dir).output().unwrap();
        assert!(dumped.status.success(), "{}", text(&dumped.stderr));
        // Without the number of the instruction.
        let place = |line: &str| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
        let lines = text(&dumped.stdout);
        // Where the path begins, and returns from calls before that.
        let is_call = |line: &&str| !line.contains(" start ") && !line.contains(" return ");
        lines.lines().filter(is_call).map(place).collect()
    };
    let (end, all) = (calls(&kept), calls(&whole));
    assert!(end.len() > 1000 && all.len() > end.len(), "{} {}", end.len(), all.len());
    assert_eq!(end[1..], all[all.len() - end.len() + 1..]);
}

#[test]
fn threads_in_calls_go_on() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/keyframes.c", &["-O1", "-pthread"]);
    let (dir, _) = record_with(&scene, &KEEP, &[program.to_str().unwrap()]);
    assert!(assert_is_end(&dir) > 0);
    let verdict = check(&dir);
    assert!(verdict.starts_with(WHOLE), "{verdict}");
    let info = contraflow().arg("info").arg(&dir).output().unwrap();
    assert!(text(&info.stdout).contains("history      at least the last 150ms\n"));
    let said = replay(&dir, "cf-seek 0%\ninfo threads\ncatch syscall exit_group\ncontinue\n");
    assert!(answer(&said, "info threads", 0).contains("Thread "), "{said}");
}

/// A recorder, which is killed when the test is done with it.
struct Recorder(Child);

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The parts that the recorder drops meanwhile are held by those who read it.
#[test]
fn it_is_read_while_it_is_recorded_and_after_its_recorder_was_killed() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/rounds.c", &["-O1"]);
    let dir = scene.path("exact");
    let recorder = contraflow()
        .args(["record", "-o"])
        .arg(&dir)
        .args(KEEP)
        .arg("--")
        .args([program.to_str().unwrap(), "100000000"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(Recorder)
        .unwrap();
    let is_cut = || dir.join("starting.json").exists() && !dir.join("log.bin").exists();
    wait_until("a part is dropped", is_cut);
    let first = numbers(&dir, "log-")[0];
    let seek = "cf-seek 80%\ncf-seek 0%\ncf-when\np state\np number\n";
    let wait = format!("shell while test -e {}; do sleep 0.1; done\n", part(&dir, first).display());
    let said = replay(&dir, &["cf-seek 0%\np state\n", &wait, seek].concat());
    assert!(answer(&said, "cf-when", 0).contains("position 0 of"), "{said}");
    assert_eq!(value(&said, "p state", 0), value(&said, "p state", 1), "{said}");
    let packed = scene.path("packed.cfpack");
    let pack = contraflow().arg("pack").arg(&dir).arg("-o").arg(&packed).output().unwrap();
    assert!(pack.status.success(), "{}", text(&pack.stderr));

    drop(recorder);
    assert!(assert_is_end(&dir) >= first);
    for recording in [&dir, &packed] {
        let verdict = check(recording);
        assert!(verdict.starts_with("the replay is the recorded run as far as"), "{verdict}");
    }
}

fn part(dir: &Path, first: u64) -> PathBuf {
    dir.join(format!("log-{first}.bin"))
}

/// What is missing is named, and nothing is shown in its place.
#[test]
fn a_part_or_its_keyframe_that_is_missing_is_named() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/rounds.c", &["-O1"]);
    let (dir, _) = record_with(&scene, &KEEP, &[program.to_str().unwrap(), ROUNDS]);
    let parts = numbers(&dir, "log-");
    let keyframe = dir.join("keyframes").join(format!("{}.bin", parts[0]));
    for missing in [part(&dir, *parts.last().unwrap()), part(&dir, parts[0]), keyframe] {
        let aside = scene.path("aside");
        std::fs::rename(&missing, &aside).unwrap();
        let shown = contraflow().arg("check").arg(&dir).output().unwrap();
        let said = text(&shown.stderr);
        let name = missing.file_name().unwrap().to_str().unwrap();
        assert!(!shown.status.success() && said.contains(name), "{said}");
        assert!(said.contains("missing"), "{said}");
        std::fs::rename(&aside, &missing).unwrap();
    }
    assert!(check(&dir).starts_with(WHOLE));
}

/// Threads that ended before the part that is kept leave nothing behind.
#[test]
fn threads_that_ended_before_are_forgotten() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/comers.c", &["-O1", "-pthread"]);
    let (dir, _) = record_with(&scene, &KEEP, &[program.to_str().unwrap(), "1500"]);
    assert!(assert_is_end(&dir) > 0);
    let verdict = check(&dir);
    assert!(verdict.starts_with(WHOLE), "{verdict}");
    let info = contraflow().arg("info").arg(&dir).output().unwrap();
    let threads = text(&info.stdout).matches("\nthread ").count();
    assert!((2..1400).contains(&threads), "{threads}");
    assert_eq!(std::fs::read_dir(dir.join("trace")).unwrap().count(), 0, "no files of threads");
}
