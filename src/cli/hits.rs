//! `contraflow hits`: every execution of some code, with values.

use super::answer::{Answer, NO_VALUES};
use super::rows::{Cell, json_object};
use super::{Failure, ask, ask_arguments, say};
use crate::ask::{Hit, HitsQuestion};
use crate::session::Position;
use crate::values::Question;
use serde_json::Value;
use std::process::ExitCode;

/// The names of the cells before the values.
const NAMES: [&str; 8] =
    ["position", "thread", "address", "function", "file", "line", "depth", "caller"];

/// Prints the executions. None is a message, not an error. Of a recording of the path, says that
/// the wanted values are left out, and prints the executions without them.
pub(super) fn run(arguments: &ask_arguments::Hits) -> Result<ExitCode, Failure> {
    let question = Question::parse(&arguments.print)?;
    let (_found, mut asked) = ask::open(arguments.recording.as_deref())?;
    let from = arguments.from.as_deref().map(|from| asked.position_of(from)).transpose()?;
    let is_exact = asked.is_exact();
    let texts: Vec<String> = question.texts().map(str::to_owned).collect();
    let names = NAMES.iter().map(|name| (*name).to_owned()).chain(texts.iter().cloned()).collect();
    let from = from.unwrap_or_default();
    let wanted = HitsQuestion { at: &arguments.at, print: &question, from };
    asked.check_hits(&wanted)?;
    if !is_exact && !question.is_empty() {
        say(&NO_VALUES);
    }
    let answer = Answer::begin(arguments.form, names, arguments.limit, asked.last_position())?;
    let mut sink = |hit: Hit| {
        let position = Position::text(hit.position, is_exact);
        Ok(answer.print_row(cells(&hit, &position), || line(&hit, &position, &texts))?)
    };
    let reached = |position| answer.show_progress(position);
    asked.hits(&wanted, &mut sink, &reached, &|| answer.is_interrupted())?;
    let since = arguments.from.as_deref().map(|from| format!(" from position {from} on"));
    let nothing = format!("{} was not executed{}", arguments.at, since.unwrap_or_default());
    Ok(answer.end(&nothing)?)
}

/// Returns an execution as JSON, in the form of a row of `contraflow hits --json`; `texts` are the
/// expressions of its values.
pub(super) fn json(hit: &Hit, texts: &[String], is_exact: bool) -> Value {
    let names = NAMES.into_iter().chain(texts.iter().map(String::as_str));
    json_object(names, cells(hit, &Position::text(hit.position, is_exact)))
}

/// Returns the cells of an execution: those of [`NAMES`] in their order, and then the values.
fn cells(hit: &Hit, position: &str) -> Vec<Cell> {
    let (file, line) = hit.place.line.clone().unzip();
    let mut cells = vec![
        Cell::text(position),
        Cell::thread(hit.tid),
        Cell::text(hit.addr.to_string()),
        Cell::or_null(hit.place.function.as_deref().map(Cell::text)),
        Cell::or_null(file.as_deref().map(Cell::text)),
        Cell::or_null(line.map(|line| Cell::number(line.into()))),
        Cell::or_null(hit.depth.map(|depth| Cell::number(depth as u64))),
        Cell::or_null(hit.caller.as_ref().map(|caller| Cell::text(caller.to_string()))),
    ];
    cells.extend(hit.values.iter().map(Cell::value));
    cells
}

/// Returns the line of an execution in the text form, which has neither its address nor its depth
/// and caller.
fn line(hit: &Hit, position: &str, texts: &[String]) -> String {
    let values = texts.iter().zip(&hit.values).map(|(text, value)| format!("{text} = {value}"));
    let values: Vec<String> = values.collect();
    let between = if values.is_empty() { "" } else { "  " };
    let (tid, place) = (hit.tid, &hit.place);
    format!("{position:>12}  thread {tid}  {place}{between}{}", values.join(", "))
}
