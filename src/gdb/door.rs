//! Admits one client at a time and rejects the others with a message. Other users of this machine
//! but root are never admitted. A thread accepts all connections; it hands over the first client,
//! and is busy rejecting others until that one has left (`vacate`).

use super::frame;
use super::listener::Bound;
use super::peer::Peer;
use super::transport::{Socket, Transport};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const BUSY: &[u8] = b"E.contraflow serves another debugger already: detach that one first";
const FOREIGN: &[u8] = b"E.contraflow serves the user who started it only";
/// The maximum number of messages about rejected clients that wait to be shown.
const REFUSALS: usize = 16;
/// The period at which a waiting server checks whether it shall end.
const WAIT_PERIOD: Duration = Duration::from_millis(200);
/// The time that a rejected client has to read the reason.
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum number of clients being rejected at once; more are disconnected without a reason.
const REJECTING_LIMIT: usize = 16;

type Client = Box<dyn Transport + Send>;

/// A listening socket with a thread that accepts clients.
pub(super) struct Door {
    clients: Receiver<io::Result<Client>>,
    /// Messages about rejected clients for the server's user.
    refusals: Receiver<String>,
    state: Arc<State>,
    /// The address to connect to in order to wake the accepting thread.
    wake_address: WakeAddress,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    /// True while a client waits to be served, or is served.
    occupied: AtomicBool,
    /// True once the door is dropped.
    closed: AtomicBool,
    /// The number of clients being rejected.
    rejecting: AtomicUsize,
}

enum WakeAddress {
    /// `None` if the system does not say.
    Tcp(Option<SocketAddr>),
    Unix(PathBuf),
}

impl Door {
    /// Starts the thread that accepts clients at the socket. It ends when the door is dropped.
    pub(super) fn open(bound: Bound) -> Self {
        let (sender, clients) = sync_channel(1);
        let (refused, refusals) = sync_channel(REFUSALS);
        let state = Arc::new(State::default());
        let wake_address = match &bound {
            Bound::Tcp(listener) => WakeAddress::Tcp(listener.local_addr().ok()),
            Bound::Unix(_, path) => WakeAddress::Unix(path.clone()),
        };
        let shared = Arc::clone(&state);
        let acceptor = thread::spawn(move || accept_clients(&bound, &shared, &sender, &refused));
        Self { clients, refusals, state, wake_address, acceptor: Some(acceptor) }
    }

    /// Waits for the next client; returns `None` if the server shall end, and fails if the socket
    /// did. Other clients are rejected while a client is served. Passes messages about rejected
    /// clients to `announce`.
    pub(super) fn admit(
        &self,
        is_to_end: &dyn Fn() -> bool,
        announce: &mut dyn FnMut(&str),
    ) -> io::Result<Option<Client>> {
        while !is_to_end() {
            self.refusals.try_iter().for_each(|line| announce(&line));
            match self.clients.recv_timeout(WAIT_PERIOD) {
                Ok(client) => return client.map(Some),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::ErrorKind::NotConnected.into());
                }
            }
        }
        Ok(None)
    }

    /// Notes that the admitted client has left: the next one that connects is handed over.
    pub(super) fn vacate(&self) {
        self.state.occupied.store(false, Ordering::SeqCst);
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.state.closed.store(true, Ordering::SeqCst);
        let woken = match &self.wake_address {
            WakeAddress::Tcp(addr) => addr.is_some_and(|addr| TcpStream::connect(addr).is_ok()),
            WakeAddress::Unix(path) => UnixStream::connect(path).is_ok(),
        };
        if let Some(acceptor) = self.acceptor.take().filter(|_| woken) {
            // The thread does not panic, and if it did, the socket would be closed anyway.
            let _ = acceptor.join();
        }
    }
}

/// Accepts clients until the door is closed or its socket fails. Sends one at a time to `clients`,
/// and rejects the others.
fn accept_clients(
    bound: &Bound,
    state: &Arc<State>,
    clients: &SyncSender<io::Result<Client>>,
    refused: &SyncSender<String>,
) {
    loop {
        let accepted = accept(bound);
        // The client closed the connection before it was accepted.
        let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionAborted;
        if accepted.as_ref().is_err_and(is_gone) {
            continue;
        }
        if state.closed.load(Ordering::SeqCst) {
            return;
        }
        let client = match accepted {
            Ok(client) => client,
            Err(error) => {
                // No receiver means that the server has ended.
                let _ = clients.send(Err(error));
                return;
            }
        };
        if let Some(why) = client.reason_to_reject() {
            // A message that does not fit is dropped.
            let _ = refused.try_send(why);
            reject(client, state, FOREIGN);
        } else if state.occupied.swap(true, Ordering::SeqCst) {
            reject(client, state, BUSY);
        } else if clients.send(Ok(client.into_client())).is_err() {
            return;
        }
    }
}

