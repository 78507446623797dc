//! The queue of all inputs of the adapter: messages of the client, records of gdb, output. Threads
//! that read these streams send their inputs to it; the adapter's loop takes them one by one. While
//! the loop waits for a certain input, it defers the others.

use super::host::OutputLine;
use super::mi::{self, Record};
use super::protocol::{self, Fault, Message, Request};
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// An input of the adapter's loop.
#[derive(Debug)]
pub(super) enum Input {
    /// A message of the client.
    Message(Message),
    /// The client has gone.
    ClientGone,
    /// A record of gdb.
    Gdb(Record),
    /// gdb has ended.
    GdbGone,
    /// Output of a program, or of this process.
    Output(OutputLine),
    /// One output stream of a recorder has ended.
    OutputDone,
    /// The answer to a question about the whole history.
    Answer(Request, Result<Value, Fault>),
    /// An event for the client, from a thread for questions.
    Event(&'static str, Value),
    /// A request that a thread for questions returned, since only the session can answer it.
    ReturnedRequest(Request),
    /// The progress of opening the recording for questions: work done, and all work.
    PreparationProgress(u64, u64),
}

/// A sender of inputs of other threads than gdb's.
#[derive(Clone)]
pub(super) struct InputSender(Sender<(u64, Input)>);

impl InputSender {
    /// Sends an input to the inbox. Fails if the inbox is gone.
    pub(super) fn send(&self, input: Input) -> Result<(), Gone> {
        self.0.send((ANY_GDB, input)).map_err(|_| Gone)
    }
}

/// The inbox is gone.
#[derive(Debug)]
pub(super) struct Gone;

/// The number that inputs have which are not of a gdb.
const ANY_GDB: u64 = 0;

/// The queue of inputs. Inputs that arrive while the adapter waits for a certain one are deferred.
pub(super) struct Inbox {
    /// Inputs are sent with the number of the gdb that they are from, or [`ANY_GDB`].
    sender: Sender<(u64, Input)>,
    receiver: Receiver<(u64, Input)>,
    /// The inputs that are to be processed before those in the channel.
    deferred: VecDeque<Input>,
    /// The number of the current gdb. Inputs of former ones are dropped.
    gdb: u64,
}

impl Inbox {
    pub(super) fn new() -> Self {
        let (sender, receiver) = channel();
        Self { sender, receiver, deferred: VecDeque::new(), gdb: ANY_GDB }
    }

    /// Returns a sender for inputs of other threads.
    pub(super) fn sender(&self) -> InputSender {
        InputSender(self.sender.clone())
    }

    /// Returns the next input, deferred ones first. Waits without limit if there is none: the end
    /// of the client is an input, too.
    pub(super) fn next(&mut self) -> Input {
        self.deferred.pop_front().unwrap_or_else(|| self.receive())
    }

    /// Waits for the next input from the channel, past the deferred ones, and returns it.
    pub(super) fn receive(&mut self) -> Input {
        loop {
            // The inbox has a sender as well, so the channel stays open.
            let (gdb, input) = self.receiver.recv().unwrap_or((ANY_GDB, Input::ClientGone));
            if self.is_current(gdb) {
                return input;
            }
        }
    }

    /// Returns true if an input with this number is to be processed: it is of the current gdb, or
    /// of none.
    fn is_current(&self, gdb: u64) -> bool {
        gdb == ANY_GDB || gdb == self.gdb
    }

    /// Waits for the next input from the channel, past the deferred ones; returns `None` if none
    /// arrives in `time`.
    pub(super) fn receive_within(&mut self, time: Duration) -> Option<Input> {
        let deadline = Instant::now() + time;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let (gdb, input) = self.receiver.recv_timeout(left).ok()?;
            if self.is_current(gdb) {
                return Some(input);
            }
        }
    }

    /// Drops all inputs of the current gdb, those that are deferred and those that are still to
    /// arrive: it has been ended.
    pub(super) fn forget_gdb(&mut self) {
        self.take_deferred(|input| matches!(input, Input::Gdb(_) | Input::GdbGone));
        self.gdb += 1;
    }

    /// Defers an input, after those that are deferred already: [`Self::next`] returns it later.
    pub(super) fn defer(&mut self, input: Input) {
        self.deferred.push_back(input);
    }

    /// Defers inputs, in this order, before those that are deferred already.
    pub(super) fn defer_first(&mut self, inputs: Vec<Input>) {
        for input in inputs.into_iter().rev() {
            self.deferred.push_front(input);
        }
    }

