//! The server: waits for clients one after the other, and serves the same session to each.

use super::client::{Client, ConnectionEnd};
use super::door::Door;
use super::listener::Listener;
use super::target::Served;
use super::transport::{Stream, ThreadedStreams, Transport};
use crate::session::{Run, Session};
use std::fmt;
use std::io::{self, Read, Write};

/// The fate of a live program when its client disconnects without notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDisconnect {
    /// Kill the program.
    Kill,
    /// Detach from the program.
    Detach,
    /// Keep the program stopped until another client connects.
    #[default]
    Keep,
}

/// The options of the server.
pub struct Options {
    /// True to report the edges of the history as plain traps, for clients that misread gdb's
    /// `no-history`.
    pub edge_as_trap: bool,
    /// True to end when the first client leaves.
    pub once: bool,
    /// True to wait for clients even without a program, since a client may start one.
    pub persists: bool,
    /// The fate of a live program when its client disconnects without notice.
    pub on_disconnect: OnDisconnect,
    /// Returns true if the server shall end: it then kills the program that it started, or detaches
    /// from the one that it attached to. Called regularly, and after each signal while waiting.
    pub is_to_end: Box<dyn Fn() -> bool>,
    /// Shows a line to the user: the address of the server, a rejected client, or why the run
    /// failed.
    pub announce: Box<dyn FnMut(&str)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            edge_as_trap: false,
            once: false,
            persists: false,
            on_disconnect: OnDisconnect::Keep,
            is_to_end: Box::new(|| false),
            announce: Box::new(|line| drop(writeln!(io::stderr(), "{line}"))),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("edge_as_trap", &self.edge_as_trap)
            .field("once", &self.once)
            .field("persists", &self.persists)
            .field("on_disconnect", &self.on_disconnect)
            .finish_non_exhaustive()
    }
}

/// An error of the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is in use or not permitted.
    #[error("cannot listen on {on}: {source}; choose another address")]
    Listen {
        /// The address or path.
        on: String,
        /// The I/O error.
        source: io::Error,
    },
    /// The listening socket failed.
    #[error("cannot accept debuggers: {0}")]
    Accept(io::Error),
}

/// Serves a session to one client after the other. Ends when the program is gone (unless with
/// [`Options::persists`]), when a client has asked for it, when [`Options::is_to_end`] says so, or
/// with [`Options::once`] when the first client leaves. Streams have one client. Fails only if the
/// socket fails.
pub fn serve<R: Run>(
    listener: Listener,
    session: Session<R>,
    mut options: Options,
) -> Result<(), Error> {
    let mut served = Served::new(session);
    let bound = match listener {
        Listener::Stdio => {
            serve_client(&mut served, &mut ThreadedStreams::standard(), &options);
            end_program(&mut served, &options);
            return Ok(());
        }
        Listener::Streams(input, output) => {
            serve_client(&mut served, &mut ThreadedStreams::of(input, output), &options);
            end_program(&mut served, &options);
            return Ok(());
        }
        Listener::Inquired(inquired) => {
            serve_client(&mut served, &mut ThreadedStreams::inquired(inquired), &options);
            end_program(&mut served, &options);
            return Ok(());
        }
        Listener::Socket(bound) => bound,
    };
    (options.announce)(&format!("listening on {}", bound.address()));
    let door = Door::open(bound);
    loop {
        let admitted = door.admit(&*options.is_to_end, &mut options.announce);
        let Some(mut client) = admitted.map_err(Error::Accept)? else {
            end_program(&mut served, &options);
            return Ok(());
        };
        let ended = serve_client(&mut served, &mut *client, &options);
        let is_last = options.once || (options.is_to_end)();
        if is_last {
            end_program(&mut served, &options);
        } else if served.ends_with_client {
            // Ended by `monitor exit`, also where the client's disconnection keeps the program.
            served.session.run_mut().end_session();
        }
        // The next client will not know of the forked processes that this one left stopped.
        served.session.run_mut().detach_all_beside();
        let is_over = served.session.run().is_over();
        if let Some(failure) = served.session.run().failure() {
            (options.announce)(&failure);
        }
        let is_done = (is_over || ended == ConnectionEnd::Killed) && !options.persists;
        if is_done || served.ends_with_client || is_last {
            return Ok(());
        }
        door.vacate();
    }
}

/// Kills the program, since there will be no other client. If the user has ended the server
/// ([`Options::is_to_end`]), detaches instead from a program that it attached to.
fn end_program<R: Run>(served: &mut Served<R>, options: &Options) {
    let run = served.session.run_mut();
    if (options.is_to_end)() { run.end_session() } else { run.kill() }
}

/// Serves clients at the caller's connections, one after the other, until one of them kills the
/// program or there are no more, and does not end the program then. Ctrl-C does not end a search
/// here; a lost connection ends its client only.
pub fn serve_streams<R: Run, S: Read + Write>(
    streams: impl IntoIterator<Item = S>,
    session: Session<R>,
    options: &Options,
) {
    let mut served = Served::new(session);
    for stream in streams {
        if serve_client(&mut served, &mut Stream(stream), options) == ConnectionEnd::Killed {
            return;
        }
        served.session.run_mut().detach_all_beside();
    }
}

/// Serves one client until it leaves, removes its state, and returns how it left. If it
/// disconnected without notice, and the server shall not end, applies [`Options::on_disconnect`].
fn serve_client<R: Run>(
    served: &mut Served<R>,
    transport: &mut dyn Transport,
    options: &Options,
) -> ConnectionEnd {
    let ended = Client::new(served, transport, options).serve();
    served.forget_client();
    // A broken connection counts as a client that has gone.
    let ended = ended.unwrap_or(ConnectionEnd::Gone);
    match options.on_disconnect {
        // The caller releases the program.
        _ if (options.is_to_end)() => {}
        OnDisconnect::Kill if ended == ConnectionEnd::Gone => served.session.run_mut().kill(),
        OnDisconnect::Detach if ended == ConnectionEnd::Gone => served.session.run_mut().detach(),
        _ => {}
    }
    ended
}
