//! Programs that the adapter records, runs, or attaches to.

use super::{Ide, find, line, source};
use crate::support::{Scene, contraflow, have, text};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::process::{Command, Stdio};

#[test]
fn traces_of_perf_are_imported() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("ledger.c", &["-O0"]);
    let (dir, data) = (scene.path("path"), scene.path("perf.data"));
    let run = |arguments: &[&OsStr]| {
        let output = contraflow().args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    let words = ["record", "--path", "-o"].map(OsStr::new);
    run(&[&words[..], &[dir.as_os_str(), "--".as_ref(), program.as_os_str()]].concat());
    run(&["export".as_ref(), "perf".as_ref(), dir.as_os_str(), "-o".as_ref(), data.as_os_str()]);
    let mut command = contraflow();
    let mut ide = Ide::of(command.arg("dap").env("CONTRAFLOW_HOME", scene.path("store")));
    let both = json!({"perfData": data, "program": program});
    assert!(ide.refused("launch", &both).contains("no `program`"));
    assert!(ide.refused("launch", &json!({"core": data})).contains("need `perfData`"));
    let nothing = json!({"bundle": scene.path("nothing")});
    assert!(ide.refused("launch", &nothing).contains("could not be imported"));
    ide.ask("launch", &json!({"perfData": data}));
    ide.event("initialized");
    ide.ask("configurationDone", &json!({}));
    ide.stop();
    let hits = ide.ask("contraflow/hits", &json!({"function": "add", "limit": 1000}));
    assert_eq!(hits["total"], 5);
    ide.go_with("contraflow/seek", &json!({"to": hits["hits"][0]["position"]}));
    assert_eq!(ide.place().0, "add");
    ide.leave();
}

#[test]
fn a_program_is_recorded_and_stands_at_its_crash() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("ledger.c", &["-O0"]);
    let path = source("ledger.c");
    let mut ide =
        Ide::of(super::contraflow().arg("dap").env("CONTRAFLOW_HOME", scene.path("store")));
    ide.ask("initialize", &json!({}));
    let environment = json!({"HOME": null, "OF_THE_TEST": "yes"});
    let arguments =
        json!({"program": program, "args": ["x"], "cwd": scene.path(""), "env": environment});
    ide.ask("launch", &arguments);
    ide.event("initialized");
    ide.break_at(&path, &[line(&path, "total grows")]);
    ide.ask("configurationDone", &Value::Null);
    let stop = ide.stop();
    assert_eq!(stop["description"], "At the end of the recording: killed by SIGSEGV");
    assert_eq!(ide.place(), ("main".to_owned(), line(&path, "// crash")));
    let of_environment = ide.console("p (char *) getenv(\"OF_THE_TEST\")");
    assert!(of_environment.ends_with("\"yes\""), "{of_environment}");
    ide.go("reverseContinue");
    assert_eq!(ide.value("sum"), "5");
    ide.leave();
    let listed =
        super::contraflow().arg("list").env("CONTRAFLOW_HOME", scene.path("store")).output();
    assert!(super::text(&listed.unwrap().stdout).contains("ledger-0"));
}

/// A working directory that is relative is one of the adapter, and the program's name one in it.
#[test]
fn a_program_is_found_in_a_relative_working_directory() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("ledger.c", &["-O0"]);
    let within = scene.path("within");
    std::fs::create_dir(&within).unwrap();
    std::fs::rename(&program, within.join("ledger")).unwrap();
    for mode in ["record", "serve"] {
        let mut command = contraflow();
        command.arg("dap").env("CONTRAFLOW_HOME", scene.path("store"));
        let mut ide = Ide::of(command.current_dir(scene.path("")));
        ide.ask("initialize", &json!({}));
        let arguments = json!({"program": "ledger", "cwd": "within", "mode": mode});
        ide.ask("launch", &arguments);
        ide.event("initialized");
        ide.ask("configurationDone", &Value::Null);
        ide.stop();
        ide.leave();
    }
}

#[test]
fn a_live_program_goes_back_and_on() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("ledger.c", &["-O0"]);
    let path = source("ledger.c");
    let end = line(&path, "end of add");
    let arguments = json!({"program": program, "mode": "serve"});
    let (mut ide, stop) = Ide::launched(&arguments, &[(&path, &[end])]);
    assert_eq!((&stop["reason"], &stop["text"]), (&json!("breakpoint"), &Value::Null));
    ide.go("continue");
    let frame = ide.frame_id();
    let scopes = ide.ask("scopes", &json!({"frameId": frame}))["scopes"].clone();
    let reference = scopes[1]["variablesReference"].clone();
    let set = json!({"variablesReference": reference, "name": "sum", "value": "40 + 2"});
    assert_eq!(ide.ask("setVariable", &set)["value"], "42");
    assert_eq!(find(&ide.variables(&reference), "sum")["value"], "42");
    let stop = ide.go("reverseContinue");
    assert!(stop["text"].as_str().unwrap().starts_with("in the past"), "{stop}");
    assert_eq!((ide.value("a"), ide.value("sum")), ("0".to_owned(), "1".to_owned()));
    let refused = ide.refused("setExpression", &json!({"expression": "sum", "value": "3"}));
    assert!(refused.contains("the past cannot be changed"));
    // Over the present, to the end.
    ide.break_at(&path, &[]);
    let stop = ide.go("continue");
    assert_eq!(stop["description"], "At the present of the program");
    assert_eq!(ide.value("sum"), "42");
    let stop = ide.go("continue");
    assert_eq!(stop["description"], "The program is about to exit");
    ide.go("stepBack");
    ide.go("continue");
    ide.ask("continue", &json!({"threadId": ide.thread}));
    assert_eq!(ide.event("exited")["exitCode"], 0);
    ide.event("terminated");
    let printed = ide.event("output");
    assert_eq!((&printed["category"], &printed["output"]), (&json!("stdout"), &json!("two 300\n")));
    ide.leave();
}

#[test]
fn a_process_is_attached_to_paused_and_left() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let program = scene.compile("endless.c", &["-O0"]);
    let mut process = Command::new(&program).stdout(Stdio::null()).spawn().unwrap();
    let mut ide = Ide::start();
    ide.ask("initialize", &json!({}));
    ide.ask("attach", &json!({"pid": process.id()}));
    ide.event("initialized");
    ide.ask("configurationDone", &Value::Null);
    assert_eq!(ide.stop()["reason"], "entry");
    assert_eq!(ide.ask("continue", &json!({"threadId": ide.thread}))["allThreadsContinued"], true);
    // It runs: values are not shown, and a breakpoint may be set without the user's notice.
    let thread = json!({"threadId": ide.thread});
    assert!(ide.refused("stackTrace", &thread).contains("running"));
    assert!(!ide.ask("threads", &json!({}))["threads"].as_array().unwrap().is_empty());
    ide.break_at(&source("endless.c"), &[]);
    assert!(ide.refused("stackTrace", &thread).contains("running"));
    assert_eq!(ide.go("pause")["reason"], "pause");
    assert!(!ide.frames().is_empty());
    ide.leave();
    assert!(process.try_wait().unwrap().is_none(), "the process goes on");
    process.kill().unwrap();
    process.wait().unwrap();
}
