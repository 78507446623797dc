//! `contraflow gdbinit` and `contraflow lldbinit`: the scripts that users load in their debuggers.

use super::Failure;
use std::io::Write;
use std::process::ExitCode;

/// Prints a debugger's script.
pub(super) fn run(script: &str) -> Result<ExitCode, Failure> {
    std::io::stdout().lock().write_all(script.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
