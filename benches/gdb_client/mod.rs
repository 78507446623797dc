//! A client of the server that only asks and measures, and what prints a table. No bench of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server of a recording.
pub(crate) struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Waits until it listens: the recording is open and indexed then.
    pub(crate) fn start(contraflow: &str, recording: &Path) -> Self {
        let mut child = Command::new(contraflow)
            .args(["replay", "--once", "--listen", "127.0.0.1:0"])
            .arg(recording)
            .stderr(Stdio::piped())
            .spawn()
            .expect("contraflow runs");
        let stderr = child.stderr.take().expect("a pipe");
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains("listening on")).expect("it says where");
        let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
        Self { child, address }
    }

    /// Connects, as gdb does.
    pub(crate) fn client(&self) -> Client {
        let mut client = Client::connect(&self.address);
        client.ask("qSupported:multiprocess+;swbreak+;hwbreak+;qRelocInsn+;xmlRegisters=i386");
        client
    }

    /// Waits for its end, after a client has left.
    pub(crate) fn end(mut self) {
        self.child.wait().expect("the server ends");
    }
}

/// A gdb that only asks.
pub(crate) struct Client {
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
    pub(crate) fn ask(&mut self, packet: &str) -> (String, Duration) {
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
    pub(crate) fn monitor(&mut self, command: &str) -> Duration {
        let hex = command.bytes().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        let start = Instant::now();
        let (mut reply, _) = self.ask(&format!("qRcmd,{hex}"));
        while reply.contains("$O") && !reply.contains("$OK") {
            reply = self.reply();
        }
        start.elapsed()
    }
}

/// The middle one.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// A line of the table.
pub(crate) fn row(what: &str, value: &str) {
    println!("{what:<46} {value}");
}
