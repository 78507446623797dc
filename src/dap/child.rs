//! The child gdb: sends it commands, each with a token that its result repeats.

use super::mi;
use super::protocol::Fault;
use std::io::Write;
use std::process::{Child, ChildStdin};
use std::thread;
use std::time::{Duration, Instant};

/// The time after which a gdb that does not end is killed.
const END_PATIENCE: Duration = Duration::from_secs(3);
const POLL_PERIOD: Duration = Duration::from_millis(5);

/// A running gdb with its machine interface.
pub(super) struct Gdb {
    child: Child,
    input: ChildStdin,
    /// The token of the last command.
    token: u64,
}

impl Gdb {
    pub(super) fn new(child: Child, input: ChildStdin) -> Self {
        Self { child, input, token: 0 }
    }

    /// Returns gdb's process ID.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command of the machine interface, without waiting for its result. Returns its token,
    /// which the result repeats. Fails if gdb has ended.
    pub(super) fn send(&mut self, command: &str) -> Result<u64, Fault> {
        self.token += 1;
        let sent =
            writeln!(self.input, "{}{command}", self.token).and_then(|()| self.input.flush());
        sent.map_err(|error| Fault::new(format!("gdb has ended: {error}")))?;
        Ok(self.token)
    }

    /// Asks gdb to exit, and waits until its process has ended. Kills it after [`END_PATIENCE`].
    pub(super) fn end(mut self) {
        let _ = self.send("-gdb-exit");
        drop(self.input);
        let deadline = Instant::now() + END_PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(POLL_PERIOD);
        }
        // gdb has ended already, or does not answer.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the command of gdb's machine interface that executes a command of its command line.
pub(super) fn console_command(command: &str) -> String {
    format!("-interpreter-exec console {}", mi::quoted(command))
}
