//! Killing the recorder, at any time, leaves a recording that opens, and says that it is cut.

use crate::support::{Scene, contraflow, text};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Bytes of trace that are on the disk.
fn written_bytes(recording: &Path) -> u64 {
    let files = std::fs::read_dir(recording.join("trace")).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// Records an endless program and kills the recorder after a while, but not before it has written
/// so much.
fn killed_after(scene: &Scene, time: Duration, bytes: u64) -> PathBuf {
    let dir = scene.path("recording");
    let mut child = contraflow()
        .env("CONTRAFLOW_HOME", scene.path("store"))
        .args(["record", "--backend", "step", "-o"])
        .arg(&dir)
        .args(["/bin/sh", "-c", "i=0; while :; do i=$((i+1)); done"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(time);
    let deadline = Instant::now() + Duration::from_secs(60);
    while written_bytes(&dir) < bytes && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    dir
}

#[test]
fn a_killed_recorder_leaves_a_recording_that_opens() {
    let scene = Scene::new();
    let dir = killed_after(&scene, Duration::from_millis(500), 4000);
    let info = contraflow().arg("info").arg(&dir).output().unwrap();
    assert!(info.status.success(), "{}", text(&info.stderr));
    assert!(text(&info.stdout).contains("cut: the recorder was killed"), "{}", text(&info.stdout));
    let dump = contraflow().args(["dump", "insns", "--addresses"]).arg(&dir).output().unwrap();
    assert!(dump.status.success());
    assert!(dump.stdout.len() > 17 * 1000, "{} bytes", dump.stdout.len());
    assert_eq!(text(&dump.stderr), "");
}

#[test]
fn at_any_time() {
    for step in 0..8 {
        let scene = Scene::new();
        let dir = killed_after(&scene, Duration::from_millis(1 + 40 * step), 0);
        if !dir.join("starting.json").exists() {
            continue;
        }
        let dump = contraflow().args(["dump", "insns", "--addresses"]).arg(&dir).output().unwrap();
        assert!(dump.status.success(), "after {step}: {}", text(&dump.stderr));
    }
}

#[test]
fn the_program_dies_with_its_recorder() {
    let scene = Scene::new();
    let marker = format!("contraflow-test-{}", std::process::id());
    let mut child = contraflow()
        .env("CONTRAFLOW_HOME", scene.path("store"))
        .args(["record", "-q", "/bin/sh", "-c", "while :; do :; done", &marker])
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    child.kill().unwrap();
    child.wait().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let left = std::process::Command::new("pgrep").args(["-f", &marker]).output();
    if let Ok(left) = left {
        assert_eq!(text(&left.stdout), "");
    }
}

#[test]
fn damage_is_refused_and_truncation_named() {
    let scene = Scene::new();
    let recorded = scene.record(&["/bin/true"]);
    let trace = std::fs::read_dir(recorded.dir.join("trace")).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        path.extension().is_some_and(|e| e == "pt").then_some(path)
    });
    let trace = trace.unwrap();
    let bytes = std::fs::read(&trace).unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 0x10;
    std::fs::write(&trace, &damaged).unwrap();
    let output = recorded.dump(&["insns"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("damaged: the checksum"), "{}", text(&output.stderr));
    std::fs::write(&trace, &bytes[..bytes.len() / 2]).unwrap();
    let output = recorded.dump(&["insns"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("truncated: "), "{}", text(&output.stderr));
}
