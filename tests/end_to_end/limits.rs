//! Recordings of all that have a largest size: the beginning, a gap that is told, and the end.

use crate::comparison::{path_of, record};
use crate::support::{Scene, contraflow, have, text};
use std::path::{Path, PathBuf};

/// The fewest instructions that a mebibyte of records tells of here, and that are written before.
const FEW: usize = 20_000;

fn subject(scene: &Scene) -> Option<PathBuf> {
    have("gcc").then(|| scene.compile("fib.c", &["-O1", "-DN=28"]))
}

/// The lengths of the beginning and of the end that `part` has of `all`, with none of it lost.
fn beginning_and_end(part: &[u64], all: &[u64]) -> (usize, usize) {
    let same = part.iter().zip(all).take_while(|(a, b)| a == b).count();
    assert!(all.ends_with(&part[same..]), "{} of {} fit the beginning", same, part.len());
    (same, part.len() - same)
}

fn info(dir: &Path) -> String {
    let output = contraflow().arg("info").arg(dir).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn has_gap_in_the_middle(filter: &[&str]) {
    let scene = Scene::new();
    let Some(program) = subject(&scene) else { return };
    let command = [program.to_str().unwrap()];
    let options = |more: &[&'static str]| -> Vec<String> {
        [filter, more].concat().into_iter().map(str::to_owned).collect()
    };
    let run = |options: &[String]| {
        let scene = Scene::new();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let (dir, output) = record(&scene, "soft", &options, &command);
        assert_eq!(text(&output.stdout), "317811\n");
        (scene, dir)
    };
    let (_all, all) = run(&options(&["--full"]));
    let (_part, part) = run(&options(&["--full", "--max-size", "8K", "--ring", "1"]));
    assert!(info(&all).contains("history      all\n"), "{}", info(&all));
    let said = info(&part);
    let history = "history      all up to 8192 bytes, then the last 1 MiB of records of each thread; \
                   that size was reached after ";
    assert!(said.contains(history), "{said}");
    let all = path_of(&all).unwrap();
    let path = path_of(&part).unwrap();
    let (before, behind) = beginning_and_end(&path, &all);
    assert!(before > FEW && behind > FEW, "{before} and {behind} of {}", all.len());
    assert!(before + behind < all.len(), "nothing is missing");
    let stats = contraflow().args(["dump", "stats"]).arg(&part).output().unwrap();
    let stats = text(&stats.stdout);
    assert!(stats.contains("\n  Overflow 1\n") && stats.contains(" gaps 0\n"), "{stats}");
}

#[test]
fn a_history_that_comes_to_its_largest_size() {
    has_gap_in_the_middle(&[]);
}

#[test]
fn a_filtered_history_that_comes_to_its_largest_size() {
    has_gap_in_the_middle(&["--filter", "fib"]);
}

/// What is left of the run fits into the ring: nothing is lost.
#[test]
fn an_end_that_fits_the_ring() {
    let scene = Scene::new();
    let Some(program) = subject(&scene) else { return };
    let options = ["--full", "--size-limit", "1", "--ring", "128"];
    let (part, _) = record(&scene, "soft", &options, &[program.to_str().unwrap()]);
    let again = Scene::new();
    let (all, _) = record(&again, "soft", &["--full"], &[program.to_str().unwrap()]);
    assert_eq!(path_of(&part).unwrap().len(), path_of(&all).unwrap().len());
    assert!(info(&part).contains("all up to 1 bytes, then the last 128 MiB"), "{}", info(&part));
}

#[test]
fn sizes_that_are_refused() {
    let refused = |options: &[&str], why: &str| {
        let scene = Scene::new();
        let mut record = contraflow();
        record.env("CONTRAFLOW_HOME", scene.path("store")).arg("record").args(options);
        let output = record.arg("/bin/true").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(text(&output.stderr).contains(why), "{options:?}: {}", text(&output.stderr));
    };
    refused(&["--max-size", "1G"], "--full");
    refused(&["--full", "--ring", "5"], "--full keeps all of the history, and --ring its end");
    for size in ["0", "1X", "M", "99999999T", "-1", "1.5G"] {
        refused(&["--full", &format!("--max-size={size}")], "give a size in bytes");
    }
    refused(&["--backend", "step", "--full", "--max-size", "1G"], "the step backend keeps all");
}

/// A terminal is told now and then how much was written.
#[test]
fn progress_is_told_to_a_terminal() {
    if !have("script") || !have("sleep") {
        return;
    }
    let scene = Scene::new();
    let contraflow = env!("CARGO_BIN_EXE_contraflow");
    let told = |options: &str| {
        let line = format!("{contraflow} record --force -o recording {options} sleep 5.5");
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).current_dir(scene.path("."));
        let script = script.env("CONTRAFLOW_HOME", scene.path("store"));
        text(&script.stdin(std::process::Stdio::null()).output().unwrap().stdout)
    };
    let said = told("--full");
    // On a machine that stands still for a while it comes late.
    let after = said.split_once(" are written after ").and_then(|(_, rest)| rest.split_once(" s"));
    let seconds: Option<u64> = after.and_then(|(seconds, _)| seconds.parse().ok());
    assert!(seconds.is_some_and(|seconds| seconds >= 4), "{said}");
    let said = told("--full --quiet");
    assert_eq!(said, "");
}
