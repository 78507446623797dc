//! Thread-local variables by name: gdb asks where they are, of the program's and of a library's
//! that was loaded later.

use crate::serve::{Live, name, tools};
use crate::support::{Scene, answer, contraflow, run_gdb};
use std::path::PathBuf;
use std::process::Stdio;

struct Programs {
    scene: Scene,
    program: PathBuf,
    library: PathBuf,
}

impl Programs {
    fn new() -> Self {
        let scene = Scene::new();
        let program = scene.compile("thread_local.c", &["-O0", "-pthread"]);
        let built = scene.compile("thread_local_library.c", &["-shared", "-fPIC"]);
        Self { library: built, program, scene }
    }
}

const NOT_FOUND: &str = "Cannot find thread-local storage";

#[test]
fn gdb_prints_them_live() {
    if !tools() {
        return;
    }
    let made = Programs::new();
    let arguments = [name(&made.program), name(&made.library)];
    let live = Live::start(&made.scene, &[], &arguments);
    let said = live.gdb(
        &made.program,
        "break stop\ncontinue\nprint mine\nprint row\nset variable mine = 17\ncontinue\nprint mine\n\
         print visible\ncontinue\nprint mine\nprint of_library\nthread 1\nprint mine\nprint of_library\n\
         thread 2\ncontinue\nprint mine\nreverse-continue\nprint mine\ndelete\ncontinue\ncontinue\n\
         kill",
    );
    let printed = |what: &str, nth| answer(&said, &format!("print {what}"), nth).to_owned();
    assert!(printed("mine", 0).ends_with("= 7"), "{said}");
    assert!(printed("row", 0).ends_with("= {1, 2, 3, 4}"), "{said}");
    // The second thread has its own, and has none of the library's yet.
    assert!(printed("mine", 1).ends_with("= 70"), "{said}");
    assert!(printed("visible", 0).contains(NOT_FOUND), "{said}");
    assert!(printed("mine", 2).ends_with("= 71"), "{said}");
    assert!(printed("of_library", 0).ends_with("= 5"), "{said}");
    assert!(printed("mine", 3).ends_with("= 19"), "{said}");
    assert!(printed("of_library", 1).ends_with("= 42"), "{said}");
    assert!(printed("mine", 4).ends_with("= 19"), "{said}");
    // The past knows of none.
    assert!(printed("mine", 5).contains(NOT_FOUND), "{said}");
}

/// What gdb says of a recording.
fn replayed(made: &Programs, commands: &str) -> String {
    let mut record = contraflow();
    record.env("CONTRAFLOW_HOME", made.scene.path("store")).args(["record", "-q", "--path"]);
    record.arg(&made.program).arg(&made.library);
    record.stdin(Stdio::null()).output().expect("it runs");
    let mut replay = contraflow();
    replay.env("CONTRAFLOW_HOME", made.scene.path("store")).args(["replay", "--"]);
    replay.args(["-nx", "-q", "-batch"]);
    run_gdb(replay, commands)
}

#[test]
fn gdb_prints_those_of_the_end() {
    if !tools() {
        return;
    }
    let made = Programs::new();
    let said = replayed(
        &made,
        "print mine\nprint row\nprint of_library\nprint visible\nreverse-stepi\nprint mine",
    );
    assert!(answer(&said, "print mine", 0).ends_with("= 13"), "{said}");
    assert!(answer(&said, "print row", 0).ends_with("= {1, 4, 3, 4}"), "{said}");
    assert!(answer(&said, "print of_library", 0).ends_with("= 42"), "{said}");
    assert!(answer(&said, "print visible", 0).ends_with("= 43"), "{said}");
    assert!(answer(&said, "print mine", 1).contains(NOT_FOUND), "{said}");
}

/// Variables of static programs, which have no linker's list: of each thread, in the past and live.
#[test]
fn gdb_prints_those_of_static_programs() {
    if !tools() {
        return;
    }
    let scene = Scene::new();
    for flags in [&["-static"][..], &["-static-pie"]] {
        let program = scene.compile("static_local.c", &[&["-O0", "-pthread"], flags].concat());
        let commands = "break stop\ncontinue\nprint mine\nprint line\nprint &line[0]\ncontinue\nprint mine\n\
                        print line\nreverse-continue\nprint mine\nprint line";
        let live = Live::start_by("exact", &scene, &["--once"], &[name(&program)]);
        let said = live.gdb(&program, commands);
        let printed = |what: &str, nth| answer(&said, &format!("print {what}"), nth).to_owned();
        assert!(printed("mine", 0).ends_with("= 8"), "{said}");
        assert!(printed("line", 0).ends_with("= \"ab\""), "{said}");
        let aligned = printed("&line[0]", 0);
        assert!(["00 ", "40 ", "80 ", "c0 "].iter().any(|end| aligned.contains(end)), "{said}");
        assert!(printed("mine", 1).ends_with("= 71"), "{said}");
        assert!(printed("line", 1).ends_with("= \"xb\""), "{said}");
        assert!(printed("mine", 2).ends_with("= 8"), "{said}");
        assert!(printed("line", 2).ends_with("= \"ab\""), "{said}");
    }
}
