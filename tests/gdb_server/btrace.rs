//! gdb's own decoder of PT, fed by the server. Runs where gdb was built with libipt.

use crate::gdb::{self, Server};
use crate::history::{self, Program};
use std::process::Command;

fn gdb_has_libipt() -> bool {
    let output = Command::new("gdb").arg("--configuration").output().expect("gdb is installed");
    String::from_utf8_lossy(&output.stdout).contains("--with-intel-pt")
}

#[test]
fn gdb_decodes_the_same_history() {
    if !gdb_has_libipt() {
        // Not eprintln!, which the test harness swallows.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("SKIPPED: this gdb has no libipt\n"),
        );
        return;
    }
    let program = Program::record("walk", &["-O0"], 0);
    let server = Server::start(&program.history, |_| {});
    let commands = [
        "record btrace pt",
        "info record",
        "record instruction-history 1,172",
        "reverse-finish",
        "record stop",
        "reverse-stepi",
    ];
    let text = gdb::run(&program, &server.address, &commands);
    server.join();
    assert!(text.contains("(0 gaps)"), "{text}");
    // `NUMBER<tab>   0xADDRESS <FUNCTION+OFFSET>:...`, with an arrow at the current one.
    let listed: Vec<u64> = text
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .filter(|(number, _)| number.parse::<u32>().is_ok())
        .filter_map(|(_, insn)| insn.split_once("0x"))
        .filter_map(|(_, insn)| u64::from_str_radix(insn.split(' ').next()?, 16).ok())
        .collect();
    let history = history::read(&program.history);
    let expected: Vec<u64> = history.instructions.iter().map(|insn| insn.pc.0).collect();
    assert_eq!(listed, expected, "{text}");
}
