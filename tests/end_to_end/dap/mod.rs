//! `contraflow dap`, as an IDE drives it. Every message that it sends is checked against the schema
//! of the protocol.

mod breakpoints;
mod history;
mod live;
mod ours;
mod robust;
mod schema;
mod testsupport;
mod together;
mod values;
mod walks;

use crate::support::{Scene, contraflow, text};
use schema::Schema;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// Long: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of the protocol.
pub(crate) struct Ide {
    /// The adapter, unless it is at a socket.
    adapter: Option<Child>,
    input: Option<Box<dyn Write>>,
    messages: Receiver<Value>,
    /// Events that nobody has asked for yet.
    events: VecDeque<Value>,
    /// Responses, by the numbers of their requests, that nobody has asked for yet.
    responses: BTreeMap<i64, Value>,
    schema: Schema,
    seq: i64,
    /// The thread of the last stop.
    thread: i64,
}

impl Ide {
    pub(crate) fn start() -> Self {
        Self::of(contraflow().arg("dap"))
    }

    fn of(command: &mut Command) -> Self {
        let mut adapter = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .env_remove("DEBUGINFOD_URLS")
            .spawn()
            .expect("contraflow runs");
        let (input, output) = (adapter.stdin.take().unwrap(), adapter.stdout.take().unwrap());
        Self::over(Some(adapter), output, input)
    }

