//! An open recording, with a current position in its history: the answers to the tools `where` and
//! `go`, and the parts that answers to all tools share. The other answers are in `frames`, `print`,
//! `questions`, `source` and `travel`.

use super::answer::Answer;
use super::host::{Host, Opened};
use super::requests;
use super::tools::Request;
use crate::ask::{Asked, Place};
use crate::common::{Addr, Tid};
use crate::session::{AnySession, Edge, Position, Run, SourceDirectory, StopReason, signal_name};
use crate::symbols::SourceLine;
use serde_json::{Map, Value, json};
use std::any::Any;
use std::cell::OnceCell;
use std::path::{Path, PathBuf};

/// The maximum number of threads that `where` lists.
const THREADS_LIMIT: usize = 50;
/// The default number of rows of a page.
const DEFAULT_PAGE_ROWS: usize = 20;
/// The maximum number of rows of a page.
const MOST_PAGE_ROWS: usize = 200;

/// An open recording, with a current position: the session's.
pub(super) struct OpenRecording {
    /// The directory of the recording.
    pub(super) dir: PathBuf,
    /// The recording for questions about its whole history; it does not move the session.
    pub(super) asked: Asked,
    /// The session, whose position is the current one.
    pub(super) session: Box<dyn AnySession>,
    /// The directories of source files that the recording contains.
    pub(super) sources: Vec<SourceDirectory>,
    /// The source lines that have code, by address; empty until a request needs them.
    pub(super) lines: OnceCell<Vec<SourceLine>>,
    /// True if the last move was by steps: a breakpoint that ended it was the step's own.
    pub(super) has_stepped: bool,
    /// Dropped with the recording ([`Opened::kept`]).
    _kept: Box<dyn Any>,
}

impl OpenRecording {
    /// Opens the recording that `wanted` names, or else the latest one. The position is its end.
    pub(super) fn open(host: &dyn Host, wanted: &requests::Open) -> Result<Self, String> {
        let opened = host.open(wanted.recording.as_deref().map(Path::new))?;
        let Opened { dir, asked, session, sources, kept } = opened;
        let (lines, has_stepped) = (OnceCell::new(), false);
        Ok(Self { dir, asked, session, sources, lines, has_stepped, _kept: kept })
    }

    /// Answers a request. `interrupted` returns true once the client wants no answer; searches then
    /// end early. `open` is the worker's task and is not expected here; it would be answered as
    /// `where`.
    pub(super) fn answer(
        &mut self,
        host: &dyn Host,
        request: Request,
        interrupted: &dyn Fn() -> bool,
    ) -> Answer {
        match request {
            Request::Open(_) | Request::Where => Ok(self.here_and_run()),
            Request::Go(wanted) => self.go(&wanted),
            Request::Travel(direction, wanted) => self.travel(direction, &wanted, interrupted),
            Request::Backtrace(wanted) => self.backtrace(&wanted),
            Request::Print(wanted) => self.print(host, &wanted, interrupted),
            Request::Hits(wanted) => self.hits(host, &wanted, interrupted),
            Request::Calls(wanted) => self.calls(host, &wanted, interrupted),
            Request::Origin(wanted) => self.origin(host, &wanted, interrupted),
            Request::Source(wanted) => self.source(&wanted),
        }
    }

    /// Returns the session's run, at the current position.
    pub(super) fn run(&self) -> &dyn Run {
        self.session.run()
    }

    /// Returns the thread that the client named, or else the one that stopped last. Fails if the
    /// named one does not exist at the current position.
    pub(super) fn thread(&self, named: Option<i32>) -> Result<Tid, String> {
        let Some(tid) = named.map(Tid) else { return Ok(self.session.last_stop().thread) };
        let is_there = self.run().threads().iter().any(|thread| thread.tid == tid);
        if is_there { Ok(tid) } else { Err(format!("there is no thread {tid} here")) }
    }

    /// Returns the current position as text; `None` without a history.
    pub(super) fn position(&self) -> Option<String> {
        let position = self.run().position()?;
        Some(Position::text(position.at, self.run().is_exact()))
    }

