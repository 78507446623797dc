//! Messages that no client should send, and ends that come too early.

use super::{Ide, ledger, line};
use crate::support::{Scene, contraflow, have};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn damaged_messages_are_answered_and_the_session_goes_on() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, _) = ledger(&scene, false);
    let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[]);
    let framed = |body: &str| format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let damages = [
        "Content-Length: many\r\n\r\n{}".to_owned(),
        "Content-Length: -5\r\n\r\n".to_owned(),
        framed("{\"seq\": 1, \"type\""),
        framed("[1, 2]"),
        framed("{\"seq\": 1, \"type\": \"request\"}"),
    ];
    for damage in damages {
        ide.write(damage.as_bytes());
        let mut answer = ide.message();
        while answer["type"] == "event" {
            answer = ide.message();
        }
        assert_eq!((&answer["type"], &answer["success"]), (&json!("response"), &json!(false)));
        ide.place();
    }
    assert!(ide.refused("noSuchRequest", &json!({})).contains("noSuchRequest"));
    let wrong = [
        ("setBreakpoints", json!({"source": {}, "breakpoints": [{"line": 1}]})),
        ("setBreakpoints", json!({"source": {"path": "x"}, "breakpoints": 7})),
        ("stackTrace", json!({"threadId": "first"})),
        ("stackTrace", json!({"threadId": 99_999_999})),
        ("scopes", json!({"frameId": 99_999_999})),
        ("variables", json!({"variablesReference": -1})),
        ("readMemory", json!({"memoryReference": "here", "count": 1})),
        ("readMemory", json!({"memoryReference": "0x10", "count": -1})),
        ("disassemble", json!({"memoryReference": "0x10", "instructionCount": 100_000_000})),
        ("next", json!({"threadId": "first"})),
        ("next", json!({"threadId": 99_999_999})),
        ("goto", json!({"targetId": 5})),
        ("restartFrame", json!({})),
        ("contraflow/writers", json!({"memoryReference": "x", "bytes": 1})),
        ("contraflow/hits", json!({"function": 5})),
        ("contraflow/nothing", json!({})),
        ("launch", json!({"recording": recording})),
        ("source", json!({"sourceReference": 1})),
    ];
    for (command, arguments) in wrong {
        ide.refused(command, &arguments);
        ide.place();
    }
    // Arguments that are there without being an object.
    for command in ["threads", "modules", "contraflow/when"] {
        ide.ask(command, &json!("text"));
    }
    ide.leave();
}

#[test]
fn nothing_is_debugged_before_a_launch() {
    let scene = Scene::new();
    let mut ide = Ide::start();
    ide.ask("initialize", &json!({}));
    assert!(ide.refused("next", &json!({"threadId": 1})).contains("nothing is debugged"));
    assert_eq!(ide.ask("threads", &Value::Null)["threads"], json!([]));
    ide.refused("configurationDone", &Value::Null);
    let nowhere = json!({"recording": scene.path("nowhere")});
    assert!(ide.refused("launch", &nowhere).contains("no such recording"));
    let nothing = json!({"program": scene.path("nothing")});
    assert!(ide.refused("launch", &nothing).contains("no such program"));
    assert!(ide.refused("attach", &json!({})).contains("pid"));
    assert!(ide.refused("launch", &json!({"args": "text"})).contains("launch"));
    ide.leave();
}

/// Returns the processes whose parent is one.
fn children(pid: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |child: &u32| {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let after = stat.rsplit(')').next().unwrap_or_default();
        after.split_whitespace().nth(1).and_then(|parent| parent.parse().ok()) == Some(pid)
    };
    all.filter(is_child).collect()
}

