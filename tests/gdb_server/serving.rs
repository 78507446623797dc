//! How clients come and go: transports, one at a time, Ctrl-C.

use crate::gdb::{self, Server};
use crate::history::{self, Program};
use crate::slow::Slow;
use contraflow::gdb::{Error, Listener, Options, serve};
use contraflow::session::{Recorded, Session};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

fn program() -> Program {
    Program::record("walk", &["-O0"], 0)
}

/// Sends a packet without a checksum to speak of, and reads what comes back at once.
fn say(stream: &mut (impl Read + Write), packet: &str) -> String {
    let sum = packet.bytes().fold(0u8, u8::wrapping_add);
    stream.write_all(format!("${packet}#{sum:02x}").as_bytes()).unwrap();
    let mut reply = vec![0; 4096];
    let mut text = String::new();
    while !text.contains('#') {
        let count = stream.read(&mut reply).unwrap();
        if count == 0 {
            break;
        }
        text.push_str(&String::from_utf8_lossy(&reply[..count]));
    }
    text
}

#[test]
fn gdb_talks_over_a_pipe() {
    let program = program();
    let server = std::env::current_exe().unwrap();
    let command = format!(
        "| HISTORY={} exec {} --ignored --exact server_process --nocapture",
        program.history.display(),
        server.display()
    );
    let text = gdb::run(&program, &command, &["reverse-stepi", "bt", "kill"]);
    assert!(text.contains("#0  store (value=<unavailable>)"), "{text}");
    assert!(text.contains("[Inferior 1 (Remote target) killed]"), "{text}");
}

#[test]
fn gdb_talks_over_a_unix_socket_that_is_removed_again() {
    let program = program();
    let path = program.history.with_file_name("socket");
    // A server that was killed left its socket behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let (announced, address) = mpsc::channel();
    let (history, socket) = (program.history.clone(), path.clone());
    let server = thread::spawn(move || {
        let announce = Box::new(move |line: &str| announced.send(line.to_owned()).unwrap());
        let options = Options { announce, ..Options::default() };
        serve(Listener::unix(&socket).unwrap(), history::load(&history), options).unwrap();
    });
    assert_eq!(address.recv().unwrap(), format!("listening on {}", path.display()));
    let text = gdb::run(&program, path.to_str().unwrap(), &["reverse-stepi", "cf-when", "detach"]);
    assert!(text.contains("position 171 of 172"), "{text}");
    // The server stays, and stands where it was left.
    let mut stream = UnixStream::connect(&path).unwrap();
    assert!(say(&mut stream, "qRcmd,7768656e").contains('O'));
    assert!(say(&mut stream, "vKill;1").contains("OK"));
    server.join().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_second_client_is_told_and_the_first_is_not_disturbed() {
    let program = program();
    let server = Server::start(&program.history, |options| options.once = false);
    let mut first = TcpStream::connect(&server.address).unwrap();
    assert!(say(&mut first, "qC").starts_with("+$QC"));
    let text = gdb::run(&program, &server.address, &[]);
    assert!(text.contains("serves another debugger already"), "{text}");
    assert!(say(&mut first, "bs").contains("T05thread:"));
    // It disappears without a word: the next one is let in, once that has been noticed.
    drop(first);
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let mut next = TcpStream::connect(&server.address).unwrap();
        if say(&mut next, "qC").starts_with("+$QC") {
            assert!(say(&mut next, "vKill;1").contains("OK"));
            break;
        }
        assert!(Instant::now() < deadline, "the server did not notice");
        thread::sleep(Duration::from_millis(20));
    }
    server.join();
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let addr = taken.local_addr().unwrap();
    let error = Listener::tcp(addr);
    assert!(matches!(&error, Err(Error::Listen { .. })));
    let text = error.unwrap_err().to_string();
    assert!(text.contains(&addr.to_string()) && text.contains("in use"), "{text}");
}

#[test]
fn ctrl_c_ends_a_long_search() {
    let program = program();
    let (announced, address) = mpsc::channel();
    let history = program.history.clone();
    let server = thread::spawn(move || {
        let session = Session::new(Recorded::at_end(Slow(history::read(&history))));
        let announce = Box::new(move |line: &str| announced.send(line.to_owned()).unwrap());
        let options = Options { once: true, announce, ..Options::default() };
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        serve(Listener::tcp(anywhere).unwrap(), session, options).unwrap();
    });
    let line = address.recv().unwrap();
    let interrupt = "python import os, signal, threading; \
                     threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()";
    let commands = ["break *1", interrupt, "reverse-continue", "cf-when"];
    let started = Instant::now();
    let text = gdb::run(&program, line.strip_prefix("listening on ").unwrap(), &commands);
    assert!(text.contains("received signal SIGINT"), "{text}");
    assert!(started.elapsed() < Duration::from_secs(30), "{text}");
    server.join().unwrap();
    assert!(Path::new(&program.path).exists());
}
