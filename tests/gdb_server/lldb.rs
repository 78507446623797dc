//! LLDB, where one that can go backwards is installed (22 and newer).

use crate::gdb::Server;
use crate::history::Program;
use std::process::{Command, Stdio};

fn lldb() -> Option<&'static str> {
    ["lldb-22", "lldb"].into_iter().find(|name| {
        let output = Command::new(name).arg("--version").output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        text.is_ok_and(|text| {
            let major = text.split("version ").nth(1).and_then(|rest| rest.split('.').next());
            major.and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= 22)
        })
    })
}

#[test]
fn lldb_continues_backwards_and_shows_no_made_up_registers() {
    let Some(lldb) = lldb() else {
        // Not eprintln!, which the test harness swallows.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("SKIPPED: no LLDB 22 or newer\n"),
        );
        return;
    };
    let program = Program::record("walk", &["-O0"], 0);
    let server = Server::start(&program.history, |_| {});
    let commands = [
        &format!("gdb-remote {}", server.address),
        "bt",
        "b middle",
        "process continue --reverse",
        "register read",
        "process continue --reverse",
    ];
    let mut command = Command::new(lldb);
    command.args(["--no-lldbinit", "-b"]);
    for text in commands {
        command.args(["-o", text]);
    }
    let output = command.arg(&program.path).stdin(Stdio::null()).output().unwrap();
    server.join();
    let text = String::from_utf8_lossy(&output.stdout);
    for wanted in [
        "stop reason = killed by SIGSEGV",
        "walk`store(value=60)",
        "walk`main at walk.c",
        "stop reason = breakpoint 1.1",
        "walk`middle(n=<unavailable>)",
        "registers were unavailable",
        "stop reason = history boundary",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!text.contains("0xcccc"), "{text}");
}
