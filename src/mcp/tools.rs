//! The tools: their names, descriptions and arguments.

use super::requests;
use crate::session::Direction;
use rmcp::handler::server::common::schema_for_type;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

/// A call of a tool, with its arguments.
#[derive(Debug)]
pub(super) enum Request {
    Open(requests::Open),
    Where,
    Go(requests::Go),
    /// `back` and `forward`.
    Travel(Direction, requests::Travel),
    Backtrace(requests::Backtrace),
    Print(requests::Print),
    Hits(requests::Hits),
    Calls(requests::Calls),
    Origin(requests::Origin),
    Source(requests::Source),
}

/// Instructions for the client's model.
pub(super) const INSTRUCTIONS: &str = "contraflow shows the recorded run of a program. `open` a recording first; it is then at its end, \
     usually the crash. Every row has a position, a moment of the run: `go` there, or move with `back` \
     and `forward`, then `print` and `backtrace`. `hits`, `calls` and `origin` answer questions about the \
     whole run and leave the position where it is. A null value is unknown. `next` in an answer is where \
     its next page begins.";

impl Request {
    /// Parses the name and the arguments of a tool. An error is a sentence for the client.
    pub(super) fn parse(tool: &str, arguments: Option<JsonObject>) -> Result<Self, String> {
        let given = Value::Object(arguments.unwrap_or_default());
        Ok(match tool {
            "open" => Self::Open(read(tool, given)?),
            "where" => {
                let requests::Where {} = read(tool, given)?;
                Self::Where
            }
            "go" => Self::Go(read(tool, given)?),
            "back" => Self::Travel(Direction::Backward, read(tool, given)?),
            "forward" => Self::Travel(Direction::Forward, read(tool, given)?),
            "backtrace" => Self::Backtrace(read(tool, given)?),
            "print" => Self::Print(read(tool, given)?),
            "hits" => Self::Hits(read(tool, given)?),
            "calls" => Self::Calls(read(tool, given)?),
            "origin" => Self::Origin(read(tool, given)?),
            "source" => Self::Source(read(tool, given)?),
            _ => return Err(format!("there is no tool {tool:?}")),
        })
    }
}

/// Parses the arguments of `tool`.
fn read<T: DeserializeOwned>(tool: &str, given: Value) -> Result<T, String> {
    serde_json::from_value(given).map_err(|error| format!("{tool}: {error}"))
}

/// Returns the tools, with their descriptions and the schemas of their arguments.
pub(super) fn tools() -> Vec<Tool> {
    let tool = |name: &'static str, text: &'static str, schema: Arc<JsonObject>| {
        Tool::new(name, text, schema)
            .with_annotations(ToolAnnotations::new().read_only(true).open_world(false))
    };
    let travel = schema_for_type::<requests::Travel>;
    vec![
        tool(
            "open",
            "Open a recording of a program's run, at its end. Long ones take as long as a few replays.",
            schema_for_type::<requests::Open>(),
        ),
        tool(
            "where",
            "Show the current position, thread, function and line, the threads, and how the run ended.",
            schema_for_type::<requests::Where>(),
        ),
        tool("go", "Go to a position.", schema_for_type::<requests::Go>()),
        tool("back", "Go back in time: to some code, a change of memory, or by steps.", travel()),
        tool(
            "forward",
            "Go forward in time: to some code, a change of memory, or by steps.",
            travel(),
        ),
        tool(
            "backtrace",
            "Show the call stack at the current position, innermost first, with arguments.",
            schema_for_type::<requests::Backtrace>(),
        ),
        tool(
            "print",
            "Evaluate expressions at the current position.",
            schema_for_type::<requests::Print>(),
        ),
        tool(
            "hits",
            "List every execution of a line, function or instruction in the whole run, with values of \
             expressions: a log line added after the fact.",
            schema_for_type::<requests::Hits>(),
        ),
        tool(
            "calls",
            "List every call of some functions in the whole run, with arguments, results, durations.",
            schema_for_type::<requests::Calls>(),
        ),
        tool(
            "origin",
            "Follow a value back: copy by copy, to the instruction that computed it, a constant, or the \
             input that it was.",
            schema_for_type::<requests::Origin>(),
        ),
        tool(
            "source",
            "Show lines of the source, around the current line or another place.",
            schema_for_type::<requests::Source>(),
        ),
    ]
}
