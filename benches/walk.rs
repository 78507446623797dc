//! How fast a recording is walked: records a program, serves it, and times the packets of a
//! scripted client. Prints a table; measures, and asserts nothing.
//!
//! `cargo bench --bench walk [-- PROGRAM ARGS]`; `/bin/ls -l /etc/passwd` if none is given.

mod gdb_client;

use gdb_client::{Server, median, row};
use std::process::{Command, Stdio};
use std::time::Instant;

const STEPS: usize = 2000;

fn main() {
    let mut program: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if program.is_empty() {
        program = ["/bin/ls", "-l", "/etc/passwd"].map(str::to_owned).to_vec();
    }
    let contraflow = env!("CARGO_BIN_EXE_contraflow");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let recording = dir.path().join("recording");
    let start = Instant::now();
    let record = Command::new(contraflow)
        .env("CONTRAFLOW_HOME", dir.path())
        .args(["record", "-q", "--path", "-o"])
        .arg(&recording)
        .args(&program)
        .stdout(Stdio::null())
        .status();
    record.expect("contraflow runs");
    let recorded = start.elapsed();
    let manifest = std::fs::read(recording.join("manifest.json")).expect("a recording");
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("a manifest");
    let instructions = manifest["end"]["instructions"].as_u64().expect("a count");
    let threads = manifest["end"]["threads"].as_array().expect("threads");
    let bytes: u64 = threads.iter().filter_map(|thread| thread["trace_bytes"].as_u64()).sum();
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let (count, size) = (instructions as f64, bytes as f64);
    row("program", &program.join(" "));
    row("instructions", &instructions.to_string());
    row("steps a second", &format!("{:.0}", count / recorded.as_secs_f64()));
    row("trace bytes an instruction", &format!("{:.4}", size / count));
    walk(contraflow, &recording, instructions);
}

fn walk(contraflow: &str, recording: &std::path::Path, instructions: u64) {
    let start = Instant::now();
    let server = Server::start(contraflow, recording);
    row("open and index", &format!("{:?}", start.elapsed()));
    let mut client = server.client();
    let at_end = client.ask("?").0;
    let seek = client.monitor(&format!("seek {}", instructions / 2));
    row("seek to the middle", &format!("{seek:?}"));
    let steps: Vec<_> = (0..STEPS).map(|_| client.ask("bs").1).collect();
    row("bs round trip, median", &format!("{:?}", median(steps.clone())));
    row("bs round trip, worst", &format!("{:?}", steps.iter().max().expect("steps")));
    let registers: Vec<_> = (0..STEPS).map(|_| client.ask("g").1).collect();
    row("g round trip, median", &format!("{:?}", median(registers)));
    client.monitor("seek end");
    let (edge, time) = client.ask("bc");
    row("bc over the whole history to its start", &format!("{time:?}"));
    assert!(at_end.starts_with("$T") && edge.contains("replaylog:begin"), "{at_end} {edge}");
    client.ask("D");
    server.end();
}
