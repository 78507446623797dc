//! `contraflow diff`.

use super::compile;
use crate::support::{Scene, contraflow, text};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;

/// Records a run of the program with these arguments.
fn record(scene: &Scene, program: &Path, options: &[&str], arguments: &str) -> PathBuf {
    let name: String = [options.join(""), arguments.to_owned(), program.display().to_string()]
        .concat()
        .replace(['/', ' '], "_");
    let arguments: Vec<&str> = arguments.split(' ').collect();
    super::record_as(scene, &name, options, program, &arguments).0
}

fn diff(good: &Path, bad: &Path, options: &[&str]) -> Output {
    contraflow().arg("diff").args([good, bad]).args(options).output().expect("contraflow runs")
}

/// Returns the differences in the program's own code.
fn differences(good: &Path, bad: &Path) -> Vec<Value> {
    let output = diff(good, bad, &["--json"]);
    let rows: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(output.status.code(), Some(1), "{rows:?} {}", text(&output.stderr));
    rows
}

fn cell<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap_or("")
}

/// Returns the values of a difference as they are printed.
fn values(row: &Value) -> String {
    let value = |value: &Value| {
        let (name, good, bad) = (cell(value, "name"), cell(value, "good"), cell(value, "bad"));
        if good == bad { format!("{name} = {good}") } else { format!("{name} = {good} | {bad}") }
    };
    let all = row["values"].as_array().expect("it is a list").iter().map(value);
    all.collect::<Vec<_>>().join(", ")
}

/// Returns the number of a line of the program.
fn line_of(part: &str) -> u64 {
    let source = std::fs::read_to_string(super::source("parting.c")).unwrap();
    1 + source.lines().position(|line| line.contains(part)).unwrap() as u64
}

#[test]
fn runs_part_at_a_branch_and_meet_again() {
    let scene = Scene::new();
    let options = ["-w", "-O0", "-pthread"];
    let Some(program) = compile(&scene, "gcc", "parting.c", &options) else { return };
    let plain = record(&scene, &program, &[], "50 5 10");
    let higher = record(&scene, &program, &[], "70 5 10");
    let found = differences(&plain, &higher);
    let [only] = &found[..] else { panic!("{found:?}") };
    assert_eq!((cell(only, "cause"), cell(only, "function")), ("branch", "discount"));
    assert_eq!(only["line"], line_of("it->price BEYOND limit"));
    assert_eq!(values(only), "limit = 50 | 70, it->price = 60");
    let [taken, other] = ["return it->price", "return 0;"].map(line_of);
    assert_eq!(cell(only, "good_next"), format!("discount parting.c:{taken}"));
    assert_eq!(cell(only, "bad_next"), format!("discount parting.c:{other}"));
    let meeting = cell(only, "meeting");
    let known = [line_of("return 0;") + 1, line_of("sum += ")];
    assert!(known.iter().any(|line| meeting.ends_with(&format!("parting.c:{line}"))), "{meeting}");
    // The positions lead there.
    for (dir, position) in [(&plain, "good_position"), (&higher, "bad_position")] {
        let position = cell(only, position);
        let at = contraflow()
            .args(["replay", "--at", position])
            .arg(dir)
            .args(["--", "-nx", "-batch", "-ex", "x/i $pc"])
            .output()
            .unwrap();
        let said = text(&at.stdout);
        assert!(said.contains("discount+") && said.contains(":\tj"), "{position}: {said}");
    }
    // The other direction, and no difference.
    let [back] = &differences(&higher, &plain)[..] else { panic!("one") };
    assert_eq!(values(back), "limit = 70 | 50, it->price = 60");
    let same = diff(&plain, &plain, &["--libraries"]);
    assert_eq!((same.status.code(), text(&same.stdout).as_str()), (Some(0), ""));
    assert!(text(&same.stderr).contains("the runs took the same path"));
}

