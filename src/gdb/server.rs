//! The server: waits for clients one after the other, and serves each the same session.

use super::client::{Client, Ended};
use super::door::Door;
use super::listener::Listener;
use super::target::Served;
use super::transport::{StandardStreams, Stream, Transport};
use crate::session::{Run, Session};
use std::fmt;
use std::io::{self, Read, Write};

/// What becomes of a live program when its client vanishes without a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDisconnect {
    /// It is killed.
    Kill,
    /// It goes on by itself.
    Detach,
    /// It stands still until another client comes.
    #[default]
    Keep,
}

/// How to serve.
pub struct Options {
    /// Report the edges of the history as plain traps, for clients that misread gdb's
    /// `no-history`.
    pub edge_as_trap: bool,
    /// End when the first client leaves.
    pub once: bool,
    /// Wait for the next client even when the program is gone: it may start another one.
    pub persists: bool,
    /// What becomes of a live program when its client vanishes.
    pub on_disconnect: OnDisconnect,
    /// Whether the server is to end: what it started is killed then, and what it took over goes on by
    /// itself. Asked now and then, and whenever a signal interrupts its waiting.
    pub is_to_end: Box<dyn Fn() -> bool>,
    /// Told what to show to the user, a line at a time: where the server listens, and
    /// who was refused.
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

/// Why serving failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is in use, or may not be used.
    #[error("cannot listen on {on}: {source}; choose another address")]
    Listen {
        /// The address or path.
        on: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The listening socket broke.
    #[error("cannot accept debuggers any more: {0}")]
    Accept(io::Error),
}

/// Serves a session until a client kills it, or until the first client leaves if there is to be
/// only one. Standard streams have one client.
pub fn serve<R: Run>(
    listener: Listener,
    session: Session<R>,
    mut options: Options,
) -> Result<(), Error> {
    let mut served = Served::new(session);
    let bound = match listener {
        Listener::Stdio => {
            serve_client(&mut served, &mut StandardStreams::open(), &options);
            // Nobody else will come.
            end(&mut served, &options);
            return Ok(());
        }
        Listener::Streams(input, output) => {
            serve_client(&mut served, &mut StandardStreams::of(input, output), &options);
            end(&mut served, &options);
            return Ok(());
        }
        Listener::Socket(bound) => bound,
    };
    (options.announce)(&format!("listening on {}", bound.address()));
    let door = Door::open(bound);
    loop {
        let admitted = door.admit(&*options.is_to_end, &mut options.announce);
        let Some(mut client) = admitted.map_err(Error::Accept)? else {
            end(&mut served, &options);
            return Ok(());
        };
        let ended = serve_client(&mut served, &mut *client, &options);
        let is_last = options.once || (options.is_to_end)();
        if is_last {
            end(&mut served, &options);
        }
        // The next client does not know of it.
        served.session.run_mut().leave_all_beside();
        let over = served.session.run().is_over();
        if let Some(failure) = served.session.run().failure() {
            (options.announce)(&failure);
        }
        let over = (over || ended == Ended::Killed) && !options.persists;
        if over || served.exits || is_last {
            return Ok(());
        }
        door.vacate();
    }
}

/// Nobody will come for a program that is left behind.
fn end<R: Run>(served: &mut Served<R>, options: &Options) {
    let run = served.session.run_mut();
    if (options.is_to_end)() { run.abandon() } else { run.kill() }
}

/// Serves clients at connections that the caller has, one after the other, until one of them kills
/// the program. Ctrl-C does not end a search here; a lost connection ends its client only.
pub fn serve_streams<R: Run, S: Read + Write>(
    streams: impl IntoIterator<Item = S>,
    session: Session<R>,
    options: &Options,
) {
    let mut served = Served::new(session);
    for stream in streams {
        if serve_client(&mut served, &mut Stream(stream), options) == Ended::Killed {
            return;
        }
        served.session.run_mut().leave_all_beside();
    }
}

fn serve_client<R: Run>(
    served: &mut Served<R>,
    transport: &mut dyn Transport,
    options: &Options,
) -> Ended {
    let ended = Client::new(served, transport, options).serve();
    served.forget_client();
    // A connection that breaks is a client that has gone.
    let ended = ended.unwrap_or(Ended::Gone);
    match options.on_disconnect {
        _ if (options.is_to_end)() => {}
        OnDisconnect::Kill if ended == Ended::Gone => served.session.run_mut().kill(),
        OnDisconnect::Detach if ended == Ended::Gone => served.session.run_mut().leave(),
        _ => {}
    }
    ended
}