    /// Answers `go`: moves to a position given as text, or to the `begin` or `end` of the history,
    /// and returns the new position.
    fn go(&mut self, wanted: &requests::Go) -> Answer {
        let position = match wanted.position.as_str() {
            "begin" => 0,
            "end" => self.run().position().ok_or("there is no history")?.total,
            text => self.asked.position_of(text).map_err(|error| error.to_string())?,
        };
        self.session.seek(position).map_err(|error| error.to_string())?;
        Ok(self.here())
    }

    /// Returns the current position as JSON, with its thread, function and line, and the reason of
    /// the stop.
    pub(super) fn here(&self) -> Value {
        let stop = self.session.last_stop();
        let mut here = Map::new();
        here.insert("position".to_owned(), json!(self.position()));
        here.insert("thread".to_owned(), json!(stop.thread.0));
        let reason = self.reason_text(stop.reason);
        here.insert("stopped".to_owned(), json!(reason));
        here.extend(self.place_members(self.run().pc(stop.thread)));
        Value::Object(here)
    }

    /// Returns the JSON of [`Self::here`], and with it the run, its end, and at most
    /// [`THREADS_LIMIT`] threads.
    pub(super) fn here_and_run(&self) -> Value {
        let mut here = self.here();
        let run = self.run();
        let (is_exact, described) = (run.is_exact(), run.describe());
        let end = run.position().map(|position| Position::text(position.total, is_exact));
        let threads = run.threads();
        let shown = threads.iter().take(THREADS_LIMIT).map(|thread| {
            let mut shown = Map::new();
            shown.insert("thread".to_owned(), json!(thread.tid.0));
            shown.insert("name".to_owned(), json!(thread.name));
            shown.extend(self.place_members(run.pc(thread.tid)));
            Value::Object(shown)
        });
        let shown: Vec<Value> = shown.collect();
        let more = json!({
            "threads": shown,
            "thread_count": threads.len(),
            "recording": self.dir.display().to_string(),
            "program": described.program,
            "arguments": described.arguments,
            "ending": described.ending.to_string(),
            "end": end,
            "has_values": is_exact,
            "failure": run.failure(),
        });
        if let (Value::Object(here), Value::Object(more)) = (&mut here, more) {
            here.extend(more);
        }
        here
    }

    /// Returns the JSON members for the function, file, line and address of the code at `addr`;
    /// null if they are unknown.
    pub(super) fn place_members(&self, addr: Option<Addr>) -> Map<String, Value> {
        let place = addr.map(|addr| self.asked.place(addr)).unwrap_or_default();
        place_members_of(&place, addr)
    }

    /// Returns the reason of a stop, in words for the client.
    fn reason_text(&self, reason: StopReason) -> String {
        match reason {
            StopReason::Moved => "arrived".to_owned(),
            StopReason::Step => "after a step".to_owned(),
            StopReason::Breakpoint(_) if self.has_stepped => "after a step".to_owned(),
            StopReason::Breakpoint(_) => "at the code".to_owned(),
            StopReason::Edge(Edge::Begin) => "at the beginning of the history".to_owned(),
            StopReason::Edge(Edge::End) => {
                format!("at the end of the history: {}", self.run().describe().ending)
            }
            StopReason::Interrupted => "interrupted".to_owned(),
            StopReason::Watchpoint(_) => "the memory changed".to_owned(),
            StopReason::Signal(number) => {
                let name = signal_name(number).map_or_else(|| number.to_string(), str::to_owned);
                format!("at the handler of {name}")
            }
            StopReason::Executed => "at the start of another program".to_owned(),
            // Stops of live programs and at system calls: this server asks for neither.
            _ => "stopped".to_owned(),
        }
    }
}

/// Returns the JSON members for the function, file and line of a place, and for its address; null
/// if they are unknown.
pub(super) fn place_members_of(place: &Place, addr: Option<Addr>) -> Map<String, Value> {
    let (file, line) = place.line.clone().unzip();
    let mut cells = Map::new();
    cells.insert("function".to_owned(), json!(place.function));
    cells.insert("file".to_owned(), json!(file));
    cells.insert("line".to_owned(), json!(line));
    cells.insert("address".to_owned(), json!(addr.map(|addr| addr.to_string())));
    cells
}

/// Returns the number of rows of a page: the client's limit, or the default, in the allowed range.
pub(super) fn page_rows(limit: Option<usize>) -> usize {
    limit.unwrap_or(DEFAULT_PAGE_ROWS).clamp(1, MOST_PAGE_ROWS)
}
