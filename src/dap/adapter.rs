//! The adapter's loop: it answers one request after the other, and processes records of gdb in
//! between. Requests that arrive while one is answered are deferred.
//!
//! The program is stopped, or `current_move` is set: a request resumed it and the next `*stopped`
//! record of gdb ends the move ([`Adapter::on_stopped`]). A move that is requested before that
//! waits in `waiting_moves`. Some requests move the program and stop it again before their
//! response; this stop is reported after the response, by `stop_after_response`.

use super::child::Gdb;
use super::here::CurrentPlace;
use super::host::Host;
use super::inbox::{Inbox, Input};
use super::launch::Launch;
use super::mi::{self, Record};
use super::moves::Motion;
use super::ours::GotoTargets;
use super::protocol::{Client, Fault, Message, Request, needs_debuggee, unknown};
use super::questions::Questions;
use crate::gdb::Inquirer;
use crate::session::AnySession;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// The prefix of lines on gdb's console that are events of our Python module.
const EVENT: &str = "contraflow-event ";
/// The period at which the adapter looks for a request to cancel a question to the session, and
/// whether a recorder has ended.
pub(super) const POLL_PERIOD: Duration = Duration::from_millis(10);

/// Serves one client until it disconnects or is gone. Then ends gdb, and the server that it
/// debugged.
pub fn serve(input: impl Read + Send + 'static, output: impl Write + 'static, host: &dyn Host) {
    let inbox = Inbox::new();
    inbox.listen_to_client(input);
    if let Some(lines) = host.program_output() {
        inbox.listen_to_output(lines, false);
    }
    let mut adapter = Adapter::new(inbox, Client::new(Box::new(output)), host);
    while !adapter.is_over && !adapter.client.is_gone {
        let input = adapter.inbox.next();
        adapter.handle(input);
    }
    adapter.close();
}

/// A running gdb, and the server of the recording or program that it debugs.
pub(super) struct Debugged {
    pub(super) gdb: Gdb,
    /// A handle for questions to the session.
    pub(super) inquirer: Inquirer,
    /// Ends the server, and removes its files.
    pub(super) end_server: Box<dyn FnOnce()>,
    pub(super) questions: Questions,
    /// True for a live program, false for a recording.
    pub(super) is_live: bool,
    /// True if the program is a process that ran before and was attached.
    pub(super) is_attached: bool,
}

/// The features of the client that the adapter looks at.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClientFeatures {
    pub(super) supports_invalidated_event: bool,
    pub(super) supports_progress_reporting: bool,
}

/// The state of a debug adapter for one client.
pub(super) struct Adapter<'a> {
    pub(super) host: &'a dyn Host,
    pub(super) inbox: Inbox,
    pub(super) client: Client,
    pub(super) features: ClientFeatures,
    /// The thing that is debugged; `None` before `launch` and after the end.
    pub(super) debugged: Option<Debugged>,
    pub(super) launch: Launch,
    /// The move that is under way; `None` while the program is stopped.
    pub(super) current_move: Option<Motion>,
    /// The requests for moves that arrived before the current one ended.
    pub(super) waiting_moves: VecDeque<Request>,
    /// The names of the threads that the client knows, by thread ID.
    pub(super) threads: BTreeMap<i64, String>,
    /// The ID of the thread of the last stop; 0 before the first stop.
    pub(super) thread: i64,
    /// True if the last stop was in the past.
    pub(super) was_past: bool,
    /// The signal or exception of the last stop, as its name and a description.
    pub(super) exception: Option<(String, String)>,
    pub(super) goto_targets: GotoTargets,
    /// The events to send after the response.
    pub(super) events_after_response: Vec<(&'static str, Value)>,
    /// The stop to report after the response.
    pub(super) stop_after_response: Option<(Motion, Value)>,
    /// The number of the request that is being answered; 0 if there is none.
    current_seq: i64,
    /// The beginning of a line of gdb's console whose end has not arrived.
    console_line: String,
    /// True once the client has left: the loop ends.
    pub(super) is_over: bool,
}

