//! A server in this process, and gdb in batch mode as its client.

use crate::history::{self, Program};
use contraflow::gdb::{Listener, Options, serve};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

/// A server for one client, on a port of the system's choice.
pub(crate) struct Server {
    pub(crate) address: String,
    thread: JoinHandle<()>,
}

impl Server {
    /// Starts one for a recorded program. Options cannot cross threads, so `configure` makes them.
    pub(crate) fn start(history: &Path, configure: fn(&mut Options)) -> Self {
        let (announced, address) = mpsc::channel();
        let history = history.to_owned();
        let thread = thread::spawn(move || {
            let session = history::load(&history);
            let announce = Box::new(move |line: &str| announced.send(line.to_owned()).unwrap());
            let mut options = Options { once: true, announce, ..Options::default() };
            configure(&mut options);
            let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
            serve(Listener::Tcp(anywhere), session, options).unwrap();
        });
        let line = address.recv().unwrap();
        let address = line.strip_prefix("listening on ").unwrap().to_owned();
        Self { address, thread }
    }

    /// Waits for the server's end.
    pub(crate) fn join(self) {
        self.thread.join().unwrap();
    }
}

/// What gdb printed, both streams, for commands typed after it connected to `remote`.
pub(crate) fn run(program: &Program, remote: &str, commands: &[&str]) -> String {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-q", "-batch", "-ex", "set pagination off", "-ex", "set sysroot /"]);
    gdb.args(["-ex", &format!("target remote {remote}")]);
    for command in commands {
        gdb.args(["-ex", command]);
    }
    let output = gdb.arg(&program.path).output().expect("gdb is installed");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// Walks a program's history: starts a server, connects gdb, runs the commands, ends both.
pub(crate) fn walk(program: &Program, commands: &[&str]) -> String {
    let server = Server::start(&program.history, |_| {});
    let text = run(program, &server.address, commands);
    server.join();
    text
}
