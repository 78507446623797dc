//! Requests of our own, under `contraflow/`: the place in the history, hits of code over the whole
//! run, marks, writers of memory.

use super::adapter::Adapter;
use super::here::{Here, share};
use super::protocol::{Fault, Request};
use crate::common::Addr;
use crate::gdb::position_text;
use crate::session::{AnySession, Direction, Execution, Found, Search};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The default number of hits.
const HITS: usize = 100;
const HITS_LIMIT: usize = 100_000;
/// The most hits at which values are read.
const VISITS_LIMIT: usize = 1000;
/// The hits that gdb visits in one request.
const VISITS_A_REQUEST: usize = 20;
const WRITERS_LIMIT: u64 = 100;

/// Places to which `goto` may go: a line, and true if it is sought backwards.
#[derive(Clone, Debug, Default)]
pub(super) struct Targets {
    places: Vec<(String, i64, bool)>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HitsArguments {
    source: Value,
    line: Option<i64>,
    function: Option<String>,
    address: Option<String>,
    limit: Option<usize>,
    values: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WritersArguments {
    memory_reference: Option<String>,
    bytes: Option<u64>,
    limit: Option<u64>,
}

/// The hits that a search found, newest first.
struct Hits {
    found: Vec<Value>,
    has_more: bool,
    is_interrupted: bool,
}

impl Adapter<'_> {
    pub(super) fn answer_ours(&mut self, name: &str, request: &Request) -> Result<Value, Fault> {
        match name {
            "when" => Ok(self.here()?.json()),
            "hits" => self.with_progress(request, "Searching the recording", Self::hits),
            "writers" => self.with_progress(request, "Searching for writers", Self::writers),
            "function" => self.look("function", request.arguments.clone()),
            "marks" => self.ask(|session, _| marks(session)),
            "mark" | "unmark" => self.mark(name, request),
            "timeline" => self.ask(|session, _| timeline(session)),
            _ => Err(Fault::new(format!("there is no request contraflow/{name}"))),
        }
    }

    /// Answers a request that may take long, which the client may show and cancel.
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

    fn mark(&mut self, command: &str, request: &Request) -> Result<Value, Fault> {
        let name = request.arguments["name"].as_str().unwrap_or_default();
        let text = self.look("mark", json!({"command": command, "name": name}))?;
        Ok(json!({"text": text["text"]}))
    }

    /// Returns the last executions of a line, a function or an instruction, and the values of
    /// expressions there.
    fn hits(&mut self, request: &Request) -> Result<Value, Fault> {
        let arguments: HitsArguments = request.arguments()?;
        let path = arguments.source["path"].as_str().or_else(|| arguments.source.as_str());
        let what = match (path, arguments.line, &arguments.function, &arguments.address) {
            (Some(path), Some(line), ..) => format!("{path}:{line}"),
            (.., Some(function), _) => function.clone(),
            (.., Some(address)) => format!("*{address}"),
            _ => return Err(Fault::new("give `source` and `line`, `function` or `address`")),
        };
        let limit = arguments.limit.unwrap_or(HITS).clamp(1, HITS_LIMIT);
        let hits =
            self.ask(move |session, interrupted| hits_of(session, &what, limit, interrupted))?;
        let hits = hits?;
        if hits.is_interrupted {
            return Err(Fault::cancelled());
        }
        let mut found = hits.found;
        if !arguments.values.is_empty() {
            self.add_values(&mut found, &arguments.values)?;
        }
        let total = (!hits.has_more).then_some(found.len());
        Ok(json!({"total": total, "hasMore": hits.has_more, "hits": found}))
    }

    /// Visits hits to read values there, and comes back.
    fn add_values(&mut self, hits: &mut [Value], expressions: &[String]) -> Result<(), Fault> {
        let count = hits.len().min(VISITS_LIMIT);
        for hits in hits[..count].chunks_mut(VISITS_A_REQUEST) {
            let positions: Vec<Value> = hits.iter().map(|hit| hit["position"].clone()).collect();
            let arguments = json!({"positions": positions, "expressions": expressions});
            let answer = self.look("visit", arguments)?;
            for (hit, values) in
                hits.iter_mut().zip(answer["values"].as_array().into_iter().flatten())
            {
                hit["values"] = values.clone();
            }
        }
        Ok(())
    }

    /// Returns the last writes to memory before here, and comes back.
    fn writers(&mut self, request: &Request) -> Result<Value, Fault> {
        let arguments: WritersArguments = request.arguments()?;
        let Some(address) = arguments.memory_reference else {
            return Err(Fault::new("give `memoryReference`, the address of the value"));
        };
        let size = arguments.bytes.unwrap_or(8);
        let limit = arguments.limit.unwrap_or(1).clamp(1, WRITERS_LIMIT);
        self.look("writers", json!({"address": address, "size": size, "limit": limit}))
    }

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

    pub(super) fn go_to_target(&mut self, request: &Request) -> Result<Value, Fault> {
        let id = request.arguments["targetId"].as_u64().and_then(|id| usize::try_from(id).ok());
        let target = id.and_then(|id| self.goto_targets.places.get(id)).cloned();
        let Some((path, line, back)) = target else {
            return Err(Fault::new("there is no such target: ask for targets first"));
        };
        self.moved_by("go", json!({"path": path, "line": line, "back": back}))
    }
}

fn hits_of(
    session: &mut dyn AnySession,
    what: &str,
    limit: usize,
    interrupted: &dyn Fn() -> bool,
) -> Result<Hits, Fault> {
    let run = session.run();
    let is_exact = run.is_exact();
    let addrs: BTreeSet<Addr> = match run.recorded() {
        Some(history) if !is_exact => history.code_of(what).into_iter().collect(),
        _ => run.code_of(what).into_iter().collect(),
    };
    if addrs.is_empty() {
        return Err(Fault::new(format!("there is no code of {what}")));
    }
    if is_exact {
        let found = session.run_mut().executions(&addrs, limit, interrupted);
        let found = found.map_err(|error| Fault::new(error.to_string()))?;
        let run = session.run();
        let total = run.position().map_or(0, |position| position.total);
        let hit = |execution: &Execution| {
            let caller =
                execution.returns_to.and_then(|next| run.place(Addr(next.0.wrapping_sub(1))));
            let mut hit = json!({
                "position": position_text(execution.at, true),
                "share": share(execution.at, total),
                "thread": execution.tid.0,
                "address": execution.pc.to_string(),
                "place": run.place(execution.pc).map(|place| place.to_string()),
            });
            if let Some(caller) = caller {
                hit["calledAt"] = caller.to_string().into();
            }
            hit
        };
        return Ok(Hits {
            found: found.found.iter().map(hit).collect(),
            has_more: found.has_more,
            is_interrupted: found.is_interrupted,
        });
    }
    let Some(history) = run.recorded() else {
        return Err(Fault::new("there is no history yet"));
    };
    let mut hits = Hits { found: Vec::new(), has_more: false, is_interrupted: false };
    let mut from = history.total();
    loop {
        let direction = Direction::Backward;
        let search = Search { from, until: 0, direction, only: None, addrs: &addrs };
        match history.find(&search, interrupted) {
            Found::At(_) if hits.found.len() == limit => hits.has_more = true,
            Found::At(at) => {
                from = at;
                let thread = history.running_at(at);
                let pc = thread.and_then(|tid| history.pc(tid, at));
                hits.found.push(json!({
                    "position": at.to_string(),
                    "share": share(at, history.total()),
                    "thread": thread.map(|tid| tid.0),
                    "timeNs": history.time_ns(at),
                    "address": pc.map(|pc| pc.to_string()),
                    "place": pc.and_then(|pc| history.place(pc)).map(|place| place.to_string()),
                }));
                continue;
            }
            Found::Interrupted(_) => hits.is_interrupted = true,
            Found::Nothing => {}
        }
        return Ok(hits);
    }
}

fn marks(session: &mut dyn AnySession) -> Value {
    let is_exact = session.run().is_exact();
    let total = session.run().position().map_or(0, |position| position.total);
    let mark = |(name, at): (&String, &u64)| json!({"name": name, "position": position_text(*at, is_exact), "share": share(*at, total)});
    json!({"marks": session.marks().iter().map(mark).collect::<Vec<_>>()})
}

/// Returns the threads with their lives, the gaps and the marks, as shares of the history.
fn timeline(session: &mut dyn AnySession) -> Value {
    let here = Here::of(session).json();
    let marks = marks(session)["marks"].clone();
    let run = session.run();
    let is_exact = run.is_exact();
    let total = run.position().map_or(0, |position| position.total);
    let threads = run.recorded().map_or_else(|| run.threads(), crate::session::History::threads);
    let thread = |thread: &crate::session::ThreadInfo| {
        json!({
            "id": thread.tid.0,
            "name": thread.name,
            "from": share(thread.first, total),
            "to": share(thread.ended.unwrap_or(total), total),
        })
    };
    let gaps = run.gaps();
    let gap = |gap: &crate::session::GapInfo| {
        json!({
            "position": position_text(gap.position, is_exact),
            "share": share(gap.position, total),
            "thread": gap.tid.0,
            "reason": gap.reason,
        })
    };
    json!({
        "here": here,
        "threads": threads.iter().map(thread).collect::<Vec<_>>(),
        "gaps": gaps.iter().map(gap).collect::<Vec<_>>(),
        "marks": marks,
    })
}
