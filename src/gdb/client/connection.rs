//! A client's connection: its units (packets, acknowledgements, Ctrl-C), and the bytes for it.

use super::super::frame::{Framer, Unit};
use super::super::server::Options;
use super::super::transport::Transport;
use crate::session::AnySession;
use std::cell::RefCell;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// The period at which a running search checks for Ctrl-C.
const POLL_PERIOD: Duration = Duration::from_millis(5);

/// A client's connection: receives units (packets, acknowledgements, Ctrl-C), sends bytes.
pub(super) struct Connection<'a> {
    transport: &'a mut dyn Transport,
    options: &'a Options,
    /// The bytes that have arrived and were not taken yet.
    framer: Framer,
    /// The time of the last check for Ctrl-C.
    polled: Instant,
    /// True if the client has gone.
    broken: bool,
}

impl<'a> Connection<'a> {
    /// Returns a connection on which nothing has arrived.
    pub(super) fn new(transport: &'a mut dyn Transport, options: &'a Options) -> Self {
        let (framer, polled) = (Framer::default(), Instant::now());
        Self { transport, options, framer, polled, broken: false }
    }

    /// Sends bytes immediately.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.transport.send(bytes)
    }

    /// Returns a handle for sending from another thread; `None` if the transport has none.
    pub(super) fn sender(&self) -> Option<Box<dyn Write + Send>> {
        self.transport.sender()
    }

    /// Starts a period in which [`Self::is_interrupted`] does not look for Ctrl-C, at the start of
    /// a run or command: most are short.
    pub(super) fn put_off_poll(&mut self) {
        self.polled = Instant::now();
    }

    /// Waits for the next unit and returns it; `None` if the client has gone, or the server shall
    /// end. Lets the session answer the questions of other threads that arrive before the unit, and
    /// use the time in which nothing arrives.
    pub(super) fn next_unit(&mut self, session: &mut dyn AnySession) -> io::Result<Option<Unit>> {
        loop {
            while let Some(question) = self.transport.take_question() {
                question(session);
            }
            if let Some(unit) = self.framer.take_unit() {
                return Ok(Some(unit));
            }
            if self.broken || (self.options.is_to_end)() {
                return Ok(None);
            }
            match self.transport.wait_for_bytes() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    self.use_idle_time(session);
                }
                Ok(bytes) if bytes.is_empty() => return Ok(None),
                bytes => self.framer.push(&bytes?),
            }
        }
    }

    /// Lets the run prepare data for later commands until [`Self::has_work`], and not at all if
    /// there is work already.
    fn use_idle_time(&mut self, session: &mut dyn AnySession) {
        if !self.has_work() {
            let connection = RefCell::new(self);
            session.run_mut().use_idle_time(&|| connection.borrow_mut().has_work());
        }
    }

    /// Returns true if there is input or a question, the client has gone, or the server shall end.
    /// Reads what has arrived first.
    fn has_work(&mut self) -> bool {
        self.poll();
        let has_input = self.framer.has_input() || self.transport.has_question();
        self.broken || has_input || (self.options.is_to_end)()
    }

    /// Returns true if the user pressed Ctrl-C, the client has gone, or the server shall end, and
    /// removes the Ctrl-C from the input. Looks once per [`POLL_PERIOD`] only; else returns false.
    pub(super) fn is_interrupted(&mut self) -> bool {
        if self.polled.elapsed() < POLL_PERIOD {
            return false;
        }
        self.polled = Instant::now();
        self.poll();
        self.broken || self.framer.take_interrupt() || (self.options.is_to_end)()
    }

    /// Reads the bytes that have arrived, without waiting. Notes it if the client has gone.
    fn poll(&mut self) {
        match self.transport.poll() {
            Ok(Some(bytes)) => {
                self.broken = bytes.is_empty();
                self.framer.push(&bytes);
            }
            Ok(None) => {}
            Err(_) => self.broken = true,
        }
    }
}
