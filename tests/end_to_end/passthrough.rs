//! A recorded program is the program: its input, output, status and signals are its own.

use crate::support::{Scene, contraflow, have, text};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn record(scene: &Scene) -> Command {
    let mut command = contraflow();
    command.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "-q"]);
    command
}

#[test]
fn standard_streams_and_status() {
    for kind in ["--exact", "--path"] {
        assert_streams_and_status(kind);
    }
}

fn assert_streams_and_status(kind: &str) {
    let scene = Scene::new();
    let mut child = record(&scene)
        .arg(kind)
        .args(["/bin/sh", "-c", "read line; echo \"out $line\"; echo err >&2; exit 42"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(42));
    assert_eq!(text(&output.stdout), "out hello\n");
    assert_eq!(text(&output.stderr), "err\n");
}

#[test]
fn the_status_does_not_depend_on_who_reads_what_the_recorder_says() {
    let scene = Scene::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut record = contraflow();
    record.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "/bin/sh", "-c", "exit 5"]);
    assert_eq!(record.stderr(writer).status().unwrap().code(), Some(5));
}

#[test]
fn the_disposition_of_sigpipe_is_the_default() {
    let scene = Scene::new();
    let output =
        record(&scene).args(["/bin/sh", "-c", "kill -PIPE $$; echo survived"]).output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 13));
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn a_signal_to_the_recorder_reaches_the_program() {
    let scene = Scene::new();
    let script = "trap 'echo got it; exit 7' TERM; echo ready; while :; do sleep 0.1; done";
    let mut child =
        record(&scene).args(["/bin/sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line, "ready\n");
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    line.clear();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line, "got it\n");
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

#[test]
fn job_control_stops_and_continues_it() {
    let scene = Scene::new();
    // The shell's child stops its parent, the recorded shell, and wakes it up again.
    let script = "(sleep 0.3; kill -CONT $$) & kill -STOP $$; echo awake";
    let start = Instant::now();
    let output = record(&scene).args(["/bin/sh", "-c", script]).output().unwrap();
    assert_eq!(text(&output.stdout), "awake\n");
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[test]
fn address_space_randomization_is_off_unless_kept() {
    let scene = Scene::new();
    let maps = |options: &[&str]| {
        let mut command = record(&scene);
        let own = "while read line; do case $line in */*sh) echo $line; break;; esac; done";
        command.args(options).args(["/bin/sh", "-c", &format!("{own} < /proc/self/maps")]);
        text(&command.output().unwrap().stdout)
    };
    assert_eq!(maps(&[]), maps(&[]));
    let randomized = std::fs::read_to_string("/proc/sys/kernel/randomize_va_space").unwrap();
    if randomized.trim() == "2" {
        assert_ne!(maps(&["--aslr"]), maps(&["--aslr"]));
    } else {
        // Not eprintln!, which the test harness swallows.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("SKIPPED: this kernel does not randomize addresses\n"),
        );
    }
}

#[test]
fn registers_that_a_system_call_leaves_alone_stay() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("int80.c", &["-O1", "-static"]);
    let native = Command::new(&program).output().unwrap();
    if !native.status.success() {
        eprintln!("SKIPPED: the kernel has no INT 0x80: {}", native.status);
        return;
    }
    for backend in ["soft", "step"] {
        let recorded = record(&scene).args(["--backend", backend]).arg(&program).output().unwrap();
        assert_eq!((backend, recorded.stdout), (backend, native.stdout.clone()));
    }
}

/// The kernel looks at the low half of a call's number only.
#[test]
fn calls_whose_numbers_have_high_bits_are_what_they_are() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("wide_calls.c", &["-w"]);
    let native = Command::new(&program).output().unwrap();
    for backend in ["soft", "step"] {
        let dir = scene.path(backend);
        let mut command = record(&scene);
        command.args(["--backend", backend, "-o"]).arg(&dir).arg(&program);
        let recorded = command.output().unwrap();
        assert_eq!((backend, recorded.stdout), (backend, native.stdout.clone()));
        let calls = contraflow().args(["dump", "sideband"]).arg(&dir).output().unwrap();
        let calls = text(&calls.stdout);
        let numbers =
            calls.lines().filter_map(|line| line.split_once(" syscall ")?.1.split(' ').next());
        let wide = numbers.filter(|number| number.len() > 3 && *number != "returns");
        assert_eq!(wide.collect::<Vec<_>>(), Vec::<&str>::new(), "{backend}");
    }
}

/// The recorder is in the program's process group, and must not end, stop, or pass on what the
/// program has already.
#[test]
fn signals_to_the_process_group_are_the_programs() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("group.c", &["-static"]);
    // SIGHUP, SIGQUIT, SIGABRT, SIGUSR1, SIGSEGV, SIGUSR2, SIGTERM, SIGTSTP, SIGVTALRM, SIGPWR, a real-time one.
    for signal in ["1", "3", "6", "10", "11", "12", "15", "20", "26", "30", "40"] {
        for how in ["handle", "ignore"] {
            for backend in ["soft", "step"] {
                let run = |mut command: Command| {
                    let output = command.args([signal, how]).process_group(0).output().unwrap();
                    (output.status.to_string(), text(&output.stdout))
                };
                let mut recorder = record(&scene);
                recorder.args(["--backend", backend]).arg(&program);
                let native = run(Command::new(&program));
                assert_eq!(run(recorder), native, "{backend}, {how}");
            }
        }
    }
}

/// A shell waits for the recorder alone.
#[test]
fn the_recorder_stops_with_its_program() {
    let scene = Scene::new();
    let script = "kill -TSTP 0; echo awake";
    let mut child = record(&scene)
        .args(["/bin/sh", "-c", script])
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    let group = format!("-{}", child.id());
    assert!(Command::new("kill").args(["-CONT", "--", &group]).status().unwrap().success());
    assert_eq!(text(&child.wait_with_output().unwrap().stdout), "awake\n");
}
