//! Real gdb, in batch mode, walking real programs' histories through the server.

#![allow(missing_docs, clippy::cast_possible_truncation)]

mod btrace;
mod gdb;
mod history;
mod lldb;
mod oracle;
mod pt;
mod serving;
mod slow;
mod threads;
mod walks;

use contraflow::gdb::{Listener, Options, serve};

/// Not a test: the server in a process of its own, for `target remote | COMMAND` and by hand.
/// `HISTORY` names the history, `LISTEN` a TCP address; without one it serves the standard streams.
#[test]
#[ignore = "a server, started by other tests"]
fn server_process() {
    let session = history::load(std::env::var_os("HISTORY").expect("HISTORY").as_ref());
    let listener = match std::env::var("LISTEN") {
        Ok(addr) => Listener::tcp(addr.parse().expect("an address")).expect("listening"),
        Err(_) => Listener::Stdio,
    };
    let options = Options::default();
    serve(listener, session, options).expect("serving");
}
