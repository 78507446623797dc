//! From an effect back to its cause, with values: bugs that the end of the run does not explain.

use super::record;
use crate::support::{Scene, answer, assert_in_order, contraflow, have, run_gdb};
use std::process::Stdio;

/// Records the program with one of its bugs.
fn recorded(bug: &str) -> Option<(Scene, std::path::PathBuf, std::path::PathBuf)> {
    if !have("gcc") {
        return None;
    }
    let scene = Scene::new();
    let flags = ["-g", "-O0", "-w", "-pthread", "-fstack-protector-all"];
    let program = scene.compile("exact/bugs.c", &flags);
    let dir = if bug == "deadlock" {
        // It takes a second.
        let dir = scene.path("exact");
        let mut record = contraflow();
        record.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "--exact", "-o"]);
        record.arg(&dir).arg(&program).arg(bug).stdin(Stdio::null()).output().unwrap();
        dir
    } else {
        record(&scene, &[program.to_str().unwrap(), bug]).0
    };
    Some((scene, program, dir))
}

fn gdb(bug: &str, commands: &str) -> Option<String> {
    let (_scene, _, dir) = recorded(bug).filter(|_| have("gdb"))?;
    let mut replay = contraflow();
    replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    Some(run_gdb(replay, commands))
}

#[test]
fn a_use_after_free_leads_to_the_free() {
    let Some(said) = gdb(
        "freed",
        "info symbol $pc
         watch -l kept->call
         reverse-continue
         up
         info locals",
    ) else {
        return;
    };
    assert!(answer(&said, "info symbol $pc", 0).contains("use_after_free"), "{said}");
    let stop = answer(&said, "reverse-continue", 0);
    assert_in_order(stop, &["0x4141414141414141", "New value = ", "<show>", "in scribble (node="]);
    assert!(answer(&said, "up", 0).contains("in drop (node="), "{said}");
}

#[test]
fn a_corrupted_heap_leads_to_the_write() {
    let Some(said) = gdb(
        "heap",
        "cf-home
         print i
         watch -l *(long *)(buffers[i + 1] - 8)
         reverse-continue
         info args
         print i
         up
         print i",
    ) else {
        return;
    };
    assert!(answer(&said, "cf-home", 0).contains("free(buffers[i])"), "{said}");
    assert_in_order(answer(&said, "reverse-continue", 0), &["Old value = ", "in fill (to="]);
    assert!(answer(&said, "info args", 0).contains("last = 27"), "{said}");
    assert!(answer(&said, "print i", 1).ends_with("= 27"), "{said}");
    assert!(answer(&said, "print i", 2).ends_with("= 42"), "{said}");
}

#[test]
fn a_smashed_stack_leads_to_the_copy() {
    let Some(said) = gdb(
        "stack",
        "cf-home
         watch -l *(long *)($rbp - 8)
         reverse-continue
         print to[0]
         up
         print number
         delete
         reverse-finish
         reverse-finish
         print sum",
    ) else {
        return;
    };
    assert!(answer(&said, "cf-home", 0).contains("in name (number=7)"), "{said}");
    assert_in_order(answer(&said, "reverse-continue", 0), &["Old value = ", "copy (to="]);
    assert!(answer(&said, "print number", 0).ends_with("= 7"), "{said}");
    assert!(answer(&said, "print sum", 0).ends_with("= 805"), "seven times 's': {said}");
}

#[test]
fn a_counter_leads_to_the_thread_that_wrote_it_last() {
    let Some(said) = gdb(
        "race",
        "cf-last counter
         info args
         cf-last counter
         info threads
         print counter",
    ) else {
        return;
    };
    assert_in_order(answer(&said, "cf-last counter", 0), &["in add (", "it is 8999"]);
    assert_in_order(answer(&said, "cf-last counter", 1), &["it is 8998, and becomes 8999"]);
    assert!(answer(&said, "print counter", 0).ends_with("= 8998"), "{said}");
}

#[test]
fn a_deadlock_has_an_order() {
    let Some(said) = gdb(
        "deadlock",
        "cf-last first.__data.__owner
         bt 3
         cf-seek end
         cf-last second.__data.__owner
         bt 3",
    ) else {
        return;
    };
    assert_in_order(answer(&said, "cf-last first.__data.__owner", 0), &["it is 0, and becomes "]);
    assert!(answer(&said, "bt 3", 0).contains("in one ("), "{said}");
    assert_in_order(answer(&said, "cf-last second.__data.__owner", 0), &["it is 0, and becomes "]);
    assert!(answer(&said, "bt 3", 1).contains("in two ("), "{said}");
}
