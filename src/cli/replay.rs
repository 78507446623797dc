//! `contraflow replay`: gdb on a recording, or a server for another debugger.

use super::found::NamedRecording;
use super::open::DebuggableRecording;
use super::temporary::remove_unused_temporaries;
use super::{Failure, arguments, gdb_session, open, say};
use crate::gdb::{self, Listener, Options};
use crate::session::{Recorded, Session};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::process::ExitCode;

/// Serves the recording with --listen or --stdio; otherwise runs gdb on it, and returns gdb's exit
/// status.
pub(super) fn run(arguments: &arguments::Replay) -> Result<ExitCode, Failure> {
    remove_unused_temporaries();
    let listener = match (&arguments.listen, arguments.stdio) {
        (_, true) => Listener::Stdio,
        (Some(address), false) => listen_at(address)?,
        (None, false) => return gdb_session::run(arguments),
    };
    let found = NamedRecording::find(arguments.recording.as_deref())?;
    let run = open::for_debugger(found.dir())?;
    let options = Options {
        edge_as_trap: arguments.edge_as_trap,
        once: arguments.once,
        announce: Box::new(|line| say(&line)),
        ..Options::default()
    };
    serve(listener, run, options)?;
    Ok(ExitCode::SUCCESS)
}

/// Serves a recording to debuggers, until the end that `options` set. The first debugger starts at
/// the recording's end.
pub(super) fn serve(
    listener: Listener,
    run: DebuggableRecording,
    options: Options,
) -> Result<(), gdb::Error> {
    match run {
        DebuggableRecording::Path(recording) => {
            gdb::serve(listener, Session::new(Recorded::at_end(*recording)), options)
        }
        DebuggableRecording::Exact(replayed) => {
            gdb::serve(listener, Session::new(*replayed), options)
        }
    }
}

/// Opens a listening socket at `:PORT` of the loopback address, `HOST:PORT` (the first address of
/// the host), or `unix:PATH`. Prints a warning if other machines can reach it.
pub(super) fn listen_at(address: &str) -> Result<Listener, Failure> {
    if let Some(path) = address.strip_prefix("unix:") {
        return Ok(Listener::unix(Path::new(path))?);
    }
    let wrong = || format!("{address}: give :PORT, HOST:PORT or unix:PATH");
    if let Some(port) = address.strip_prefix(':') {
        let port = port.parse().map_err(|_| wrong())?;
        return Ok(Listener::tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?);
    }
    let found = address.to_socket_addrs().map_err(|_| wrong())?.next().ok_or_else(wrong)?;
    if !found.ip().is_loopback() {
        say(&format!(
            "warning: {found} can be reached from other machines, and every client can read the \
             recording or control the program"
        ));
    }
    Ok(Listener::tcp(found)?)
}
