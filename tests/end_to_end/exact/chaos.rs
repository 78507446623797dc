//! Unusual orders of threads find a bug that usual ones hide, and replay like others.

use super::{WHOLE, check};
use crate::support::{Scene, contraflow, have, recordings_in, text};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

/// Records a program until it fails, in the scene's own store.
fn record(scene: &Scene, arguments: &[&str], program: &str) -> Output {
    contraflow()
        .env("CONTRAFLOW_HOME", scene.path("store"))
        .arg("record")
        .args(arguments)
        .arg("--")
        .arg(program)
        .output()
        .expect("contraflow runs")
}

#[test]
fn unusual_orders_find_a_rare_failure() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/rare.c", &["-w", "-O1", "-pthread"]);
    let program = program.to_str().unwrap();
    let usual = record(&scene, &["--exact", "--until-fails", "5"], program);
    assert_eq!(usual.status.code(), Some(0), "{}", text(&usual.stderr));
    assert!(text(&usual.stderr).contains("no run of 5 failed"), "{}", text(&usual.stderr));
    let dir = scene.path("failed");
    let unusual =
        record(&scene, &["--chaos", "--until-fails", "500", "-o", dir.to_str().unwrap()], program);
    assert_eq!(unusual.status.code(), Some(1), "{}", text(&unusual.stderr));
    let verdict = check(&dir);
    assert!(verdict.starts_with(WHOLE), "{verdict}");
}

#[test]
fn only_the_last_recording_of_a_series_is_kept() {
    let scene = Scene::new();
    let series = record(&scene, &["--until-fails", "3"], "/bin/true");
    assert!(text(&series.stderr).contains("no run of 3 failed"), "{}", text(&series.stderr));
    let failing = record(&scene, &["--exact", "--until-fails", "3"], "/bin/false");
    assert_eq!(failing.status.code(), Some(1));
    assert!(
        text(&failing.stderr).contains("run 1 of at most 3 failed"),
        "{}",
        text(&failing.stderr)
    );
    let list = contraflow()
        .env("CONTRAFLOW_HOME", scene.path("store"))
        .arg("list")
        .output()
        .expect("contraflow runs");
    assert_eq!(text(&list.stdout).lines().count(), 2, "{}", text(&list.stdout));
    // Children have no directory that their parent's user names.
    let script = scene.path("script");
    fs::write(&script, "#!/bin/sh\n/bin/true\ntrue\n").unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let dir = scene.path("named");
    let options = ["--until-fails", "3", "--follow-forks", "-o", dir.to_str().unwrap()];
    let before = recordings_in(&scene.path("store")).len();
    let with_children = record(&scene, &options, script.to_str().unwrap());
    assert_eq!(with_children.status.code(), Some(0), "{}", text(&with_children.stderr));
    assert_eq!(recordings_in(&scene.path("store")).len(), before + 1);
    assert!(dir.join("manifest.json").exists());
}
