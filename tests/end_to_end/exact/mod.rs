//! Exact recordings: a program's output and status are as without a recorder, and the replay is the
//! recorded run.

mod ahead;
mod bugs;
mod calls;
mod chaos;
mod code_cache;
mod data;
mod executors;
mod faults;
mod filters;
mod forks;
mod history;
mod keep;
mod keyframes;
mod kills;
mod known_code;
mod languages;
mod last;
mod live;
mod lldb;
mod paths;
mod programs;
mod races;
mod shared;
mod tools;
mod walks;
mod witness;

use crate::support::{Scene, contraflow, text};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What `check` says of a replay that reached the end of the program.
pub(crate) const WHOLE: &str = "the replay is the recorded run:";
/// What it says where the recording ends before the program.
pub(crate) const PART: &str = "the replay is the recorded run as far as the recording goes:";

/// Records a program exactly, whose output and status must be as they are natively. Returns the
/// recording, and what contraflow said.
fn record(scene: &Scene, command: &[&str]) -> (PathBuf, Output) {
    record_with(scene, &[], command)
}

fn record_with(scene: &Scene, options: &[&str], command: &[&str]) -> (PathBuf, Output) {
    let native = Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).output();
    let native = native.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let dir = scene.path("exact");
    let recorded = contraflow()
        .env("CONTRAFLOW_HOME", scene.path("store"))
        .args(["record", "--exact", "-o"])
        .arg(&dir)
        .args(options)
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .output()
        .expect("contraflow runs");
    let said = text(&recorded.stderr);
    assert_eq!(text(&recorded.stdout), text(&native.stdout), "{command:?}: {said}");
    assert_eq!(recorded.status.code(), Some(shell_status(&native)), "{command:?}: {said}");
    (dir, recorded)
}

/// Returns the status by which a shell, and contraflow, report the end of a program.
fn shell_status(output: &Output) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    let status = output.status;
    status.code().or(status.signal().map(|signal| 128 + signal)).expect("it ended")
}

/// Checks a recording, and returns what that says.
fn check(dir: &Path) -> String {
    let checked = contraflow().arg("check").arg(dir).output().expect("contraflow runs");
    text(&checked.stdout) + &text(&checked.stderr)
}

/// Records a command and checks the recording twice.
fn assert_replays(command: &[&str]) {
    let scene = Scene::new();
    let (dir, recorded) = record(&scene, command);
    for _ in 0..2 {
        let verdict = check(&dir);
        let said = text(&recorded.stderr);
        assert!(verdict.starts_with(WHOLE), "{command:?}: {verdict}\n{said}");
    }
}
