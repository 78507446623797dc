//! Programs that filter their own system calls (seccomp): the kernel answers as it does natively, the
//! recorder's own calls pass, and the replay is the recorded run.

use super::{PART, WHOLE, check, record, record_with};
use crate::support::{Scene, answer, contraflow, have, run_gdb, text};

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
    // Another program would be prepared where its filter applies.
    let (dir, recorded) = record(&scene, &[program, "exec"]);
    let said = text(&recorded.stderr);
    assert!(said.contains("executes a program while it filters its system calls"), "{said}");
    assert!(check(&dir).starts_with(PART));
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
