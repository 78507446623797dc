//! Requests that arrive while others are being answered, and what they leave to the next session.

use super::{Ide, ledger, line, source};
use crate::support::{Scene, have};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

/// Starts an endless live program, which stands at its entry.
fn endless(scene: &Scene) -> Ide {
    let program = scene.compile("endless.c", &["-O0"]);
    let arguments = json!({"program": program, "mode": "serve", "stopOnEntry": true});
    Ide::launched(&arguments, &[]).0
}

#[test]
fn waiting_moves_are_cancelled_and_do_not_run_later() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let mut ide = endless(&scene);
    let thread = json!({"threadId": ide.thread});
    ide.ask("continue", &thread);
    let [first, second, third] = ["next", "next", "next"].map(|command| ide.send(command, &thread));
    ide.ask("cancel", &json!({"requestId": second}));
    assert_eq!(ide.response(second)["message"], "cancelled");
    ide.ask("terminate", &json!({}));
    for waiting in [first, third] {
        assert_eq!(ide.response(waiting)["message"], "cancelled");
    }
    // The next session begins without moves.
    let (recording, _) = ledger(&scene, false);
    ide.ask("launch", &json!({"recording": recording, "stopOnEntry": true}));
    ide.ask("configurationDone", &Value::Null);
    ide.stop();
    let begin = ide.position();
    ide.ask("threads", &Value::Null);
    assert_eq!(ide.position(), begin);
    ide.leave();
}

#[test]
fn a_pause_with_new_breakpoints_is_a_pause() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let mut ide = endless(&scene);
    let thread = json!({"threadId": ide.thread});
    ide.ask("continue", &thread);
    let pause = ide.send("pause", &thread);
    let path = source("endless.c");
    ide.break_at(&path, &[]);
    assert_eq!(ide.response(pause)["success"], true);
    assert_eq!(ide.stop()["reason"], "pause");
    ide.leave();
}

#[test]
fn a_session_can_begin_while_the_last_one_ends() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = ledger(&scene, false);
    let launch = json!({"recording": recording, "stopOnEntry": true});
    let (mut ide, _) = Ide::launched(&launch, &[]);
    for _ in 0..3 {
        let counts = ide.send("contraflow/counts", &json!({"source": {"path": path}}));
        let terminate = ide.send("terminate", &json!({}));
        let launched = ide.send("launch", &launch);
        ide.response(counts);
        assert_eq!(ide.response(terminate)["success"], true);
        let launched = ide.response(launched);
        assert_eq!(launched["success"], true, "{launched}");
        ide.ask("configurationDone", &Value::Null);
        ide.stop();
        assert!(!ide.responses.contains_key(&counts), "it was answered twice");
    }
    ide.leave();
}

#[test]
fn a_launch_does_not_wait_for_what_the_program_leaves_running() {
    if !have("gdb") {
        return;
    }
    let mut ide = Ide::start();
    ide.ask("initialize", &json!({}));
    let script = "sleep 1000 & echo child $!; exit 0";
    ide.ask("launch", &json!({"program": "/bin/sh", "args": ["-c", script]}));
    let child = loop {
        let output = ide.event("output")["output"].as_str().unwrap().to_owned();
        if let Some(child) = output.lines().find_map(|line| line.strip_prefix("child ")) {
            break child.to_owned();
        }
    };
    let killed = Command::new("kill").arg(&child).status().unwrap();
    assert!(killed.success(), "the launch waited for its end");
    ide.leave();
}

/// A pause at any time of a request that the program is stopped for, or that resumes it.
#[test]
fn no_pause_is_lost_while_another_request_is_answered() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let mut ide = endless(&scene);
    let thread = json!({"threadId": ide.thread});
    let path = source("endless.c");
    let breakpoints = json!({"source": {"path": path}, "breakpoints": []});
    for round in 0..60 {
        let delay = Duration::from_micros(500 * (round / 2));
        let request = if round % 2 == 0 {
            ide.send("continue", &thread)
        } else {
            ide.ask("continue", &thread);
            ide.send("setBreakpoints", &breakpoints)
        };
        std::thread::sleep(delay);
        let pause = ide.send("pause", &thread);
        for seq in [request, pause] {
            let response = ide.response(seq);
            assert_eq!(response["success"], true, "{round}: {response}");
        }
        assert_eq!(ide.stop()["reason"], "pause", "{round}");
    }
    ide.leave();
}