enum Accepted {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Accepted {
    /// Returns a line for the server's user if a client is to be rejected: another user of this
    /// machine but root, or one whose owner cannot be determined. `None` if it may be served, as
    /// from another machine. The permissions of a Unix socket's file restrict its clients already.
    fn reason_to_reject(&self) -> Option<String> {
        let Self::Tcp(stream) = self else { return None };
        let who = match Peer::of(stream) {
            Ok(Peer::Own | Peer::Remote) => return None,
            Ok(Peer::Foreign(Some(uid))) => format!("user {uid}"),
            Ok(Peer::Foreign(None)) | Err(_) => "an unknown user".to_owned(),
        };
        Some(format!("refused a connection of {who}: unix:PATH accepts only its owner"))
    }

    /// Returns the connection as a client to serve.
    fn into_client(self) -> Client {
        match self {
            Self::Tcp(stream) => Box::new(stream),
            Self::Unix(stream) => Box::new(stream),
        }
    }
}

/// Waits for the next connection, of any user, and accepts it.
fn accept(bound: &Bound) -> io::Result<Accepted> {
    match bound {
        Bound::Tcp(listener) => {
            let (stream, _) = listener.accept()?;
            // Each step is one small packet in each direction, and Nagle's algorithm would delay
            // every one. A failure means that the client has gone, or that it is slower.
            let _ = stream.set_nodelay(true);
            Ok(Accepted::Tcp(stream))
        }
        Bound::Unix(listener, _) => Ok(Accepted::Unix(listener.accept()?.0)),
    }
}

/// Starts a thread that answers the client's first packet with the reason and closes the
/// connection, since a slow client must not delay others. Closes the connection at once if there
/// are too many such threads, or if the user may have no more.
fn reject(accepted: Accepted, state: &Arc<State>, why: &'static [u8]) {
    if state.rejecting.fetch_add(1, Ordering::SeqCst) >= REJECTING_LIMIT {
        state.rejecting.fetch_sub(1, Ordering::SeqCst);
        return;
    }
    let shared = Arc::clone(state);
    let answer = move || {
        answer_rejected(accepted, why);
        shared.rejecting.fetch_sub(1, Ordering::SeqCst);
    };
    if thread::Builder::new().spawn(answer).is_err() {
        state.rejecting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Sends the reason to a rejected client, if its first packet arrives within [`PATIENCE`]. Ignores
/// errors.
fn answer_rejected(accepted: Accepted, why: &[u8]) {
    // The client is not served in any case, so errors do not matter.
    let _ = match accepted {
        Accepted::Tcp(stream) => {
            stream.set_read_timeout(Some(PATIENCE)).and_then(|()| send_reason(stream, why))
        }
        Accepted::Unix(stream) => {
            stream.set_read_timeout(Some(PATIENCE)).and_then(|()| send_reason(stream, why))
        }
    };
}

/// Reads the client's first packet, answers it with the reason, and waits for the end of the
/// connection or for more bytes.
fn send_reason(mut stream: impl Socket, why: &[u8]) -> io::Result<()> {
    let mut request = [0; 4096];
    // gdb sends an acknowledgement and a packet first. Closing the connection with unread input
    // would lose the reply.
    loop {
        let count = stream.read(&mut request)?;
        let said = request.get(..count).unwrap_or_default();
        if count == 0 || said.contains(&b'#') {
            break;
        }
    }
    stream.send(&[b"+", &*frame::encode(why)].concat())?;
    let _ = stream.read(&mut request)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::listener::Listener;
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn who_comes_before_anybody_waits_is_let_in_alone() {
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let Ok(Listener::Socket(bound)) = Listener::tcp(anywhere) else { panic!() };
        let address = bound.address();
        let door = Door::open(bound);
        let _first = TcpStream::connect(&address).unwrap();
        while !door.state.occupied.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        let _client = door.admit(&|| false, &mut |_| ()).unwrap().unwrap();
        let mut second = TcpStream::connect(&address).unwrap();
        second.set_read_timeout(Some(PATIENCE)).unwrap();
        second.write_all(b"$?#3f").unwrap();
        let mut said = [0; 8];
        second.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"+$E.cont");
    }
}
