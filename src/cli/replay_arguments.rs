//! The command line of `contraflow replay`.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct Replay {
    /// A recording's directory or name; the latest if not given
    #[arg(value_name = "REC")]
    pub(super) recording: Option<PathBuf>,
    /// Go to this position first, such as one of `contraflow hits`
    #[arg(long, value_name = "POSITION", conflicts_with_all = ["listen", "stdio"])]
    pub(super) at: Option<String>,
    /// Serve `target remote` at unix:PATH, :PORT (loopback, this user only) or HOST:PORT instead of
    /// starting gdb
    #[arg(long, value_name = "ADDRESS", conflicts_with = "stdio")]
    pub(super) listen: Option<String>,
    /// Serve on standard input and output: target remote | contraflow replay --stdio REC
    #[arg(long)]
    pub(super) stdio: bool,
    /// End when the first debugger leaves
    #[arg(long)]
    pub(super) once: bool,
    /// Report the edges of the history as plain traps, for clients that misread them
    #[arg(long)]
    pub(super) edge_as_trap: bool,
    /// The gdb to start
    #[arg(long, value_name = "PROGRAM")]
    pub(super) gdb: Option<PathBuf>,
    /// More arguments for gdb
    #[arg(last = true, value_name = "GDB ARGUMENTS")]
    pub(super) gdb_arguments: Vec<OsString>,
}
