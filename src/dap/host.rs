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
    /// The path or name of the program, and its arguments.
    pub command: Vec<OsString>,
    /// The working directory; `None` for that of this process.
    pub directory: Option<PathBuf>,
    /// Changes of the environment; `None` removes a variable.
    pub environment: Vec<(String, Option<String>)>,
}

/// A trace that another tool recorded.
#[derive(Clone, Debug, Default)]
pub struct ForeignTrace {
    /// The perf.data, or the LLDB trace bundle.
    pub path: PathBuf,
    /// A core file of the process.
    pub core: Option<PathBuf>,
    /// A directory with the programs and libraries that ran, each at its path in the system that
    /// recorded.
    pub symfs: Option<PathBuf>,
}

/// A server with something to debug, for a gdb that is not started yet.
pub struct Debuggee {
    /// The commands of gdb's command line that prepare gdb and connect it, in this order.
    pub commands: Vec<String>,
    /// A handle for questions to the session.
    pub inquirer: Inquirer,
    /// Opens the recording for questions about its whole history; `None` for a live program.
    pub open_asked: Option<OpenAsked>,
    /// Ends the server, waits for it, and removes its files.
    pub end: Box<dyn FnOnce()>,
}

/// A function that opens a recording for questions, in the thread that asks them. It may take long,
/// and calls its argument with the work done and all work; if the argument returns false, it fails.
pub type OpenAsked =
    Arc<dyn Fn(&mut dyn FnMut(u64, u64) -> bool) -> Result<Asked, String> + Send + Sync>;

/// A running recorder or importer.
pub struct Recorder {
    /// The process of the recorder, with its output piped.
    pub child: Child,
    /// The directory of the recording that it writes.
    pub recording: PathBuf,
}

/// A line that a debugged program printed, or part of one.
#[derive(Clone, Debug)]
pub struct OutputLine {
    /// True if it is from the standard error of the program or of this process.
    pub is_error: bool,
    /// The text.
    pub text: String,
}

/// The surroundings of an adapter. Errors are sentences for the user.
pub trait Host {
    /// Opens a recording, starts a program or attaches to a process, and serves it to gdb in
    /// another thread. Returns when gdb may connect.
    fn open(&self, target: &Target) -> Result<Debuggee, String>;

    /// Starts to record a program, and returns without waiting for its end.
    fn record(&self, program: &Program) -> Result<Recorder, String>;

    /// Starts to import a trace of another tool, and returns without waiting for the end.
    fn import(&self, trace: &ForeignTrace) -> Result<Recorder, String>;

    /// Starts gdb with its input and output piped. `None` is for the default gdb.
    fn gdb(&self, name: Option<&Path>) -> Result<Child, String>;

    /// Sends gdb or a recorder (with its process group) the signal of Ctrl-C, SIGINT. `process` is
    /// its ID.
    fn interrupt(&self, process: u32);

    /// Returns the output of live programs, as it arrives; `None` if it goes to the client
    /// directly, or was returned before.
    fn program_output(&self) -> Option<Box<dyn Iterator<Item = OutputLine> + Send>>;
}