impl<'a> Adapter<'a> {
    fn new(inbox: Inbox, client: Client, host: &'a dyn Host) -> Self {
        Self {
            host,
            inbox,
            client,
            features: ClientFeatures::default(),
            debugged: None,
            launch: Launch::default(),
            current_move: None,
            waiting_moves: VecDeque::new(),
            threads: BTreeMap::new(),
            thread: 0,
            was_past: false,
            exception: None,
            goto_targets: GotoTargets::default(),
            events_after_response: Vec::new(),
            stop_after_response: None,
            current_seq: 0,
            console_line: String::new(),
            is_over: false,
        }
    }

    /// Processes one input of the loop.
    fn handle(&mut self, input: Input) {
        match input {
            Input::Message(Message::Request(request)) => self.begin_request(request),
            Input::Message(Message::Other) | Input::OutputDone => {}
            Input::Message(Message::Damaged { seq, command, why }) => {
                let request = Request { seq, command, arguments: Value::Null };
                self.client.respond(&request, Err(Fault::new(why)));
            }
            Input::ClientGone => self.is_over = true,
            Input::Gdb(record) => self.process_record(record),
            Input::GdbGone => self.on_gdb_gone(),
            Input::Output(line) => {
                let category = if line.is_error { "stderr" } else { "stdout" };
                self.client.output(category, &line.text);
            }
            Input::Answer(request, answer) => {
                if self.remove_pending(request.seq).is_some() {
                    self.client.respond(&request, answer);
                }
            }
            Input::ReturnedRequest(request) => self.answer_returned(&request),
            Input::Event(name, body) => self.client.event(name, body),
            Input::PreparationProgress(done, total) => self.show_preparation(done, total),
        }
    }

    /// Answers a request now, or later: a move waits for the current one to end, and a question
    /// about the whole history goes to a thread.
    fn begin_request(&mut self, request: Request) {
        if self.current_move.is_some() && Self::is_move(&request.command) {
            self.waiting_moves.push_back(request);
            return;
        }
        self.current_seq = request.seq;
        // A question is answered later, by a thread.
        if !self.begin_question(&request) {
            self.answer_now(&request);
        }
        self.current_seq = 0;
    }

    /// Answers a request in this thread, sends the response, and then the events that follow from
    /// it, last the stop if the request moved the program: that becomes the current move, which
    /// [`Self::on_stopped`] ends and reports.
    pub(super) fn answer_now(&mut self, request: &Request) {
        let answer = self.answer(request);
        self.client.respond(request, answer);
        for (name, body) in std::mem::take(&mut self.events_after_response) {
            self.client.event(name, body);
        }
        if let Some((motion, stop)) = self.stop_after_response.take() {
            self.current_move = Some(motion);
            self.on_stopped(&stop);
        }
    }

    /// Answers a request that a thread for questions returned, since only the session can answer
    /// it, such as a search for hits with expressions that only gdb can evaluate. Answers it as
    /// cancelled if the client cancelled it; does nothing if it is answered already.
    fn answer_returned(&mut self, request: &Request) {
        let Some(is_cancelled) = self.remove_pending(request.seq) else { return };
        if is_cancelled {
            return self.client.respond(request, Err(Fault::cancelled()));
        }
        self.current_seq = request.seq;
        self.answer_now(request);
        self.current_seq = 0;
    }

    /// Removes an open question. Returns true if the client cancelled it; `None` if its request has
    /// been answered already, at the end of the debugging.
    fn remove_pending(&mut self, seq: i64) -> Option<bool> {
        self.debugged.as_mut()?.questions.remove_pending(seq)
    }

