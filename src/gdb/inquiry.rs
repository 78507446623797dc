//! Questions to a session from other threads of the process that serves it. The thread of the
//! server answers them between two packets of gdb. A question must leave the session where it found
//! it, since gdb does not learn of it.

use crate::session::AnySession;
use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};

/// The maximum number of items, reads of bytes or questions, that wait for the server.
pub(super) const WAITING_ITEMS: usize = 16;

/// A question: it is executed in the thread of the server.
pub(super) type Question = Box<dyn FnOnce(&mut dyn AnySession) + Send>;

/// A thing that a server with an [`Inquirer`] waits for.
pub(super) enum Item {
    /// Bytes that the client sent; empty at the end of its connection.
    Bytes(io::Result<Vec<u8>>),
    /// A question of another thread.
    Question(Question),
}

/// A handle by which other threads ask the served session questions.
#[derive(Clone, Debug)]
pub struct Inquirer {
    items: SyncSender<Item>,
}

/// The server's end of an [`Inquirer`].
#[derive(Debug)]
pub struct Inquiries {
    sender: SyncSender<Item>,
    items: Receiver<Item>,
}

impl Inquiries {
    /// Adds the client's streams to the server's end.
    pub fn with(self, input: File, output: File) -> Inquired {
        Inquired { input, output, sender: self.sender, items: self.items }
    }
}

/// The streams of a client, and the questions of other threads to the thread that serves it.
#[derive(Debug)]
pub struct Inquired {
    pub(super) input: File,
    pub(super) output: File,
    pub(super) sender: SyncSender<Item>,
    pub(super) items: Receiver<Item>,
}

impl Inquirer {
    /// Returns a handle, and the server's end, to pass to [`Listener::Inquired`] with the client's
    /// streams.
    ///
    /// [`Listener::Inquired`]: super::Listener::Inquired
    pub fn new() -> (Self, Inquiries) {
        let (sender, items) = sync_channel(WAITING_ITEMS);
        (Self { items: sender.clone() }, Inquiries { sender, items })
    }

    /// Asks the session, and waits for the answer. Returns `None` if the server has ended. While
    /// the program runs, the caller waits for the program's stop. The server's thread must not call
    /// this: it would wait for itself.
    pub fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut dyn AnySession) -> T + Send + 'static,
    ) -> Option<T> {
        self.ask_later(question).recv().ok()
    }

    /// Asks the session, and returns the channel on which the answer arrives. No answer arrives,
    /// and the channel is closed, if the server has ended. Waits first while 16 reads or
    /// questions wait already.
    pub fn ask_later<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut dyn AnySession) -> T + Send + 'static,
    ) -> Receiver<T> {
        let (sender, answer) = channel();
        // A caller that is gone needs no answer.
        let question = move |session: &mut dyn AnySession| drop(sender.send(question(session)));
        // If the server has ended, the sender is dropped with the question.
        let _ = self.items.send(Item::Question(Box::new(question)));
        answer
    }
}
