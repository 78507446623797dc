//! LLDB in the past of an exact recording, where one that can go backwards is installed.

use super::record;
use crate::libraries::serve;
use crate::serve::Client;
use crate::support::{Scene, address_of, assert_in_order, have};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

/// Returns the output of LLDB after these commands, at the end of a recorded run.
fn lldb(source: &str, arguments: &[&str], commands: &[&str]) -> Option<String> {
    if Command::new("lldb-22").arg("--version").output().is_err() {
        // Not eprintln!, which the test harness swallows.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), b"SKIPPED: no LLDB 22\n");
        return None;
    }
    if !have("gcc") {
        return None;
    }
    let scene = Scene::new();
    let program = scene.compile(source, &["-g", "-O0", "-w", "-pthread"]);
    let command = [&[program.to_str().unwrap()], arguments].concat();
    let (dir, _) = record(&scene, &command);
    let (mut server, address, _stderr) = serve(&dir);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/gdb-scripts/contraflow_lldb.py");
    let mut lldb = Command::new("lldb-22");
    lldb.args(["--no-lldbinit", "-b", "-o", &format!("command script import {script}")]);
    lldb.args(["-o", &format!("gdb-remote {address}")]);
    for command in commands {
        lldb.args(["-o", command]);
    }
    let output = lldb.arg(&program).stdin(Stdio::null()).output().unwrap();
    server.wait().unwrap();
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn values_positions_and_calls_are_shown() {
    let said = lldb(
        "exact/bugs.c",
        &["heap"],
        &[
            "breakpoint set -n fill",
            "process continue --reverse",
            "frame variable last",
            "cf-when",
            "cf-seek -2",
            "cf-seek +2",
            "cf-when",
            "cf-history 2",
            "thread backtrace",
        ],
    );
    let Some(said) = said else { return };
    assert!(said.contains("(int) last = 23"), "{said}");
    let positions: Vec<&str> = said.lines().filter(|line| line.starts_with("position ")).collect();
    let [before, away, back, after] = positions[..] else { panic!("{said}") };
    assert!(before == back && back == after && away != back, "{said}");
    let history = said.split("cf-history 2").nth(1).unwrap_or_default();
    assert_in_order(history, &["  => fill", "frame #1", "heap"]);
}

/// LLDB evaluates conditions itself. What it allocates for that, and for called functions, stays
/// wherever the replay goes.
#[test]
fn conditions_and_called_functions_use_memory_of_the_debugger() {
    let said = lldb(
        "exact/accounts.c",
        &[],
        &[
            "expression half(5)",
            "breakpoint set -n total --condition 'a->id == 3 && calls > 0'",
            "process continue --reverse",
            "frame variable a->owner",
            "cf-when",
            "expression total(a)",
            "expression calls",
            "expression twice(\"past\")",
            "expression int $kept = 40 + a->id",
            "cf-when",
            "cf-seek start",
            "expression $kept",
            "image list -b",
        ],
    );
    let Some(said) = said else { return };
    assert_in_order(
        &said,
        &[
            "(double) $0 = 2.5",
            "stop reason = breakpoint 1.1",
            "\"user3\"",
            "position ",
            "(int) $1 = 6",
            "(int) $2 = 3",
            "\"pastpast\"",
            "position ",
            "$kept = 43",
            "ld-linux",
        ],
    );
    let positions: Vec<&str> = said.lines().filter(|line| line.starts_with("position ")).collect();
    assert_eq!(positions[0], positions[1], "{said}");
}

#[test]
fn a_watchpoint_leads_back_to_each_write() {
    let said = lldb(
        "exact/accounts.c",
        &[],
        &[
            "watchpoint set variable calls",
            "process continue --reverse",
            "frame variable a->id",
            "process continue --reverse",
            "process continue --reverse",
            "frame variable a->id",
            "thread backtrace",
            "frame select 1",
            "frame variable i",
            "register read rip xmm0",
            "cf-last calls",
            "cf-last",
            "frame variable a->id",
        ],
    );
    let Some(said) = said else { return };
    let wanted = [
        "watchpoint 1",
        "id = 5",
        "watchpoint 1",
        "id = 4",
        "#1",
        "main",
        "i = 4",
        "rip",
        "a->id = 2",
    ];
    assert_in_order(&said, &wanted);
}

/// A client at the end of a recorded run.
struct Connected {
    _scene: Scene,
    program: PathBuf,
    server: Child,
    _stderr: BufReader<ChildStderr>,
    client: Client,
}

fn connected(source: &str) -> Connected {
    let scene = Scene::new();
    let flags = ["-g", "-O0", "-w", "-no-pie", "-fcf-protection=none"];
    let program = scene.compile(source, &flags);
    let (dir, _) = record(&scene, &[program.to_str().unwrap()]);
    let (server, address, stderr) = serve(&dir);
    let mut client = Client::connect(&address);
    client.ask("qSupported:xmlRegisters=i386");
    Connected { _scene: scene, program, server, _stderr: stderr, client }
}

/// Calls a function of the debugger, as LLDB does it.
#[test]
fn code_of_the_debugger_runs_in_memory_of_the_debugger() {
    if !have("gcc") {
        return;
    }
    let mut connected = connected("exact/accounts.c");
    let client = &mut connected.client;
    assert!(client.ask("bs").starts_with("T05"));
    // `monitor when`: its text, and then OK.
    let position = |client: &mut Client| (client.ask("qRcmd,7768656e"), client.reply()).0;
    let here = position(client);
    let start = u64::from_str_radix(&client.ask("_M2000,rwx"), 16).unwrap();
    // lea rax, [rdi + rdi]; mov [start + 0x1000], eax; ret
    let code = "488d043f8905f60f0000c3";
    assert_eq!(client.ask(&format!("M{start:x},b:{code}")), "OK");
    assert_eq!(client.ask(&format!("m{start:x},b")), code);
    assert_eq!(position(client), here);
    // RDI, RSP, and the return address.
    assert_eq!(client.ask("P5=1500000000000000"), "OK");
    let stack = u64::from_str_radix(&client.ask("p7"), 16).unwrap().swap_bytes() - 0x400;
    let back = (start + 0x1800).swap_bytes();
    assert_eq!(client.ask(&format!("M{stack:x},8:{back:016x}")), "OK");
    assert_eq!(client.ask(&format!("P7={:016x}", stack.swap_bytes())), "OK");
    assert_eq!(client.ask(&format!("P10={:016x}", start.swap_bytes())), "OK");
    assert_eq!(client.ask(&format!("Z0,{:x},1", start + 0x1800)), "OK");
    assert!(client.ask("c").starts_with("T05"), "the breakpoint");
    assert_eq!(client.ask("p0"), "2a00000000000000");
    // The diversion ends, and its result is kept.
    assert!(client.ask("bs").starts_with("T05"));
    assert_eq!(client.ask(&format!("m{:x},4", start + 0x1000)), "2a000000");
    assert_eq!(client.ask(&format!("m{:x},4", start + 0x2000)), "E0e");
    assert_eq!(client.ask(&format!("_m{start:x}")), "OK");
    assert_eq!(client.ask(&format!("_m{start:x}")), "E01");
    assert_eq!(client.ask(&format!("m{start:x},4")), "E0e");
    assert_eq!(client.ask("_Mffffffffffffffff,rw"), "E0c");
    assert_eq!(client.ask("D"), "OK");
    connected.server.wait().unwrap();
}

#[test]
fn steps_back_are_commands() {
    let said = lldb(
        "exact/back.c",
        &[],
        &[
            "breakpoint set -n last",
            "process continue --reverse",
            "cf-reverse-finish",
            "breakpoint delete -f",
            "cf-reverse-next",
            "cf-reverse-step",
            "frame variable n",
            "cf-reverse-stepi",
            "thread step-over",
        ],
    );
    let Some(said) = said else { return };
    let wanted = [
        "stop reason = breakpoint",
        "main at back.c:19",
        "main at back.c:18",
        "outer(n=1) at back.c:13",
        "n = 1",
        "outer(n=1) at back.c:12",
        "outer(n=1) at back.c:13",
    ];
    assert_in_order(&said, &wanted);
}

#[test]
fn the_way_home_is_by_frames() {
    let commands = ["cf-home", "cf-caller", "thread backtrace"];
    let Some(said) = lldb("switches.c", &[], &commands) else { return };
    let line = |text: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/switches.c");
        let source = std::fs::read_to_string(path).unwrap();
        1 + source.lines().position(|line| line.contains(text)).unwrap()
    };
    let (abort, call) = (line("abort();"), line("leaf(i);"));
    let (at_abort, at_call) =
        (format!("at switches.c:{abort}"), format!("second at switches.c:{call}"));
    let wanted = [&at_abort, &at_call, "frame #0", &at_call, "frame #1"];
    assert_in_order(&said, &wanted);
}

