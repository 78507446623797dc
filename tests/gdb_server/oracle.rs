//! gdb's own reverse execution as the oracle: `record full` knows every register at every step, we
//! know the path alone, and both must lead to the same places.

use crate::gdb::{self, Server};
use crate::history::{Program, source};
use std::fs;
use std::path::Path;
use std::process::Command;

const COMMANDS: [&str; 20] = [
    "reverse-step",
    "reverse-step",
    "reverse-step",
    "reverse-step",
    "reverse-next",
    "reverse-next",
    "reverse-next",
    "reverse-next",
    "reverse-finish",
    "reverse-finish",
    "reverse-stepi",
    "reverse-nexti",
    "step",
    "step",
    "next",
    "next",
    "finish",
    "stepi",
    "nexti",
    "until",
];

/// A walk of `count` commands; xorshift is random enough.
fn commands(seed: u64, count: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut pick = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        COMMANDS[(state >> 33) as usize % COMMANDS.len()]
    };
    (0..count).map(|_| pick().to_owned() + "\n").collect()
}

fn recorded_by_gdb(program: &Program, commands: &Path, out: &Path) {
    let gdb = Command::new("gdb")
        .args(["-nx", "-q", "-batch", "-ex", "set pagination off", "-ex", "break main"])
        .args(["-ex", "run", "-ex", "delete", "-ex", "record", "-ex", "continue", "-x"])
        .arg(source("drive.py"))
        .arg(&program.path)
        .env("COMMANDS", commands)
        .env("OUT", out)
        .output();
    assert!(gdb.expect("gdb is installed").status.success());
}

fn walks_agree(program: &Program, seeds: std::ops::Range<u64>) {
    let directory = program.history.parent().unwrap();
    let (file, theirs, ours) =
        (directory.join("commands"), directory.join("theirs"), directory.join("ours"));
    for seed in seeds {
        fs::write(&file, commands(seed, 80)).unwrap();
        recorded_by_gdb(program, &file, &theirs);
        let server = Server::start(&program.history, |_| {});
        let drive = source("drive.py");
        gdb::run_with(
            program,
            &server.address,
            &[&format!("source {}", drive.display())],
            &[("COMMANDS", &file), ("OUT", &ours)],
        );
        server.join();
        let theirs = fs::read_to_string(&theirs).unwrap();
        assert!(theirs.lines().count() > 40, "seed {seed}: {theirs}");
        assert_eq!(fs::read_to_string(&ours).unwrap(), theirs, "seed {seed}");
    }
}

#[test]
fn unoptimized_code_walks_as_under_record_full() {
    walks_agree(&Program::record("frames", &["-O0"], 0), 1..4);
}

#[test]
fn optimized_code_walks_as_under_record_full() {
    walks_agree(&Program::record("frames", &["-O2"], 0), 4..7);
}

#[test]
fn code_without_debug_information_walks_as_under_record_full() {
    walks_agree(&Program::record("frames", &["-Os", "-g0"], 0), 7..9);
}
