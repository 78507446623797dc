//! Functions that the user calls, and changes that he makes, in a copy of a moment of the past.

use super::record;
use crate::support::{Scene, answer, contraflow, have, run_gdb};

/// At a breakpoint in the past.
const CALLS: &str = "break half\nreverse-continue\nup\nprint total(list)\nprint calls\n\
                     call dump(list)\nprint twice(\"ab\")\nprint list->id = 77\ncall total(list)\n\
                     print fill()\ndelete\nprint half(7)\ncall boom((int *)0)\nbt\nreverse-step\n\
                     print calls\nset var list->id = 5000\nprint list->id\nnext\nprint list->id\n\
                     set var $rax = 1\nprint $rax\nreverse-stepi\nprint calls\ncall abort()\n\
                     reverse-stepi\n";

/// Plays commands at the end of a run; nothing where a tool is missing.
fn play(commands: &str) -> Option<String> {
    if !have("gcc") || !have("gdb") {
        return None;
    }
    let scene = Scene::new();
    let program = scene.compile("exact/accounts.c", &["-w", "-O0", "-g"]);
    let (dir, _) = record(&scene, &[program.to_str().unwrap()]);
    let mut replay = contraflow();
    replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    Some(run_gdb(replay, commands))
}

#[test]
fn functions_are_called_in_a_copy_of_the_moment() {
    let Some(said) = play(CALLS) else { return };
    let answers = |command: &str, nth: usize| answer(&said, command, nth).to_owned();
    assert!(answers("print total(list)", 0).ends_with("= 15"), "{said}");
    // The copy lasts until the next step.
    assert!(answers("print calls", 0).ends_with("= 6"), "{said}");
    assert!(said.contains("account 5 of user5\naccount 4 of user4"), "{said}");
    assert!(answers("print twice(\"ab\")", 0).ends_with("\"abab\""), "{said}");
    assert!(answers("call total(list)", 0).ends_with("= 87"), "{said}");
    assert!(answers("print half(7)", 0).ends_with("= 3.5"), "{said}");
    assert!(answers("print fill()", 0).ends_with("= 36"), "{said}");
    assert!(answers("call boom((int *)0)", 0).contains("SIGSEGV"), "{said}");
    assert!(answers("bt", 0).contains("<function called from gdb>"), "{said}");
    assert!(answers("print calls", 1).ends_with("= 5"), "{said}");
    assert!(answers("print list->id", 0).ends_with("= 5000"), "{said}");
    assert!(answers("print list->id", 1).ends_with("= 5"), "{said}");
    assert!(answers("print $rax", 0).ends_with("= 1"), "{said}");
    assert!(answers("print calls", 2).ends_with("= 5"), "{said}");
    assert!(answers("call abort()", 0).contains("SIGABRT"), "{said}");
    assert!(!said.contains("internal"), "{said}");
}

/// As natively, what is not readable is not written, nor what follows it.
#[test]
fn output_of_called_functions_ends_where_memory_does() {
    let commands = "break half\nreverse-continue\nprint unreadable()\nprint parts(0)\n\
                    print parts(\"none\")\n";
    let Some(said) = play(commands) else { return };
    assert!(answer(&said, "print unreadable()", 0).ends_with("= 14"), "{said}");
    assert!(answer(&said, "print parts(0)", 0).ends_with("= 14"), "{said}");
    let parts = answer(&said, "print parts(\"none\")", 0);
    assert!(parts.ends_with("= 4") && !parts.contains("never"), "{said}");
}

/// In a called function too, and where the user stands at its own first instruction.
#[test]
fn conditions_hold_in_called_functions() {
    let commands = "tbreak *half\nreverse-continue\nprint half(11)\nprint $pc == (long)&half\n\
                    break half if x > 5\nprint half(3)\nprint half(9)\nprint x\nreverse-stepi\n\
                    print calls\n";
    let Some(said) = play(commands) else { return };
    assert!(answer(&said, "print half(11)", 0).ends_with("= 5.5"), "{said}");
    assert!(answer(&said, "print $pc == (long)&half", 0).ends_with("= 1"), "{said}");
    assert!(answer(&said, "print half(3)", 0).ends_with("= 1.5"), "{said}");
    assert!(answer(&said, "print half(9)", 0).contains("Breakpoint 2, half (x=9)"), "{said}");
    assert!(answer(&said, "print x", 0).ends_with("= 9"), "{said}");
    assert!(answer(&said, "print calls", 0).ends_with("= 5"), "{said}");
}

#[test]
fn executions_of_a_function_are_listed_newest_first() {
    let commands = "cf-find total 2\ncf-find total\ncf-find nothing\ncf-when\nbt";
    let Some(said) = play(commands) else { return };
    let two = answer(&said, "cf-find total 2", 0);
    assert_eq!(two.lines().filter(|line| line.starts_with("position")).count(), 2, "{said}");
    assert!(two.contains("called at main") && two.contains("and earlier ones"), "{said}");
    let all = answer(&said, "cf-find total", 0);
    assert!(all.starts_with(two.lines().next().unwrap()), "{said}");
    assert!(all.ends_with("6 hits of total at 1 address"), "{said}");
    assert!(answer(&said, "cf-find nothing", 0).contains("no code of nothing"), "{said}");
    // The user is where he was.
    assert!(answer(&said, "cf-when", 0).contains("the end: killed by SIGSEGV"), "{said}");
    assert!(answer(&said, "bt", 0).contains("main ()"), "{said}");
}

#[test]
fn calls_and_returns_are_found() {
    // Into a function of the library that snprintf calls.
    let deeper = "python for _ in range(60): gdb.execute('stepi', to_string=True)";
    let caller = "python print(gdb.solib_name(gdb.newest_frame().older().pc()))";
    let commands = format!(
        "break snprintf\nreverse-continue\n{deeper}\n{caller}\ncf-home\nprint i\ndelete\n\
         tbreak total\nreverse-continue\ncf-return\nreverse-stepi\ncf-caller\nprint i\ncf-home\n"
    );
    let Some(said) = play(&commands) else { return };
    assert!(answer(&said, caller, 0).contains("libc"), "{said}");
    assert!(answer(&said, "cf-home", 0).contains("main () at"), "{said}");
    assert!(answer(&said, "print i", 0).ends_with("= 5"), "{said}");
    assert!(answer(&said, "cf-return", 0).contains("Value returned is"), "{said}");
    assert!(answer(&said, "cf-caller", 0).contains("main () at"), "{said}");
    assert!(answer(&said, "print i", 1).ends_with("= 4"), "{said}");
    assert!(answer(&said, "cf-home", 1).contains("the program's own code"), "{said}");
}
