//! The command line: one file a subcommand. Results go to stdout, progress and messages to
//! stderr. The exit status is 0, or 2 for an error; gaps in a history are data and no error.
//! `doctor` has 2 where no program can be recorded, too. `record` exits with the program's own
//! status, and `replay` with gdb's.

mod arguments;
mod completions;
mod disassembly;
mod doctor;
mod dump;
mod dump_arguments;
mod export;
mod gdb_session;
mod gdbinit;
mod import;
mod index;
mod info;
mod list;
mod man;
mod open;
mod print;
mod progress;
mod quoted;
mod raw;
mod raw_arguments;
mod record;
mod replay;
mod rm;
mod serve;
mod snapshot;
mod stats;
mod sysroot;
mod temporary;

use crate::common::Visible;
use crate::gdb;
use arguments::{Arguments, Command};
use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

/// What a subcommand fails with: a sentence for the user.
type Failure = Box<dyn std::error::Error>;

const EXIT_ERROR: u8 = 2;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Record(arguments) => record::run(arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Dump(arguments) => dump::run(&arguments),
        Command::Index(arguments) => index::run(&arguments),
        Command::Gdbinit => gdbinit::run(gdb::SCRIPT),
        Command::Lldbinit => gdbinit::run(gdb::LLDB_SCRIPT),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::List => list::run(),
        Command::Man(arguments) => man::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Rm(arguments) => rm::run(&arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Snapshot(arguments) => snapshot::run(&arguments),
    };
    result.unwrap_or_else(|failure| {
        if is_broken_pipe(failure.as_ref()) {
            return ExitCode::SUCCESS;
        }
        say(&failure);
        ExitCode::from(EXIT_ERROR)
    })
}

/// A message. Names, paths and the like in it are as others made them.
fn say(message: &dyn std::fmt::Display) {
    // Whoever closed stderr does not want to know.
    let _ = writeln!(std::io::stderr(), "contraflow: {}", Visible(message));
}

/// Somebody closed our output, as `head` does: no fault.
fn is_broken_pipe(failure: &(dyn std::error::Error + 'static)) -> bool {
    failure
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
