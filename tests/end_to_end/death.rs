//! SIGKILL of the recorder, where its program is to go on.

use crate::support::{Scene, contraflow, have, text};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn wait_until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The process that runs this very program.
fn process_of(program: &Path) -> Option<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let mut all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let runs =
        |pid: &u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program);
    all.find(runs)
}

/// Whether a process has this path among its arguments.
fn is_named(path: &Path) -> bool {
    let path = path.as_os_str().as_encoded_bytes();
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0).any(|word| word == path)
    })
}

fn of_status(pid: u32, field: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim().to_owned())
}

fn record(scene: &Scene, options: &[&str]) -> Command {
    let mut record = contraflow();
    record.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "-q", "-o"]);
    record.arg(scene.path("recording")).args(options);
    record.stdin(Stdio::piped()).stdout(Stdio::piped());
    record
}

fn kill(recorder: &mut Child) {
    recorder.kill().unwrap();
    recorder.wait().unwrap();
}

/// The recording opens, and has this much at least.
fn has_instructions(scene: &Scene, least: usize) {
    let dir = scene.path("recording");
    let info = contraflow().arg("info").arg(&dir).output().unwrap();
    assert!(info.status.success(), "{}", text(&info.stderr));
    let mut dump = contraflow();
    let output = dump.args(["dump", "insns", "--addresses"]).arg(&dir).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let count = text(&output.stdout).lines().count();
    assert!(count >= least, "{count} instructions");
}

