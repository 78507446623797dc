//! Runs as a dataset of Parquet tables, partitioned by run and by thread, for query engines that
//! read thousands of runs. `docs/dataset.md` describes the tables.
//!
//! Each run has its own files. They are written under hidden names, which engines skip, and get
//! their names when they are whole; the row of the run comes last.

mod columns;
mod kernel;
mod rows;
mod schema;
mod table;
mod texts;

use super::calls::{Call, CallsQuestion};
use super::error::Error;
use super::hits::HitsQuestion;
use super::opened::Asked;
use crate::values::Question;
use schema::Table;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::fs;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use table::{Tables, dataset_error};
use texts::Texts;

pub use schema::SCHEMA_VERSION;

/// The number of bytes of the manifest's hash in a run's name.
const HASH_BYTES: usize = 6;

/// The choice of rows for the tables of calls and of hits. The other tables have all rows.
#[derive(Debug, Default)]
pub struct DatasetQuestion {
    /// The functions whose calls are wanted; empty for all calls.
    pub functions: Vec<String>,
    /// True if only calls of functions in the program's own file are wanted.
    pub in_program_file: bool,
    /// True if the arguments are wanted.
    pub arguments: bool,
    /// True if the returned values are wanted.
    pub returns: bool,
    /// The code whose executions are wanted, in the form of [`HitsQuestion::at`].
    pub hits: Vec<String>,
    /// The expressions to evaluate at each execution; `None` for no values.
    pub print: Option<Question>,
}

impl DatasetQuestion {
    /// Returns the question for the rows of calls.
    fn of_calls(&self) -> CallsQuestion<'_> {
        CallsQuestion {
            functions: &self.functions,
            arguments: self.arguments,
            returns: self.returns,
            duration: true,
            in_program_file: self.in_program_file,
        }
    }
}

/// A directory with a dataset of runs.
#[derive(Clone, Debug)]
pub struct Dataset {
    root: PathBuf,
}

/// The result of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The name of the run in the dataset.
    pub run: String,
    /// The number of rows of this run in all tables.
    pub rows: u64,
}

impl Dataset {
    /// Returns the dataset in a directory, which need not exist yet.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Returns true if the dataset has all of a run: the file with its row in `runs` gets its name
    /// last. An export that was killed may have left the directory, with a hidden file.
    pub fn has(&self, run: &str) -> bool {
        let files = fs::read_dir(self.directory(Table::Runs, run)).into_iter().flatten().flatten();
        files.into_iter().any(|file| !file.file_name().as_encoded_bytes().starts_with(b"_"))
    }

    /// Returns the directory of a run's files in a table; it need not exist.
    fn directory(&self, table: Table, run: &str) -> PathBuf {
        self.root.join(table.name()).join(format!("run={run}"))
    }

