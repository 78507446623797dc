//! Wrong input: one sentence, and the exit status 2.

use super::{ask, compile, record};
use crate::support::{Scene, contraflow, text};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Asks, and returns the sentence of the refusal.
fn refusal(what: &str, dir: &Path, options: &[&str]) -> String {
    let output = ask(what, dir, options);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{what} {options:?}: {said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{what} {options:?}: {said}");
    assert!(said.starts_with("contraflow: "), "{said}");
    said
}

#[test]
fn wrong_questions_are_refused_in_a_sentence() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    for (options, part) in [
        (&["--at", "nothing"][..], "no code of \"nothing\""),
        (&["--at", "values.c:9999"], "no code of"),
        (&["--at", ":9"], "no code of"),
        (&["--at", "0xzz"], "no code of"),
        (&["--at", "mean", "--print", "nothing"], "no variable \"nothing\""),
        (&["--at", "mean", "--print", "sum +"], "an operand is missing"),
        (&["--at", "mean", "--print", "sum.x"], "has no member \"x\""),
        (&["--at", "mean", "--print", "*count"], "needs a pointer"),
        (&["--at", "mean", "--print", "mean(1)"], "functions cannot be called"),
        (&["--at", "mean", "--from", "x"], "no position"),
        (&["--at", "mean", "--from", "1.2.3"], "no position"),
        (&["--at", "mean", "--from", "99999999999999999999"], "no position"),
    ] {
        let said = refusal("hits", &dir, options);
        assert!(said.contains(part), "{options:?}: {said}");
    }
    let said = refusal("calls", &dir, &["--function", "nothing"]);
    assert!(said.contains("no code of \"nothing\""), "{said}");
    refusal("calls", Path::new("/nowhere"), &[]);
}

#[test]
fn a_reader_that_is_gone_is_no_error() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let dataset = scene.path("dataset");
    for arguments in [
        &["calls"][..],
        &["hits", "--at", "mean"],
        &["check"],
        &["profile"],
        &["coverage"],
        &["dump", "calls"],
        &["info"],
        &["export", "parquet", "--output", dataset.to_str().unwrap()],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = contraflow();
        command.args(arguments).arg(&dir).stdout(writer);
        let output = command.output().expect("contraflow runs");
        let said = text(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        assert!(!said.contains("pipe") && !said.contains("panicked"), "{arguments:?}: {said}");
    }
    assert!(dataset.is_dir());
}

#[test]
fn no_executions_after_a_position_are_not_said_of_the_whole_run() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let last = super::rows("hits", &dir, &["--at", "mean"]).pop().unwrap();
    let last = last["position"].as_str().unwrap();
    let from = last.split('.').next().unwrap().parse::<u64>().unwrap() + 1;
    let output = ask("hits", &dir, &["--at", "mean", "--from", &from.to_string()]);
    let said = text(&output.stderr);
    assert!(said.contains(&format!("mean was not executed from position {from} on")), "{said}");
}

#[test]
fn code_without_debug_information_has_calls_but_no_values() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let stripped = Command::new("strip").arg("-g").arg(&program).status();
    assert!(stripped.is_ok_and(|status| status.success()));
    let (dir, _) = record(&scene, &[], &program);
    let said = refusal("hits", &dir, &["--at", "mean", "--print", "count"]);
    assert!(said.contains("no debug information") && said.contains("-g"), "{said}");
    let found = super::rows("calls", &dir, &["--function", "mean", "--args", "--returns"]);
    assert_eq!(found.len(), 12);
    assert!(found.iter().all(|call| call["arguments"].is_null() && call["returned"].is_null()));
}

#[test]
fn damaged_recordings_are_refused_or_end_early() {
    let scene = Scene::new();
    let Some(program) = compile(&scene, "gcc", "values.c", &["-O0"]) else { return };
    let (dir, _) = record(&scene, &[], &program);
    let log = dir.join("log.bin");
    let mut bytes = fs::read(&log).unwrap();
    let half = bytes.len() / 2;
    bytes[half] ^= 0xff;
    fs::write(&log, &bytes).unwrap();
    refusal("hits", &dir, &["--at", "mean", "--print", "count"]);
    fs::remove_file(&log).unwrap();
    refusal("calls", &dir, &["--function", "mean"]);
}