#[test]
fn loops_threads_and_jumps_out_of_functions() {
    let scene = Scene::new();
    let options = ["-w", "-O0", "-pthread"];
    let Some(program) = compile(&scene, "gcc", "parting.c", &options) else { return };
    let plain = record(&scene, &program, &[], "50 5 10");
    // Two rounds more.
    let longer = record(&scene, &program, &[], "50 7 10");
    let [rounds] = &differences(&plain, &longer)[..] else { panic!("one") };
    assert_eq!(values(rounds), "n = 5 | 7, i = 5");
    let after = line_of("return sum");
    assert_eq!(cell(rounds, "meeting"), format!("total parting.c:{after}"));
    assert_eq!(rounds["good_instructions"], 0);
    // The other thread.
    let counts = record(&scene, &program, &[], "50 5 12");
    let found = differences(&plain, &counts);
    let [only] = &found[..] else { panic!("{found:?}") };
    assert_eq!(cell(only, "function"), "count");
    assert!(values(only).contains("counted = 10"), "{only}");
    assert_ne!(only["good_thread"], only["bad_thread"]);
    // Out of the function that parts.
    let thrown = record(&scene, &program, &[], "50 5 10 3");
    let found = differences(&plain, &thrown);
    let jump = found.iter().find(|row| cell(row, "function") == "total").expect("it is found");
    assert!(values(jump).contains("thrown = -1 | 3"), "{jump}");
    // In `main`, soon after the jump: at the next place where a stretch of code begins in both.
    let meeting = cell(jump, "meeting");
    let met = line_of("setjmp(out) == 0")..=line_of("pthread_join(");
    let line = meeting.strip_prefix("main parting.c:").and_then(|line| line.parse().ok());
    assert!(line.is_some_and(|line| met.contains(&line)), "{jump}");
}

#[test]
fn variables_without_a_value_did_not_decide() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "unset.c", &["-O2"]) else { return };
    let runs = ["3", "70"].map(|number| record(&scene, &program, &[], number));
    let found = differences(&runs[0], &runs[1]);
    let shown = values(&found[0]);
    assert!(shown.contains("3 | 70") && !shown.contains("optimized out"), "{shown}");
}

#[test]
fn builds_and_paths_are_compared() {
    let scene = Scene::new();
    let options = ["-w", "-O0", "-pthread"];
    let Some(program) = compile(&scene, "gcc", "parting.c", &options) else { return };
    let loose = record(&scene, &program, &[], "60 5 10");
    let path = record(&scene, &program, &["--path"], "60 7 10");
    let found = differences(&loose, &path);
    let rounds = &found[0];
    assert_eq!((cell(rounds, "function"), cell(rounds, "cause")), ("total", "branch"));
    assert_eq!(values(rounds), "");
    assert_eq!(rounds["line"], line_of("i < n"));
    // Another build, in its place.
    let Some(program) =
        compile(&scene, "gcc", "parting.c", &["-w", "-O0", "-pthread", "-DBEYOND=>="])
    else {
        return;
    };
    let strict = record(&scene, &program, &[], "60 5 10 9");
    let found = differences(&loose, &strict);
    let branch = found.iter().find(|row| cell(row, "function") == "discount").expect("it is found");
    assert!(values(branch).contains("limit = 60"), "{branch}");
    let lost = diff(&loose, &scene.path("none"), &[]);
    assert_eq!((lost.status.code(), text(&lost.stdout).as_str()), (Some(2), ""));
}

/// The signal arrives after the same outcome of a branch in both runs, at another round each.
#[test]
fn a_signal_after_a_branch_is_not_the_branch() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "alarmed.c", &["-O1"]) else { return };
    for kind in [&[][..], &["--path", "--full"]] {
        let runs = ["1", "2"].map(|number| record(&scene, &program, kind, number));
        let found = differences(&runs[0], &runs[1]);
        let to_handler = |row: &&Value| {
            ["good_next", "bad_next"].iter().any(|of| cell(row, of).contains("handler"))
        };
        let signals: Vec<&Value> = found.iter().filter(to_handler).collect();
        assert!(!signals.is_empty(), "{found:?}");
        for signal in signals {
            assert_eq!((cell(signal, "cause"), values(signal).as_str()), ("event", ""), "{signal}");
        }
    }
}
