//! Backtraces where calls do not return, or stand before the history: no frame is shown that is not
//! so, and where the path does not tell, gdb says why the backtrace ends there.

use crate::comparison::record;
use crate::support::{Scene, answer, assert_in_order, contraflow, have, run_gdb};

const SWITCHED: &str = "(older frames are not known: the program loaded its stack pointer";

/// What gdb says to commands at a recording of a program.
fn session(source: &str, options: &[&str], commands: &str) -> Option<String> {
    session_with("soft", source, options, commands)
}

fn session_with(backend: &str, source: &str, options: &[&str], commands: &str) -> Option<String> {
    if !have("gcc") || !have("gdb") {
        return None;
    }
    let scene = Scene::new();
    let program = scene.compile(source, &["-O0"]);
    let (dir, _) = record(&scene, backend, options, &[program.to_str().unwrap()]);
    let mut replay = contraflow();
    replay.arg("replay").arg(&dir).args(["--", "-nx", "-batch"]);
    let output = run_gdb(replay, commands);
    assert!(!output.contains("Python"), "{output}");
    Some(output)
}

/// The functions of a backtrace.
fn functions(backtrace: &str) -> Vec<&str> {
    let frames = backtrace.lines().filter(|line| line.starts_with('#'));
    frames
        .map(|line| {
            let before = line.split(" (").next().unwrap_or_default();
            before.rsplit(' ').next().unwrap_or_default()
        })
        .collect()
}

#[test]
fn coroutines_have_their_own_frames_only() {
    let commands = "
        break leaf
        reverse-continue
        backtrace
        reverse-continue
        backtrace
        reverse-continue
        backtrace";
    let Some(output) = session("switches.c", &[], commands) else { return };
    for (nth, caller) in ["second", "first", "second"].iter().enumerate() {
        let backtrace = answer(&output, "backtrace", nth);
        assert_eq!(functions(backtrace).get(..2), Some(&["leaf", caller][..]), "{output}");
        assert!(backtrace.contains(SWITCHED), "{output}");
        for other in ["main", "yield", "swapcontext"] {
            assert!(!functions(backtrace).contains(&other), "{output}");
        }
    }
}

#[test]
fn what_longjmp_gave_up_is_gone() {
    let commands = "
        break tail
        break leaf
        reverse-continue
        delete 2
        reverse-continue
        backtrace
        delete
        tbreak tries
        reverse-continue
        next
        next
        backtrace
        next
        backtrace";
    for backend in ["soft", "step"] {
        let Some(output) = session_with(backend, "switches.c", &[], commands) else { return };
        let backtrace = answer(&output, "backtrace", 0);
        assert_eq!(functions(backtrace), ["tail", "tries", "main"], "{output}");
        assert!(!backtrace.contains("older frames"), "{output}");
        assert_eq!(functions(answer(&output, "backtrace", 1)), ["tries", "main"], "{output}");
        // Over the call that does not return, to where the program goes on.
        assert!(answer(&output, "next", 1).contains("deepest(3);"), "{output}");
        assert!(answer(&output, "next", 2).contains("tail();"), "{output}");
        assert_eq!(functions(answer(&output, "backtrace", 2)), ["tries", "main"], "{output}");
    }
}

#[test]
fn values_at_the_end_of_an_overflown_stack() {
    let commands = "
        print depth
        print n
        up 3
        print n
        backtrace -1";
    let Some(output) = session("sunken.c", &[], commands) else { return };
    let number = |nth: usize, command: &str| -> i64 {
        let answer = answer(&output, command, nth);
        let (_, value) = answer.split_once(" = ").unwrap_or_else(|| panic!("{output}"));
        value.parse().unwrap_or_else(|_| panic!("{output}"))
    };
    // The last call may not have stored its number yet.
    let outer = number(1, "print n");
    assert!((outer..outer + 4).contains(&number(0, "print depth")), "{output}");
    assert!(answer(&output, "backtrace -1", 0).contains("main ()"), "{output}");
}

#[test]
fn a_cut_history_says_so() {
    let commands = "
        cf-seek 50%
        backtrace
        info frame
        print $sp";
    let Some(output) = session("recursive.c", &["--ring", "1"], commands) else { return };
    assert_in_order(
        answer(&output, "backtrace", 0),
        &["#0 ", "fib (n=<unavailable>)", "(older frames are before the recorded history)"],
    );
    assert!(answer(&output, "info frame", 0).contains("not known in the past"), "{output}");
    assert!(answer(&output, "print $sp", 0).ends_with("<unavailable>"), "{output}");
    assert!(!output.contains("0x3bad") && !output.contains("0xbbad"), "{output}");
}

#[test]
fn the_way_home() {
    let commands = "
        cf-home
        cf-home
        cf-caller
        backtrace
        cf-return
        cf-find tail 3
        cf-find tail 1000
        watch landed
        continue";
    let Some(output) = session("switches.c", &[], commands) else { return };
    assert_in_order(answer(&output, "cf-home", 0), &["position ", "leaf (", "abort();"]);
    assert!(answer(&output, "cf-home", 1).contains("this is the program's own code"), "{output}");
    assert_in_order(answer(&output, "cf-caller", 0), &["position ", "second ()", "leaf(i);"]);
    assert!(answer(&output, "cf-return", 0).contains("is not known here"), "{output}");
    let last = answer(&output, "cf-find tail 3", 0);
    let position = |line: &str| -> u64 {
        let digits = line.trim_start_matches("position ").split(',').next().unwrap_or_default();
        digits.parse().unwrap_or_else(|_| panic!("{output}"))
    };
    let positions: Vec<u64> =
        last.lines().filter(|line| line.starts_with("position")).map(position).collect();
    assert!(positions.len() == 3 && positions.is_sorted_by(|a, b| a > b), "{output}");
    assert!(last.contains("called at tries+"), "{output}");
    assert!(answer(&output, "cf-find tail 1000", 0).starts_with(last.lines().next().unwrap()));
    assert!(answer(&output, "watch landed", 0).contains("values are unknown"), "{output}");
    assert!(answer(&output, "continue", 0).contains("No more reverse-execution"), "{output}");
}

#[test]
fn the_order_of_threads_is_not_promised() {
    let commands = "
        break work
        reverse-continue
        cf-when
        reverse-continue";
    let note = "[The order of threads is known only as closely as cf-when shows]";
    let Some(output) = session("threads.c", &[], commands) else { return };
    assert_eq!(output.matches(note).count(), 1, "{output}");
    let when = answer(&output, "cf-when", 0);
    assert!(when.contains("the order between threads is not known"), "{output}");
    // One thread at a time is stepped.
    let Some(output) = session_with("step", "threads.c", &[], commands) else { return };
    assert!(answer(&output, "reverse-continue", 0).contains("work ("), "{output}");
    assert!(!output.to_lowercase().contains("the order"), "{output}");
}
