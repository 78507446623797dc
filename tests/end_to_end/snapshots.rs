//! What is in the rings, on the disk while the program runs on: `contraflow snapshot`.

use crate::comparison::{path_of, record};
use crate::support::{Scene, contraflow, have, text};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A recorder at work, which is ended with the test.
struct AtWork {
    recorder: Child,
    dir: PathBuf,
    store: PathBuf,
}

impl AtWork {
    /// Records a program that waits for its input, or runs for ever.
    fn start(scene: &Scene, options: &[&str], program: &Path) -> Self {
        let (dir, store) = (scene.path("recording"), scene.path("store"));
        let mut record = contraflow();
        record.env("CONTRAFLOW_HOME", &store).args(["record", "--quiet"]).args(options);
        record
            .arg("-o")
            .arg(&dir)
            .arg(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let recorder = record.spawn().unwrap();
        Self { recorder, dir, store }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let output = self.recorder.stdout.as_mut().unwrap();
        BufReader::with_capacity(1, output).read_line(&mut line).unwrap();
        line
    }

    fn snapshot(&self, recording: Option<&Path>) -> Output {
        let mut snapshot = contraflow();
        snapshot.env("CONTRAFLOW_HOME", &self.store).arg("snapshot").args(recording);
        snapshot.output().unwrap()
    }

    /// Takes one that must come.
    fn taken(&self) {
        let output = self.snapshot(Some(&self.dir));
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("up to now is on the disk"));
    }

    fn refused(&self, recording: Option<&Path>, why: &str) {
        let output = self.snapshot(recording);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(why), "{why:?}: {}", text(&output.stderr));
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        // It may have ended; its program dies with it.
        let _ = self.recorder.kill();
        let _ = self.recorder.wait();
    }
}

/// The path of the first thread of a recording that is being written.
fn path_so_far(dir: &Path) -> Vec<u64> {
    let output = contraflow().args(["dump", "insns", "--addresses"]).arg(dir).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let number = |line: &str| u64::from_str_radix(line, 16).unwrap();
    text(&output.stdout).lines().map(number).collect()
}

fn instructions_so_far(dir: &Path) -> u64 {
    let output = contraflow().args(["dump", "stats"]).arg(dir).output().unwrap();
    let stats = text(&output.stdout);
    assert!(stats.contains(" gaps 0\n"), "{stats}");
    let line = stats.lines().find_map(|line| line.strip_prefix("instructions "));
    line.unwrap().split(' ').next().unwrap().parse().unwrap()
}

