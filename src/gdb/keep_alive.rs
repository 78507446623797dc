//! Keeps gdb waiting for a slow reply, as for a process with many threads: gdb gives up if no byte
//! arrives for two seconds (`set remotetimeout`). An unrequested acknowledgement is a byte without
//! effect.

use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The time between two bytes that keep gdb waiting.
pub(super) const PERIOD: Duration = Duration::from_secs(1);

/// A guard with a thread that sends acknowledgements to gdb until the guard is dropped.
#[derive(Debug)]
pub(super) struct KeepAlive {
    /// Dropped to end the thread.
    end: Option<Sender<()>>,
    /// `None` once it was waited for, and if it could not be started.
    thread: Option<JoinHandle<()>>,
}

impl KeepAlive {
    /// Starts a thread that sends one byte to `client` in each `period`, until the guard is
    /// dropped. The first one is sent after one period. Sends none if the user may have no more
    /// threads: gdb may give up then.
    pub(super) fn start(mut client: Box<dyn Write + Send>, period: Duration) -> Self {
        let (end, ended) = channel();
        let thread = thread::Builder::new().spawn(move || {
            while ended.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                if client.write_all(b"+").and_then(|()| client.flush()).is_err() {
                    break;
                }
            }
        });
        Self { end: Some(end), thread: thread.ok() }
    }
}

impl Drop for KeepAlive {
    /// Stops the thread, after which no byte is sent.
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked sends nothing either.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::mpsc::Sender;

    struct Bytes(Sender<u8>);

    impl Write for Bytes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            for byte in bytes {
                self.0.send(*byte).unwrap();
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn bytes_come_until_the_reply_does() {
        let (sender, bytes) = channel();
        let keep_alive = KeepAlive::start(Box::new(Bytes(sender)), Duration::from_millis(1));
        assert_eq!((bytes.recv(), bytes.recv()), (Ok(b'+'), Ok(b'+')));
        drop(keep_alive);
        assert!(bytes.iter().all(|byte| byte == b'+'), "and the sender is gone");
    }
}
