//! The command line of `contraflow serve`.

use super::arguments::Backend;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(super) struct Serve {
    /// Serve `target remote` at unix:PATH, :PORT (loopback, this user only) or HOST:PORT
    #[arg(value_name = "ADDRESS", required_unless_present = "stdio", conflicts_with = "stdio")]
    pub(super) address: Option<String>,
    /// Serve on standard input and output: target remote | contraflow serve --stdio -- PROGRAM. The
    /// program reads nothing, and prints to standard error
    #[arg(long)]
    pub(super) stdio: bool,
    /// The fate of the program when the debugger disconnects without notice
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(super) on_disconnect: Option<OnDisconnect>,
    /// Debug the running process PID; it continues when the debugger detaches
    #[arg(short = 'p', long, value_name = "PID", conflicts_with_all = ["command", "aslr"], value_parser = clap::value_parser!(i32).range(1..))]
    pub(super) attach: Option<i32>,
    /// Record the path: the past shows no values, and threads run at the same time. Otherwise all
    /// inputs of the run are recorded, and the past has every register and all memory
    #[arg(long)]
    pub(super) path: bool,
    /// Record the path, by this method; translation with `auto`
    #[arg(long, value_enum)]
    pub(super) backend: Option<Backend>,
    /// Keep the history as a recording in this directory, which must be new or empty
    #[arg(long, value_name = "DIR")]
    pub(super) save: Option<PathBuf>,
    /// Replace a recording in DIR
    #[arg(long, requires = "save")]
    pub(super) force: bool,
    /// Keep address space randomization on
    #[arg(long)]
    pub(super) aslr: bool,
    /// End when the first debugger leaves; a program that it does not detach is killed
    #[arg(long)]
    pub(super) once: bool,
    /// Report the program's exit at once. Otherwise the program stops before it, where the debugger
    /// can still go back
    #[arg(long)]
    pub(super) no_stop_at_end: bool,
    /// Report the edges of the history as plain traps, for clients that misread them
    #[arg(long)]
    pub(super) edge_as_trap: bool,
    /// Store the state of an exact recording this often, in milliseconds (for tests)
    #[arg(long, value_name = "MS", hide = true, conflicts_with_all = ["path", "backend"])]
    pub(super) keyframe_period: Option<u64>,
    /// The program and its arguments; without them, `target extended-remote` starts programs
    #[arg(last = true)]
    pub(super) command: Vec<OsString>,
}

/// The fate of a live program when its debugger disconnects without notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OnDisconnect {
    /// The program is killed; the default with --once and --stdio
    Kill,
    /// The program continues without a debugger
    Detach,
    /// The program stays stopped until the next debugger connects
    Keep,
}
