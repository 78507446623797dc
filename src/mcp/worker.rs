//! The thread that owns the opened recording: a traced process belongs to a thread. Requests are
//! answered one after the other.

use super::answer::Answer;
use super::host::Host;
use super::open_recording::OpenRecording;
use super::tools::Request;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use tokio::sync::oneshot;

/// A request, and the sender of its answer.
pub(super) struct Job {
    pub(super) request: Request,
    /// Returns true if the client has cancelled the request or has left.
    pub(super) is_cancelled: Box<dyn Fn() -> bool + Send>,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// Starts the thread of the recording, and returns a sender of jobs for it. The thread ends when no
/// sender is left.
pub(super) fn start(
    host: impl Host + Send + 'static,
) -> std::io::Result<(Sender<Job>, JoinHandle<()>)> {
    let (sender, jobs) = channel();
    let thread =
        thread::Builder::new().name("recording".into()).spawn(move || work(&host, &jobs))?;
    Ok((sender, thread))
}

/// Answers jobs one after the other, until no sender is left. A panic closes the recording, and the
/// answer is an error.
fn work(host: &dyn Host, jobs: &Receiver<Job>) {
    let mut recording: Option<OpenRecording> = None;
    for Job { request, is_cancelled, answer } in jobs {
        let one = || answer_one(host, &mut recording, request, &*is_cancelled);
        let result = catch_unwind(AssertUnwindSafe(one)).unwrap_or_else(|_| {
            recording = None;
            Err("contraflow failed there, which is a bug; open the recording again".to_owned())
        });
        // A client that has left takes no answer.
        let _ = answer.send(result);
    }
}

/// Answers one request. `open` closes the previous recording, even if it then fails. The answer to
/// any other request is an error if the request was cancelled.
fn answer_one(
    host: &dyn Host,
    recording: &mut Option<OpenRecording>,
    request: Request,
    interrupted: &dyn Fn() -> bool,
) -> Answer {
    if let Request::Open(open) = request {
        // The processes of the previous recording end before others begin.
        *recording = None;
        let opened = recording.insert(OpenRecording::open(host, &open)?);
        return Ok(opened.here_and_run());
    }
    let recording = recording.as_mut().ok_or("no recording is open: call `open` first")?;
    let result = recording.answer(host, request, interrupted);
    if interrupted() { Err("cancelled".to_owned()) } else { result }
}
