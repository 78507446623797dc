//! Questions about the whole history, such as the calls over time (the *timeline* that a client
//! draws) or the number of executions of each function. Threads answer them beside the session, so
//! that the user can continue to debug: each opens the recording once, and its answers come back as
//! inputs of the adapter.

use super::adapter::Adapter;
use super::here::share;
use super::hits::HitsSearch;
use super::host::OpenAsked;
use super::inbox::{Input, InputSender};
use super::protocol::{Fault, Request};
use crate::ask::{Asked, Chart, ChartQuestion, ChartSlice, FileCoverage};
use crate::common::Tid;
use crate::gdb::position_text;
use crate::session::signal_name;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The time for which the end of a session waits for the threads.
const END_PATIENCE: Duration = Duration::from_secs(2);
const POLL_PERIOD: Duration = Duration::from_millis(5);
/// The progress ID of the events that show the preparation of a recording for questions.
const PROGRESS: &str = "contraflow-questions";

/// The arguments of `contraflow/timeline`: a part of the history, by shares from 0 to 1.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TimelineArguments {
    from: Option<f64>,
    to: Option<f64>,
    /// The width of the drawing in pixels; `None` for a timeline without calls.
    width: Option<u64>,
}

/// The arguments of `contraflow/positionOf`: a thread and a number of its instruction.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PositionArguments {
    thread: i32,
    instruction: u64,
}

/// A question about the whole history.
pub(super) enum Question {
    /// The timeline with the calls. `without_calls` is the one without them, `chart` the part of
    /// the history to draw, and `total` the last position.
    Timeline { without_calls: Value, chart: ChartQuestion, total: u64 },
    /// The number of executions of each function in a source file.
    Counts(PathBuf),
    /// The position of a thread's instruction.
    Position(Tid, u64),
    /// The hits of some code.
    Hits(HitsSearch),
}

/// A question that was found in a request, or not.
pub(super) enum FoundQuestion {
    /// The request is no question for a thread.
    None,
    /// A question for a thread.
    Question(Question),
    /// The answer, which is known already.
    Answered(Value),
}

/// A question for a thread, with its request.
struct Job {
    request: Request,
    question: Question,
    is_cancelled: Arc<AtomicBool>,
}

/// A thread that answers questions. It starts with its first one.
#[derive(Default)]
struct QuestionThread {
    /// The sender of its questions; `None` before the first one.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// The threads that answer questions, and the questions without an answer.
#[derive(Default)]
pub(super) struct Questions {
    open_asked: Option<OpenAsked>,
    /// The threads for timelines and positions, for hits, and for counts: a timeline does not wait
    /// for a long search.
    threads: [QuestionThread; 3],
    /// Set when the debugging ends: the threads then end their searches.
    is_over: Arc<AtomicBool>,
    /// The requests without an answer, by number, each with its flag to cancel it.
    pending: BTreeMap<i64, (Request, Arc<AtomicBool>)>,
    /// True while the client shows the progress of opening the recording.
    shows_progress: bool,
}

impl Questions {
    /// Returns an empty set of questions. Each of their threads opens the recording by
    /// `open_asked`; `None`, as for a live program: the session answers instead.
    pub(super) fn new(open_asked: Option<OpenAsked>) -> Self {
        Self { open_asked, ..Self::default() }
    }

    /// Returns true if there is a recording to open.
    fn can_answer(&self) -> bool {
        self.open_asked.is_some()
    }