    /// Returns the answer to a request. The order of the arms matters: first those that always
    /// work, then those that need something to debug, and after the check of `current_move` those
    /// that need a stop.
    fn answer(&mut self, request: &Request) -> Result<Value, Fault> {
        let command = request.command.as_str();
        match command {
            "initialize" => self.initialize(request),
            "launch" | "attach" => self.launch(request),
            "configurationDone" => self.finish_configuration(),
            "disconnect" | "terminate" => {
                self.disconnect(request);
                Ok(Value::Null)
            }
            "cancel" => {
                self.cancel(request);
                Ok(Value::Null)
            }
            _ if self.debugged.is_none() => match command {
                "threads" => Ok(json!({"threads": []})),
                _ if needs_debuggee(command) => {
                    Err(Fault::new("nothing is debugged: launch something first"))
                }
                _ => Err(unknown(command)),
            },
            "threads" => self.thread_list(),
            "pause" => {
                self.pause();
                Ok(Value::Null)
            }
            _ if command.starts_with("set") && command.ends_with("Breakpoints") => {
                self.set_breakpoints(request)
            }
            _ if self.current_move.is_some() && needs_debuggee(command) => {
                Err(Fault::not_stopped())
            }
            _ if Self::is_move(command) => self.start_move(request),
            "setVariable" | "setExpression" => self.set_value(request),
            "evaluate" => self.evaluate(request),
            "exceptionInfo" => self.exception_info(),
            "loadedSources" => self.loaded_sources(),
            "gotoTargets" => self.find_goto_targets(request),
            "stackTrace" | "scopes" | "variables" | "completions" | "readMemory"
            | "disassemble" | "modules" | "dataBreakpointInfo" => {
                self.ask_module(command, request.arguments.clone())
            }
            "source" => Err(Fault::new("the file of this source is not on this machine")),
            _ => match command.strip_prefix("contraflow/") {
                Some(ours) => self.answer_ours(ours, request),
                None => Err(unknown(command)),
            },
        }
    }

    /// Processes a record of gdb that is not the result of a command: reports a stop, notes that
    /// the program runs without a request, or shows text. Ignores all others.
    fn process_record(&mut self, record: Record) {
        match record {
            Record::Exec { class, results } if class == "stopped" => self.on_stopped(&results),
            // The program runs without a request to move it, as by a command of gdb.
            Record::Exec { class, .. } if class == "running" && self.current_move.is_none() => {
                self.current_move = Some(Motion::default());
            }
            Record::Console(text) => self.console_text(&text),
            Record::Target(text) => self.client.output("console", &text),
            _ => {}
        }
    }

    /// Adds text of gdb's console. Shows the messages of our Python module, one a line, on the
    /// client's console, with their source lines. Drops all other text, which is for users of gdb's
    /// command line.
    fn console_text(&mut self, text: &str) {
        self.console_line.push_str(text);
        while let Some(end) = self.console_line.find('\n') {
            let line: String = self.console_line.drain(..=end).collect();
            if let Some(event) = line.strip_prefix(EVENT)
                && let Ok(event) = serde_json::from_str::<Value>(event)
            {
                let mut body = json!({"category": "console"});
                body["output"] = format!("{}\n", event["text"].as_str().unwrap_or_default()).into();
                if event["path"].is_string() {
                    body["source"] = json!({"path": event["path"]});
                    body["line"] = event["line"].clone();
                }
                self.client.event("output", body);
            }
        }
    }

    /// Reports the end of gdb as the end of the debugging, unless the adapter ended it.
    fn on_gdb_gone(&mut self) {
        if self.debugged.is_some() && !self.is_over {
            self.client.output("important", "gdb has ended unexpectedly\n");
            self.client.event("terminated", Value::Null);
            self.close();
        }
    }