/// Threads that compute, sleep, wait and make others go on, and find everything as it was.
fn goes_on(options: &[&str]) {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("attached.c", &["-O1", "-pthread"]);
    let program = program.canonicalize().unwrap();
    let mut record = record(&scene, &["--on-recorder-death", "go-on"]);
    let mut recorder = record.args(options).arg(&program).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = recorder.stdin.take().unwrap();
    let mut output = BufReader::new(recorder.stdout.take().unwrap());
    let mut errors = BufReader::new(recorder.stderr.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    assert_eq!(line(), "ready");
    write!(input, "a").unwrap();
    assert_eq!(line(), "a");
    let pid = wait_until("the program", || process_of(&program));
    let tracer = of_status(pid, "TracerPid:").unwrap();
    assert_ne!((tracer.as_str(), tracer == recorder.id().to_string()), ("0", true));
    kill(&mut recorder);
    wait_until("the end of tracing", || (of_status(pid, "TracerPid:")? == "0").then_some(()));
    let tracer = Path::new("/proc").join(tracer);
    wait_until("the recorder's end", || (!tracer.join("exe").exists()).then_some(()));
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    assert!(!maps.contains("contraflow"), "{maps}");
    write!(input, "b").unwrap();
    assert_eq!(line(), "b");
    drop(input);
    assert_eq!(line(), "well");
    let mut said = String::new();
    std::io::Read::read_to_string(&mut errors, &mut said).unwrap();
    assert_eq!(said, "");
    has_instructions(&scene, 1000);
}

#[test]
fn a_translated_program_goes_on() {
    for options in [&["--backend", "soft", "--full"][..], &["--backend", "soft"]] {
        goes_on(options);
    }
}

#[test]
fn a_stepped_program_goes_on() {
    goes_on(&["--backend", "step"]);
}

fn tracer_of(pid: u32) -> Option<u32> {
    of_status(pid, "TracerPid:")?.parse().ok().filter(|tracer| *tracer != 0)
}

/// A process that ran before the recorder came runs on when that is gone.
#[test]
fn a_process_that_was_attached_to_goes_on() {
    if have("gcc") {
        ["--exact", "--ring=1"].into_iter().for_each(assert_goes_on);
    }
}

fn assert_goes_on(kind: &str) {
    let scene = Scene::new();
    let program = scene.compile("attached.c", &["-O1", "-pthread"]);
    let mut subject =
        Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(subject.stdout.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    assert_eq!(line(), "ready");
    let pid = subject.id();
    let mut record = record(&scene, &["--on-recorder-death", "go-on", kind, "-p"]);
    let mut recorder = record.arg(pid.to_string()).spawn().unwrap();
    wait_until("the recorder", || tracer_of(pid));
    kill(&mut recorder);
    wait_until("the end of tracing", || tracer_of(pid).is_none().then_some(()));
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    assert!(!maps.contains("contraflow"), "{maps}");
    write!(subject.stdin.as_mut().unwrap(), "a").unwrap();
    assert_eq!(line(), "a");
    drop(subject.stdin.take());
    assert_eq!(line(), "well");
    assert_eq!(subject.wait().unwrap().code(), Some(7));
}

/// The one that traces is killed itself: translated code has nobody to turn to.
#[test]
fn the_program_dies_with_the_one_that_traces_it() {
    let scene = Scene::new();
    let done = scene.path("done");
    let script = "echo ready; while :; do :; done; : \"$0\"";
    let mut record = record(&scene, &["--on-recorder-death", "go-on"]);
    record.args(["sh", "-c", script]).arg(&done).stderr(Stdio::piped());
    let mut recorder = record.spawn().unwrap();
    let mut output = BufReader::new(recorder.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let front = recorder.id().to_string();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let mut all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let tracer = all.find(|pid| of_status(*pid, "PPid:").as_deref() == Some(&front));
    let tracer = tracer.expect("a child that traces").to_string();
    assert!(Command::new("kill").args(["-KILL", &tracer]).status().unwrap().success());
    assert_eq!(recorder.wait().unwrap().code(), Some(128 + 9));
    wait_until("the program's end", || (!is_named(&done)).then_some(()));
    let mut said = String::new();
    std::io::Read::read_to_string(recorder.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert!(said.contains("the recorder was killed by SIGKILL, and the program with it"), "{said}");
    let info = contraflow().arg("info").arg(scene.path("recording")).output().unwrap();
    assert!(info.status.success(), "{}", text(&info.stderr));
}

/// Whatever the moment is, also before there is a program.
#[test]
fn at_any_moment() {
    if !have("sh") {
        return;
    }
    for step in 0..10 {
        for backend in ["soft", "step"] {
            let scene = Scene::new();
            let done = scene.path("done");
            let script = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; echo $i >\"$0\"";
            let mut record =
                record(&scene, &["--on-recorder-death", "go-on", "--backend", backend]);
            let mut recorder = record.args(["sh", "-c", script]).arg(&done).spawn().unwrap();
            let after = Duration::from_millis(13 * step * step);
            std::thread::sleep(after);
            kill(&mut recorder);
            let what = format!("{backend} after {after:?}: the end");
            wait_until(&what, || (!is_named(&done)).then_some(()));
            let was_begun = scene.path("recording").join("starting.json").exists()
                || scene.path("recording").join("manifest.json").exists();
            let ended = std::fs::read_to_string(&done).is_ok_and(|said| said == "3000\n");
            assert!(ended || !was_begun, "{backend} after {after:?}");
        }
    }
}

/// The user's process passes on what the recorder's tells.
#[test]
fn ends_without_death_are_as_ever() {
    let ends = [("exit 7", 7), ("kill -TERM $$", 128 + 15), (":", 0)];
    for (script, status) in ends {
        let scene = Scene::new();
        let mut record = record(&scene, &["--on-recorder-death", "go-on"]);
        let output = record.args(["sh", "-c", &format!("echo said; {script}")]).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{script}");
        assert_eq!(text(&output.stdout), "said\n");
        has_instructions(&scene, 1000);
    }
    // What is sent to it comes to the program.
    let scene = Scene::new();
    let mut record = record(&scene, &["--on-recorder-death", "go-on"]);
    let script = "trap 'echo got; exit 3' TERM; echo ready; while :; do sleep 0.1; done";
    let mut recorder = record.args(["sh", "-c", script]).spawn().unwrap();
    let mut output = BufReader::new(recorder.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let pid = recorder.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(recorder.wait().unwrap().code(), Some(3));
}
