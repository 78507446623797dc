//! How fast a recording is walked: records a program, serves it, and times the packets of a
//! scripted client. Prints a table; measures, and asserts nothing.
//!
//! `cargo bench --bench walk [-- PROGRAM ARGS]`; `/bin/ls -l /etc/passwd` if none is given.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const STEPS: usize = 2000;

/// A gdb that only asks.
struct Client {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        let replies = BufReader::new(stream.try_clone().expect("a socket"));
        let mut client = Self { stream, replies };
        client.ask("QStartNoAckMode");
        client.stream.write_all(b"+").expect("the server reads");
        client
    }

    /// Sends a packet and gives the reply, with the time until it was there.
    fn ask(&mut self, packet: &str) -> (String, Duration) {
        let sum = packet.bytes().fold(0_u8, u8::wrapping_add);
        let start = Instant::now();
        write!(self.stream, "${packet}#{sum:02x}").expect("the server reads");
        let reply = self.reply();
        (reply, start.elapsed())
    }

    /// The next packet without its checksum.
    fn reply(&mut self) -> String {
        let mut reply = Vec::new();
        self.replies.read_until(b'#', &mut reply).expect("the server answers");
        let mut sum = [0; 2];
        self.replies.read_exact(&mut sum).expect("the server answers");
        String::from_utf8_lossy(&reply).into_owned()
    }

    /// `monitor COMMAND`: console output comes first, `OK` last.
    fn monitor(&mut self, command: &str) -> Duration {
        let hex = command.bytes().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        let start = Instant::now();
        let (mut reply, _) = self.ask(&format!("qRcmd,{hex}"));
        while reply.contains("$O") && !reply.contains("$OK") {
            reply = self.reply();
        }
        start.elapsed()
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn row(what: &str, value: &str) {
    println!("{what:<46} {value}");
}

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
        .args(["record", "-q", "-o"])
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
    let mut server = Command::new(contraflow)
        .args(["replay", "--once", "--listen", "127.0.0.1:0"])
        .arg(recording)
        .stderr(Stdio::piped())
        .spawn()
        .expect("contraflow runs");
    let mut line = String::new();
    let stderr = server.stderr.take().expect("a pipe");
    BufReader::new(stderr).read_line(&mut line).expect("it says where it listens");
    let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
    row("open and index", &format!("{:?}", start.elapsed()));
    let mut client = Client::connect(&address);
    client.ask("qSupported:multiprocess+;swbreak+;hwbreak+;qRelocInsn+;xmlRegisters=i386");
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
    server.wait().expect("the server ends");
}
