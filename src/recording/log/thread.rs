//! Writes a log on another thread, so that the program does not wait while entries are encoded and
//! compressed.

use super::super::error::Error;
use super::sink::LogSink;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

/// The maximum number of batches that wait for the thread. The caller waits where there are more.
const WAITING: usize = 4;

/// Entries for a log, in order.
pub(super) enum PendingEntries {
    /// Encoded entries.
    Encoded(Vec<u8>),
    /// Entries that are made where they are written.
    Made(Box<dyn FnOnce(&mut LogSink) + Send>),
}

impl fmt::Debug for PendingEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encoded(bytes) => write!(f, "{} encoded bytes", bytes.len()),
            Self::Made(_) => f.write_str("entries to be made"),
        }
    }
}

impl PendingEntries {
    /// Writes these entries to a sink.
    pub(super) fn write(self, to: &mut LogSink) {
        match self {
            Self::Encoded(bytes) => to.encoded(&bytes),
            Self::Made(make) => make(to),
        }
    }
}

/// An order to the thread.
enum LogOrder {
    Write(Vec<PendingEntries>),
    /// Write out everything, and send the size of the file in bytes.
    Flush(SyncSender<Result<u64, Error>>),
}

/// A thread that writes a log. If it panics, the next call of a method panics as well.
#[derive(Debug)]
pub(super) struct LogThread {
    /// `None` once the thread is to end.
    orders: Option<SyncSender<LogOrder>>,
    /// The thread, which returns its sink; `None` once it is joined.
    thread: Option<JoinHandle<Option<Box<LogSink>>>>,
    /// True once a write has failed.
    has_failed: Arc<AtomicBool>,
}

impl LogThread {
    /// Starts the thread, which calls `move_to_cpu` first, and after each flush. If it cannot be
    /// started, since the user has as many threads as are allowed, returns the sink as the error.
    pub(super) fn start(
        sink: Box<LogSink>,
        move_to_cpu: impl Fn() + Send + 'static,
    ) -> Result<Self, Box<LogSink>> {
        let (orders, received) = sync_channel(WAITING);
        // The thread gets the sink from here: one that does not start would lose it.
        let (give, given) = sync_channel(1);
        let has_failed = Arc::new(AtomicBool::new(false));
        let failed = Arc::clone(&has_failed);
        let run = move || {
            move_to_cpu();
            let mut sink: Box<LogSink> = given.recv().ok()?;
            write_all(&mut sink, &received, &failed, &move_to_cpu);
            Some(sink)
        };
        let Ok(thread) = Builder::new().name("log".to_owned()).spawn(run) else { return Err(sink) };
        match give.send(sink) {
            Ok(()) => Ok(Self { orders: Some(orders), thread: Some(thread), has_failed }),
            Err(error) => Err(error.0),
        }
    }

    /// Returns true if a write has failed, as far as is known yet: nothing is written after that.
    /// The next [`Self::flush`] returns the error.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Hands over entries to write. Waits if [`WAITING`] batches are waiting already.
    pub(super) fn write(&mut self, parts: Vec<PendingEntries>) {
        self.send(LogOrder::Write(parts));
    }

    /// Waits until everything is written. Returns the size of the file in bytes, or the first error
    /// of all writes, once: later calls succeed, but nothing is written any more.
    pub(super) fn flush(&mut self) -> Result<u64, Error> {
        let (reply, size) = sync_channel(1);
        self.send(LogOrder::Flush(reply));
        size.recv().unwrap_or_else(|_| self.report_panic())
    }

    /// Waits until all orders are executed, and ends the thread. Returns its sink, with the error
    /// of a write that no flush has returned; `None` if the thread never got the sink.
    pub(super) fn end(mut self) -> Option<Box<LogSink>> {
        self.orders = None;
        let thread = self.thread.take()?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Hands an order to the thread. Waits if [`WAITING`] orders are waiting already. Panics if the
    /// thread has panicked.
    fn send(&mut self, order: LogOrder) {
        let is_received = self.orders.as_ref().is_some_and(|orders| orders.send(order).is_ok());
        if !is_received {
            self.report_panic();
        }
    }

    /// Panics as the thread did: it ends in no other way while this is alive.
    fn report_panic(&mut self) -> ! {
        self.orders = None;
        let joined = self.thread.take().map(JoinHandle::join);
        match joined {
            Some(Err(panic)) => resume_unwind(panic),
            _ => unreachable!("the thread of a log ends after its orders"),
        }
    }
}

impl Drop for LogThread {
    fn drop(&mut self) {
        self.orders = None;
        // Callers that need the log have flushed it before.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Executes orders until the sender is dropped. Calls `move_to_cpu` after each flush. Goes on after
/// an error, which the next flush sends; the sink drops the entries after it.
fn write_all(
    sink: &mut LogSink,
    orders: &Receiver<LogOrder>,
    has_failed: &AtomicBool,
    move_to_cpu: &dyn Fn(),
) {
    for order in orders {
        match order {
            LogOrder::Write(parts) => {
                for part in parts {
                    part.write(sink);
                }
                has_failed.store(sink.has_failed(), Ordering::Relaxed);
            }
            LogOrder::Flush(reply) => {
                // If nothing waits for the reply, nothing needs it.
                let _ = reply.send(sink.flush());
                move_to_cpu();
            }
        }
    }
}
