//! `contraflow gdbinit`: the script for gdb's side, to load in one's own gdb.

use super::Failure;
use crate::gdb::SCRIPT;
use std::io::Write;
use std::process::ExitCode;

pub(super) fn run() -> Result<ExitCode, Failure> {
    std::io::stdout().lock().write_all(SCRIPT.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
