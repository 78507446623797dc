//! `contraflow man`: the manual pages.

use super::{Failure, arguments};
use clap::CommandFactory;
use std::fs;
use std::process::ExitCode;

pub(super) fn run(arguments: &arguments::Man) -> Result<ExitCode, Failure> {
    let directory = &arguments.directory;
    let failed = |error| format!("{}: {error}", directory.display());
    fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(arguments::Arguments::command(), directory).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
