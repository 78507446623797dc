//! The translating backend against the stepping one and against a run without any: the same
//! path, instruction by instruction, and the same output and exit status.

use crate::support::{Scene, contraflow, have, text};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Records a run by a backend, without the log of steps that would choose the backend itself.
fn record(scene: &Scene, backend: &str, options: &[&str], command: &[&str]) -> (PathBuf, Output) {
    let dir = scene.path(backend);
    let mut record = contraflow();
    record.env("CONTRAFLOW_HOME", scene.path("store"));
    record.args(["record", "--quiet", "--backend", backend, "-o"]).arg(&dir).args(options);
    let output = record.args(command).stdin(Stdio::null()).output().expect("contraflow runs");
    assert!(dir.join("manifest.json").exists(), "{}", text(&output.stderr));
    (dir, output)
}

/// The addresses that a recording's first thread executed.
fn addresses(dir: &Path) -> Vec<u64> {
    let mut dump = contraflow();
    let output = dump.args(["dump", "insns", "--addresses"]).arg(dir).output().unwrap();
    assert_eq!(text(&output.stderr), "", "gaps");
    let list = text(&output.stdout);
    list.lines().map(|line| u64::from_str_radix(line, 16).unwrap()).collect()
}

fn native(command: &[&str]) -> Output {
    let mut native = Command::new(command[0]);
    native.args(&command[1..]).stdin(Stdio::null()).output().expect("the program runs")
}

fn status(output: &Output) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    let killed = output.status.signal().map(|signal| 128 + signal);
    output.status.code().or(killed).unwrap()
}

/// A program prints and returns what it does by itself. Gives its recording.
fn assert_passes_through(scene: &Scene, options: &[&str], command: &[&str]) -> PathBuf {
    let (dir, output) = record(scene, "soft", options, command);
    let native = native(command);
    assert_eq!(text(&output.stdout), text(&native.stdout), "{command:?}");
    assert_eq!(text(&output.stderr), text(&native.stderr), "{command:?}");
    assert_eq!(status(&output), status(&native), "{command:?}");
    dir
}

/// The path of a program that does the same each time is what stepping it shows.
fn assert_same_path(scene: &Scene, command: &[&str]) -> usize {
    let (soft, translated) = record(scene, "soft", &[], command);
    let (step, stepped) = record(scene, "step", &[], command);
    assert_eq!(text(&translated.stdout), text(&stepped.stdout));
    assert_eq!(status(&translated), status(&stepped));
    let (got, wanted) = (addresses(&soft), addresses(&step));
    let differs = got.iter().zip(&wanted).position(|(a, b)| a != b);
    let around = |list: &[u64], at: usize| {
        let shown = &list[at.saturating_sub(3)..(at + 3).min(list.len())];
        shown.iter().map(|ip| format!("{ip:x}")).collect::<Vec<_>>()
    };
    if let Some(at) = differs {
        panic!("{command:?}: instruction {at}: {:?} {:?}", around(&got, at), around(&wanted, at));
    }
    assert_eq!(got.len(), wanted.len(), "{command:?}");
    got.len()
}

fn same_path_of(source: &str, flags: &[&str]) {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile(source, flags);
        assert!(assert_same_path(&scene, &[program.to_str().unwrap()]) > 10_000);
    }
}

fn output_of(source: &str, options: &[&str]) {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile(source, &[]);
        let dir = assert_passes_through(&scene, options, &[program.to_str().unwrap()]);
        assert!(!addresses(&dir).is_empty());
    }
}

#[test]
fn plain_code_takes_the_same_path() {
    same_path_of("recursion.c", &["-O0"]);
}

#[test]
fn optimized_static_code_takes_the_same_path() {
    same_path_of("recursion.c", &["-O2", "-static"]);
}

#[test]
fn code_that_changes_takes_the_same_path() {
    same_path_of("selfmod.c", &[]);
}

#[test]
fn string_instructions_and_traps_take_the_same_path() {
    same_path_of("strings.c", &[]);
}

#[test]
fn a_crash_takes_the_same_path() {
    same_path_of("crash.c", &[]);
}

#[test]
fn a_program_of_the_system_takes_the_same_path() {
    let scene = Scene::new();
    assert!(assert_same_path(&scene, &["/bin/ls", "-l", "/etc/passwd"]) > 50_000);
}

#[test]
fn a_ring_keeps_the_end() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile("fib.c", &["-O1"]);
        let program = program.to_str().unwrap();
        let (end, output) = record(&scene, "soft", &["--ring", "1"], &[program]);
        assert_eq!(text(&output.stdout), "46368\n");
        let end = addresses(&end);
        let again = Scene::new();
        let all = addresses(&record(&again, "soft", &["--full"], &[program]).0);
        assert!(end.len() > 100_000 && all.len() > end.len(), "{} {}", end.len(), all.len());
        assert!(all.ends_with(&end));
    }
}

#[test]
fn signal_handlers_run_as_by_themselves() {
    output_of("handler.c", &[]);
}

#[test]
fn threads_run_as_by_themselves() {
    output_of("threads.c", &[]);
}

#[test]
fn children_run_as_by_themselves() {
    output_of("forks.c", &[]);
    output_of("spawns.c", &[]);
}

#[test]
fn exec_by_another_thread_runs_as_by_itself() {
    output_of("execthread.c", &[]);
}

#[test]
fn followed_children_have_recordings_of_their_own() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile("forks.c", &[]);
        assert_passes_through(&scene, &["--follow-forks"], &[program.to_str().unwrap()]);
        let children: Vec<_> = std::fs::read_dir(scene.path("store")).unwrap().collect();
        assert_eq!(children.len(), 3);
        for child in children {
            assert!(!addresses(&child.unwrap().path()).is_empty());
        }
    }
}

#[test]
fn scripts_with_pipelines_run_as_by_themselves() {
    let scene = Scene::new();
    let script = "for i in 1 2 3; do echo $i | tr 1-3 a-c; done; (exit 4)";
    assert_passes_through(&scene, &[], &["/bin/bash", "-c", script]);
}
