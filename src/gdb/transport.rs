//! Byte streams to a client: sockets, and the standard streams. Packets are not interpreted here.

use super::inquiry::{Inquired, Item, Question, WAITING_ITEMS};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

/// The maximum size of one read.
const READ_BYTES: usize = 0x1_0000;
/// The maximum time of one wait for bytes.
const WAIT_PERIOD: Duration = Duration::from_millis(200);
/// The time between two reads of an input that is in non-blocking mode and has no bytes.
const READ_PERIOD: Duration = Duration::from_millis(1);

/// A stream that supports blocking and non-blocking reads. Some transports also carry the questions
/// of other threads, which arrive between the bytes ([`Inquired`]).
pub(super) trait Transport {
    /// Waits for bytes and returns them; no bytes mean that the client has gone. Fails with
    /// `Interrupted` after a signal or [`WAIT_PERIOD`], or if a question arrived, which is kept for
    /// [`Self::take_question`]. [`Stream`] waits without a limit.
    fn wait_for_bytes(&mut self) -> io::Result<Vec<u8>>;

    /// Returns the available bytes without waiting; an empty buffer means that the client has gone.
    /// `None` if there are none, if a question arrived, which is kept, and always for [`Stream`].
    fn poll(&mut self) -> io::Result<Option<Vec<u8>>>;

    /// Sends bytes immediately.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns another handle for sending from another thread, if possible.
    fn sender(&self) -> Option<Box<dyn Write + Send>> {
        None
    }

    /// Removes and returns the oldest question that a wait or poll has kept; `None` if there is
    /// none.
    fn take_question(&mut self) -> Option<Question> {
        None
    }

    /// Returns true if a wait or poll has kept a question that was not taken yet.
    fn has_question(&self) -> bool {
        false
    }
}

/// A socket that supports non-blocking mode.
pub(super) trait Socket: Read + Write {
    /// Sets non-blocking mode.
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()>;

    /// Sets the maximum time of a read.
    fn set_read_timeout(&self, longest: Duration) -> io::Result<()>;

    /// Returns another handle of the same socket.
    fn clone_handle(&self) -> io::Result<Box<dyn Write + Send>>;
}

impl Socket for TcpStream {
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        Self::set_nonblocking(self, nonblocking)
    }

    fn set_read_timeout(&self, longest: Duration) -> io::Result<()> {
        Self::set_read_timeout(self, Some(longest))
    }

    fn clone_handle(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(Box::new(self.try_clone()?))
    }
}

impl Socket for UnixStream {
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        Self::set_nonblocking(self, nonblocking)
    }

    fn set_read_timeout(&self, longest: Duration) -> io::Result<()> {
        Self::set_read_timeout(self, Some(longest))
    }

    fn clone_handle(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(Box::new(self.try_clone()?))
    }
}

impl<S: Socket> Transport for S {
    fn wait_for_bytes(&mut self) -> io::Result<Vec<u8>> {
        self.set_read_timeout(WAIT_PERIOD)?;
        match read_some(self) {
            Err(error) if means_nothing_now(&error) => Err(io::ErrorKind::Interrupted.into()),
            read => read,
        }
    }

    fn poll(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.set_nonblocking(true)?;
        let read = read_some(self);
        self.set_nonblocking(false)?;
        match read {
            Err(error) if means_nothing_now(&error) => Ok(None),
            read => read.map(Some),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)?;
        self.flush()
    }

    fn sender(&self) -> Option<Box<dyn Write + Send>> {
        self.clone_handle().ok()
    }
}

/// Any stream of bytes. It has no non-blocking reads, so Ctrl-C is only noticed after a search has
/// ended.
pub(super) struct Stream<S>(pub(super) S);

