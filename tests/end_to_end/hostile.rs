//! Programs that know that they are recorded, and harm their recorder: it survives, says what
//! happened, and keeps what was recorded up to there.

use crate::support::{Scene, contraflow, have, text};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn record(scene: &Scene, options: &[&str], command: &[&str]) -> Command {
    record_as("--path", scene, options, command)
}

fn record_as(kind: &str, scene: &Scene, options: &[&str], command: &[&str]) -> Command {
    let mut record = contraflow();
    record.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", kind, "--force", "-o"]);
    record.arg(scene.path("recording")).args(options).arg(scene.path("hostile")).args(command);
    record.stdin(Stdio::null());
    record
}

/// The recorder came to its own end, and what there is opens.
fn survived(scene: &Scene, output: &Output, what: &str) {
    let said = text(&output.stderr);
    let code =
        output.status.code().unwrap_or_else(|| panic!("{what}: {:?}: {said}", output.status));
    assert!(!said.contains("panicked") && code != 134, "{what}: {said}");
    opens(&scene.path("recording"), what);
}

fn opens(dir: &Path, what: &str) {
    let info = contraflow().arg("info").arg(dir).output().unwrap();
    assert!(info.status.success(), "{what}: {}", text(&info.stderr));
}

fn scene() -> Option<Scene> {
    if !have("gcc") {
        return None;
    }
    let scene = Scene::new();
    scene.compile("hostile.c", &["-O1"]);
    Some(scene)
}

#[test]
fn no_call_changes_the_recorders_mappings() {
    let Some(scene) = scene() else { return };
    let output = record(&scene, &[], &["calls"]).output().unwrap();
    survived(&scene, &output, "calls");
    assert_eq!(text(&output.stdout), "0 succeeded of 1 mappings\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn stores_into_the_pages_behind_trace_buffers_are_the_programs_own_faults() {
    let Some(scene) = scene() else { return };
    let output = record(&scene, &["--full"], &["guards"]).output().unwrap();
    survived(&scene, &output, "guards");
    assert_eq!(text(&output.stdout), "0 stored of 20\n");
    assert_eq!(output.status.code(), Some(0));
    crate::comparison::without_gaps(&scene.path("recording")).unwrap();
}

#[test]
fn random_bytes_in_what_is_shared_end_the_program_at_worst() {
    let Some(scene) = scene() else { return };
    for (options, seeds) in [(&["--full"][..], 0..3), (&[], 3..6)] {
        for seed in seeds {
            for area in [0, 1, 5, 6] {
                let words = [area.to_string(), seed.to_string()];
                let command = ["area", &words[0], &words[1]];
                let output = record(&scene, options, &command).output().unwrap();
                survived(&scene, &output, &format!("{options:?} {command:?}"));
            }
        }
    }
}

#[test]
fn a_code_cache_that_is_gone_ends_the_program_with_a_sentence() {
    let Some(scene) = scene() else { return };
    let mut sentences = 0;
    for number in 0..14 {
        let command = ["child", &number.to_string()];
        let output = record(&scene, &["--full"], &command).output().unwrap();
        survived(&scene, &output, &format!("{command:?}"));
        let said = text(&output.stderr);
        sentences += usize::from(said.contains("it was killed, and its recording ends there"));
    }
    assert!(sentences > 0, "nothing was noticed");
}

/// Returns what an exact recorder printed for the program, and what it said. What was recorded up to
/// the harm replays, or the place is named from which on it does not.
fn harmed_exactly(scene: &Scene, command: &[&str]) -> (String, String) {
    let output = record_as("--exact", scene, &[], command).output().unwrap();
    survived(scene, &output, &format!("{command:?}"));
    let checked = contraflow().arg("check").arg(scene.path("recording")).output().unwrap();
    let verdict = text(&checked.stdout) + &text(&checked.stderr);
    let is_known = verdict.starts_with("the replay is the recorded run")
        || verdict.contains("the replay differs from the recording at")
            && verdict.contains("what comes before is exact");
    assert!(is_known, "{command:?}: {verdict}");
    (text(&output.stdout), text(&output.stderr))
}

/// The program sees the recorder's mappings through a child.
#[test]
fn nothing_harms_an_exact_recorder() {
    let Some(scene) = scene() else { return };
    assert_eq!(harmed_exactly(&scene, &["calls"]).0, "0 succeeded of 1 mappings\n");
    assert!(harmed_exactly(&scene, &["guards"]).0.starts_with("0 stored of "));
    let mut sentences = 0;
    for number in 0..8 {
        let (_, said) = harmed_exactly(&scene, &["child", &number.to_string()]);
        sentences += usize::from(said.contains("it was killed, and its recording ends there"));
    }
    assert!(sentences > 0, "nothing was noticed");
    for seed in 0..3 {
        for area in [0, 1, 5, 6] {
            harmed_exactly(&scene, &["area", &area.to_string(), &seed.to_string()]);
        }
    }
}

#[test]
fn sigterm_ends_the_recorder_of_a_program_that_harms_it() {
    let Some(scene) = scene() else { return };
    for seed in ["1", "2", "3"] {
        let mut record = record(&scene, &[], &["area", "0", seed, "endless"]);
        let mut recorder = record.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(recorder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid = recorder.id().to_string();
        // It may have ended by itself.
        let _ = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        let status = recorder.wait().unwrap();
        assert!(status.code().is_some(), "{status:?}");
        opens(&scene.path("recording"), seed);
    }
}
