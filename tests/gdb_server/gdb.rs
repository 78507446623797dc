//! A server in this process, and gdb in batch mode as its client.

use crate::history::{self, Program};
use contraflow::gdb::{Listener, Options, SCRIPT, serve};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

/// A server on a port of the system's choice.
pub(crate) struct Server {
    pub(crate) address: String,
    thread: JoinHandle<()>,
}

impl Server {
    /// Starts one for a recorded program; it ends with its first client, unless `configure` says
    /// otherwise. Options cannot cross threads, so `configure` changes them over there.
    pub(crate) fn start(history: &Path, configure: fn(&mut Options)) -> Self {
        let (announced, address) = mpsc::channel();
        let history = history.to_owned();
        let thread = thread::spawn(move || {
            let session = history::load(&history);
            let announce = Box::new(move |line: &str| announced.send(line.to_owned()).unwrap());
            let mut options = Options { once: true, announce, ..Options::default() };
            configure(&mut options);
            let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
            serve(Listener::tcp(anywhere).unwrap(), session, options).unwrap();
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

/// What gdb printed, both streams together, for commands typed after it connected to `remote`.
pub(crate) fn run(program: &Program, remote: &str, commands: &[&str]) -> String {
    run_with(program, remote, commands, &[])
}

/// The same with more in gdb's environment.
pub(crate) fn run_with(
    program: &Program,
    remote: &str,
    commands: &[&str],
    environment: &[(&str, &Path)],
) -> String {
    let directory = program.history.parent().unwrap();
    let script = directory.join("contraflow.py");
    fs::write(&script, SCRIPT).unwrap();
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-q", "-batch", "-ex", "set pagination off", "-ex", "set sysroot /"]);
    // The machine may be busy.
    gdb.args(["-ex", "set remotetimeout 60", "-x"]);
    gdb.arg(script).args(["-ex", &format!("target remote {remote}")]);
    // gdb in batch mode writes errors elsewhere than the rest, so that their order would be lost.
    let log = directory.join("gdb.log");
    let output = fs::File::create(&log).unwrap();
    for command in commands {
        gdb.args(["-ex", command]);
    }
    gdb.envs(environment.iter().copied()).arg(&program.path).stdin(Stdio::null());
    gdb.stdout(output.try_clone().unwrap()).stderr(output);
    gdb.status().expect("gdb is installed");
    fs::read_to_string(log).unwrap()
}

/// Walks a program's history: starts a server, connects gdb, runs the commands, ends both.
pub(crate) fn walk(program: &Program, commands: &[&str]) -> String {
    let server = Server::start(&program.history, |_| {});
    let text = run(program, &server.address, commands);
    server.join();
    text
}