    fn over(
        adapter: Option<Child>,
        output: impl Read + Send + 'static,
        input: impl Write + 'static,
    ) -> Self {
        let (sender, messages) = channel();
        let mut output = BufReader::new(output);
        thread::spawn(move || {
            while let Some(message) = read(&mut output) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let input: Option<Box<dyn Write>> = Some(Box::new(input));
        let (events, schema) = (VecDeque::new(), Schema::load());
        let responses = BTreeMap::new();
        Self { adapter, input, messages, events, responses, schema, seq: 0, thread: 0 }
    }

    /// Starts an adapter and launches something, with breakpoints; returns the first stop.
    fn launched(arguments: &Value, breakpoints: &[(&Path, &[i64])]) -> (Self, Value) {
        let mut ide = Self::start();
        ide.ask("initialize", &json!({"adapterID": "contraflow"}));
        ide.ask("launch", arguments);
        ide.event("initialized");
        for (path, lines) in breakpoints {
            ide.break_at(path, lines);
        }
        ide.ask("configurationDone", &Value::Null);
        let stop = ide.stop();
        (ide, stop)
    }

    fn break_at(&mut self, path: &Path, lines: &[i64]) -> Value {
        let breakpoints: Vec<Value> = lines.iter().map(|line| json!({"line": line})).collect();
        self.ask("setBreakpoints", &json!({"source": {"path": path}, "breakpoints": breakpoints}))
    }

    fn write(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).expect("the adapter reads");
    }

    fn send(&mut self, command: &str, arguments: &Value) -> i64 {
        self.seq += 1;
        let request = json!({
            "seq": self.seq, "type": "request", "command": command, "arguments": arguments,
        });
        let text = request.to_string();
        self.write(format!("Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes());
        self.seq
    }

    fn message(&mut self) -> Value {
        let message = self.messages.recv_timeout(PATIENCE).expect("a message");
        self.schema.check(&message);
        message
    }

    /// Returns the response to a request. Others, which come before it, are kept.
    fn response(&mut self, seq: i64) -> Value {
        if let Some(response) = self.responses.remove(&seq) {
            return response;
        }
        loop {
            let message = self.message();
            match message["request_seq"].as_i64() {
                Some(of) if of == seq => return message,
                Some(of) => drop(self.responses.insert(of, message)),
                None => self.events.push_back(message),
            }
        }
    }

    /// Sends a request and returns the body of its response, which must be a success.
    fn ask(&mut self, command: &str, arguments: &Value) -> Value {
        let seq = self.send(command, arguments);
        let response = self.response(seq);
        assert_eq!(response["success"], true, "{command} {arguments}: {response}");
        response["body"].clone()
    }

    /// Sends a request that must fail, and returns the reason.
    fn refused(&mut self, command: &str, arguments: &Value) -> String {
        let seq = self.send(command, arguments);
        let response = self.response(seq);
        assert_eq!(response["success"], false, "{command} {arguments}: {response}");
        response["body"]["error"]["variables"]["text"].as_str().unwrap().to_owned()
    }

    /// Waits for an event and returns its body.
    fn event(&mut self, name: &str) -> Value {
        let place = self.events.iter().position(|event| event["event"] == name);
        if let Some(event) = place.and_then(|at| self.events.remove(at)) {
            return event["body"].clone();
        }
        loop {
            let message = self.message();
            assert_eq!(message["type"], "event", "{message}");
            if message["event"] == name {
                return message["body"].clone();
            }
            self.events.push_back(message);
        }
    }

    fn stop(&mut self) -> Value {
        let stop = self.event("stopped");
        self.thread = stop["threadId"].as_i64().expect("a thread");
        stop
    }

    /// Moves the thread of the last stop, and returns the next stop.
    fn go(&mut self, command: &str) -> Value {
        let thread = json!({"threadId": self.thread});
        self.go_with(command, &thread)
    }

    fn go_with(&mut self, command: &str, arguments: &Value) -> Value {
        self.ask(command, arguments);
        self.stop()
    }

    fn frames(&mut self) -> Vec<Value> {
        let arguments = json!({"threadId": self.thread, "startFrame": 0, "levels": 20});
        self.ask("stackTrace", &arguments)["stackFrames"].as_array().unwrap().clone()
    }

    /// Returns the function and line of the innermost frame.
    fn place(&mut self) -> (String, i64) {
        let frame = self.frames().remove(0);
        (frame["name"].as_str().unwrap().to_owned(), frame["line"].as_i64().unwrap())
    }

    fn frame_id(&mut self) -> i64 {
        self.frames()[0]["id"].as_i64().unwrap()
    }

    fn position(&mut self) -> String {
        self.ask("contraflow/when", &Value::Null)["position"].as_str().unwrap().to_owned()
    }

    fn variables(&mut self, reference: &Value) -> Vec<Value> {
        let answer = self.ask("variables", &json!({"variablesReference": reference}));
        answer["variables"].as_array().unwrap().clone()
    }

    /// Returns the variables of a scope of the innermost frame.
    fn scope(&mut self, name: &str) -> Vec<Value> {
        let frame = self.frame_id();
        let scopes = self.ask("scopes", &json!({"frameId": frame}));
        let scopes = scopes["scopes"].as_array().unwrap().clone();
        let scope = scopes.iter().find(|scope| scope["name"] == name);
        let scope = scope.unwrap_or_else(|| panic!("no {name} among {scopes:?}"));
        self.variables(&scope["variablesReference"])
    }

    /// Evaluates an expression in the innermost frame.
    fn value(&mut self, expression: &str) -> String {
        let frame = self.frame_id();
        let arguments = json!({"expression": expression, "frameId": frame, "context": "watch"});
        self.ask("evaluate", &arguments)["result"].as_str().unwrap().to_owned()
    }

    fn console(&mut self, command: &str) -> String {
        let answer = self.ask("evaluate", &json!({"expression": command, "context": "repl"}));
        answer["result"].as_str().unwrap().to_owned()
    }

    /// Ends the session, and waits for the adapter's end.
    fn leave(mut self) {
        self.ask("disconnect", &json!({}));
        drop(self.input.take());
        if let Some(adapter) = &mut self.adapter {
            assert!(adapter.wait().unwrap().success());
        }
    }

    fn process(&mut self) -> &mut Child {
        self.adapter.as_mut().expect("a process")
    }
}

impl Drop for Ide {
    fn drop(&mut self) {
        drop(self.input.take());
        if let Some(adapter) = &mut self.adapter {
            let _ = adapter.kill();
            let _ = adapter.wait();
        }
    }
}

fn read(output: &mut impl BufRead) -> Option<Value> {
    let mut length = None;
    loop {
        let mut line = String::new();
        if output.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim().strip_prefix("Content-Length: ") {
            Some(number) => length = number.parse().ok(),
            None if line.trim().is_empty() => break,
            None => {}
        }
    }
    let mut body = vec![0; length?];
    output.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

/// Records a program exactly.
fn record(scene: &Scene, command: &[&Path]) -> PathBuf {
    let dir = scene.path("recording");
    let mut record = contraflow();
    record.env("CONTRAFLOW_HOME", scene.path("store")).args(["record", "-o"]).arg(&dir).arg("--");
    let output = record.args(command).stdin(Stdio::null()).output().expect("contraflow runs");
    assert!(dir.join("manifest.json").exists(), "{}", text(&output.stderr));
    dir
}

/// Returns the path of a program's source.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Returns the number of the line with a text.
fn line(path: &Path, text: &str) -> i64 {
    let source = std::fs::read_to_string(path).unwrap();
    let at = source.lines().position(|line| line.contains(text));
    i64::try_from(at.unwrap_or_else(|| panic!("no line {text}")) + 1).unwrap()
}

/// Returns a recording of tests/programs/ledger.c, with an argument if it is to crash.
fn ledger(scene: &Scene, crashes: bool) -> (PathBuf, PathBuf) {
    let program = scene.compile("ledger.c", &["-O0"]);
    let arguments: &[&Path] = if crashes { &[&program, Path::new("x")] } else { &[&program] };
    (record(scene, arguments), source("ledger.c"))
}

fn shapes(scene: &Scene) -> (PathBuf, PathBuf) {
    let program = scene.compile("shapes.cpp", &["-O0", "-lstdc++"]);
    (record(scene, &[&program]), source("shapes.cpp"))
}

fn find<'a>(variables: &'a [Value], name: &str) -> &'a Value {
    let found = variables.iter().find(|variable| variable["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} among {variables:?}"))
}
