//! The answer to a question: rows that are printed as they are found, a limit on their number,
//! progress, and Ctrl-C.

use super::ask_arguments::Form;
use super::progress::Bar;
use super::rows::{Cell, Rows};
use super::{EXIT_ERROR, say};
use crate::capture::Leaving;
use std::cell::{Cell as Count, RefCell};
use std::io::{self, IsTerminal, stdout};
use std::ops::ControlFlow;
use std::process::ExitCode;

/// The message if values are requested that the recording does not have.
pub(super) const NO_VALUES: &str =
    "this recording is of the path, which has no values before its end; they are left out";

/// An answer that is being printed. Its methods take `&self`, as the closures of a question share
/// it.
pub(super) struct Answer {
    rows: RefCell<Rows>,
    bar: RefCell<Bar>,
    leaving: Leaving,
    /// The maximum number of rows.
    limit: u64,
    /// The number of rows so far.
    count: Count<u64>,
    /// The last position of the run, for the progress.
    last_position: u64,
}

impl Answer {
    /// Begins an answer with columns of these names, of at most `limit` rows; of all rows for
    /// `None`. In the CSV form this prints the names, so the question is to be checked before.
    /// `last_position` is the last position of the run. Until the answer is dropped, Ctrl-C,
    /// SIGTERM, SIGHUP and SIGQUIT only make [`Self::is_interrupted`] true.
    pub(super) fn begin(
        form: Form,
        names: Vec<String>,
        limit: Option<u64>,
        last_position: u64,
    ) -> io::Result<Self> {
        // On a terminal, the rows themselves show the progress.
        let bar = if stdout().is_terminal() { Bar::hidden() } else { Bar::new("replaying") };
        Ok(Self {
            rows: RefCell::new(Rows::begin(form, names)?),
            bar: RefCell::new(bar),
            leaving: Leaving::on_signals(),
            limit: limit.unwrap_or(u64::MAX),
            count: Count::new(0),
            last_position,
        })
    }

    /// Prints a row; `text` returns its line in the text form, and is not called for other forms.
    /// Breaks if this is the last row within the limit. Beyond the limit, prints nothing and
    /// breaks.
    pub(super) fn print_row(
        &self,
        cells: Vec<Cell>,
        text: impl FnOnce() -> String,
    ) -> io::Result<ControlFlow<()>> {
        self.print_row_of_lines(cells, || vec![text()])
    }

    /// Prints a row that takes several lines in the text form, otherwise as [`Self::print_row`]. It
    /// counts as one row.
    pub(super) fn print_row_of_lines(
        &self,
        cells: Vec<Cell>,
        text: impl FnOnce() -> Vec<String>,
    ) -> io::Result<ControlFlow<()>> {
        if self.count.get() >= self.limit {
            return Ok(ControlFlow::Break(()));
        }
        self.count.set(self.count.get() + 1);
        self.rows.borrow_mut().print_row(cells, text)?;
        let is_last = self.count.get() >= self.limit;
        Ok(if is_last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// Shows the position that the search has reached as progress.
    pub(super) fn show_progress(&self, position: u64) {
        self.bar.borrow_mut().show_part(position, self.last_position);
    }

    /// Returns true if the user has interrupted the search. Also writes out the rows that have
    /// waited for too long; the next row reports an error of that.
    pub(super) fn is_interrupted(&self) -> bool {
        // The next row reports that the output is gone.
        let _ = self.rows.borrow_mut().flush_if_late();
        self.leaving.is_asked()
    }

    /// Writes out the rest of the answer, and returns the exit status: that of an error, with a
    /// message, if the user interrupted it. `nothing` is the message for an answer without rows,
    /// which is no error; it is not printed if the limit is 0 or the user interrupted it.
    pub(super) fn end(self, nothing: &str) -> io::Result<ExitCode> {
        drop(self.bar);
        self.rows.borrow_mut().flush()?;
        if self.leaving.is_asked() {
            say(&"interrupted: the rest is not listed");
            return Ok(ExitCode::from(EXIT_ERROR));
        }
        if self.count.get() == 0 && self.limit > 0 {
            say(&nothing);
        }
        Ok(ExitCode::SUCCESS)
    }
}