    /// Passes a question on to its thread, and starts the thread for its first one. The answer
    /// arrives at `answers`. Does nothing without a recording.
    fn ask(&mut self, request: &Request, question: Question, answers: InputSender) {
        let Some(open_asked) = &self.open_asked else { return };
        let number = match question {
            Question::Timeline { .. } | Question::Position(..) => 0,
            Question::Hits(_) => 1,
            Question::Counts(_) => 2,
        };
        let desk = &mut self.threads[number];
        let jobs = desk.jobs.get_or_insert_with(|| {
            let (jobs, received) = channel();
            let (open, is_over) = (Arc::clone(open_asked), Arc::clone(&self.is_over));
            let body = move || answer_questions(&open, &received, &answers, &is_over);
            desk.thread = Some(thread::spawn(body));
            jobs
        });
        let is_cancelled = Arc::new(AtomicBool::new(false));
        self.pending.insert(request.seq, (request.clone(), Arc::clone(&is_cancelled)));
        // If the thread has panicked, the request is answered at the end of the session.
        let _ = jobs.send(Job { request: request.clone(), question, is_cancelled });
    }

    /// Removes a question that is answered or returned. Returns true if the client cancelled it;
    /// `None` if it is not open: the request has been answered already.
    pub(super) fn remove_pending(&mut self, seq: i64) -> Option<bool> {
        let (_, is_cancelled) = self.pending.remove(&seq)?;
        Some(is_cancelled.load(Ordering::Relaxed))
    }

    /// Asks the threads to end, waits a short time for them, and returns the requests that are
    /// still open. A thread that does not end in time is left to the end of the process.
    pub(super) fn end(mut self) -> Vec<Request> {
        self.is_over.store(true, Ordering::Relaxed);
        let threads = std::mem::take(&mut self.threads).map(|desk| desk.thread);
        let end = Instant::now() + END_PATIENCE;
        for thread in threads.into_iter().flatten() {
            while !thread.is_finished() && Instant::now() < end {
                thread::sleep(POLL_PERIOD);
            }
            // A thread that still builds an index ends with this process. A panic was printed when
            // it happened.
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
        self.pending.into_values().map(|(request, _)| request).collect()
    }
}

impl Adapter<'_> {
    /// Answers a request that is a question about the whole history, or passes it on to a thread.
    /// Returns false, and does nothing, for other requests, and if there is no recording or the
    /// program runs.
    pub(super) fn begin_question(&mut self, request: &Request) -> bool {
        let is_able = |questions: &Questions| questions.can_answer();
        let is_able = self.debugged.as_ref().is_some_and(|debugged| is_able(&debugged.questions));
        if !is_able || self.current_move.is_some() {
            return false;
        }
        let question = match self.find_question(request) {
            Ok(FoundQuestion::Question(question)) => question,
            Ok(FoundQuestion::None) => return false,
            Ok(FoundQuestion::Answered(answer)) => {
                self.client.respond(request, Ok(answer));
                return true;
            }
            Err(fault) => {
                self.client.respond(request, Err(fault));
                return true;
            }
        };
        let answers = self.inbox.sender();
        if let Some(debugged) = &mut self.debugged {
            debugged.questions.ask(request, question, answers);
        }
        true
    }

    /// Returns the question in a request: none in a request for the session, such as one for a
    /// timeline without calls. For hits, the session may find the answer already.
    fn find_question(&mut self, request: &Request) -> Result<FoundQuestion, Fault> {
        Ok(FoundQuestion::Question(match request.command.as_str() {
            "contraflow/hits" => return self.begin_hits(request),
            "contraflow/timeline" => {
                let arguments: TimelineArguments = request.arguments()?;
                let Some(width) = arguments.width else { return Ok(FoundQuestion::None) };
                let without_calls = self.timeline()?;
                let total = self.ask_session(|session, _| session.run().position())?;
                let total = total.map_or(0, |position| position.total);
                let [from, to] = [arguments.from.unwrap_or(0.0), arguments.to.unwrap_or(1.0)]
                    .map(|share| position_at(share, total));
                let chart = ChartQuestion { from, to, width };
                Question::Timeline { without_calls, chart, total }
            }
            "contraflow/counts" => {
                let source = &request.arguments["source"];
                let path = source["path"].as_str().or_else(|| source.as_str());
                Question::Counts(path.ok_or_else(|| Fault::new("give `source`"))?.into())
            }
            "contraflow/positionOf" => {
                let arguments: PositionArguments = request.arguments()?;
                Question::Position(Tid(arguments.thread), arguments.instruction)
            }
            _ => return Ok(FoundQuestion::None),
        }))
    }

