//! Requests that the protocol does not have, under `contraflow/`: the current place in the history,
//! marks, writers of memory. Also those of the protocol that go to another place: `gotoTargets` and
//! `goto`.

use super::adapter::Adapter;
use super::here::{CurrentPlace, share};
use super::protocol::{Fault, Request};
use crate::gdb::position_text;
use crate::session::AnySession;
use serde::Deserialize;
use serde_json::{Value, json};

const NO_WHOLE_HISTORY: &str =
    "only a recording can be asked for its whole history: end the live program, and record it";
const WRITERS_LIMIT: u64 = 100;

/// The targets of `goto` requests, by their IDs: path, line, and true to search backwards.
#[derive(Clone, Debug, Default)]
pub(super) struct GotoTargets {
    places: Vec<(String, i64, bool)>,
}

/// The arguments of `contraflow/writers` (docs/ide.md, "Requests of our own").
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WritersArguments {
    memory_reference: Option<String>,
    bytes: Option<u64>,
    expression: Option<String>,
    frame_id: Option<i64>,
    from: Option<String>,
    limit: Option<u64>,
}

impl Adapter<'_> {
    /// Answers request `contraflow/NAME`, by the session or by our Python module in gdb. Questions
    /// that threads answer for a recording (`begin_question`) arrive here only if no thread can
    /// answer them.
    pub(super) fn answer_ours(&mut self, name: &str, request: &Request) -> Result<Value, Fault> {
        match name {
            "when" => Ok(self.here()?.json()),
            // The hits are sent as they are found, so the client needs no other progress.
            "hits" if !request.arguments["token"].is_null() => self.hits(request),
            "hits" => self.with_progress(request, "Searching the recording", Self::hits),
            "writers" => self.with_progress(request, "Searching for writers", Self::writers),
            "function" => self.ask_module("function", request.arguments.clone()),
            "marks" => self.ask_session(|session, _| marks(session)),
            "mark" | "unmark" => self.mark(name, request),
            "timeline" => self.timeline(),
            "gaps" => self.ask_session(|session, _| gaps(session)),
            // Only a thread answers these, and a live program has none.
            "counts" | "positionOf" => Err(Fault::new(NO_WHOLE_HISTORY)),
            _ => Err(Fault::new(format!("there is no request contraflow/{name}"))),
        }
    }

    /// Calls `answer` for a request that may take long, between the events for the beginning and
    /// the end of its progress. The client may cancel it. Sends no events to a client that shows no
    /// progress.
    fn with_progress(
        &mut self,
        request: &Request,
        title: &str,
        answer: impl FnOnce(&mut Self, &Request) -> Result<Value, Fault>,
    ) -> Result<Value, Fault> {
        if !self.features.supports_progress_reporting {
            return answer(self, request);
        }
        let id = format!("contraflow-{}", request.seq);
        let start = json!({
            "progressId": id, "title": title, "requestId": request.seq, "cancellable": true,
        });
        self.client.event("progressStart", start);
        let answered = answer(self, request);
        self.client.event("progressEnd", json!({"progressId": id}));
        answered
    }

    /// Returns the JSON of a timeline without calls: current place, threads, gaps, marks.
    pub(super) fn timeline(&mut self) -> Result<Value, Fault> {
        self.ask_session(|session, _| timeline(session))
    }

    /// Sets the mark with a name to the current position (`mark`), or removes that mark (`unmark`).
    /// Returns the sentence that says so.
    fn mark(&mut self, command: &str, request: &Request) -> Result<Value, Fault> {
        let name = request.arguments["name"].as_str().unwrap_or_default();
        let text = self.ask_module("mark", json!({"command": command, "name": name}))?;
        Ok(json!({"text": text["text"]}))
    }

    /// Searches backwards for the last writes to memory before the current position or `from`, and
    /// returns to the position. By default, searches for one write to 8 bytes. Fails without an
    /// address and an expression.
    fn writers(&mut self, request: &Request) -> Result<Value, Fault> {
        let arguments: WritersArguments = request.arguments()?;
        let (address, expression) = (arguments.memory_reference, arguments.expression);
        if address.is_none() && expression.is_none() {
            let why = "give `memoryReference`, the address of the value, or `expression`";
            return Err(Fault::new(why));
        }
        let size = arguments.bytes.unwrap_or(8);
        let limit = arguments.limit.unwrap_or(1).clamp(1, WRITERS_LIMIT);
        let asked = json!({
            "address": address, "size": size, "expression": expression, "limit": limit,
            "frameId": arguments.frame_id, "start": arguments.from,
        });
        self.ask_module("writers", asked)
    }

    /// Returns two targets for a line, the last and the next time that it runs, and stores them
    /// under new IDs. Each is searched for when the client goes there.
    pub(super) fn find_goto_targets(&mut self, request: &Request) -> Result<Value, Fault> {
        let path = request.arguments["source"]["path"].as_str();
        let (Some(path), Some(line)) = (path, request.arguments["line"].as_i64()) else {
            return Err(Fault::new("give a source and a line"));
        };
        let first = self.goto_targets.places.len();
        let target = |id, label: String| json!({"id": id, "label": label, "line": line});
        self.goto_targets.places.push((path.to_owned(), line, true));
        self.goto_targets.places.push((path.to_owned(), line, false));
        let targets = [
            target(first, format!("the last time that line {line} ran")),
            target(first + 1, format!("the next time that line {line} runs")),
        ];
        Ok(json!({"targets": targets}))
    }

    /// Moves to a target that [`Self::find_goto_targets`] returned.
    pub(super) fn go_to_target(&mut self, request: &Request) -> Result<Value, Fault> {
        let id = request.arguments["targetId"].as_u64().and_then(|id| usize::try_from(id).ok());
        let target = id.and_then(|id| self.goto_targets.places.get(id)).cloned();
        let Some((path, line, back)) = target else {
            return Err(Fault::new("there is no such target: ask for targets first"));
        };
        self.move_by_module("go", json!({"path": path, "line": line, "back": back}))
    }
}

