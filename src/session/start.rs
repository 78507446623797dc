//! Requests to a live session besides resuming: to start programs and to stop at events.

pub use crate::capture::{Catches, Forks};
use crate::common::Pid;
use std::ffi::OsString;
use std::path::PathBuf;

/// The next program to debug in a live session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// A program from its first instruction on.
    Program(Launch),
    /// The program that was started last again; if none was, the one with which the session was
    /// created.
    Again,
    /// A running process.
    Process(Pid),
}

/// A program to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The path, or a name to look up in `$PATH`; `None` for the previous program.
    pub program: Option<OsString>,
    /// The arguments, without the program's name.
    pub arguments: Vec<OsString>,
    /// All environment variables.
    pub environment: Vec<(OsString, OsString)>,
    /// The working directory; `None` for the server's.
    pub directory: Option<PathBuf>,
    /// True to keep address space randomization; `None` for the server's setting.
    pub aslr: Option<bool>,
}