#[test]
fn breakpoints_are_set_while_a_program_runs_on_after_the_end_of_the_stopped_thread() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("worker_gone.c", &["-O0"]);
    let path = source("worker_gone.c");
    let arguments = json!({"program": program, "mode": "serve"});
    let (mut ide, _) = Ide::launched(&arguments, &[(&path, &[line(&path, "at work")])]);
    ide.ask("continue", &json!({"threadId": ide.thread}));
    std::thread::sleep(Duration::from_secs(1));
    ide.break_at(&path, &[]);
    assert_eq!(ide.go("pause")["reason"], "pause");
    ide.leave();
}

#[test]
fn a_pause_while_a_stop_is_reported_does_not_hide_the_stop() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let mut ide = endless(&scene);
    let thread = json!({"threadId": ide.thread});
    for round in 0..40 {
        ide.ask("continue", &thread);
        let first = ide.send("pause", &thread);
        std::thread::sleep(Duration::from_micros(500 * round));
        let second = ide.send("pause", &thread);
        for seq in [first, second] {
            assert_eq!(ide.response(seq)["success"], true, "{round}");
        }
        assert_eq!(ide.stop()["reason"], "pause", "{round}");
    }
    ide.leave();
}

#[test]
fn a_live_session_after_another_one_begins_with_its_own_thread() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let mut ide = endless(&scene);
    ide.ask("terminate", &json!({}));
    let program = scene.compile("endless.c", &["-O0"]);
    ide.ask("launch", &json!({"program": program, "mode": "serve"}));
    ide.ask("configurationDone", &Value::Null);
    std::thread::sleep(Duration::from_millis(200));
    let pause = ide.send("pause", &json!({"threadId": 0}));
    assert_eq!(ide.response(pause)["success"], true);
    assert_eq!(ide.stop()["reason"], "pause");
    ide.leave();
}

/// A gdb that refuses to go to the start.
const NO_SEEK: &str = r#"#!/bin/sh
sed -u -E 's/^([0-9]*)-contraflow .*seek.*$/\1-refused/' | gdb "$@"
"#;

#[test]
fn after_a_launch_that_fails_at_its_end_there_can_be_another() {
    use std::os::unix::fs::PermissionsExt;
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, _) = ledger(&scene, false);
    let gdb = scene.path("gdb-without-seek");
    std::fs::write(&gdb, NO_SEEK).unwrap();
    std::fs::set_permissions(&gdb, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut ide = Ide::start();
    ide.ask("initialize", &json!({}));
    let launch = json!({"recording": recording, "stopOnEntry": true, "gdb": gdb});
    let failed = ide.send("launch", &launch);
    let failed = ide.response(failed);
    assert_eq!(failed["success"], false, "{failed}");
    ide.ask("launch", &json!({"recording": recording, "stopOnEntry": true}));
    ide.ask("configurationDone", &Value::Null);
    ide.stop();
    ide.leave();
}

/// Only `cancel` of the launch itself interrupts the program that it records.
#[test]
fn what_waits_for_a_launch_is_cancelled_alone() {
    if !have("gdb") {
        return;
    }
    let mut ide = Ide::start();
    ide.ask("initialize", &json!({}));
    let script = "echo begun; sleep 1; echo done";
    let launch = ide.send("launch", &json!({"program": "/bin/sh", "args": ["-c", script]}));
    while ide.event("output")["output"] != "begun\n" {}
    let waiting = ide.send("threads", &Value::Null);
    let cancel = ide.send("cancel", &json!({"requestId": waiting}));
    assert_eq!(ide.response(cancel)["success"], true);
    assert_eq!(ide.response(waiting)["message"], "cancelled");
    while ide.event("output")["output"] != "done\n" {}
    assert_eq!(ide.response(launch)["success"], true);
    ide.leave();
}
