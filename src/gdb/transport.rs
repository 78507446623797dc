//! Byte streams to a client: sockets, and the standard streams. Nothing is known of packets here.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;

/// Bytes taken in one read.
const READ_BYTES: usize = 0x1_0000;

/// A stream that can be waited on, and looked at without waiting.
pub(super) trait Transport {
    /// Waits for bytes. Empty means that the client has gone.
    fn wait(&mut self) -> io::Result<Vec<u8>>;

    /// The bytes that are there now, if any. Empty means that the client has gone.
    fn poll(&mut self) -> io::Result<Option<Vec<u8>>>;

    /// Sends bytes at once.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// A socket that can be told not to block.
pub(super) trait Socket: Read + Write {
    /// Switches blocking off or on.
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()>;
}

impl Socket for TcpStream {
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        Self::set_nonblocking(self, nonblocking)
    }
}

impl Socket for UnixStream {
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        Self::set_nonblocking(self, nonblocking)
    }
}

impl<S: Socket> Transport for S {
    fn wait(&mut self) -> io::Result<Vec<u8>> {
        read_some(self)
    }

    fn poll(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.set_nonblocking(true)?;
        let read = read_some(self);
        self.set_nonblocking(false)?;
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            read => read.map(Some),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)?;
        self.flush()
    }
}

/// Any stream of bytes. It cannot be looked at without waiting, so Ctrl-C is heard where a search
/// has ended.
pub(super) struct Stream<S>(pub(super) S);

impl<S: Read + Write> Transport for Stream<S> {
    fn wait(&mut self) -> io::Result<Vec<u8>> {
        read_some(&mut self.0)
    }

    fn poll(&mut self) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)?;
        self.0.flush()
    }
}

fn read_some(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; READ_BYTES];
    loop {
        match stream.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => {
                bytes.truncate(read?);
                return Ok(bytes);
            }
        }
    }
}

/// The standard streams, or two files in their place. Input cannot be polled with the standard
/// library, so a thread reads it; the thread ends with the stream.
pub(super) struct StandardStreams {
    input: Receiver<io::Result<Vec<u8>>>,
    output: Box<dyn Write>,
}

impl StandardStreams {
    pub(super) fn open() -> Self {
        Self::reading(|| read_some(&mut io::stdin().lock()), Box::new(io::stdout()))
    }

    pub(super) fn of(mut input: File, output: File) -> Self {
        Self::reading(move || read_some(&mut input), Box::new(output))
    }

    fn reading(
        mut read: impl FnMut() -> io::Result<Vec<u8>> + Send + 'static,
        output: Box<dyn Write>,
    ) -> Self {
        let (sender, input) = sync_channel(16);
        thread::spawn(move || {
            loop {
                let read = read();
                let last = !matches!(&read, Ok(bytes) if !bytes.is_empty());
                if sender.send(read).is_err() || last {
                    break;
                }
            }
        });
        Self { input, output }
    }
}

impl Transport for StandardStreams {
    fn wait(&mut self) -> io::Result<Vec<u8>> {
        self.input.recv().unwrap_or_else(|_| Ok(Vec::new()))
    }

    fn poll(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self.input.try_recv() {
            Ok(read) => read.map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Ok(Some(Vec::new())),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.write_all(bytes)?;
        self.output.flush()
    }
}