/// Returns the line of an address, as binutils know it.
fn line_of(program: &Path, pc: u64) -> u32 {
    let mut addr2line = Command::new("addr2line");
    let output = addr2line.arg("-e").arg(program).arg(format!("{pc:#x}")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.trim().rsplit(':').next().and_then(|line| line.split(' ').next());
    line.and_then(|line| line.parse().ok()).unwrap_or_else(|| panic!("{pc:#x}: {text}"))
}

fn word(client: &mut Client, question: &str) -> u64 {
    u64::from_str_radix(&client.ask(question), 16).unwrap().swap_bytes()
}

/// The commands cf-reverse-next, cf-reverse-step and cf-reverse-finish of the script for LLDB.
#[test]
fn lines_are_stepped_back_over() {
    if !have("gcc") || !have("addr2line") || !have("nm") {
        return;
    }
    let mut connected = connected("exact/back.c");
    let (program, client) = (connected.program, &mut connected.client);
    assert_eq!(client.ask(&format!("Z0,{:x},1", address_of(&program, "last"))), "OK");
    let reply = client.ask("bc");
    assert!(reply.starts_with("T05thread:"), "{reply}");
    let thread = reply.split("thread:").nth(1).and_then(|text| text.split(';').next()).unwrap();
    let thread = u64::from_str_radix(thread.rsplit('.').next().unwrap(), 16).unwrap();
    let mut back = |how: &str| -> u32 {
        let mut command = format!("on-continue back {thread} {how}");
        if how == "out" {
            // At a function's first instruction, or where RBP has its frame.
            let is_at_start = line_of(&program, word(client, "p10")) == 14;
            let (register, above) = if is_at_start { ("p7", 8) } else { ("p6", 16) };
            let frame = word(client, register) + above;
            let returns_to = word(client, &format!("m{:x},8", frame - 8));
            command = format!("{command} {frame:#x} {returns_to:#x}");
        }
        let hex = command.bytes().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        let text = client.ask(&format!("qRcmd,{hex}"));
        assert_eq!(client.reply(), "OK", "{text}");
        client.ask("c");
        line_of(&program, word(client, "p10"))
    };
    let walk = [
        ("out", 19),
        ("over", 18),
        // Into outer(1), and into outer(0).
        ("into", 13),
        ("into", 12),
        ("into", 13),
        ("over", 12),
        ("over", 10),
        ("over", 9),
        ("into", 6),
        ("into", 5),
        ("out", 8),
        ("over", 8),
        ("over", 7),
        // The call of outer(0).
        ("over", 11),
        ("over", 10),
        ("over", 9),
        ("over", 8),
        ("over", 7),
        ("over", 17),
        ("over", 16),
    ];
    for (number, (how, line)) in walk.into_iter().enumerate() {
        assert_eq!(back(how), line, "{how}, the step {number}");
    }
    assert_eq!(client.ask("D"), "OK");
    connected.server.wait().unwrap();
}
