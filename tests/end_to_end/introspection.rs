//! Programs that look at themselves, or forbid it: what they find and do is what they do alone.

use crate::comparison::{native, passes_through, path_of, record, same_stdout, status};
use crate::support::{Scene, contraflow, have, text};
use std::process::Command;

fn skipped(what: &str) {
    // Not eprintln!, which the test harness swallows.
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("SKIPPED: {what}\n"));
}

#[test]
fn a_program_finds_its_stack_and_memory() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile("maps.c", &["-O1"]);
        passes_through(&scene, &["--ring", "1"], &[program.to_str().unwrap()])
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

/// They have plans for the whole address space, and some look at their own threads at the end.
#[test]
fn sanitizers_run() {
    if !have("gcc") {
        return;
    }
    for sanitizer in ["address", "leak", "thread", "undefined"] {
        let scene = Scene::new();
        let program = scene.path(sanitizer);
        let mut gcc = Command::new("gcc");
        gcc.args(["-g", "-O1", "-pthread", &format!("-fsanitize={sanitizer}"), "-o"]);
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/sanitized.c");
        let compiled = gcc.arg(&program).arg(source).output().unwrap().status.success();
        let command = [program.to_str().unwrap()];
        if !compiled || status(&native(&command)) != 4 {
            skipped(&format!("no {sanitizer} sanitizer"));
            continue;
        }
        let options = ["--ring", "1"];
        let dir = passes_through(&scene, &options, &command)
            .unwrap_or_else(|error| panic!("{sanitizer}: {error}"));
        assert!(path_of(&dir).unwrap().len() > 10_000, "{sanitizer}");
    }
}

#[test]
fn a_program_forbids_to_be_looked_into() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("dumpable.c", &["-O1"]);
    let dir = passes_through(&scene, &[], &[program.to_str().unwrap()])
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(path_of(&dir).unwrap().len() > 10_000);
}

/// Only root may look then: the program is left alone, and says what it says by itself.
#[test]
fn a_program_forbids_all_but_root_to_look_into_it() {
    const NOBODY: &str = "65534";
    if !have("gcc") || !have("setpriv") {
        return;
    }
    let place = tempfile::Builder::new().prefix("contraflow-").tempdir_in("/tmp").unwrap();
    let scene = Scene::new();
    let compiled = scene.compile("dumpable.c", &["-O1"]);
    let (program, binary) = (place.path().join("dumpable"), place.path().join("contraflow"));
    std::fs::copy(compiled, &program).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_contraflow"), &binary).unwrap();
    let mut open = Command::new("chmod");
    assert!(open.args(["-R", "a+rwX"]).arg(place.path()).status().unwrap().success());
    let mut record = Command::new("setpriv");
    record.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]).arg(&binary);
    record.args(["record", "--backend", "soft", "-o"]).arg(place.path().join("recording"));
    let output = record.arg(&program).current_dir(place.path()).output().unwrap();
    let said = text(&output.stderr);
    if said.contains("setpriv:") {
        return skipped("setpriv may not change the user");
    }
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(5), "0 10 9\n".to_owned()),
        "{said}"
    );
    assert!(said.contains("forbids that it is looked into (PR_SET_DUMPABLE)"), "{said}");
    let info = contraflow().arg("info").arg(place.path().join("recording")).output().unwrap();
    assert!(info.status.success(), "{}", text(&info.stderr));
}

#[test]
fn restartable_sequences_are_not_there() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("sequences.c", &[]);
    for backend in ["soft", "step"] {
        let (_, output) = record(&scene, backend, &[], &[program.to_str().unwrap()]);
        assert_eq!(text(&output.stdout), "Function not implemented\n", "{backend}");
    }
}

#[test]
fn a_core_dump_would_not_hold_the_recorders_memory() {
    if have("gcc") {
        let scene = Scene::new();
        let program = scene.compile("undumped.c", &[]);
        passes_through(&scene, &[], &[program.to_str().unwrap()])
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_program_that_forbids_itself_the_time_is_left_alone() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("timeless.c", &[]);
    let command = [program.to_str().unwrap()];
    let mut record = contraflow();
    record.args(["record", "--backend", "soft", "-o"]).arg(scene.path("recording")).args(command);
    let output = record.env("CONTRAFLOW_HOME", scene.path("store")).output().unwrap();
    same_stdout(&output, &native(&command)).unwrap_or_else(|error| panic!("{error}"));
    let said = text(&output.stderr);
    assert!(said.contains("forbids itself the time-stamp counter"), "{said}");
    assert!(path_of(&scene.path("recording")).unwrap().len() > 10_000);
}

/// Each call would cost a look at all mappings otherwise.
#[test]
fn memory_that_is_mapped_anew_costs_no_look_at_all_mappings() {
    if !have("gcc") || !have("strace") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("remapped.c", &[]);
    let calls = scene.path("calls");
    let mut strace = Command::new("strace");
    strace.args(["-e", "trace=openat", "-o"]).arg(&calls).arg(contraflow().get_program());
    strace.args(["record", "--backend", "soft", "-o"]).arg(scene.path("recording")).arg(&program);
    let output = strace.env("CONTRAFLOW_HOME", scene.path("store")).output().unwrap();
    assert_eq!(text(&output.stdout), "done\n", "{}", text(&output.stderr));
    let calls = std::fs::read_to_string(calls).unwrap();
    let looks = calls.lines().filter(|line| line.contains("/maps\"")).count();
    assert!(looks > 0 && looks < 100, "{looks} looks");
}
