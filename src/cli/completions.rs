//! `contraflow completions`: what a shell completes of this command line.

use super::{Failure, arguments};
use clap::CommandFactory;
use std::io::Write;
use std::process::ExitCode;

pub(super) fn run(arguments: &arguments::Completions) -> Result<ExitCode, Failure> {
    let mut command = arguments::Arguments::command();
    // The generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "contraflow", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
