//! Functions that the user calls, and changes that he makes, in a copy of a moment of the past.

use super::record;
use crate::support::{Scene, answer, contraflow, have, run_gdb};

/// At a breakpoint in the past.
const CALLS: &str = "break half\nreverse-continue\nup\nprint total(list)\nprint calls\n\
                     call dump(list)\nprint twice(\"ab\")\nprint list->id = 77\ncall total(list)\n\
                     delete\nprint half(7)\ncall boom((int *)0)\nbt\nreverse-step\n\
                     print calls\nset var list->id = 5000\nprint list->id\nnext\nprint list->id\n\
                     set var $rax = 1\nprint $rax\nreverse-stepi\nprint calls\n";

#[test]
fn functions_are_called_in_a_copy_of_the_moment() {
    if !have("gcc") || !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/accounts.c", &["-w", "-O0", "-g"]);
    let (dir, _) = record(&scene, &[program.to_str().unwrap()]);
    let mut replay = contraflow();
    replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    let said = run_gdb(replay, CALLS);
    let answers = |command: &str, nth: usize| answer(&said, command, nth).to_owned();
    assert!(answers("print total(list)", 0).ends_with("= 15"), "{said}");
    // The copy lasts until the next step.
    assert!(answers("print calls", 0).ends_with("= 6"), "{said}");
    assert!(said.contains("account 5 of user5\naccount 4 of user4"), "{said}");
    assert!(answers("print twice(\"ab\")", 0).ends_with("\"abab\""), "{said}");
    assert!(answers("call total(list)", 0).ends_with("= 87"), "{said}");
    assert!(answers("print half(7)", 0).ends_with("= 3.5"), "{said}");
    assert!(answers("call boom((int *)0)", 0).contains("SIGSEGV"), "{said}");
    assert!(answers("bt", 0).contains("<function called from gdb>"), "{said}");
    assert!(answers("print calls", 1).ends_with("= 5"), "{said}");
    assert!(answers("print list->id", 0).ends_with("= 5000"), "{said}");
    assert!(answers("print list->id", 1).ends_with("= 5"), "{said}");
    assert!(answers("print $rax", 0).ends_with("= 1"), "{said}");
    assert!(answers("print calls", 2).ends_with("= 5"), "{said}");
    assert!(!said.contains("internal"), "{said}");
}
