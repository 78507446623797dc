//! `finish` in the past, where the value returned is unknown: gdb's own ways of resuming must not
//! show the zero that it takes an unavailable register for.

use crate::support::{Recorded, Scene, answer, assert_in_order, contraflow, have, text};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

const NOTE: &str = "the value returned is not known in the past";

/// A recording of `returns.c`, of which nothing is known but its end.
fn recorded(scene: &Scene) -> Option<Recorded> {
    if !have("gdb") || !have("gcc") {
        return None;
    }
    let program = scene.compile("returns.c", &["-O0"]);
    Some(scene.record(&[program.to_str().unwrap()]))
}

/// gdb with the commands of its input.
fn interactive(recorded: &Recorded, arguments: &[&str], stderr: Stdio) -> Child {
    let mut replay: Command = contraflow();
    replay.arg("replay").arg(&recorded.dir).args(["--", "-nx"]).args(arguments);
    replay.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
    replay.spawn().unwrap()
}

#[test]
fn no_value_is_shown_of_any_kind_of_function() {
    let scene = Scene::new();
    let Some(recorded) = recorded(&scene) else { return };
    let functions = ["small", "floating", "in_memory"];
    let stops = functions.map(|name| format!("tbreak {name}\ncontinue\nfinish\n")).concat();
    let output = recorded.gdb(&format!("cf-seek begin\n{stops}show values\nbacktrace"));
    for nth in 0..functions.len() {
        assert_in_order(answer(&output, "finish", nth), &[NOTE, "Program stopped.", "main ()"]);
    }
    assert!(!output.contains("Value returned"), "{output}");
    assert!(!output.contains("Cannot access memory"), "{output}");
    assert_eq!(answer(&output, "show values", 0), "");
    assert!(answer(&output, "backtrace", 0).starts_with("#0"), "{output}");
}

/// Activations further in return to the same address, and end nothing.
#[test]
fn a_recursion_is_left_where_the_selected_frame_is() {
    let scene = Scene::new();
    let Some(recorded) = recorded(&scene) else { return };
    let commands = "\
        cf-seek begin
        tbreak depth
        continue
        tbreak depth
        continue
        tbreak depth
        continue
        up
        finish
        backtrace
        finish
        finish";
    let output = recorded.gdb(commands);
    let backtrace = answer(&output, "backtrace", 0);
    assert_eq!(backtrace.matches(" depth (").count(), 1, "{output}");
    assert!(answer(&output, "finish", 1).contains("main ()"), "{output}");
    assert!(!output.contains("Value returned"), "{output}");
}

#[test]
fn no_value_is_shown_at_the_prompt() {
    let scene = Scene::new();
    let Some(recorded) = recorded(&scene) else { return };
    let mut gdb = interactive(&recorded, &["-q"], Stdio::piped());
    let commands = b"cf-seek begin\ntbreak small\ncontinue\nfinish\nshow values\n";
    gdb.stdin.take().unwrap().write_all(commands).unwrap();
    let output = gdb.wait_with_output().unwrap();
    assert!(text(&output.stderr).contains(NOTE), "{}", text(&output.stderr));
    let output = text(&output.stdout);
    assert_in_order(&output, &["small ()", "Program stopped.", "main ()"]);
    assert!(!output.contains("Value returned") && !output.contains("$1"), "{output}");
}

#[test]
fn no_value_is_in_what_gdb_mi_reports() {
    let scene = Scene::new();
    let Some(recorded) = recorded(&scene) else { return };
    let mut gdb = interactive(&recorded, &["-i=mi"], Stdio::inherit());
    let mut input = gdb.stdin.take().unwrap();
    let mut lines = BufReader::new(gdb.stdout.take().unwrap()).lines().map(Result::unwrap);
    // Up to a line, in which what is looked for may stand.
    let mut up_to = |wanted: &str| {
        let mut said = String::new();
        for line in lines.by_ref() {
            said += &line;
            said.push('\n');
            if line.starts_with(wanted) {
                return said;
            }
        }
        panic!("{wanted} is missing in:\n{said}");
    };
    let mut send = |command: &str| writeln!(input, "{command}").unwrap();
    up_to("*stopped");
    send("1-interpreter-exec console \"cf-seek begin\"");
    up_to("1^done");
    send("2-break-insert -t small");
    up_to("2^done");
    send("-exec-continue");
    up_to("*stopped");
    send("-exec-finish");
    let finished = up_to("*stopped");
    assert!(finished.contains(NOTE), "{finished}");
    assert!(finished.lines().last().unwrap().contains("func=\"main\""), "{finished}");
    assert!(!finished.contains("return-value") && !finished.contains("result-var"), "{finished}");
    send("3-interpreter-exec console \"show values\"");
    assert!(!up_to("3^done").contains("$1"));
    send("-gdb-exit");
    gdb.wait().unwrap();
}
