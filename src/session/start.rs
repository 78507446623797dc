//! What a debugger asks of a live session besides running it: another program, or another process,
//! and to stop at system calls.

pub use crate::capture::{Catches, Forks};
use crate::common::Pid;
use std::ffi::OsString;
use std::path::PathBuf;

/// What is to be debugged next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// A program, from its first instruction on.
    Program(Launch),
    /// The program that ran last, or that was to, once more.
    Again,
    /// A process that runs already.
    Process(Pid),
}

/// A program to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Its path or its name; none: that of the program that ran last.
    pub program: Option<OsString>,
    /// Its arguments, without its own name.
    pub arguments: Vec<OsString>,
    /// Its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Its working directory; none: the server's own.
    pub directory: Option<PathBuf>,
    /// Keep address space randomization; none: as the server was told.
    pub aslr: Option<bool>,
}