/// Returns the marks: name, position and share of the history.
fn marks(session: &mut dyn AnySession) -> Value {
    let is_exact = session.run().is_exact();
    let total = session.run().position().map_or(0, |position| position.total);
    let mark = |(name, at): (&String, &u64)| json!({"name": name, "position": position_text(*at, is_exact), "share": share(*at, total)});
    json!({"marks": session.marks().iter().map(mark).collect::<Vec<_>>()})
}

/// Returns the current place, the threads, the gaps and the marks, placed by shares of the history.
/// Only a recorded path has the beginnings and ends of threads; a replay has the threads that exist
/// at its position.
fn timeline(session: &mut dyn AnySession) -> Value {
    let here = CurrentPlace::of(session).json();
    let marks = marks(session)["marks"].clone();
    let gaps = gaps(session)["gaps"].take();
    let run = session.run();
    let total = run.position().map_or(0, |position| position.total);
    let recorded = run.path_history();
    let threads = recorded.map_or_else(|| run.threads(), crate::session::History::threads);
    let thread = |thread: &crate::session::ThreadInfo| {
        let mut shown = json!({"id": thread.tid.0, "name": thread.name});
        if recorded.is_some() {
            shown["from"] = share(thread.first, total).into();
            shown["to"] = share(thread.ended.unwrap_or(total), total).into();
        }
        shown
    };
    json!({
        "here": here,
        "threads": threads.iter().map(thread).collect::<Vec<_>>(),
        "gaps": gaps,
        "marks": marks,
    })
}

/// Returns the gaps of the path: position, thread and reason.
fn gaps(session: &mut dyn AnySession) -> Value {
    let run = session.run();
    let is_exact = run.is_exact();
    let total = run.position().map_or(0, |position| position.total);
    let gap = |gap: &crate::session::GapInfo| {
        json!({
            "position": position_text(gap.position, is_exact),
            "share": share(gap.position, total),
            "thread": gap.tid.0,
            "reason": gap.reason,
        })
    };
    json!({"gaps": run.gaps().iter().map(gap).collect::<Vec<_>>()})
}
