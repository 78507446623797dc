//! `contraflow calls`: every call of a function, or of all.

use super::answer::{Answer, NO_VALUES};
use super::rows::{Cell, json_object};
use super::{Failure, ask, ask_arguments, say};
use crate::ask::{Call, CallKind, CallsQuestion};
use crate::session::Position;
use crate::values::Shown;
use serde_json::{Map, Value};
use std::process::ExitCode;

/// The maximum number of columns by which a call is indented for its depth, in a list of all calls.
const INDENT_LIMIT: usize = 80;

/// Prints the calls. None is a message, not an error. Of a recording of the path, says that the
/// wanted values are left out, and prints the calls without them.
pub(super) fn run(arguments: &ask_arguments::Calls) -> Result<ExitCode, Failure> {
    let (_found, mut asked) = ask::open(arguments.recording.as_deref())?;
    let is_exact = asked.is_exact();
    if !is_exact && (arguments.args || arguments.returns) {
        say(&NO_VALUES);
    }
    let wanted = CallsQuestion {
        functions: &arguments.function,
        arguments: arguments.args,
        returns: arguments.returns,
        duration: arguments.duration,
        in_program_file: arguments.own,
    };
    asked.check_calls(&wanted)?;
    let names = names(&wanted).into_iter().map(str::to_owned).collect();
    let answer = Answer::begin(arguments.form, names, arguments.limit, asked.last_position())?;
    let mut sink = |call: Call| {
        Ok(answer.print_row(cells(&call, &wanted, is_exact), || line(&call, &wanted, is_exact))?)
    };
    let reached = |position| answer.show_progress(position);
    asked.calls(wanted, &mut sink, &reached, &|| answer.is_interrupted())?;
    let functions = arguments.function.join(", ");
    let functions = if functions.is_empty() { "a function" } else { &functions };
    Ok(answer.end(&format!("{functions} was not called"))?)
}

/// Returns the names of the columns for the wanted facts, in the order of `cells`.
fn names(wanted: &CallsQuestion<'_>) -> Vec<&'static str> {
    let mut names = vec!["position", "thread", "address", "function", "depth", "how", "caller"];
    names.extend(wanted.arguments.then_some("arguments"));
    names.extend(wanted.returns.then_some("returned"));
    names.extend((wanted.returns || wanted.duration).then_some("returned_at"));
    names.extend(wanted.duration.then_some("instructions"));
    names
}

/// Returns a call as JSON, in the form of a row of `contraflow calls --json`.
pub(super) fn json(call: &Call, wanted: &CallsQuestion<'_>, is_exact: bool) -> Value {
    json_object(names(wanted), cells(call, wanted, is_exact))
}

/// Returns the cells of a call, in the order of `names`.
fn cells(call: &Call, wanted: &CallsQuestion<'_>, is_exact: bool) -> Vec<Cell> {
    let how = match call.how {
        CallKind::Call => "call",
        CallKind::TailCall => "tail call",
        CallKind::Signal => "signal",
        CallKind::Start => "start",
    };
    let mut cells = vec![
        Cell::text(Position::text(call.position, is_exact)),
        Cell::thread(call.tid),
        Cell::text(call.addr.to_string()),
        Cell::or_null(call.function.as_deref().map(Cell::text)),
        Cell::number(call.depth as u64),
        Cell::text(how),
        Cell::or_null(call.caller.as_ref().map(|caller| Cell::text(caller.to_string()))),
    ];
    if wanted.arguments {
        cells.push(Cell::or_null(call.arguments.as_deref().map(arguments_cell)));
    }
    if wanted.returns {
        cells.push(Cell::or_null(call.returned.as_ref().map(Cell::value)));
    }
    if wanted.returns || wanted.duration {
        let at = call.returned_at.map(|at| Cell::text(Position::text(at, is_exact)));
        cells.push(Cell::or_null(at));
    }
    if wanted.duration {
        cells.push(Cell::or_null(call.instructions.map(Cell::number)));
    }
    cells
}

/// Returns the cell of a call's arguments: as text `a=1, b=2`, and in JSON an object by their
/// names, with the last of several that have one name.
fn arguments_cell(arguments: &[(String, Shown)]) -> Cell {
    let json = arguments.iter().map(|(name, value)| (name.clone(), value.to_json()));
    Cell { text: listed(arguments), json: Value::Object(json.collect::<Map<_, _>>()) }
}

/// Returns arguments as text: `a=1, b=2`.
fn listed(arguments: &[(String, Shown)]) -> String {
    let arguments = arguments.iter().map(|(name, value)| format!("{name}={value}"));
    arguments.collect::<Vec<_>>().join(", ")
}

/// Returns the line of a call in the text form, without facts that are unknown. In a list of all
/// calls it is indented by its depth. If returns or durations are wanted, also says that a call
/// does not return.
fn line(call: &Call, wanted: &CallsQuestion<'_>, is_exact: bool) -> String {
    let position = Position::text(call.position, is_exact);
    // Calls of named functions are not indented.
    let indent = if wanted.functions.is_empty() { 2 * call.depth } else { 0 }.min(INDENT_LIMIT);
    let function = call.function.clone().unwrap_or_else(|| call.addr.to_string().into());
    let mut line = format!("{position:>12}  thread {}  {:indent$}{function}", call.tid, "");
    // Arguments follow the name even of a C++ function, whose name has the types of its parameters.
    let plain = call.arguments.as_deref().map(listed);
    line.extend(plain.map(|arguments| format!("({arguments})")));
    line.extend(call.returned.as_ref().map(|value| format!(" = {value}")));
    if wanted.duration {
        line.extend(call.instructions.map(|count| format!("  {count} instructions")));
    }
    if (wanted.returns || wanted.duration) && call.returned_at.is_none() {
        line.push_str("  does not return");
    }
    let how = match call.how {
        CallKind::TailCall => "tail-called at",
        CallKind::Signal => "signal at",
        _ => "called at",
    };
    line.extend(call.caller.as_ref().map(|caller| format!("  {how} {caller}")));
    line
}
