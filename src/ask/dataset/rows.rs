//! The rows of the tables, in the order of their columns.

use super::columns::Cell;
use super::schema::SCHEMA_VERSION;
use super::texts::Texts;
use crate::ask::calls::{Call, CallKind};
use crate::ask::hits::Hit;
use crate::ask::opened::Asked;
use crate::ask::place::Place;
use crate::common::{Addr, Tid};
use crate::recording::Exit;
use crate::session::Position;
use crate::values::Shown;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Returns an address as a signed number, as columns have it: addresses of the kernel are negative.
pub(super) fn address_cell(addr: Addr) -> Cell {
    Cell::Integer(addr.0.cast_signed())
}

/// Returns the cells of a position: its number, which orders the rows of a run, and its text.
pub(super) fn position_cells(at: u64, is_exact: bool) -> [Cell; 2] {
    [Cell::Integer(at.cast_signed()), Cell::text(Position::text(at, is_exact))]
}

/// Returns the cells of a place: function, file (without its directory) and line; null if they are
/// unknown.
pub(super) fn place_cells(place: Option<&Place>, texts: &mut Texts) -> [Cell; 3] {
    let function = place.and_then(|place| place.function.as_ref());
    let (file, line) =
        place.and_then(|place| place.line.as_ref()).map(|(file, line)| (file, *line)).unzip();
    [
        Cell::or_null(function.map(|function| texts.cell(function))),
        Cell::or_null(file.map(|file| texts.cell(file))),
        Cell::or_null(line.map(Cell::number)),
    ]
}

/// Returns the row of a call. Its arguments are a JSON object; facts that are unknown are null.
pub(super) fn call_row(call: &Call, is_exact: bool, texts: &mut Texts) -> Vec<Cell> {
    let how = match call.how {
        CallKind::Call => "call",
        CallKind::TailCall => "tail call",
        CallKind::Signal => "signal",
        CallKind::Start => "start",
    };
    let returned_at = call.returned_at.map(|at| Cell::text(Position::text(at, is_exact)));
    let arguments = call.arguments.as_deref().map(|arguments| {
        let json = arguments.iter().map(|(name, value)| (name.clone(), value.to_json()));
        Cell::text(Value::Object(json.collect::<Map<_, _>>()).to_string())
    });
    let mut row = Vec::from(position_cells(call.position, is_exact));
    row.extend([
        Cell::number(call.depth),
        Cell::or_null(call.function.as_ref().map(|function| texts.cell(function))),
        address_cell(call.addr),
        Cell::text(how),
    ]);
    row.extend(place_cells(call.caller.as_deref(), texts));
    row.extend([
        Cell::or_null(returned_at),
        Cell::or_null(call.instructions.map(Cell::number)),
        Cell::or_null(arguments),
    ]);
    row.extend(value_cells(call.returned.as_ref()));
    row
}

/// Returns the rows of an execution: one for each expression, or a single one if there are none.
/// `expressions` are the texts of the hit's values, in their order. `code` is the code that was
/// asked for, as the user wrote it. `is_exact` is the kind of recording, which determines the form
/// of positions.
pub(super) fn hit_rows(
    hit: &Hit,
    code: &str,
    expressions: &[&str],
    is_exact: bool,
    texts: &mut Texts,
) -> Vec<Vec<Cell>> {
    let mut row = |expression: Option<(&str, &Shown)>| {
        let mut row = Vec::from(position_cells(hit.position, is_exact));
        row.push(Cell::text(code));
        row.extend(place_cells(Some(&*hit.place), texts));
        row.extend([
            Cell::or_null(hit.depth.map(Cell::number)),
            Cell::or_null(hit.caller.as_ref().map(|caller| Cell::text(caller.to_string()))),
            Cell::or_null(expression.map(|(text, _)| Cell::text(text))),
        ]);
        row.extend(value_cells(expression.map(|(_, value)| value)));
        row
    };
    if expressions.is_empty() {
        return vec![row(None)];
    }
    expressions.iter().copied().zip(&hit.values).map(|expression| row(Some(expression))).collect()
}

