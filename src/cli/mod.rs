//! The command line: one file per subcommand. Results go to stdout, progress and messages to
//! stderr. The exit status is 0, or 2 for an error; gaps in a history are data, not errors.
//! `doctor` also returns 2 if no program can be recorded, `check` if the replay differs, `info` if
//! files are damaged, and questions and exports if the user interrupts them. `diff` returns 1 if
//! the runs differ, `record` the program's own status, and `replay` that of gdb.

mod answer;
mod arguments;
mod ask;
mod ask_arguments;
mod calls;
mod check;
mod completions;
mod coverage;
mod dap;
mod dap_debuggee;
mod diff;
mod disassembly;
mod doctor;
mod dump;
mod dump_arguments;
mod dump_log;
mod export;
mod export_calls;
mod export_parquet;
mod found;
mod gdb_session;
mod gdbinit;
mod hits;
mod import;
mod index;
mod info;
mod list;
mod man;
mod mcp;
mod open;
mod origin;
mod pack;
mod print;
mod profile;
mod progress;
mod quoted;
mod raw;
mod raw_arguments;
mod record;
mod record_keep;
mod remedies;
mod replay;
mod replay_arguments;
mod rm;
mod rows;
mod serve;
mod serve_arguments;
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

/// The error of a subcommand: a sentence for the user.
type Failure = Box<dyn std::error::Error>;

const EXIT_ERROR: u8 = 2;

/// Runs the command line of this process, and returns the exit status. For `--help`, `--version`
/// and wrong arguments, ends the process instead.
pub fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Record(arguments) => record::run(arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Coverage(arguments) => coverage::run(&arguments),
        Command::Dap(arguments) => dap::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Calls(arguments) => calls::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Dump(arguments) => dump::run(&arguments),
        Command::Hits(arguments) => hits::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Origin(arguments) => origin::run(&arguments),
        Command::Index(arguments) => index::run(&arguments),
        Command::Gdbinit => gdbinit::run(gdb::SCRIPT),
        Command::Lldbinit => gdbinit::run(gdb::LLDB_SCRIPT),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::List => list::run(),
        Command::Man(arguments) => man::run(&arguments),
        Command::Mcp => mcp::run(),
        Command::Pack(arguments) => pack::run(&arguments),
        Command::Profile(arguments) => profile::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Rm(arguments) => rm::run(&arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Snapshot(arguments) => snapshot::run(&arguments),
        Command::Unpack(arguments) => pack::unpack_file(&arguments),
    };
    result.unwrap_or_else(|failure| {
        if is_broken_pipe(failure.as_ref()) {
            return ExitCode::SUCCESS;
        }
        say(&remedies::with_remedy(failure.as_ref()));
        ExitCode::from(EXIT_ERROR)
    })
}

/// Returns a number of things in words: `1 thread`, `2 threads`.
fn count_text(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

/// Prints a message to stderr. Names and paths in it may come from others, and are escaped.
fn say(message: &dyn std::fmt::Display) {
    // Without a stderr there is nowhere to report an error.
    let _ = writeln!(std::io::stderr(), "contraflow: {}", Visible(message));
}

/// Returns true if the failure is a write whose reader has gone, as `head` goes from our output,
/// which is not an error. Looks at the failure itself, not at its causes.
fn is_broken_pipe(failure: &(dyn std::error::Error + 'static)) -> bool {
    let written = match failure.downcast_ref() {
        Some(crate::ask::Error::Output(error)) => Some(error),
        _ => failure.downcast_ref::<std::io::Error>(),
    };
    written.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
