//! What a gdb session on a recording refuses, and what it survives.

use crate::support::{Recorded, Scene, answer, assert_in_order, contraflow, have, run_gdb, text};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_recording_is_not_run_again() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let mark = scene.path("it-ran");
    let script = format!("echo >> {}", mark.display());
    let recorded = scene.record(&["/bin/sh", "-c", &script]);
    let lines = || fs::read_to_string(&mark).unwrap().lines().count();
    assert_eq!(lines(), 1);
    let output = recorded.gdb("run\nstart\nr\nkill\nrun\nstarti\nfile /bin/true\nrun");
    for command in ["run", "start", "r"] {
        assert!(answer(&output, command, 0).contains("a recording cannot run again"), "{output}");
    }
    assert!(answer(&output, "run", 1).contains("the recording has been left"), "{output}");
    assert!(answer(&output, "starti", 0).contains("the recording has been left"), "{output}");
    // Another program is the user's own business.
    assert!(answer(&output, "run", 2).contains("exited normally"), "{output}");
    assert!(!output.contains("Python"), "{output}");
    assert_eq!(lines(), 1, "the program was run");
}

#[test]
fn the_process_is_gone() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let recorded = scene.record(&["/bin/true"]);
    let output = recorded.gdb("info proc\ninfo proc mappings\ncf-info");
    for command in ["info proc", "info proc mappings"] {
        assert!(answer(&output, command, 0).contains("`cf-info` shows what is known"), "{output}");
    }
    assert!(answer(&output, "cf-info", 0).contains("/bin/true"), "{output}");
}

#[test]
fn a_directory_with_any_name() {
    let scene = Scene::new();
    let name = OsStr::from_bytes(b"it's \xff\xfe \"$HOME\" \\");
    let dir = fs::canonicalize(scene.path("")).unwrap().join(name);
    let mut record = contraflow();
    record.arg("record").arg("-o").arg(&dir).arg("/bin/true");
    let said = text(&record.output().unwrap().stderr);
    let hint = "contraflow: step through it with: contraflow replay $'/";
    assert!(said.contains(hint) && said.contains(r#"/it\'s \xff\xfe \"$HOME\" \\'"#), "{said}");
    assert!(contraflow().arg("info").arg(&dir).status().unwrap().success());
    if !have("gdb") {
        return;
    }
    let mut replay = contraflow();
    replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    let output = run_gdb(replay, "cf-when\nreverse-stepi\ncf-when");
    assert!(answer(&output, "cf-when", 1).starts_with("position "), "{output}");
}

#[test]
fn a_script_is_its_interpreter_across_the_programs_that_it_becomes() {
    let scene = Scene::new();
    let becomes = scene.compile("scripted.c", &[]);
    let script = scene.path("script");
    // Written by another process: a child that another test starts meanwhile would keep our own
    // file open for writing, and such a file does not run.
    let lines = format!("#! /bin/sh -e\nexec {} \"$@\"", becomes.display());
    let mut write = Command::new("/bin/sh");
    write.args(["-c", "printf '%s\\n' \"$1\" >\"$0\" && chmod 755 \"$0\""]);
    assert!(write.arg(&script).arg(lines).status().unwrap().success());
    for backend in ["soft", "step"] {
        let dir = scene.path(backend);
        let mut record = contraflow();
        record.args(["record", "-q", "--full", "--backend", backend, "-o"]).arg(&dir);
        assert_eq!(record.arg(&script).arg("word").status().unwrap().code(), Some(128 + 6));
        let info = text(&contraflow().arg("info").arg(&dir).output().unwrap().stdout);
        assert!(info.contains("/bin/sh"), "{info}");
        let mut replay = contraflow();
        replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
        let output = run_gdb(replay, "bt\ncf-seek start\ncf-find main 1");
        assert_in_order(&output, &["abort", "main", ">>> cf-seek start", ">>> cf-find", "main"]);
    }
}

#[test]
fn the_hint_names_what_is_not_the_latest() {
    let scene = Scene::new();
    let said = |output: &std::process::Output| {
        let said = text(&output.stderr);
        said.lines().last().unwrap_or_default().to_owned()
    };
    let recorded = scene.record(&["/bin/true"]);
    let wanted = format!("replay {}", recorded.dir.display());
    assert!(said(&recorded.output).ends_with(&wanted), "{}", said(&recorded.output));
    let mut record = contraflow();
    record.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "/bin/true"]);
    let output = record.output().unwrap();
    assert!(said(&output).ends_with("contraflow replay"), "{}", said(&output));
}

/// Of a program with threads, killed when all of them have come.
fn cut(scene: &Scene) -> Recorded {
    let program = scene.compile("endless.c", &[]);
    let recorded = Recorded {
        dir: scene.path("recording"),
        log: scene.path("log"),
        output: contraflow().arg("--version").output().unwrap(),
    };
    let mut child = contraflow()
        .args(["record", "--backend", "step"])
        .arg("-o")
        .arg(&recorded.dir)
        .arg(&program)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let big = || {
        let files = fs::read_dir(recorded.dir.join("trace")).into_iter().flatten().flatten();
        let sizes = files.filter_map(|file| file.metadata().ok()).map(|m| m.len());
        sizes.filter(|bytes| *bytes > 500).count()
    };
    while big() < 3 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    recorded
}

#[test]
fn a_cut_recording_ends_where_its_path_does() {
    if !have("gdb") || !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let recorded = cut(&scene);
    let commands = "\
        cf-when
        info threads
        thread apply all -q backtrace
        stepi
        reverse-stepi
        reverse-next
        cf-seek end
        continue
        cf-when
        cf-seek begin
        info threads";
    let output = recorded.gdb(commands);
    assert!(answer(&output, "cf-when", 0).contains("the end: end not recorded"), "{output}");
    assert!(answer(&output, "thread apply all -q backtrace", 0).contains("#0"), "{output}");
    assert!(answer(&output, "stepi", 0).contains("history"), "{output}");
    assert!(answer(&output, "continue", 0).contains("history"), "{output}");
    assert_eq!(answer(&output, "cf-when", 0), answer(&output, "cf-when", 1));
    assert!(answer(&output, "cf-seek begin", 0).starts_with("position 0 of"), "{output}");
    assert!(answer(&output, "info threads", 1).contains(" 0x"), "{output}");
    assert!(!output.contains("Python") && !output.contains("Traceback"), "{output}");
}
