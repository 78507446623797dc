//! Runs a program and reads its output, for a limited time.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// The maximum time to wait for a program; a debugger takes a fraction of it to start.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The pause between two checks whether the program has ended.
const POLL: Duration = Duration::from_millis(5);
/// The maximum number of bytes that are read of each stream.
const OUTPUT_LIMIT_BYTES: u64 = 1 << 20;

/// Runs a program without input, waits for its end, and returns its output, first stdout, then
/// stderr; `None` if it cannot be run, or does not end within [`TIMEOUT`]: it is killed then. Of
/// each stream, at most [`OUTPUT_LIMIT_BYTES`] are returned, and none if a process that the program
/// left running keeps it open until the timeout.
pub(super) fn output(program: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).env_remove("DEBUGINFOD_URLS").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let streams: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|stream| Box::new(stream) as _),
        child.stderr.take().map(|stream| Box::new(stream) as _),
    ];
    let readers = streams.map(|stream| {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // A partial output counts. The receiver may already be gone.
            let _ = stream.map(|stream| stream.take(OUTPUT_LIMIT_BYTES).read_to_end(&mut bytes));
            let _ = sender.send(bytes);
        });
        receiver
    });
    let until = Instant::now() + TIMEOUT;
    while let Ok(None) = child.try_wait() {
        if Instant::now() > until {
            // The child is ours, and its output is no longer needed.
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(POLL);
    }
    // A process that the child left running may still have its streams open.
    let left = || until.saturating_duration_since(Instant::now());
    let bytes = readers.map(|reader| reader.recv_timeout(left()).unwrap_or_default()).concat();
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
