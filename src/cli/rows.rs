//! Answers in rows, printed as they are found: as text, as JSON objects, or as comma-separated
//! values.

use super::ask_arguments::Form;
use crate::common::{Tid, Visible};
use crate::values::Shown;
use serde_json::{Map, Value};
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write, stdout};
use std::time::{Duration, Instant};

/// The maximum time for which a printed row stays in a buffer.
const MOST_BUFFERED_TIME: Duration = Duration::from_millis(100);

/// A cell of a row: its text, for the form of comma-separated values, and its value in JSON.
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) json: Value,
}

impl Cell {
    /// Returns a cell whose text is also its value.
    pub(super) fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { json: Value::from(text.clone()), text }
    }

    /// Returns a cell with a number.
    pub(super) fn number(number: u64) -> Self {
        Self { text: number.to_string(), json: Value::from(number) }
    }

    /// Returns a cell with the number of a thread.
    pub(super) fn thread(tid: Tid) -> Self {
        Self { text: tid.to_string(), json: Value::from(tid.0) }
    }

    /// Returns a cell with a value of the program.
    pub(super) fn value(value: &Shown) -> Self {
        Self { text: value.to_string(), json: value.to_json() }
    }

    /// Returns a cell whose value may be unknown: null in JSON, and empty elsewhere.
    pub(super) fn or_null(cell: Option<Self>) -> Self {
        cell.unwrap_or(Self { text: String::new(), json: Value::Null })
    }
}

/// Returns a row as a JSON object, with the names of its columns as keys. There is one name for
/// each cell.
pub(super) fn json_object<'a>(names: impl IntoIterator<Item = &'a str>, cells: Vec<Cell>) -> Value {
    let cells = cells.into_iter().map(|cell| cell.json);
    let row = names.into_iter().map(str::to_owned).zip(cells);
    Value::Object(row.collect::<Map<_, _>>())
}

/// A printer of rows on the standard output.
pub(super) struct Rows {
    out: BufWriter<StdoutLock<'static>>,
    form: Form,
    names: Vec<String>,
    /// The time of the last write to the output.
    flushed: Instant,
    is_terminal: bool,
}

impl Rows {
    /// Begins rows with columns of these names. Prints the names if the form is CSV. Holds the lock
    /// of the standard output until it is dropped.
    pub(super) fn begin(form: Form, names: Vec<String>) -> io::Result<Self> {
        let out = BufWriter::with_capacity(1 << 16, stdout().lock());
        let is_terminal = stdout().is_terminal();
        let mut rows = Self { out, form, names, flushed: Instant::now(), is_terminal };
        if form.csv {
            let names: Vec<String> = rows.names.iter().map(|name| quoted(name)).collect();
            writeln!(rows.out, "{}", names.join(","))?;
        }
        Ok(rows)
    }

    /// Prints a row, into a buffer for a short time ([`Self::flush_if_late`]). `text` returns the
    /// lines that it has in the text form, and is not called for others.
    pub(super) fn print_row(
        &mut self,
        cells: Vec<Cell>,
        text: impl FnOnce() -> Vec<String>,
    ) -> io::Result<()> {
        if self.form.json {
            writeln!(self.out, "{}", json_object(self.names.iter().map(String::as_str), cells))?;
        } else if self.form.csv {
            let cells: Vec<String> = cells.iter().map(|cell| quoted(&cell.text)).collect();
            writeln!(self.out, "{}", cells.join(","))?;
        } else {
            for line in text() {
                writeln!(self.out, "{}", Visible(line))?;
            }
        }
        self.flush_if_late()
    }

    /// Writes out buffered rows if the last write is longer ago than [`MOST_BUFFERED_TIME`], or if
    /// the output is a terminal.
    pub(super) fn flush_if_late(&mut self) -> io::Result<()> {
        let is_late = self.flushed.elapsed() > MOST_BUFFERED_TIME;
        if is_late || self.is_terminal { self.flush() } else { Ok(()) }
    }

    /// Writes out all rows.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.flushed = Instant::now();
        self.out.flush()
    }
}

/// Returns a text as a cell of comma-separated values, quoted if it must be (RFC 4180).
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        assert_eq!(quoted("a b"), "a b");
        assert_eq!(quoted("f(int, char)"), "\"f(int, char)\"");
        assert_eq!(quoted("0x1 \"x\""), "\"0x1 \"\"x\"\"\"");
    }
}
