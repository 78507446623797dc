//! Walks back from a crash, of a program with one thread.

use crate::gdb::walk;
use crate::history::{self, Program};
use contraflow::session::History;
use std::fmt::Write;

fn program() -> Program {
    Program::record("walk", &["-O0"], 0)
}

/// The texts appear in this order.
fn assert_in_order(text: &str, wanted: &[&str]) {
    let mut rest = text;
    for want in wanted {
        let Some(at) = rest.find(want) else { panic!("not found: {want:?} in:\n{text}") };
        rest = &rest[at + want.len()..];
    }
}

#[test]
fn the_end_shows_everything() {
    let text = walk(&program(), &["bt", "info registers rsp", "p *target", "p total", "cf-when"]);
    assert_in_order(
        &text,
        &[
            "#0  0x",
            "in store (value=60)",
            "#1  0x",
            "in main () at",
            "rsp            0x7ff",
            "Cannot access memory at address 0x0",
            "$1 = 30",
            "position 172 of 172",
            "killed by SIGSEGV",
        ],
    );
    assert!(!text.contains("warning:"), "{text}");
}

#[test]
fn breakpoints_are_hit_in_both_directions() {
    let text = walk(
        &program(),
        &[
            "break middle",
            "reverse-continue",
            "reverse-continue",
            "continue",
            "cf-when",
            "delete",
            "break walk.c:17",
            "continue",
            "continue",
            "continue",
            "continue",
            "continue",
            "reverse-continue",
            "list",
        ],
    );
    assert_in_order(
        &text,
        &[
            "Breakpoint 1, middle",
            "No more reverse-execution history.\nmain () at",
            "Breakpoint 1, middle",
            "position 6 of 172",
            "Breakpoint 2, twice",
            "Breakpoint 2, twice",
            "Breakpoint 2, twice",
            "Breakpoint 2, twice",
            "No more reverse-execution history.\n0x",
            "in store",
            "Breakpoint 2, twice",
            "12\t    return n * factorial(n - 1);",
        ],
    );
}

#[test]
fn single_steps_see_every_instruction_both_ways() {
    let program = program();
    let script = "
pcs = [int(gdb.parse_and_eval('(long)$pc'))]
def walk(command):
    while True:
        before = gdb.execute('monitor when', to_string=True)
        gdb.execute(command, to_string=True)
        if gdb.execute('monitor when', to_string=True) == before:
            break
        pcs.append(int(gdb.parse_and_eval('(long)$pc')))
walk('reverse-stepi')
back = len(pcs)
walk('stepi')
print('BACK', ' '.join('%x' % pc for pc in pcs[:back]))
print('FORTH', ' '.join('%x' % pc for pc in pcs[back - 1:]))
";
    let file = program.history.with_file_name("steps.py");
    std::fs::write(&file, script).unwrap();
    let text = walk(&program, &[&format!("source {}", file.display())]);
    let history = history::read(&program.history);
    let tid = history.final_thread.unwrap();
    let mut forth = String::from("FORTH");
    for g in 0..=history.total() {
        write!(forth, " {:x}", history.pc(tid, g).unwrap().0).unwrap();
    }
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or(&text);
    assert_eq!(line("FORTH"), forth);
    let back: Vec<&str> = line("BACK").split(' ').skip(1).collect();
    let expected: Vec<&str> = forth.split(' ').skip(1).collect();
    assert_eq!(back, expected.into_iter().rev().collect::<Vec<_>>());
}

#[test]
fn lines_step_over_and_out_of_calls() {
    let text = walk(
        &program(),
        &[
            "reverse-step",
            "reverse-next",
            "reverse-next",
            "reverse-next",
            "reverse-step",
            "reverse-finish",
            "cf-seek 0",
            "next",
            "next",
            "next",
            "next",
            "step",
        ],
    );
    assert_in_order(
        &text,
        &[
            "47\t    store(second);",
            "46\t    int second = twice(first);",
            "45\t    target = 0;",
            // Back into the last line of a callee, and out to its call.
            "32\t}",
            "44\t    store(first);",
            "43\t    int first = middle(4);",
            "44\t    store(first);",
            "45\t    target = 0;",
            "store (value=",
        ],
    );
}