/// Returns three cells of a value: its text, its integer (also of a truth value or an address) and
/// its real number. All are null if the value is unknown, and each number if the value has none.
fn value_cells(value: Option<&Shown>) -> [Cell; 3] {
    let value = value.filter(|value| !matches!(value, Shown::Missing(_)));
    let Some(value) = value else { return [Cell::Null, Cell::Null, Cell::Null] };
    let integer = match value {
        Shown::Integer(number)
        | Shown::Character(number)
        | Shown::Enumerator { value: number, .. } => Cell::number(*number),
        Shown::Boolean(flag) => Cell::Integer(i64::from(*flag)),
        Shown::Pointer { addr, .. } => address_cell(*addr),
        _ => Cell::Null,
    };
    let real = match value {
        Shown::Float(number) => Cell::Real(*number),
        _ => Cell::Null,
    };
    [Cell::text(value.to_string()), integer, real]
}

/// Returns the row of a source line, whose most executed instruction was executed `count` times.
pub(super) fn line_row(file: &str, line: u32, count: u64) -> Vec<Cell> {
    vec![Cell::text(file), Cell::number(line), Cell::Integer(count.cast_signed())]
}

/// Returns the rows of all threads. Names that are unknown are null.
pub(super) fn thread_rows(asked: &Asked) -> Vec<Vec<Cell>> {
    let manifest = asked.timeline.reader().manifest();
    let named = |tid: Tid| {
        let mut entries = manifest.end.iter().flat_map(|end| &end.threads);
        entries.find(|entry| entry.tid == tid).map(|entry| Cell::text(&entry.name))
    };
    let row = |tid: Tid| {
        vec![
            Cell::number(tid.0),
            Cell::number(asked.timeline.process_of(tid).0),
            Cell::or_null(named(tid)),
            Cell::Integer(asked.timeline.instructions(tid).cast_signed()),
            Cell::number(asked.timeline.gaps(tid).len()),
        ]
    };
    asked.tids().into_iter().map(row).collect()
}

/// Returns the row of the run. `build` is the SHA-256 hash of the program's file, null if that is
/// not stored. The exit status, the signal and the duration are null if the end was not recorded.
pub(super) fn run_row(asked: &Asked) -> Vec<Cell> {
    let reader = asked.replay.as_ref().map_or(asked.timeline.reader(), |replay| replay.reader());
    let manifest = reader.manifest();
    let end = manifest.end.as_ref();
    let exit = end.and_then(|end| end.exit);
    let (status, signal) = match exit {
        Some(Exit::Code(status)) => (Cell::number(status), Cell::Null),
        Some(Exit::Signal(number)) => (Cell::Null, Cell::number(number)),
        None => (Cell::Null, Cell::Null),
    };
    let failed = exit.map(|exit| Cell::Flag(exit != Exit::Code(0)));
    let build = asked.timeline.images().file(&manifest.program).map(|bytes| {
        let hash = Sha256::digest(&bytes[..]);
        hash.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    });
    let tids = asked.tids();
    let gaps: u64 = tids.iter().map(|tid| asked.timeline.gaps(*tid).len() as u64).sum();
    let name = reader.dir().file_name().unwrap_or_default().to_string_lossy();
    vec![
        Cell::number(SCHEMA_VERSION),
        Cell::text(name),
        Cell::text(&manifest.program),
        Cell::text(Value::from(manifest.argv.clone()).to_string()),
        Cell::or_null(build.map(Cell::text)),
        status,
        signal,
        Cell::or_null(failed),
        Cell::Flag(asked.is_exact()),
        Cell::number(manifest.started_unix_ns / 1000),
        Cell::or_null(end.map(|end| Cell::number(end.duration_ns))),
        Cell::number(tids.len()),
        Cell::number(asked.timeline.total()),
        Cell::number(gaps),
        Cell::text(&manifest.written_by),
    ]
}