impl<S: Read + Write> Transport for Stream<S> {
    fn wait_for_bytes(&mut self) -> io::Result<Vec<u8>> {
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

/// Makes one read of at most [`READ_BYTES`], and returns the bytes; none at the stream's end.
fn read_some(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; READ_BYTES];
    let count = stream.read(&mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Returns true if an error means that there is nothing to read at the moment.
fn means_nothing_now(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// The standard streams, or two files instead. The standard library has no non-blocking reads of
/// them, so a thread reads the input. The thread ends with the stream.
pub(super) struct ThreadedStreams {
    /// The items that have arrived and were not received yet: bytes of the reading thread, and
    /// questions.
    input: Receiver<Item>,
    /// The questions that were received and not taken yet.
    questions: VecDeque<Question>,
    output: Output,
}

/// The destination of replies.
enum Output {
    Standard(io::Stdout),
    File(File),
}

impl Output {
    fn clone_handle(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            Self::Standard(_) => Box::new(io::stdout()),
            Self::File(file) => Box::new(file.try_clone()?),
        })
    }
}

impl ThreadedStreams {
    /// Starts to read standard input; replies go to standard output.
    pub(super) fn standard() -> Self {
        let (sender, items) = sync_channel(WAITING_ITEMS);
        let read = || read_some(&mut io::stdin().lock());
        Self::start_reading(read, sender, items, Output::Standard(io::stdout()))
    }

    /// Starts to read `input`; replies go to `output`.
    pub(super) fn of(mut input: File, output: File) -> Self {
        let (sender, items) = sync_channel(WAITING_ITEMS);
        Self::start_reading(move || read_some(&mut input), sender, items, Output::File(output))
    }

    /// Starts to read the input of `inquired`; replies go to its output. The questions of other
    /// threads arrive between the reads.
    pub(super) fn inquired(inquired: Inquired) -> Self {
        let Inquired { mut input, output, sender, items } = inquired;
        Self::start_reading(move || read_some(&mut input), sender, items, Output::File(output))
    }

    /// Starts the thread that reads the input and sends each read as an item, up to its end or an
    /// error.
    fn start_reading(
        mut read: impl FnMut() -> io::Result<Vec<u8>> + Send + 'static,
        sender: SyncSender<Item>,
        input: Receiver<Item>,
        output: Output,
    ) -> Self {
        thread::spawn(move || {
            loop {
                let read = read();
                if let Err(error) = &read
                    && means_nothing_now(error)
                {
                    // The stream is in non-blocking mode, which all who have it share.
                    if error.kind() == io::ErrorKind::WouldBlock {
                        thread::sleep(READ_PERIOD);
                    }
                    continue;
                }
                let last = !matches!(&read, Ok(bytes) if !bytes.is_empty());
                if sender.send(Item::Bytes(read)).is_err() || last {
                    break;
                }
            }
        });
        Self { input, questions: VecDeque::new(), output }
    }

    /// Returns the bytes of an item. For a question, keeps it and fails with `Interrupted`.
    fn bytes_of(&mut self, item: Item) -> io::Result<Vec<u8>> {
        match item {
            Item::Bytes(read) => read,
            Item::Question(question) => {
                self.questions.push_back(question);
                Err(io::ErrorKind::Interrupted.into())
            }
        }
    }
}

impl Transport for ThreadedStreams {
    fn wait_for_bytes(&mut self) -> io::Result<Vec<u8>> {
        match self.input.recv_timeout(WAIT_PERIOD) {
            Ok(item) => self.bytes_of(item),
            Err(RecvTimeoutError::Timeout) => Err(io::ErrorKind::Interrupted.into()),
            Err(RecvTimeoutError::Disconnected) => Ok(Vec::new()),
        }
    }

    fn poll(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self.input.try_recv() {
            Ok(item) => match self.bytes_of(item) {
                Err(error) if means_nothing_now(&error) => Ok(None),
                read => read.map(Some),
            },
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Ok(Some(Vec::new())),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let output: &mut dyn Write = match &mut self.output {
            Output::Standard(output) => output,
            Output::File(output) => output,
        };
        output.write_all(bytes)?;
        output.flush()
    }

    fn sender(&self) -> Option<Box<dyn Write + Send>> {
        self.output.clone_handle().ok()
    }

    fn take_question(&mut self) -> Option<Question> {
        self.questions.pop_front()
    }

    fn has_question(&self) -> bool {
        !self.questions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Tests the standard input if the parent made it non-blocking.
    #[test]
    fn an_input_that_does_not_block_is_not_polled_all_the_time() {
        let reads = Arc::new(AtomicUsize::new(0));
        let (sender, items) = sync_channel(WAITING_ITEMS);
        let count = Arc::clone(&reads);
        let read = move || match count.fetch_add(1, Ordering::SeqCst) {
            number if number < 10 => Err(io::ErrorKind::WouldBlock.into()),
            10 => Ok(b"now".to_vec()),
            _ => Ok(Vec::new()),
        };
        let begun = std::time::Instant::now();
        let output = Output::Standard(io::stdout());
        let mut streams = ThreadedStreams::start_reading(read, sender, items, output);
        let bytes = loop {
            match streams.wait_for_bytes() {
                Ok(bytes) => break bytes,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::Interrupted),
            }
        };
        assert_eq!(bytes, b"now");
        assert!(begun.elapsed() >= 10 * READ_PERIOD, "it was polled");
    }
}
