//! The surroundings of the adapter: recordings, programs, and gdb.

use crate::ask::Asked;
use crate::gdb::Inquirer;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;

/// The thing to debug.
#[derive(Clone, Debug)]
pub enum Target {
    /// A recording: a directory or a name; the latest if there is none.
    Recording(Option<PathBuf>),
    /// A program, live.
    Program(Program),
    /// A running process.
    Process(i32),
}

/// A program to start.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Its path or name, and its arguments.
    pub command: Vec<OsString>,
    /// Its working directory.
    pub directory: Option<PathBuf>,
    /// Changes of its environment; `None` removes a variable.
    pub environment: Vec<(String, Option<String>)>,
}

/// A trace that another tool recorded.
#[derive(Clone, Debug, Default)]
pub struct ForeignTrace {
    /// The perf.data, or the LLDB trace bundle.
    pub path: PathBuf,
    /// A core file of the process.
    pub core: Option<PathBuf>,
    /// A directory with the programs and libraries that ran, by their paths.
    pub symfs: Option<PathBuf>,
}

/// A server with something to debug, for a gdb that is not started yet.
pub struct Debuggee {
    /// The commands that prepare gdb and connect it, in this order.
    pub commands: Vec<String>,
    /// A handle for questions to the session.
    pub inquirer: Inquirer,
    /// Opens a recording for questions about its whole history.
    pub ask: Option<OpenAsked>,
    /// Ends the server, and removes its files.
    pub end: Box<dyn FnOnce()>,
}

/// Opens a recording for questions, in the thread that asks them. Calls its argument with what is
/// done and the whole of it; false ends that with an error.
pub type OpenAsked =
    Arc<dyn Fn(&mut dyn FnMut(u64, u64) -> bool) -> Result<Asked, String> + Send + Sync>;

/// A running recorder or importer.
pub struct Recorder {
    /// Its process, whose output is piped.
    pub child: Child,
    /// The directory of the recording.
    pub recording: PathBuf,
}

/// A line that a debugged program printed, or part of one.
#[derive(Clone, Debug)]
pub struct OutputLine {
    /// True if it is the program's standard error, or that of this process.
    pub is_error: bool,
    /// The text.
    pub text: String,
}

/// The surroundings of an adapter. An error is a sentence for the user.
pub trait Host {
    /// Opens a recording, or starts a program under a server.
    fn open(&self, target: &Target) -> Result<Debuggee, String>;

    /// Starts to record a program.
    fn record(&self, program: &Program) -> Result<Recorder, String>;

    /// Starts to import a trace.
    fn import(&self, trace: &ForeignTrace) -> Result<Recorder, String>;

    /// Starts gdb, with its input and output piped.
    fn gdb(&self, name: Option<&Path>) -> Result<Child, String>;

    /// Sends a process what Ctrl-C sends.
    fn interrupt(&self, process: u32);

    /// Returns what live programs print, if that does not go to the client anyway.
    fn program_output(&self) -> Option<Box<dyn Iterator<Item = OutputLine> + Send>>;
}