    /// Requests the end of the question whose request has number `seq`; its thread then answers it
    /// as cancelled. Does nothing for other requests.
    pub(super) fn cancel_question(&self, seq: &Value) {
        let asked = self.debugged.as_ref().map(|debugged| &debugged.questions.pending);
        let asked = asked.zip(seq.as_i64()).and_then(|(asked, seq)| asked.get(&seq));
        if let Some((_, is_cancelled)) = asked {
            is_cancelled.store(true, Ordering::Relaxed);
        }
    }

    /// Reports the progress of opening the recording for questions, if the client shows progress:
    /// the first call its beginning, at 0%; each later one the percentage, also an unchanged one;
    /// and one with `done >= total` its end, if its beginning was reported. The sender limits how
    /// often.
    pub(super) fn show_preparation(&mut self, done: u64, total: u64) {
        let Some(debugged) = self.debugged.as_mut() else { return };
        if !self.features.supports_progress_reporting {
            return;
        }
        let shows = &mut debugged.questions.shows_progress;
        if done < total && !std::mem::replace(shows, true) {
            let title = "Preparing the calls of the recording";
            let body = json!({"progressId": PROGRESS, "title": title, "percentage": 0});
            self.client.event("progressStart", body);
        } else if done < total {
            let percentage = (100.0 * share(done, total)).round();
            let body = json!({"progressId": PROGRESS, "percentage": percentage});
            self.client.event("progressUpdate", body);
        } else if std::mem::take(shows) {
            self.client.event("progressEnd", json!({"progressId": PROGRESS}));
        }
    }
}

/// Returns the position at a share of the history, from 0 (its beginning) to 1 (its end).
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a drawing needs no more, and the share is in range"
)]
fn position_at(share: f64, total: u64) -> u64 {
    (share.clamp(0.0, 1.0) * total as f64) as u64
}

/// Opens the recording, and answers questions until the sender of `jobs` or the receiver of
/// `answers` is gone. Sends those for hits that only the session can answer back. The body of a
/// thread.
fn answer_questions(
    open: &OpenAsked,
    jobs: &Receiver<Job>,
    answers: &InputSender,
    is_over: &Arc<AtomicBool>,
) {
    let mut percent = None;
    let mut goes_on = |done: u64, total: u64| {
        let now = done.saturating_mul(100).checked_div(total);
        if now != percent && done < total {
            percent = now;
            // If the receiver is gone, the session is over.
            let _ = answers.send(Input::PreparationProgress(done, total));
        }
        !is_over.load(Ordering::Relaxed)
    };
    let opened = open(&mut goes_on);
    let _ = answers.send(Input::PreparationProgress(1, 1));
    let mut answerer = opened.map(|asked| Answerer { asked, counts: None });
    for Job { request, question, is_cancelled } in jobs {
        let is_cancelled =
            || is_cancelled.load(Ordering::Relaxed) || is_over.load(Ordering::Relaxed);
        let answer = match (&mut answerer, question) {
            _ if is_cancelled() => Err(Fault::cancelled()),
            (Ok(answerer), Question::Hits(mut hits)) => {
                let Some(answer) =
                    hits.search_recording(&mut answerer.asked, answers, &is_cancelled)
                else {
                    let arguments = hits.remaining_arguments(&request.arguments);
                    let _ = answers.send(Input::ReturnedRequest(Request { arguments, ..request }));
                    continue;
                };
                answer
            }
            (Ok(answerer), question) => answerer.answer(question, &is_cancelled),
            (Err(why), _) => Err(Fault::new(why.clone())),
        };
        if answers.send(Input::Answer(request, answer)).is_err() {
            return;
        }
    }
}

/// An open recording, and the counts of its lines and functions once they are needed.
struct Answerer {
    asked: Asked,
    counts: Option<BTreeMap<Arc<str>, FileCoverage>>,
}