    /// Sends gdb a command of its machine interface, and waits for its results. Fails if gdb
    /// reports an error or ends, and if nothing is debugged. Other inputs are deferred until then,
    /// except text of gdb, and the requests that [`Self::handle_during_request`] answers.
    /// Interrupts the command once its request has to end.
    pub(super) fn mi_command(&mut self, command: &str) -> Result<Value, Fault> {
        let gone = || Fault::new("gdb has ended");
        let token = self.debugged.as_mut().ok_or_else(gone)?.gdb.send(command)?;
        loop {
            match self.inbox.receive() {
                Input::Gdb(Record::Result { token: Some(of), class, results }) if of == token => {
                    let why = || results["msg"].as_str().unwrap_or("gdb fails").to_owned();
                    return if class == "error" { Err(Fault::new(why())) } else { Ok(results) };
                }
                Input::Gdb(Record::Console(text)) => self.console_text(&text),
                Input::Gdb(Record::Target(text)) => self.client.output("console", &text),
                Input::Gdb(record @ Record::Exec { .. }) => self.inbox.defer(Input::Gdb(record)),
                Input::Gdb(_) => {}
                Input::GdbGone => {
                    self.inbox.defer(Input::GdbGone);
                    return Err(gone());
                }
                Input::ClientGone => {
                    self.interrupt_gdb();
                    self.inbox.defer(Input::ClientGone);
                }
                Input::Message(Message::Request(request)) => {
                    if self.handle_during_request(&request) {
                        self.interrupt_gdb();
                    }
                }
                other => self.inbox.defer(other),
            }
        }
    }

    /// Handles a request that arrives while another one, the current one, is being answered:
    /// answers `cancel`, and `pause` if the program is stopped, and defers all others. Returns true
    /// if the current request has to end: it is cancelled or paused, or the client disconnects.
    fn handle_during_request(&mut self, request: &Request) -> bool {
        match request.command.as_str() {
            "cancel" => {
                let is_current = self.cancel(request);
                self.client.respond(request, Ok(Value::Null));
                is_current
            }
            "pause" if self.current_move.is_none() => {
                self.client.respond(request, Ok(Value::Null));
                true
            }
            command => {
                self.inbox.defer(Input::Message(Message::Request(request.clone())));
                matches!(command, "disconnect" | "terminate")
            }
        }
    }

    /// Handles `cancel`, which names a request by its number or by the ID of its progress. Cancels
    /// and answers that request if it is deferred or a waiting move, and cancels it if a thread
    /// answers it. Returns true if it is the current one, which the caller has to end. The caller
    /// also answers `cancel` itself.
    pub(super) fn cancel(&mut self, request: &Request) -> bool {
        let progress = request.arguments["progressId"].as_str();
        let by_progress = progress.and_then(|id| id.strip_prefix("contraflow-")?.parse().ok());
        let wanted = request.arguments["requestId"].as_i64().or(by_progress);
        let is_wanted = |input: &Input| matches!(input, Input::Message(Message::Request(r)) if Some(r.seq) == wanted);
        for input in self.inbox.take_deferred(is_wanted) {
            if let Input::Message(Message::Request(cancelled)) = input {
                self.client.respond(&cancelled, Err(Fault::cancelled()));
            }
        }
        self.cancel_waiting_moves(|waiting| Some(waiting.seq) == wanted);
        // A question for a thread has no progress ID, so only its number can name it.
        self.cancel_question(&request.arguments["requestId"]);
        wanted == Some(self.current_seq)
    }

    /// Drops the waiting moves for which `is_meant` returns true, and answers them as cancelled.
    pub(super) fn cancel_waiting_moves(&mut self, is_meant: impl Fn(&Request) -> bool) {
        let waiting = std::mem::take(&mut self.waiting_moves);
        let (cancelled, kept) = waiting.into_iter().partition(is_meant);
        self.waiting_moves = kept;
        let cancelled: VecDeque<Request> = cancelled;
        for request in cancelled {
            self.client.respond(&request, Err(Fault::cancelled()));
        }
    }

    /// Interrupts the command that gdb executes.
    fn interrupt_gdb(&self) {
        if let Some(debugged) = &self.debugged {
            self.host.interrupt(debugged.gdb.process());
        }
    }

