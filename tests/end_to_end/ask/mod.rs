//! Questions about whole histories: hits and calls, against gdb on the same recording and what the
//! programs print.

mod agents;
mod calls;
mod counts;
mod dataset;
mod diff;
mod exports;
mod hits;
mod interrupts;
mod origin;
mod wrong;

use crate::support::{Scene, contraflow, have, text};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A file of tests/programs/ask.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/ask").join(name)
}

/// Compiles a program by a compiler that may be missing.
fn compile(scene: &Scene, compiler: &str, name: &str, options: &[&str]) -> Option<PathBuf> {
    if !have(compiler) {
        return None;
    }
    let program = scene.path("program");
    let mut command = Command::new(compiler);
    command.arg("-g").args(options).arg("-o").arg(&program).arg(source(name));
    let output = command.output().expect("the compiler runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(program)
}

/// Records a program with options.
fn record(scene: &Scene, options: &[&str], program: &Path) -> (PathBuf, Output) {
    record_as(scene, "recording", options, program, &[])
}

/// Records a program with options and arguments, under a name.
fn record_as(
    scene: &Scene,
    name: &str,
    options: &[&str],
    program: &Path,
    arguments: &[&str],
) -> (PathBuf, Output) {
    let dir = scene.path(name);
    let output = contraflow()
        .env("CONTRAFLOW_HOME", scene.path("store"))
        .args(["record", "-q", "-o"])
        .arg(&dir)
        .args(options)
        .arg("--")
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("contraflow runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    (dir, output)
}

fn ask(what: &str, dir: &Path, options: &[&str]) -> Output {
    contraflow().arg(what).arg(dir).args(options).output().expect("contraflow runs")
}

/// The answer, of a question that has one.
fn answer(what: &str, dir: &Path, options: &[&str]) -> String {
    let output = ask(what, dir, options);
    assert!(output.status.success(), "{what} {options:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The rows of an answer as JSON.
fn rows(what: &str, dir: &Path, options: &[&str]) -> Vec<serde_json::Value> {
    let said = answer(what, dir, &[options, &["--json"]].concat());
    said.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// The number of the line of a source that ends with a mark.
fn line_of(name: &str, mark: &str) -> String {
    let text = std::fs::read_to_string(source(name)).unwrap();
    let line = text.lines().position(|line| line.contains(mark)).expect(mark);
    format!("{name}:{}", line + 1)
}