#[test]
fn frames_of_the_past_come_from_the_call_history() {
    let text = walk(
        &program(),
        &[
            "break factorial",
            "cf-seek 0",
            "continue",
            "continue",
            "continue",
            "bt",
            "up",
            "up",
            "frame",
            "info registers rsp",
        ],
    );
    assert_in_order(
        &text,
        &[
            "#0  factorial (n=<unavailable>) at",
            "#1  0x",
            "in factorial (n=<unavailable>)",
            "#2  0x",
            "in factorial (n=<unavailable>)",
            "#3  0x",
            "in middle (n=<unavailable>)",
            "#4  0x",
            "in main ()",
            "#1  0x",
            "#2  0x",
            "rsp            <not saved>",
        ],
    );
    assert!(!text.contains("Exception"), "{text}");
}

#[test]
fn finish_shows_no_unknown_value() {
    let text = walk(
        &program(),
        &[
            "break twice",
            "cf-seek 0",
            "continue",
            "finish",
            "show print finish",
            "until",
            "break store",
            "finish",
            "finish",
            "finish",
            "delete",
            "finish",
        ],
    );
    assert_in_order(
        &text,
        &[
            "Breakpoint 1, twice",
            "contraflow: the value returned is not known in the past",
            "Program stopped.",
            "in visit",
            "Printing of return value after `finish' is on.",
        ],
    );
    // A finish that a breakpoint cuts short, or of a function without a value, says nothing.
    assert!(!text.contains("Value returned"), "{text}");
}

#[test]
fn values_of_the_past_are_unavailable_and_cannot_be_written() {
    let text = walk(
        &program(),
        &[
            "reverse-stepi",
            "p $rax",
            "p $rip",
            "p total",
            "set var $rax = 1",
            "set var total = 1",
            "p twice(2)",
            "bt",
        ],
    );
    assert_in_order(
        &text,
        &[
            "$1 = <unavailable>",
            "<store+",
            "Cannot access memory at address",
            "the past cannot be changed",
            "Cannot access memory at address",
            "#0  store (value=<unavailable>)",
        ],
    );
}

#[test]
fn nothing_of_the_end_or_of_the_stand_ins_leaks_into_the_past() {
    let program = Program::record("frames", &["-O0"], 0);
    let text = walk(
        &program,
        &[
            "up",
            "info locals",
            "down",
            "cf-seek 60",
            "bt -frame-info short-location",
            "info locals",
            "info args",
            "up",
            "p &n",
            "info registers rbp",
        ],
    );
    let past = text.split_once("position 60 of").unwrap_or_else(|| panic!("{text}")).1;
    for line in past.lines().filter(|line| line.contains(" = ")) {
        let honest = ["unavailable", "Cannot access", "not saved", "optimized out"];
        assert!(honest.iter().any(|word| line.contains(word)), "{line}\n{text}");
    }
}

#[test]
fn the_commands_of_the_script_help_and_complete() {
    let text = walk(
        &program(),
        &[
            "help cf-seek",
            "complete cf-",
            "complete cf-seek b",
            "cf-seek 2 + 2",
            "cf-seek +1",
            "cf-seek -2",
            "cf-seek 1000",
            "cf-seek",
            "cf-info",
            "monitor help",
        ],
    );
    assert_in_order(
        &text,
        &[
            "Go to a position of the recorded history.",
            "cf-caller\ncf-calls\ncf-check\ncf-find\ncf-gaps\ncf-history\ncf-hits\ncf-home\ncf-info\n\
             cf-last\ncf-mark\ncf-marks\ncf-origin\ncf-return\ncf-seek\ncf-stats\ncf-unmark\ncf-when",
            "cf-seek begin",
            "position 4 of 172",
            "position 5 of 172",
            "position 3 of 172",
            "no such position: 1000 (the history has 0 to 172)",
            "cf-seek needs a position",
            "ending:    killed by SIGSEGV",
            "no gaps",
            "seek N | +N | -N",
        ],
    );
}