    /// Removes those deferred inputs for which `wanted` returns true, and returns them in their
    /// order. Does not wait for others.
    pub(super) fn take_deferred(&mut self, wanted: impl Fn(&Input) -> bool) -> Vec<Input> {
        let (taken, kept) = std::mem::take(&mut self.deferred).into_iter().partition(wanted);
        self.deferred = kept;
        taken.into_iter().collect()
    }

    /// Starts a thread that sends the client's messages to this inbox, and at the end of `input`
    /// [`Input::ClientGone`].
    pub(super) fn listen_to_client(&self, input: impl Read + Send + 'static) {
        let sender = self.sender();
        thread::spawn(move || {
            let mut input = BufReader::new(input);
            while let Ok(Some(message)) = protocol::read(&mut input) {
                if sender.send(Input::Message(message)).is_err() {
                    return;
                }
            }
            let _ = sender.send(Input::ClientGone);
        });
    }

    /// Starts a thread that sends the records of a new gdb to this inbox, and at the end of `output`
    /// [`Input::GdbGone`]. Those of former ones are dropped from now on.
    pub(super) fn listen_to_gdb(&mut self, output: impl Read + Send + 'static) {
        self.forget_gdb();
        let (sender, gdb) = (self.sender.clone(), self.gdb);
        thread::spawn(move || {
            let (mut output, mut line) = (BufReader::new(output), Vec::new());
            while output.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                let record = mi::parse(&String::from_utf8_lossy(&line));
                if sender.send((gdb, Input::Gdb(record))).is_err() {
                    return;
                }
                line.clear();
            }
            let _ = sender.send((gdb, Input::GdbGone));
        });
    }

    /// Starts a thread that sends output to this inbox, and at its end [`Input::OutputDone`] if
    /// `reports_end`.
    pub(super) fn listen_to_output(
        &self,
        lines: impl Iterator<Item = OutputLine> + Send + 'static,
        reports_end: bool,
    ) {
        let sender = self.sender();
        thread::spawn(move || {
            for line in lines {
                if sender.send(Input::Output(line)).is_err() {
                    return;
                }
            }
            if reports_end {
                let _ = sender.send(Input::OutputDone);
            }
        });
    }
}

/// Returns the output of a stream in pieces, as it arrives: `next` blocks until there is some, and
/// returns `None` at the end of the stream. Keeps an incomplete UTF-8 character until its other
/// bytes arrive; at the end of the stream, returns it as the replacement character.
pub fn output_chunks(mut stream: impl Read, is_error: bool) -> impl Iterator<Item = OutputLine> {
    let mut rest = Vec::new();
    std::iter::from_fn(move || {
        loop {
            let mut bytes = [0; 0x4000];
            // `None` at the end of the stream, and if it cannot be read.
            let count = stream.read(&mut bytes).ok().filter(|count| *count > 0);
            rest.extend_from_slice(&bytes[..count.unwrap_or(0)]);
            let divided = count.map_or(0, |_| incomplete_bytes(&rest));
            let whole: Vec<u8> = rest.drain(..rest.len() - divided).collect();
            if !whole.is_empty() {
                let text = String::from_utf8_lossy(&whole).into_owned();
                return Some(OutputLine { is_error, text });
            }
            count?;
        }
    })
}

/// Returns the number of bytes of an incomplete UTF-8 character at the end; 0 if there is none.
fn incomplete_bytes(bytes: &[u8]) -> usize {
    // True if the last `count` bytes are the beginning of a character, and nothing else.
    let begins_character = |count: &usize| {
        let last = bytes.len().checked_sub(*count).and_then(|start| bytes.get(start..));
        let error = last.and_then(|last| std::str::from_utf8(last).err());
        error.is_some_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=3).find(begins_character).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A stream that arrives in pieces.
    struct Pieces(VecDeque<Vec<u8>>);

    impl Read for Pieces {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            let piece = self.0.pop_front().unwrap_or_default();
            buf[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
    }

    #[test]
    fn characters_are_whole_however_they_arrive() {
        let text = "a\u{e9}\u{20ac}\u{1f600}z\u{e9}";
        for size in 1..=text.len() {
            let pieces = text.as_bytes().chunks(size).map(<[u8]>::to_vec).collect();
            let lines = output_chunks(Pieces(pieces), false);
            assert_eq!(lines.map(|line| line.text).collect::<String>(), text, "{size} at a time");
        }
        // A byte that is no character, and half of one at the end.
        let broken = [b"\xff\xe2".to_vec(), b"\x82".to_vec(), b"\xacx\xe2\x82".to_vec()];
        let lines = output_chunks(Pieces(broken.into()), true).map(|line| line.text);
        assert_eq!(lines.collect::<String>(), "\u{fffd}\u{20ac}x\u{fffd}");
    }
}
