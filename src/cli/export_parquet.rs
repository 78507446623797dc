//! `contraflow export parquet`: recordings as a dataset for query engines.

use super::ask_arguments::ExportParquet;
use super::progress::Bar;
use super::{EXIT_ERROR, Failure, ask, count_text, is_broken_pipe, say};
use crate::ask::{Dataset, DatasetQuestion};
use crate::capture::Leaving;
use crate::values::Question;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{Write, stdout};
use std::path::Path;
use std::process::ExitCode;

/// Adds each recording to the dataset. One that fails gets a message, and the others are added all
/// the same; the exit status is that of an error then. If the user interrupts it, those that were
/// added stay.
pub(super) fn run(arguments: &ExportParquet) -> Result<ExitCode, Failure> {
    let print = Some(Question::parse(&arguments.print)?).filter(|print| !print.is_empty());
    let question = DatasetQuestion {
        functions: arguments.function.clone(),
        in_program_file: arguments.own,
        arguments: arguments.args,
        returns: arguments.returns,
        hits: arguments.at.clone(),
        print,
    };
    let recordings = arguments.recordings.iter().map(|path| Some(path.as_path()));
    let mut recordings: Vec<Option<&Path>> = recordings.collect();
    if recordings.is_empty() {
        recordings.push(None);
    }
    let mut status = ExitCode::SUCCESS;
    let mut added = BTreeSet::new();
    for recording in recordings {
        match add(recording, &question, arguments, &mut added) {
            Ok(true) => {}
            Ok(false) => {
                say(&"interrupted: the run is not in the dataset");
                return Ok(ExitCode::from(EXIT_ERROR));
            }
            // Its rows are in the dataset.
            Err(failure) if is_broken_pipe(failure.as_ref()) => {}
            // The other recordings are added all the same.
            Err(failure) => {
                match recording {
                    Some(recording) => say(&format!("{}: {failure}", recording.display())),
                    None => say(&failure),
                }
                status = ExitCode::from(EXIT_ERROR);
            }
        }
    }
    Ok(status)
}

/// Adds a recording to the dataset, and the name of its run to `added`; does nothing for a run that
/// is in `added`. Returns false if the user interrupted it. Then prints the run and its number of
/// rows, unless quiet: if that fails, the rows are in the dataset nevertheless.
fn add(
    recording: Option<&Path>,
    question: &DatasetQuestion,
    arguments: &ExportParquet,
    added: &mut BTreeSet<String>,
) -> Result<bool, Failure> {
    let (_found, mut asked) = ask::open(recording)?;
    // A user may name all recordings of a store, with the link to the latest one among them.
    if added.contains(&asked.run_name()?) {
        return Ok(true);
    }
    let dataset = Dataset::new(arguments.output.clone());
    let leaving = Leaving::on_signals();
    let (bar, last) = (RefCell::new(Bar::new("exporting")), asked.last_position());
    let reached = |position| bar.borrow_mut().show_part(position, last);
    let exported = asked
        .export_dataset(&dataset, question, arguments.force, &reached, &|| leaving.is_asked())?;
    drop(bar);
    let Some(exported) = exported else { return Ok(false) };
    let line = format!("{}: {}", exported.run, count_text(exported.rows, "row"));
    added.insert(exported.run);
    if !arguments.quiet {
        writeln!(stdout(), "{line}")?;
    }
    Ok(true)
}
