//! How long a user waits in a history of more than 10^9 instructions: connecting, going back to a
//! breakpoint at its other end, steps by instruction, by a long line, and over a long call. Prints a
//! table with the goals; measures, and asserts only that the right places are reached.
//!
//! `cargo bench --bench far`. Needs gcc; gdb for what a user types, and 100 MB of free disk.

mod gdb_client;

use gdb_client::{Server, median, row};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const STEPS: usize = 2000;
const CONTRAFLOW: &str = env!("CARGO_BIN_EXE_contraflow");

/// Run by gdb at the end of the history.
const COMMANDS: &str = r#"
import time
import gdb

def timed(name, command, line):
    start = time.perf_counter()
    gdb.execute(command, to_string=True)
    seconds = time.perf_counter() - start
    found = gdb.newest_frame().find_sal().line
    assert found == line, (command, found, line)
    print("TIME", name, seconds)

def line_of(text):
    with open(SOURCE) as source:
        return next(n for n, found in enumerate(source, 1) if text in found)

gdb.execute("tbreak far.c:%d" % line_of("late();"), to_string=True)
gdb.execute("reverse-continue", to_string=True)
timed("line", "reverse-step", line_of("for (int i = 0; i < 1700"))
gdb.execute("reverse-step", to_string=True)
timed("call", "reverse-next", line_of("work(9100"))
gdb.execute("break early", to_string=True)
timed("back", "reverse-continue", line_of("n = 1;"))
gdb.execute("tbreak late", to_string=True)
timed("forth", "continue", line_of("n = 2;"))
"#;

fn main() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/programs/far.c");
    let program = dir.path().join("far");
    let mut gcc = Command::new("gcc");
    gcc.args(["-g", "-O1", "-no-pie", "-o"]).arg(&program).arg(&source);
    assert!(gcc.status().is_ok_and(|status| status.success()), "gcc is needed");
    let recording = dir.path().join("recording");
    let start = Instant::now();
    let mut record = Command::new(CONTRAFLOW);
    record.env("CONTRAFLOW_HOME", dir.path()).args(["record", "-q", "--full", "-o"]);
    record.arg(&recording).arg(&program).stdout(Stdio::null());
    assert!(record.status().is_ok_and(|status| status.success()), "it does not record");
    row("recorded in", &format!("{:?}", start.elapsed()));
    let manifest = fs::read(recording.join("manifest.json")).expect("a recording");
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("a manifest");
    let count = manifest["end"]["instructions"].as_u64().expect("a count");
    assert!(count >= 1_000_000_000, "{count} instructions are too few");
    row("instructions", &count.to_string());
    let start = Instant::now();
    let index =
        Command::new(CONTRAFLOW).arg("index").arg(&recording).stdout(Stdio::null()).status();
    assert!(index.is_ok_and(|status| status.success()), "it is not indexed");
    row("indexed in", &format!("{:?}", start.elapsed()));
    println!();
    packets(&recording, &address_of(&program, "early"), count);
    typed(dir.path(), &recording, &source);
}

fn address_of(program: &Path, function: &str) -> String {
    let output = Command::new("nm").arg(program).output().expect("nm runs");
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = listed.lines().find(|line| line.ends_with(&format!(" {function}")));
    let address = line.and_then(|line| line.split(' ').next()).expect("the function");
    address.trim_start_matches('0').to_owned()
}

fn goal(what: &str, time: Duration, goal: Duration) {
    let verdict = if time <= goal { "" } else { "  MISSED" };
    row(what, &format!("{time:>12.3?}   goal {goal:?}{verdict}"));
}

/// What a client sends, without gdb's own part.
fn packets(recording: &Path, early: &str, count: u64) {
    let start = Instant::now();
    let server = Server::start(CONTRAFLOW, recording);
    let mut client = server.client();
    let at_end = client.ask("?").0;
    goal("open, connect and see the first stop", start.elapsed(), Duration::from_secs(1));
    assert!(at_end.starts_with("$T"), "{at_end}");
    client.ask(&format!("Z0,{early},1"));
    let (stop, time) = client.ask("bc");
    assert!(stop.contains("swbreak"), "{stop}");
    goal("bc to a breakpoint 10^9 instructions back", time, Duration::from_millis(100));
    client.ask(&format!("z0,{early},1"));
    client.monitor(&format!("seek {}", count / 2));
    let times: Vec<_> = (0..STEPS).map(|_| client.ask("bs").1).collect();
    goal("bs round trip, median", median(times.clone()), Duration::from_micros(200));
    row("bs round trip, worst", &format!("{:>12.3?}", times.iter().max().expect("steps")));
    client.ask("D");
    server.end();
}

/// What a user types in gdb.
fn typed(dir: &Path, recording: &Path, source: &Path) {
    if Command::new("gdb").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED: gdb is not installed");
        return;
    }
    let script = dir.join("commands.py");
    let head = format!("SOURCE = {:?}\n", source.display().to_string());
    fs::write(&script, head + COMMANDS).expect("a file");
    let run = |arguments: &[&str]| {
        let start = Instant::now();
        let mut replay = Command::new(CONTRAFLOW);
        replay.arg("replay").arg(recording).args(["--", "-nx", "-batch"]).args(arguments);
        let output = replay.stdin(Stdio::null()).output().expect("contraflow runs");
        (start.elapsed(), String::from_utf8_lossy(&output.stdout).into_owned(), output.stderr)
    };
    goal("gdb started, at its first prompt, and left", run(&[]).0, Duration::from_secs(1));
    let (_, said, errors) = run(&["-x", script.to_str().expect("a path")]);
    let time = |name: &str| {
        let mut lines = said.lines().filter_map(|line| line.strip_prefix("TIME "));
        let seconds = lines.find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        let seconds = seconds
            .unwrap_or_else(|| panic!("no {name} in:\n{said}{}", String::from_utf8_lossy(&errors)));
        Duration::from_secs_f64(seconds)
    };
    goal("reverse-step over a line of 10^4 instructions", time("line"), Duration::from_secs(1));
    goal("reverse-next over a call of 10^8", time("call"), Duration::from_millis(200));
    goal("reverse-continue over 10^9", time("back"), Duration::from_millis(100));
    goal("continue over 10^9", time("forth"), Duration::from_millis(100));
}