fn is_there(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

#[test]
fn a_killed_adapter_leaves_no_process() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = ledger(&scene, false);
    let grows = line(&path, "total grows");
    let program = scene.path("ledger");
    for arguments in [
        json!({"recording": recording}),
        json!({"program": program, "mode": "serve", "stopOnEntry": true}),
    ] {
        let (mut ide, _) = Ide::launched(&arguments, &[(&path, &[grows])]);
        let of_adapter = children(ide.process().id());
        // gdb, and the process of the replay or the program.
        assert!(of_adapter.len() >= 2, "{of_adapter:?}");
        let thread = json!({"threadId": ide.thread});
        ide.send("continue", &thread);
        ide.process().kill().unwrap();
        ide.process().wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while of_adapter.iter().any(|pid| is_there(*pid)) {
            assert!(Instant::now() < deadline, "{of_adapter:?} stay");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_request_is_cancelled() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, _) = ledger(&scene, false);
    let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[]);
    let begun = Instant::now();
    let long = json!({"expression": "python import time; time.sleep(50)", "context": "repl"});
    let long = ide.send("evaluate", &long);
    let waiting = ide.send("threads", &json!({}));
    // gdb must have begun with it: an earlier Ctrl-C would be for nothing.
    std::thread::sleep(Duration::from_millis(500));
    ide.send("cancel", &json!({"requestId": waiting}));
    ide.send("cancel", &json!({"requestId": long}));
    assert_eq!(ide.response(waiting)["message"], "cancelled");
    assert_eq!(ide.response(long)["success"], false);
    assert!(begun.elapsed() < Duration::from_secs(30));
    // A search that is cancelled before, during or after its work.
    let search = ide.send("contraflow/hits", &json!({"function": "add", "limit": 100_000}));
    let cancel = ide.send("cancel", &json!({"requestId": search}));
    let answers = [search, cancel].map(|seq| ide.response(seq));
    assert!(answers[0]["success"] == true || answers[0]["message"] == "cancelled");
    assert_eq!(answers[1]["success"], true);
    ide.place();
    ide.leave();
}

#[test]
fn a_client_that_goes_ends_the_session() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, _) = ledger(&scene, false);
    let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[]);
    let of_adapter = children(ide.process().id());
    drop(ide.input.take());
    assert!(ide.process().wait().unwrap().success());
    assert!(!of_adapter.iter().any(|pid| is_there(*pid)));
}

#[test]
fn a_gdb_that_ends_is_reported() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, _) = ledger(&scene, false);
    let (mut ide, _) = Ide::launched(&json!({"recording": recording}), &[]);
    let is_gdb =
        |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("gdb"));
    let gdb = children(ide.process().id()).into_iter().find(is_gdb).expect("a gdb");
    let killed = std::process::Command::new("kill").args(["-KILL", &gdb.to_string()]).status();
    assert!(killed.unwrap().success());
    ide.event("terminated");
    assert!(ide.refused("next", &json!({})).contains("nothing is debugged"));
    ide.leave();
}

#[test]
fn each_client_of_a_socket_has_a_session() {
    if !have("gdb") {
        return;
    }
    let scene = Scene::new();
    let (recording, path) = ledger(&scene, false);
    let mut server =
        contraflow().args(["dap", "--listen", ":0"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let address = said.trim().rsplit(' ').next().unwrap().to_owned();
    let mut sessions: Vec<Ide> = (0..2).map(|_| over(&address, &recording)).collect();
    let grows = line(&path, "total grows");
    for ide in &mut sessions {
        ide.break_at(&path, &[grows]);
        ide.go("reverseContinue");
        assert_eq!(ide.place(), ("add".to_owned(), grows));
    }
    sessions.into_iter().for_each(Ide::leave);
    server.kill().unwrap();
    server.wait().unwrap();
}

/// Returns a session over a socket.
fn over(address: &str, recording: &Path) -> Ide {
    let stream = TcpStream::connect(address).unwrap();
    let mut ide = Ide::over(None, stream.try_clone().unwrap(), stream);
    ide.ask("initialize", &json!({}));
    ide.ask("launch", &json!({"recording": recording}));
    ide.event("initialized");
    ide.ask("configurationDone", &Value::Null);
    ide.stop();
    ide
}
