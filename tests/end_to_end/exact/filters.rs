//! Programs that filter their own system calls (seccomp): the kernel answers as it does natively, the
//! recorder's own calls pass, and the replay is the recorded run.

use super::forks::follow;
use super::{PART, WHOLE, check, record, record_with};
use crate::serve::{Live, name, tools};
use crate::support::{Scene, answer, assert_in_order, contraflow, have, run_gdb, text};

/// Each way in which the program ends, or goes on.
const WAYS: [&str; 9] =
    ["none", "threads", "thread", "fork", "kill", "kill_all", "kill_thread", "default", "blocked"];

#[test]
fn each_answer_of_a_filter() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/filtered.c", &["-w", "-O1"]);
    let program = program.to_str().unwrap();
    for way in WAYS {
        let (dir, recorded) = record(&scene, &[program, way]);
        let said = text(&recorded.stderr);
        assert!(!said.contains("up to there"), "{way}: {said}");
        let verdict = check(&dir);
        assert!(verdict.starts_with(WHOLE), "{way}: {verdict}");
        std::fs::remove_dir_all(dir).unwrap();
    }
    let (dir, _) = record_with(&scene, &["--chaos"], &[program, "threads"]);
    assert!(check(&dir).starts_with(WHOLE));
    std::fs::remove_dir_all(dir).unwrap();
}

/// The ways in which a program with a filter starts others, with the recordings that there are of each.
const STARTS: [(&[&str], usize); 8] = [
    (&["exec"], 1),
    // Three programs in turn.
    (&["exec", "inner"], 1),
    (&["fork"], 2),
    (&["twice"], 3),
    (&["vfork"], 2),
    (&["spawn"], 2),
    (&["spawn", "fork"], 3),
    (&["shell"], 4),
];

#[test]
fn children_and_programs_that_inherit_a_filter() {
    if !have("gcc") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/sandboxed.c", &["-w", "-O1"]);
    for (way, recordings) in STARTS {
        let command = [&[program.to_str().unwrap()], way].concat();
        let (dir, recorded) = record(&scene, &command);
        let said = text(&recorded.stderr);
        assert!(!said.contains("up to there"), "{way:?}: {said}");
        let verdict = check(&dir);
        assert!(verdict.starts_with(WHOLE), "{way:?}: {verdict}");
        std::fs::remove_dir_all(dir).unwrap();
        let family = follow(&scene, &command);
        assert_eq!(family.recordings.len(), recordings, "{way:?}: {}", family.said);
    }
    // A child with a filter of its own, which it installed while it ran natively.
    let command = [program.to_str().unwrap(), "borrower"];
    let (dir, recorded) = record_with(&scene, &["--follow-forks"], &command);
    let said = text(&recorded.stderr);
    assert!(said.contains("has filtered its system calls (seccomp): not recorded"), "{said}");
    assert!(check(&dir).starts_with(WHOLE));
    std::fs::remove_dir_all(dir).unwrap();
    // A program that has something at the address that the filter knows goes on natively.
    let at = "-Wl,--section-start=.there=0x7e87e7e00000";
    let elsewhere = Scene::new();
    let other = elsewhere.compile("exact/sandboxed.c", &["-w", "-no-pie", "-DTHERE", at]);
    let command = [program.to_str().unwrap(), "other", other.to_str().unwrap()];
    let (dir, recorded) = record(&scene, &command);
    let said = text(&recorded.stderr);
    assert!(
        said.contains("filters its system calls (seccomp), and is recorded up to there"),
        "{said}"
    );
    assert!(check(&dir).starts_with(PART));
}

#[test]
fn a_child_with_a_filter_is_walked_in_gdb() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/sandboxed.c", &["-w", "-O0"]);
    let family = follow(&scene, &[program.to_str().unwrap(), "spawn"]);
    let mut replay = contraflow();
    replay.arg("replay").arg(&family.recordings[1]).args(["--", "-nx", "-batch"]);
    let commands = "handle SIGSYS nostop noprint\nbreak trapped\nreverse-continue\nprint sum\nfinish\nprint sum\n";
    let said = run_gdb(replay, commands);
    assert!(answer(&said, "print sum", 0).ends_with("= 0"), "{said}");
    assert!(answer(&said, "print sum", 1).ends_with("= 31"), "{said}");
}

/// Live, gdb follows it into the program that it executes, and back.
#[test]
fn a_child_with_a_filter_is_debugged() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/sandboxed.c", &["-w", "-O0"]);
    for way in ["spawn", "exec"] {
        let live = Live::start_by("exact", &scene, &["--once"], &[name(&program), way]);
        let said = live.gdb(
            &program,
            "set follow-fork-mode child\nhandle SIGSYS nostop noprint\nbreak trapped\ncontinue\n\
             print sum\nwatch sum\ncontinue\nreverse-continue\nprint sum\ndelete\ncontinue\ncontinue\ncontinue",
        );
        assert!(said.contains("Breakpoint 1, trapped (number=31)"), "{way}: {said}");
        assert_in_order(answer(&said, "continue", 1), &["Old value = 0", "New value = 31"]);
        assert_in_order(answer(&said, "reverse-continue", 0), &["Old value = 31", "New value = 0"]);
        assert!(said.contains("exited with code 07"), "{way}: {said}");
        let (printed, _) = live.end();
        assert!(printed.contains("sum 14881\n"), "{way}: {printed}");
    }
}

/// The handler of a filter's signal sees what it saw, and the debugger sees the program's filter.
#[test]
fn a_filter_in_the_past() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/filtered.c", &["-w", "-O0"]);
    let (dir, _) = record(&scene, &[program.to_str().unwrap(), "default"]);
    let mut replay = contraflow();
    replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    let commands = "bt\nhandle SIGSYS nostop noprint\nbreak trapped\nreverse-continue\n\
                    print info->_sifields._sigsys._syscall\nprint number\ndelete\nbreak install\nreverse-continue\nprint filter[0]\n";
    let said = run_gdb(replay, commands);
    assert!(answer(&said, "bt", 0).contains("main ("), "{said}");
    let call = answer(&said, "print info->_sifields._sigsys._syscall", 0);
    assert!(call.ends_with("= 107"), "{said}");
    assert!(answer(&said, "print number", 0).ends_with("= 31"), "{said}");
    assert!(answer(&said, "print filter[0]", 0).contains("{code = 21,"), "{said}");
}