fn wait_until(mut what: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !what() {
        assert!(Instant::now() < deadline, "it does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Records `pauses.c`, with a snapshot where it waits. Gives the path of that, of the recording as
/// it is in the end, and of all.
fn paused(ring: &str, n: &str) -> Option<[Vec<u64>; 3]> {
    let scene = Scene::new();
    if !have("gcc") {
        return None;
    }
    let program = scene.compile("pauses.c", &["-O1", n]);
    let (all, _) = record(&scene, "soft", &["--full"], &[program.to_str().unwrap()]);
    let mut work = AtWork::start(&scene, &["--backend", "soft", "--ring", ring], &program);
    assert_eq!(work.line(), "ready\n");
    work.taken();
    let then = path_so_far(&work.dir);
    assert!(work.recorder.stdin.as_mut().unwrap().write_all(b"x").is_ok());
    assert_eq!(work.recorder.wait().unwrap().code(), Some(0));
    assert!(!work.dir.join("recorder").exists());
    work.refused(Some(&work.dir), "is not being recorded");
    let info = contraflow().arg("info").arg(&work.dir).output().unwrap();
    assert!(info.status.success(), "{}", text(&info.stderr));
    Some([then, path_of(&work.dir).unwrap(), path_of(&all).unwrap()])
}

/// How far the piece `part` of `all` goes.
fn end_of(part: &[u64], all: &[u64]) -> usize {
    let ends = (part.len()..=all.len()).rev();
    let mut ends = ends.filter(|end| all[..*end].ends_with(&part[part.len() - 1..]));
    ends.find(|end| all[..*end].ends_with(part)).expect("a piece of the whole path")
}

#[test]
fn what_fits_the_ring_is_all_there_then_and_later() {
    let Some([then, later, all]) = paused("16", "-DN=16") else { return };
    assert!(
        all.starts_with(&then) && then.len() > all.len() / 3,
        "{} of {}",
        then.len(),
        all.len()
    );
    assert!(later == all, "{} of {}", later.len(), all.len());
}

#[test]
fn what_the_ring_lost_before_and_since_is_missing_and_nothing_else() {
    let Some([then, later, all]) = paused("1", "-DN=26") else { return };
    assert!(!all.starts_with(&then));
    let end = end_of(&then, &all);
    assert!(later.starts_with(&then) && then.len() > 20_000);
    let since = &later[then.len()..];
    let same = all.iter().rev().zip(since.iter().rev()).take_while(|(a, b)| a == b).count();
    assert!(same == since.len() && same > 20_000, "{same} of {} fit the end", since.len());
    assert!(end + since.len() < all.len(), "nothing is missing");
}

#[test]
fn threads_that_run_are_caught_where_they_are() {
    let scene = Scene::new();
    if !have("gcc") {
        return;
    }
    let program = scene.compile("endless.c", &["-O1"]);
    let work = AtWork::start(&scene, &["--backend", "soft", "--ring", "1"], &program);
    wait_until(|| std::fs::read_dir(work.dir.join("trace")).is_ok_and(|t| t.count() == 6));
    let mut before = 0;
    for _ in 0..2 {
        work.taken();
        let now = instructions_so_far(&work.dir);
        assert!(now > before, "{now} behind {before}");
        before = now;
    }
    assert!(before > 10_000);
}

#[test]
fn who_cannot_be_asked_is_not() {
    let scene = Scene::new();
    if !have("gcc") {
        return;
    }
    let program = scene.compile("pauses.c", &["-O1", "-DN=5"]);
    let mut steps = AtWork::start(&scene, &["--backend", "step"], &program);
    assert_eq!(steps.line(), "ready\n");
    steps.refused(Some(&steps.dir), "keeps all of the history");
    steps.refused(None, "no recording of the store is being recorded");
    // What a killed recorder leaves names nobody.
    steps.recorder.kill().unwrap();
    steps.recorder.wait().unwrap();
    assert!(steps.dir.join("recorder").exists());
    steps.refused(Some(&steps.dir), "is not being recorded");
}

#[test]
fn the_latest_of_the_store_that_is_being_recorded() {
    let scene = Scene::new();
    if !have("gcc") {
        return;
    }
    let program = scene.compile("pauses.c", &["-O1", "-DN=5"]);
    let store = scene.path("store");
    let mut record = contraflow();
    record.env("CONTRAFLOW_HOME", &store).args(["record", "--backend", "soft"]).arg(&program);
    record.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let recorder = record.spawn().unwrap();
    let (dir, store) = (store.join("pauses-0"), store);
    let mut work = AtWork { recorder, dir, store };
    assert_eq!(work.line(), "ready\n");
    // A later one, which has ended.
    let mut later = contraflow();
    later.env("CONTRAFLOW_HOME", &work.store).args(["record", "--backend", "soft", "/bin/true"]);
    assert!(later.stderr(Stdio::null()).status().unwrap().success());
    let output = work.snapshot(None);
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("pauses-0 up to now"), "{said}");
    assert!(said.contains("contraflow replay pauses-0\n"), "{said}");
    assert!(path_so_far(&work.dir).len() > 100);
    Command::new("kill").args(["-KILL", &work.recorder.id().to_string()]).status().unwrap();
    work.recorder.wait().unwrap();
    work.refused(None, "no recording of the store is being recorded");
}