    /// Removes a run from the dataset, first its row in `runs`. Does nothing if the dataset has
    /// nothing of it. After an error, parts of it remain.
    fn remove(&self, run: &str) -> Result<(), Error> {
        for table in Table::ALL {
            let dir = self.directory(table, run);
            match fs::remove_dir_all(&dir) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(dataset_error(&dir, &error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Asked {
    /// Returns the name of this run in a dataset: the name of the recording's directory, and a part
    /// of the SHA-256 hash of its manifest. Replaces other characters than letters, digits, `-`,
    /// `_` and `.` by `_`, and removes `.` and `_` from the start. Fails if the manifest cannot be
    /// read.
    pub fn run_name(&self) -> Result<String, Error> {
        // A link, such as to the latest one, is the same run.
        let dir = self.recording_dir();
        let dir = fs::canonicalize(dir).map_err(|error| dataset_error(dir, &error))?;
        let manifest = dir.join("manifest.json");
        let bytes = fs::read(&manifest).map_err(|error| dataset_error(&manifest, &error))?;
        let hash = Sha256::digest(bytes);
        let hash = hash.iter().take(HASH_BYTES);
        let hash = hash.fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let name: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        Ok(format!("{}-{hash}", name.trim_start_matches(['.', '_'])))
    }

    /// Adds the run to a dataset. If the dataset has it already, fails, or if `replaces`, removes
    /// the old one first. If this fails after that, or `interrupted` returns true, the dataset has
    /// nothing of the run, neither old nor new; the result is `None` if it was interrupted. Calls
    /// `reached` with positions, as progress: from the start of the run for the calls, and again
    /// for each of `question.hits`.
    pub fn export_dataset(
        &mut self,
        dataset: &Dataset,
        question: &DatasetQuestion,
        replaces: bool,
        reached: &dyn Fn(u64),
        interrupted: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Exported>, Error> {
        let run = self.run_name()?;
        if dataset.has(&run) && !replaces {
            let there =
                io::Error::new(ErrorKind::AlreadyExists, "the dataset has this run already");
            return Err(dataset_error(&dataset.directory(Table::Runs, &run), &there));
        }
        self.check(question)?;
        // An export that was killed may have left parts of it.
        dataset.remove(&run)?;
        let mut tables = Tables::new(dataset.root.clone(), run.clone());
        let written = self.write_tables(&mut tables, question, reached, interrupted);
        let is_whole = written.and_then(|is_whole| {
            if is_whole {
                tables.finish(self.tids().first().copied())?;
            }
            Ok(is_whole)
        });
        match is_whole {
            Ok(true) => Ok(Some(Exported { run, rows: tables.rows() })),
            Ok(false) => dataset.remove(&run).map(|()| None),
            Err(error) => {
                // The first error is the one to report.
                let _ = dataset.remove(&run);
                Err(error)
            }
        }
    }

    /// Fails if functions, code or expressions of a question have no meaning here.
    fn check(&self, question: &DatasetQuestion) -> Result<(), Error> {
        self.check_calls(&question.of_calls())?;
        let none = Question::parse("")?;
        let print = question.print.as_ref().unwrap_or(&none);
        question
            .hits
            .iter()
            .try_for_each(|at| self.check_hits(&HitsQuestion { at, print, from: 0 }))
    }

    /// Adds the rows of all tables. Returns false if the user interrupted it: then rows are
    /// missing.
    fn write_tables(
        &mut self,
        tables: &mut Tables,
        question: &DatasetQuestion,
        reached: &dyn Fn(u64),
        interrupted: &(dyn Fn() -> bool + Sync),
    ) -> Result<bool, Error> {
        let is_exact = self.is_exact();
        let cell = RefCell::new(&mut *tables);
        let wanted = question.of_calls();
        let mut texts = Texts::default();
        let mut sink = |call: Call| {
            let row = rows::call_row(&call, is_exact, &mut texts);
            cell.borrow_mut().add_row(Table::Calls, Some(call.tid), row)?;
            Ok(ControlFlow::Continue(()))
        };
        self.calls(wanted, &mut sink, reached, &|| interrupted())?;
        let none = Question::parse("")?;
        let print = question.print.as_ref().unwrap_or(&none);
        let expressions: Vec<&str> = print.texts().collect();
        for at in &question.hits {
            let mut sink = |hit| {
                for row in rows::hit_rows(&hit, at, &expressions, is_exact, &mut texts) {
                    cell.borrow_mut().add_row(Table::Hits, Some(hit.tid), row)?;
                }
                Ok(ControlFlow::Continue(()))
            };
            self.hits(&HitsQuestion { at, print, from: 0 }, &mut sink, reached, &|| interrupted())?;
        }
        if interrupted() {
            return Ok(false);
        }
        self.kernel_rows(
            &mut |table, tid, row| cell.borrow_mut().add_row(table, Some(tid), row),
            interrupted,
        )?;
        let Some(files) = self.coverage(interrupted)? else { return Ok(false) };
        for (file, coverage) in &files {
            for (line, count) in coverage.lines.iter().filter(|(_, count)| **count > 0) {
                tables.add_row(Table::Lines, None, rows::line_row(file, *line, *count))?;
            }
        }
        for row in rows::thread_rows(self) {
            tables.add_row(Table::Threads, None, row)?;
        }
        tables.add_row(Table::Runs, None, rows::run_row(self))?;
        Ok(!interrupted())
    }

    /// Returns the directory of the recording.
    fn recording_dir(&self) -> &Path {
        match &self.replay {
            Some(replay) => replay.reader().dir(),
            None => self.timeline.reader().dir(),
        }
    }
}
