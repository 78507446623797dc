//! `contraflow export perfetto`, `chrome`, `speedscope` and `pprof`: the calls of a run.

use super::ask_arguments::ExportCalls;
use super::progress::Bar;
use super::{EXIT_ERROR, Failure, ask, say};
use crate::ask::CallFormat;
use crate::capture::Leaving;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::process::ExitCode;

/// Exports all calls as a timeline. If the user interrupts it, the file has the calls up to there,
/// and the exit status is that of an error.
pub(super) fn run(arguments: &ExportCalls, format: CallFormat) -> Result<ExitCode, Failure> {
    let (_found, asked) = ask::open(arguments.recording.as_deref())?;
    let mut out = BufWriter::with_capacity(1 << 16, create(arguments)?);
    let leaving = Leaving::on_signals();
    let mut bar = Bar::new("exporting");
    let is_whole = asked.export_calls(format, &mut out, &mut |done, total| {
        bar.show_part(done, total);
        !leaving.is_asked()
    })?;
    drop(bar);
    out.flush()?;
    if is_whole {
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!("interrupted: {} is not whole", arguments.output.display()));
    Ok(ExitCode::from(EXIT_ERROR))
}

/// Exports the profile of the run, for pprof. If the user interrupts it, creates no file, and
/// returns the exit status of an error.
pub(super) fn pprof(arguments: &ExportCalls) -> Result<ExitCode, Failure> {
    let (_found, asked) = ask::open(arguments.recording.as_deref())?;
    let leaving = Leaving::on_signals();
    let Some(profile) = asked.profile(&|| leaving.is_asked())? else {
        say(&"interrupted");
        return Ok(ExitCode::from(EXIT_ERROR));
    };
    create(arguments)?.write_all(&profile.to_pprof())?;
    Ok(ExitCode::SUCCESS)
}

/// Creates the output file. Replaces an existing one only with --force.
fn create(arguments: &ExportCalls) -> Result<File, Failure> {
    let path = &arguments.output;
    let mut options = OpenOptions::new();
    options.write(true).truncate(true);
    let options = if arguments.force { options.create(true) } else { options.create_new(true) };
    options.open(path).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AlreadyExists => "; --force replaces it",
            _ => "",
        };
        format!("{}: {error}{hint}", path.display()).into()
    })
}