    /// Sends request `name` to our Python module in gdb, waits, and returns its answer. Fails with
    /// the module's error. The request may change values or resume the program.
    pub(super) fn ask_module(&mut self, name: &str, arguments: Value) -> Result<Value, Fault> {
        let arguments = if arguments.is_object() { arguments } else { json!({}) };
        let request = json!([name, arguments]).to_string();
        let mut results = self.mi_command(&format!("-contraflow {}", mi::quoted(&request)))?;
        if results["json"].is_null() {
            // The request has resumed the program, and gdb's result says this instead of the
            // answer. The module has kept the answer for another request.
            results = self.mi_command(r#"-contraflow "[\"last\",{}]""#)?;
        }
        let answer = results["json"].as_str().and_then(|text| serde_json::from_str(text).ok());
        let mut answer: Value =
            answer.ok_or_else(|| Fault::new(format!("gdb's answer to {name} is damaged")))?;
        match answer["error"].as_str() {
            Some(why) => Err(Fault::new(why)),
            None => Ok(answer["answer"].take()),
        }
    }

    /// Calls `question` in the thread of the session, and waits for its answer. The function that
    /// the question gets returns true once the current request has to end: the client cancels it,
    /// pauses, disconnects or is gone. Fails if the server has ended.
    pub(super) fn ask_session<T: Send + 'static>(
        &mut self,
        question: impl FnOnce(&mut dyn AnySession, &dyn Fn() -> bool) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        self.ask_session_watched(question, &mut |_| {})
    }

    /// Asks the session like [`Self::ask_session`], and calls `watch` every [`POLL_PERIOD`] until
    /// the session answers.
    pub(super) fn ask_session_watched<T: Send + 'static>(
        &mut self,
        question: impl FnOnce(&mut dyn AnySession, &dyn Fn() -> bool) -> T + Send + 'static,
        watch: &mut dyn FnMut(&mut Client),
    ) -> Result<T, Fault> {
        let gone = || Fault::new("the server has ended");
        let inquirer = &self.debugged.as_ref().ok_or_else(gone)?.inquirer;
        let has_to_end = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&has_to_end);
        let answer =
            inquirer.ask_later(move |session| question(session, &|| flag.load(Ordering::Relaxed)));
        loop {
            match answer.recv_timeout(POLL_PERIOD) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
                Err(RecvTimeoutError::Timeout) => watch(&mut self.client),
            }
            while let Some(input) = self.inbox.receive_within(Duration::ZERO) {
                match input {
                    Input::Message(Message::Request(request)) => {
                        if self.handle_during_request(&request) {
                            has_to_end.store(true, Ordering::Relaxed);
                        }
                    }
                    Input::ClientGone => {
                        has_to_end.store(true, Ordering::Relaxed);
                        self.inbox.defer(Input::ClientGone);
                    }
                    other => self.inbox.defer(other),
                }
            }
        }
    }

    /// Returns the current place of the session in its history.
    pub(super) fn here(&mut self) -> Result<CurrentPlace, Fault> {
        self.ask_session(|session, _| CurrentPlace::of(session))
    }

    /// Ends gdb and the server, and answers each open question and each waiting move as cancelled.
    /// The current move ends without a reported stop, and the facts of the last stop are gone. Does
    /// nothing more if nothing is debugged.
    pub(super) fn close(&mut self) {
        if let Some(debugged) = self.debugged.take() {
            for unanswered in debugged.questions.end() {
                self.client.respond(&unanswered, Err(Fault::cancelled()));
            }
            debugged.gdb.end();
            (debugged.end_server)();
            self.inbox.forget_gdb();
        }
        self.cancel_waiting_moves(|_| true);
        self.current_move = None;
        // They are not those of the next session.
        self.threads.clear();
        self.thread = 0;
        self.was_past = false;
        self.exception = None;
        self.console_line.clear();
    }
}
