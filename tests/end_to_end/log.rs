//! The log of exact recordings: as it is printed and counted, damaged, and cut.

use crate::support::{Scene, contraflow, text};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

fn record(scene: &Scene, command: &[&str]) -> (PathBuf, Output) {
    let dir = scene.path("exact");
    let mut record = contraflow();
    record.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "--exact", "-o"]);
    let output = record.arg(&dir).args(command).stdin(Stdio::null()).output().unwrap();
    assert!(dir.join("manifest.json").exists(), "{}", text(&output.stderr));
    (dir, output)
}

fn run(arguments: &[&str], dir: &Path) -> Output {
    let output = contraflow().args(arguments).arg(dir).output().unwrap();
    assert!(!text(&output.stderr).contains("panicked"), "{}", text(&output.stderr));
    output
}

fn printed(arguments: &[&str], dir: &Path) -> String {
    let output = run(arguments, dir);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Entries, ticks and bytes of the log, by the manifest.
fn totals(dir: &Path) -> [u64; 3] {
    let manifest: Value =
        serde_json::from_slice(&fs::read(dir.join("manifest.json")).unwrap()).unwrap();
    ["entries", "ticks", "size_bytes"].map(|name| manifest["end"]["log"][name].as_u64().unwrap())
}

#[test]
fn an_exact_recording_is_described_by_its_log() {
    let scene = Scene::new();
    let (dir, output) = record(&scene, &["/bin/true"]);
    let [entries, ticks, size] = totals(&dir);
    assert!(entries > 20 && ticks > 1000);
    assert_eq!(size, fs::metadata(dir.join("log.bin")).unwrap().len());
    let counts = format!("{entries} entries, {ticks} ticks");
    let said = text(&output.stderr);
    assert!(said.contains(&counts) && said.contains(" of log)"), "{said}");
    let info = printed(&["info"], &dir);
    assert!(info.contains(&format!("log          {counts}, ")), "{info}");
    assert!(info.contains("capture      exact, by contraflow"), "{info}");
    let list = contraflow().env("CONTRAFLOW_HOME", scene.path("")).arg("list").output().unwrap();
    let list = text(&list.stdout);
    assert!(list.contains(&format!("exit 0, {counts}")), "{list}");
    for text in [said, info, list] {
        for absent in ["instructions", "trace", "PSB"] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
    }
}

#[test]
fn the_log_is_printed_entry_by_entry() {
    let scene = Scene::new();
    let (dir, _) = record(&scene, &["/bin/cat", "/etc/passwd"]);
    let [entries, ticks, _] = totals(&dir);
    let lines = printed(&["dump", "log"], &dir);
    let lines: Vec<Vec<&str>> =
        lines.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.len() as u64, entries);
    assert!((0..).zip(&lines).all(|(number, line)| line[0] == number.to_string()));
    assert_eq!(lines.iter().map(|line| line[2].parse::<u64>().unwrap()).sum::<u64>(), ticks);
    assert_eq!((lines[0][3], lines[lines.len() - 1][3]), ("start", "finish"));
    let calls = |name| lines.iter().filter(|line| line[3] == "call" && line[4] == name).count();
    assert!(calls("openat") > 0 && calls("mmap") > 0 && calls("write") == 1);
    let objects = printed(&["dump", "--json", "log", "--from", "5", "--to", "8"], &dir);
    let objects: Vec<Value> =
        objects.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 3);
    for (line, object) in lines[5..8].iter().zip(&objects) {
        assert_eq!(line[0], object["index"].to_string());
        assert_eq!(line[1], object["thread"].to_string());
        assert_eq!(line[2], object["ticks"].to_string());
        assert_eq!(line[3], object["kind"].as_str().unwrap());
    }
    assert_eq!(printed(&["dump", "log", "--thread", "1"], &dir), "");
    let far = run(&["dump", "log", "--from", "1000000000"], &dir);
    assert!(text(&far.stderr).contains("the log ends at"), "{}", text(&far.stderr));
}

#[test]
fn commands_on_paths_take_an_exact_recording() {
    let scene = Scene::new();
    let (dir, _) = record(&scene, &["/bin/true"]);
    let out = scene.path("perf.data");
    let export = ["export", "perf", "-o", out.to_str().unwrap()];
    let dumps = ["packets", "events", "blocks", "insns", "calls", "stats"];
    let dumps = dumps.map(|what| vec!["dump", what]);
    for command in dumps.into_iter().chain([vec!["index"], export.to_vec()]) {
        let output = run(&command, &dir);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{command:?}: {said}");
        assert!(command[0] == "export" || !output.stdout.is_empty(), "{command:?}");
    }
    let path = scene.record(&["/bin/true"]);
    let said = text(&run(&["dump", "log"], &path.dir).stderr);
    assert!(said.contains("has no log"), "{said}");
}

#[test]
fn a_changed_byte_of_the_log_is_found() {
    let scene = Scene::new();
    let (dir, _) = record(&scene, &["/bin/true"]);
    let path = dir.join("log.bin");
    let bytes = fs::read(&path).unwrap();
    assert!(run(&["info"], &dir).status.success());
    for part in 0..16 {
        let mut changed = bytes.clone();
        changed[part * bytes.len() / 16] ^= 0x10;
        fs::write(&path, changed).unwrap();
        for command in [&["info"][..], &["dump", "log"]] {
            let output = run(command, &dir);
            assert_eq!(output.status.code(), Some(2), "{command:?}");
            assert!(text(&output.stderr).contains("log.bin"), "{}", text(&output.stderr));
        }
    }
    fs::remove_file(&path).unwrap();
    assert!(text(&run(&["info"], &dir).stderr).contains("log.bin"));
}

#[test]
fn a_killed_recorder_leaves_the_log_up_to_its_last_chunk() {
    let scene = Scene::new();
    let dir = scene.path("exact");
    let mut record = contraflow();
    record.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "--exact", "-o"]);
    let program = "while :; do read x < /proc/self/stat; done";
    let mut recorder = record.arg(&dir).args(["sh", "-c", program]).spawn().unwrap();
    let log = dir.join("log.bin");
    let size = || fs::metadata(&log).map_or(0, |file| file.len());
    let deadline = Instant::now() + Duration::from_secs(60);
    while size() < 200_000 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let entries = printed(&["dump", "log"], &dir).lines().count();
    assert!(entries > 100);
    let info = run(&["info"], &dir);
    assert!(info.status.success(), "{}", text(&info.stderr));
    let info = text(&info.stdout);
    assert!(info.contains(&format!("log          {entries} entries")), "{info}");
    assert!(info.contains("cut: the recorder was killed"), "{info}");
    // A chunk that was not written as a whole is left out.
    let bytes = fs::read(&log).unwrap();
    fs::write(&log, &bytes[..bytes.len() - 1]).unwrap();
    let fewer = printed(&["dump", "log"], &dir).lines().count();
    assert!(fewer < entries);
    assert!(run(&["info"], &dir).status.success());
}
