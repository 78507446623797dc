//! What the command line looks like.

use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Record a run of a program once, then step through it in both directions in gdb.
#[derive(Debug, Parser)]
#[command(name = "contraflow", version)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a program and keep its history
    Record(Record),
    /// Say what a recording holds
    Info(Recording),
    /// List the recordings
    List,
    /// Remove recordings
    Rm(Remove),
}

#[derive(Debug, Args)]
pub(super) struct Record {
    /// Put the recording into this directory instead of a new one in ~/.local/share/contraflow
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,
    /// Keep address space randomization on
    #[arg(long)]
    pub(super) aslr: bool,
    /// Record the processes that the program forks, too, each as a recording of its own
    #[arg(long)]
    pub(super) follow_forks: bool,
    /// Bytes of trace between two points where decoding can start
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    pub(super) psb_period: u32,
    /// Write each thread's instruction addresses, 8 bytes each, into DIR (for tests)
    #[arg(long, value_name = "DIR", hide = true)]
    pub(super) step_log: Option<PathBuf>,
    /// Print nothing but errors
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(super) struct Recording {
    /// A recording's directory or name; the latest if none is given
    pub(super) recording: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct Remove {
    /// Directories or names of recordings
    #[arg(required = true)]
    pub(super) recordings: Vec<PathBuf>,
}
