//! The instructions that the timeline gives are those that the tracer stepped, one by one.

use crate::circles::bodies;
use crate::support::{Recorded, Scene, have, recordings_in, text};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// Compares all threads; gives how many instructions they are.
fn assert_equal(recorded: &Recorded) -> usize {
    let mut total = 0;
    for tid in recorded.threads() {
        let output = recorded.dump(&["insns", "--addresses", "--thread", &tid.to_string()]);
        assert_eq!(text(&output.stderr), "", "gaps in thread {tid}");
        let decoded = text(&output.stdout);
        let mut decoded = decoded.lines().map(|line| u64::from_str_radix(line, 16).unwrap());
        let logged = recorded.logged(tid);
        assert!(!logged.is_empty(), "an empty log");
        for (number, wanted) in logged.iter().enumerate() {
            let got = decoded.next();
            assert_eq!(
                got,
                Some(*wanted),
                "instruction {number} of thread {tid}: {got:x?} {wanted:x}"
            );
        }
        assert_eq!(decoded.next(), None, "thread {tid} goes on behind its log");
        total += logged.len();
    }
    total
}

fn of_program(source: &str, flags: &[&str], arguments: &[&str], prints: &str) {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile(source, flags);
    let mut command = vec![program.to_str().unwrap()];
    command.extend(arguments);
    let recorded = scene.record(&command);
    let output = &recorded.output;
    assert_eq!(text(&output.stdout), prints, "{}, {}", output.status, text(&output.stderr));
    assert_equal(&recorded);
}

#[test]
fn plain_code() {
    let prints = "9 nodes, sum 380, first 10, ackermann 9\n";
    of_program("recursion.c", &["-O0"], &[], prints);
}

#[test]
fn optimized_static_code() {
    let prints = "9 nodes, sum 380, first 10, ackermann 9\n";
    of_program("recursion.c", &["-O2", "-static"], &[], prints);
}

#[test]
fn signal_handlers() {
    let prints = "nested 2, read 1, interrupted 1, alarms 2, faults 3\n";
    of_program("handler.c", &[], &[], prints);
}

#[test]
fn threads() {
    of_program("threads.c", &[], &[], "total 1\n");
}

#[test]
fn children_of_several_threads() {
    of_program("spawns.c", &[], &[], "done 18\n");
}

#[test]
fn exec_by_another_thread() {
    of_program("execthread.c", &[], &[], "executed\n");
}

#[test]
fn fork_and_exec() {
    of_program("forks.c", &[], &["hello"], "sum 3, true 0\nhello\n");
}

#[test]
fn code_that_changes_while_it_runs() {
    of_program("selfmod.c", &[], &[], "sum 251\n");
    let moved = " 1 2 1 10 10 11 11 12 12 13 13 14 14 15 15 16 16 17 17 18 18 19 19 30 31 32 30 40 \
                 41 42 50 50 51 52 60 60 61\n";
    of_program("moved_code.c", &["-w"], &[], moved);
}

#[test]
fn code_that_is_changed_past_its_protection() {
    of_program("patched.c", &["-O0"], &[], "patched 31\n");
}

#[test]
fn a_library_that_is_overwritten_in_place() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let command = scene.overwritten();
    let command = command.each_ref().map(|path| path.to_str().unwrap());
    let recorded = scene.record(&command);
    assert_eq!(text(&recorded.output.stdout), "before 16, after 325, changed 225\n");
    assert_equal(&recorded);
}

#[test]
fn circles_without_packets() {
    let prints = "alarm alarm alarm alarm alarm fault fault fault fault done\n";
    of_program("circles.c", &[], &[], prints);
}

#[test]
fn random_circles() {
    let scene = Scene::new();
    for seed in 0..2 {
        let source = scene.path("bodies.c");
        std::fs::write(&source, bodies(seed, 20)).unwrap();
        let define = format!("-DBODIES=\"{}\"", source.display());
        of_program("random_circles.c", &[&define], &[], "done, 10\n");
    }
}

#[test]
fn string_instructions_and_traps() {
    of_program("strings.c", &[], &[], "at 501, trap flag 0, traps 1\n");
}

#[test]
fn a_crash() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("crash.c", &[]);
    let recorded = scene.record(&[program.to_str().unwrap()]);
    assert_eq!(recorded.output.status.code(), Some(128 + 11));
    assert_equal(&recorded);
}

/// A program that has SIGTRAP in its own hands says and becomes what it does without a tracer.
#[test]
fn the_programs_own_sigtrap() {
    if !have("gcc") {
        return;
    }
    for arguments in [&[][..], &["blocked"], &["inside"], &["ignored"], &["default"], &["raised"]] {
        let scene = Scene::new();
        let program = scene.compile("traps.c", &[]);
        let native = Command::new(&program).args(arguments).output().unwrap();
        let mut command = vec![program.to_str().unwrap()];
        command.extend(arguments);
        let recorded = scene.record(&command);
        assert_eq!(text(&recorded.output.stdout), text(&native.stdout), "{arguments:?}");
        let status = native.status.code().or(native.status.signal().map(|signal| 128 + signal));
        assert_eq!(recorded.output.status.code(), status, "{arguments:?}");
        assert_equal(&recorded);
    }
}

#[test]
fn a_stack_overflow() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("overflow.c", &["-O0"]);
    let recorded = scene.record_with(&["--psb-period", "2048"], &[program.to_str().unwrap()]);
    assert_eq!(recorded.output.status.code(), Some(128 + 11));
    assert_equal(&recorded);
}

#[test]
fn a_program_of_the_system() {
    let scene = Scene::new();
    let recorded = scene.record(&["/bin/ls", "-l", "/etc/passwd"]);
    assert!(text(&recorded.output.stdout).contains("/etc/passwd"));
    assert!(assert_equal(&recorded) > 50_000);
}

#[test]
fn small_segments() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("threads.c", &[]);
    let recorded = scene.record_with(&["--psb-period", "2048"], &[program.to_str().unwrap()]);
    assert_equal(&recorded);
}

#[test]
fn followed_children_have_recordings_of_their_own() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("forks.c", &[]);
    let recorded = scene.record_with(&["--follow-forks"], &[program.to_str().unwrap()]);
    let children = recordings_in(&scene.path("store"));
    assert_eq!(children.len(), 3, "{}", text(&recorded.output.stderr));
    let mut instructions = 0;
    for child in children {
        let dir = child;
        let one = Recorded {
            dir: dir.clone(),
            log: recorded.log.clone(),
            output: recorded.output.clone(),
        };
        let manifest = std::fs::read_to_string(dir.join("manifest.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
        let tid = i32::try_from(manifest["pid"].as_i64().unwrap()).unwrap();
        let output = one.dump(&["insns", "--addresses"]);
        let decoded: Vec<_> =
            text(&output.stdout).lines().map(|l| u64::from_str_radix(l, 16).unwrap()).collect();
        assert_eq!(decoded, one.logged(tid));
        instructions += decoded.len();
    }
    assert!(instructions > 1000);
}
