//! The `contraflow` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    contraflow::cli::main()
}