impl Answerer {
    /// Returns the answer to a question other than one for hits.
    fn answer(
        &mut self,
        question: Question,
        is_cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<Value, Fault> {
        match question {
            Question::Timeline { without_calls, chart, total } => {
                let drawn = self.asked.chart(chart, is_cancelled).ok_or_else(Fault::cancelled)?;
                Ok(add_calls(without_calls, &drawn, chart, total))
            }
            Question::Counts(path) => self.counts_of(&path, is_cancelled),
            Question::Hits(_) => Err(Fault::new("hits are searched elsewhere")),
            Question::Position(tid, instruction) => {
                let position = self.asked.position_of_instruction(tid, instruction);
                let none = || Fault::new(format!("thread {tid} has no instruction {instruction}"));
                let position = position.ok_or_else(none)?;
                Ok(json!({"position": position_text(position, self.asked.is_exact())}))
            }
        }
    }

    /// Returns how often each function of a source file was executed, by line; none for an unknown
    /// file. Counts the whole run at the first call, which may take long. Fails if it is cancelled.
    fn counts_of(
        &mut self,
        path: &Path,
        is_cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<Value, Fault> {
        let counts = if let Some(counts) = self.counts.take() {
            counts
        } else {
            let counted = self.asked.coverage(is_cancelled);
            let counted = counted.map_err(|error| Fault::new(error.to_string()))?;
            counted.ok_or_else(Fault::cancelled)?
        };
        let mut by_line: BTreeMap<u32, (String, u64)> = BTreeMap::new();
        let real = fs::canonicalize(path).ok();
        for (file, counted) in &counts {
            let file = Path::new(&**file);
            let is_same = || real.is_some() && fs::canonicalize(file).ok() == real;
            if file != path && !(file.file_name() == path.file_name() && is_same()) {
                continue;
            }
            // Instances of a template or of generic code have the same line: their counts are
            // added.
            for (name, (line, count)) in &counted.functions {
                let entry = by_line.entry(*line).or_insert_with(|| (name.clone(), 0));
                entry.1 += count;
            }
        }
        self.counts = Some(counts);
        let function = |(line, (name, count)): (&u32, &(String, u64))| json!({"line": line, "name": name, "count": count});
        Ok(json!({"functions": by_line.iter().map(function).collect::<Vec<_>>()}))
    }
}

/// Adds the threads with their calls, and the signals, to the JSON of a timeline.
fn add_calls(
    mut without_calls: Value,
    drawn: &Chart,
    question: ChartQuestion,
    total: u64,
) -> Value {
    let shares = |from, to| [share(from, total).min(1.0), share(to, total).min(1.0)];
    let slice = |slice: &ChartSlice| {
        let [from, to] = shares(slice.from, slice.to);
        json!([slice.level, from, to, slice.name, slice.instruction, u8::from(slice.is_signal)])
    };
    let thread = |thread: &crate::ask::ChartThread| {
        let [from, to] = shares(thread.from, thread.to);
        json!({
            "id": thread.tid.0,
            "name": thread.name,
            "from": from,
            "to": to,
            "busy": thread.busy.iter().map(|(from, to)| shares(*from, *to)).collect::<Vec<_>>(),
            "slices": thread.slices.iter().map(slice).collect::<Vec<_>>(),
            "isDeeper": thread.has_deeper_calls,
        })
    };
    let signal = |(at, tid, number): &(u64, Tid, i32)| {
        let name = signal_name(*number).map_or_else(|| number.to_string(), Into::into);
        json!({"share": share(*at, total).min(1.0), "thread": tid.0, "name": name})
    };
    without_calls["threads"] = drawn.threads.iter().map(thread).collect();
    without_calls["signals"] = drawn.signals.iter().map(signal).collect();
    without_calls["names"] = json!(drawn.names);
    without_calls["from"] = share(question.from, total).into();
    without_calls["to"] = share(question.to, total).into();
    without_calls
}
