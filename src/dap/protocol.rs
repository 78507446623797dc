//! The messages of the protocol, and the names of requests. A message is a header with
//! `Content-Length`, a blank line, and JSON. A damaged message is reported, and reading continues
//! at the next header.

use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, BufRead, Read, Write};

const LENGTH: &str = "Content-Length:";
/// The maximum number of bytes of a line of a header; the rest of a longer line is skipped.
const LINE_LIMIT_BYTES: u64 = 1 << 16;
/// The maximum number of bytes of a message from a client.
const BODY_LIMIT_BYTES: usize = 1 << 26;

/// A request of the client.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Request {
    /// The number of the message; 0 if it has none.
    #[serde(default)]
    pub(super) seq: i64,
    /// The name of the request.
    pub(super) command: String,
    /// The arguments; null if there are none.
    #[serde(default)]
    pub(super) arguments: Value,
}

impl Request {
    /// Returns the arguments as a type in which each key is optional; its default if there are
    /// none. Fails if an argument has another type.
    pub(super) fn arguments<T: for<'de> Deserialize<'de> + Default>(&self) -> Result<T, Fault> {
        if self.arguments.is_null() {
            return Ok(T::default());
        }
        serde_json::from_value(self.arguments.clone())
            .map_err(|error| Fault::new(format!("arguments of {}: {error}", self.command)))
    }
}

/// A message of the client, as it was read.
#[derive(Debug)]
pub(super) enum Message {
    Request(Request),
    /// A response to a request of ours, or an event: nothing that an adapter acts on.
    Other,
    /// A damaged message, with the number and the command of the request; 0 and empty if unknown.
    Damaged {
        seq: i64,
        command: String,
        why: String,
    },
}

/// Waits for the next message and reads it; `None` at the end of the stream. A message that is not
/// valid becomes [`Message::Damaged`], and reading can go on; an error is one of the stream.
pub(super) fn read(input: &mut impl BufRead) -> io::Result<Option<Message>> {
    let mut length = None;
    loop {
        let mut line = Vec::new();
        if input.by_ref().take(LINE_LIMIT_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&line);
        // After a damaged message, its last bytes may be on the same line as the header.
        if let Some(at) = line.rfind(LENGTH) {
            length = Some(line[at + LENGTH.len()..].trim().to_owned());
        } else if line.trim().is_empty()
            && let Some(length) = length.take()
        {
            return read_body(input, &length).map(Some);
        }
    }
}

/// Reads the JSON of a message, whose header gave this `length`. Does not read it if the length is
/// no number or above [`BODY_LIMIT_BYTES`]: that message is damaged.
fn read_body(input: &mut impl BufRead, length: &str) -> io::Result<Message> {
    let damaged = |why| Message::Damaged { seq: 0, command: String::new(), why };
    let Some(length) = length.parse().ok().filter(|length| *length <= BODY_LIMIT_BYTES) else {
        return Ok(damaged(format!(
            "Content-Length: {length}: give a number of bytes, at most {BODY_LIMIT_BYTES}"
        )));
    };
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    let value: Value = match serde_json::from_slice(&body) {
        Ok(value) => value,
        Err(error) => return Ok(damaged(format!("the message is not JSON: {error}"))),
    };
    if matches!(value["type"].as_str(), Some("response" | "event")) {
        return Ok(Message::Other);
    }
    let (seq, command) = (value["seq"].as_i64().unwrap_or(0), value["command"].as_str());
    let command = command.unwrap_or_default().to_owned();
    Ok(match serde_json::from_value(value) {
        Ok(request) => Message::Request(request),
        Err(error) => {
            Message::Damaged { seq, command, why: format!("the message is not a request: {error}") }
        }
    })
}

/// The reason why a request cannot be answered: one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The sentence.
    pub(super) text: String,
    /// The name that the protocol gives the fault, such as `notStopped`, if there is one. Clients
    /// get it instead of the sentence.
    pub(super) word: Option<&'static str>,
}

impl Fault {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), word: None }
    }

    /// Returns the fault of a request that needs a stopped program, for a program that runs.
    pub(super) fn not_stopped() -> Self {
        Self { text: "the program is running: pause it first".into(), word: Some("notStopped") }
    }

    /// Returns the fault of a request that the client cancelled.
    pub(super) fn cancelled() -> Self {
        Self { text: "cancelled".into(), word: Some("cancelled") }
    }
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// The sending end of the connection to the client.
pub(super) struct Client {
    output: Box<dyn Write>,
    /// The number of the last message.
    seq: i64,
    /// True once a message could not be sent.
    pub(super) is_gone: bool,
}

impl Client {
    pub(super) fn new(output: Box<dyn Write>) -> Self {
        Self { output, seq: 0, is_gone: false }
    }

