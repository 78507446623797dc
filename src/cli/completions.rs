//! `contraflow completions`: a shell's completions of this command line.

use super::{Failure, arguments};
use clap::CommandFactory;
use std::io::Write;
use std::process::ExitCode;

pub(super) fn run(arguments: &arguments::Completions) -> Result<ExitCode, Failure> {
    let mut command = arguments::Arguments::command();
    // The generator panics on write errors, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "contraflow", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
