//! A program with three threads, recorded in turns of a few instructions.

use crate::gdb::walk;
use crate::history::Program;

fn program() -> Program {
    Program::record("threads", &["-O0", "-pthread"], 25)
}

/// Numbers of the threads that gdb says hit a breakpoint, in order.
fn hits(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| line.contains("hit Breakpoint"));
    lines.filter_map(|line| line.split_whitespace().nth(1)).collect()
}

#[test]
fn breakpoints_of_all_threads_stop_the_walk() {
    let mut commands = vec!["info threads", "break work"];
    commands.extend(["reverse-continue"; 7]);
    commands.extend(["continue"; 7]);
    let text = walk(&program(), &commands);
    assert_eq!(text.matches("\"threads\"").count(), 3 + 13, "{text}");
    let hits = hits(&text);
    // Seven calls of `work`, of three threads; the walk forward passes them in the same order.
    assert_eq!(hits.len(), 13, "{text}");
    let (back, forth) = hits.split_at(7);
    assert!(back.iter().rev().skip(1).eq(forth), "{text}");
    for thread in ["1", "2", "3"] {
        assert!(back.contains(&thread), "{text}");
    }
    assert!(text.ends_with("detached]\n"), "{text}");
    assert_eq!(text.matches("No more reverse-execution history.").count(), 1, "{text}");
}

#[test]
fn a_reverse_step_moves_the_selected_thread() {
    let text = walk(
        &program(),
        &[
            "break work",
            "reverse-continue",
            "delete",
            // Looking at all threads changes nothing.
            "info threads",
            "reverse-step",
            "thread 2",
            "reverse-step",
            "thread",
            "thread 3",
            "set scheduler-locking on",
            "reverse-stepi",
            "thread",
        ],
    );
    let selected = |number: &str| format!("[Current thread is {number} (Thread");
    assert!(text.contains("main () at"), "{text}");
    assert!(text.contains(&selected("2")), "{text}");
    assert!(text.contains(&selected("3")), "{text}");
    assert!(!text.contains("received signal"), "{text}");
}

#[test]
fn threads_vanish_before_they_were_made() {
    let text = walk(&program(), &["cf-seek 0", "info threads", "cf-seek end", "info threads"]);
    let (begin, end) = text.split_once("the end:").unwrap_or_else(|| panic!("{text}"));
    assert_eq!(begin.matches("Thread ").count(), 1, "{text}");
    assert_eq!(end.matches("Thread ").count(), 3, "{text}");
}