    /// Sends a message with the next number. If that fails, sets `is_gone`.
    fn send(&mut self, mut message: Value) {
        self.seq += 1;
        message["seq"] = self.seq.into();
        let text = message.to_string();
        let sent = write!(self.output, "{LENGTH} {}\r\n\r\n{text}", text.len())
            .and_then(|()| self.output.flush());
        self.is_gone |= sent.is_err();
    }

    /// Sends the response to a request: its answer, or the fault.
    pub(super) fn respond(&mut self, request: &Request, answer: Result<Value, Fault>) {
        let (seq, command) = (request.seq, &request.command);
        let mut message = json!({"type": "response", "request_seq": seq, "command": command});
        match answer {
            Ok(body) => {
                message["success"] = true.into();
                if !body.is_null() {
                    message["body"] = body;
                }
            }
            Err(fault) => {
                message["success"] = false.into();
                message["message"] = fault.word.unwrap_or(&fault.text).into();
                // Braces in `format` would be taken for the names of variables.
                let variables = json!({"text": fault.text});
                message["body"] =
                    json!({"error": {"id": 1, "format": "{text}", "variables": variables}});
            }
        }
        self.send(message);
    }

    /// Sends an event; a null `body` is left out.
    pub(super) fn event(&mut self, name: &str, body: Value) {
        let mut message = json!({"type": "event", "event": name});
        if !body.is_null() {
            message["body"] = body;
        }
        self.send(message);
    }

    /// Shows text on the client's console, in a category of the protocol such as `stderr`. Does
    /// nothing if it is empty.
    pub(super) fn output(&mut self, category: &str, text: &str) {
        if !text.is_empty() {
            self.event("output", json!({"category": category, "output": text}));
        }
    }
}

/// Returns the fault for a request that the adapter does not know.
pub(super) fn unknown(command: &str) -> Fault {
    Fault::new(format!("there is no request {command}"))
}

/// The requests that need something to debug.
const OF_DEBUGGEE: [&str; 45] = [
    "threads",
    "pause",
    "continue",
    "next",
    "stepIn",
    "stepOut",
    "stepBack",
    "reverseContinue",
    "restart",
    "restartFrame",
    "goto",
    "gotoTargets",
    "stackTrace",
    "scopes",
    "variables",
    "setVariable",
    "setExpression",
    "evaluate",
    "completions",
    "readMemory",
    "disassemble",
    "modules",
    "loadedSources",
    "exceptionInfo",
    "dataBreakpointInfo",
    "setBreakpoints",
    "setFunctionBreakpoints",
    "setInstructionBreakpoints",
    "setDataBreakpoints",
    "setExceptionBreakpoints",
    "source",
    "contraflow/counts",
    "contraflow/function",
    "contraflow/gaps",
    "contraflow/mark",
    "contraflow/timeline",
    "contraflow/unmark",
    "contraflow/when",
    "contraflow/seek",
    "contraflow/stepBackInto",
    "contraflow/stepBackOut",
    "contraflow/hits",
    "contraflow/marks",
    "contraflow/positionOf",
    "contraflow/writers",
];

/// Returns true if a request can be answered only while something is debugged.
pub(super) fn needs_debuggee(command: &str) -> bool {
    OF_DEBUGGEE.contains(&command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(input: &str) -> Vec<Message> {
        let mut input = io::Cursor::new(input.as_bytes().to_vec());
        std::iter::from_fn(|| read(&mut input).ok().flatten()).collect()
    }

    fn framed(body: &str) -> String {
        format!("Content-Length: {}\r\n\r\n{body}", body.len())
    }

    #[test]
    fn reading_goes_on_after_damage() {
        let good = framed(r#"{"seq":7,"type":"request","command":"threads"}"#);
        let damages = [
            framed("{no json"),
            "Content-Length: x\r\n\r\n{\"seq\":1}".to_owned(),
            "Content-Length: -3\r\n\r\n".to_owned(),
            format!("Content-Length: {}\r\n\r\n{{}}", usize::MAX),
            framed(r#"{"seq":1,"type":"request"}"#),
            framed("[]"),
            framed(r#"{"seq":1,"type":"request","command":5}"#),
        ];
        for damage in damages {
            let read = all(&(damage.clone() + &good));
            let [Message::Damaged { .. }, Message::Request(request)] = &read[..] else {
                panic!("{damage}: {read:?}");
            };
            assert_eq!((request.seq, request.command.as_str()), (7, "threads"));
        }
    }

    #[test]
    fn other_headers_and_unknown_keys_are_passed_over() {
        let body = r#"{"seq":1,"type":"request","command":"next","more":[1],"arguments":{"x":1}}"#;
        let text = format!("X-Other: 5\r\nContent-Length: {}\r\nX: y\r\n\r\n{body}", body.len());
        let read = all(&(text + &framed(r#"{"seq":2,"type":"response"}"#)));
        assert!(matches!(&read[..], [Message::Request(_), Message::Other]), "{read:?}");
    }
}
