//! `contraflow replay` without `--listen`: gdb in the foreground, and its server in a thread of
//! this process, connected by a Unix socket of this user. gdb has the terminal and receives its
//! signals.

use super::found::NamedRecording;
use super::remedies::with_remedy;
use super::sysroot::Sysroot;
use super::temporary::Temporary;
use super::{Failure, arguments, open, quoted, replay, say};
use crate::capture::ForegroundSignals;
use crate::common::Pid;
use crate::gdb::{self, Listener, Options};
use crate::recording::{BackendName, Reader};
use crate::session::{Position, SourceDirectory, source_directories};
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::{fs, io};

/// Size of a socket's path with its terminating zero (`sun_path` of unix(7)).
const SOCKET_PATH_BYTES: usize = 108;

/// Runs gdb on the recording, with the recording's files as gdb's sysroot, and waits for its end.
/// Returns gdb's exit status; 128 plus the signal number if a signal killed it.
pub(super) fn run(arguments: &arguments::Replay) -> Result<ExitCode, Failure> {
    let found = NamedRecording::find(arguments.recording.as_deref())?;
    let dir = fs::canonicalize(found.dir())?;
    let temporary = Temporary::create()?;
    let reader = Reader::open(&dir)?;
    let at = arguments.at.as_deref().map(|at| position(at, &reader)).transpose()?;
    let gdb_files = GdbFiles::write(&reader, &dir, temporary.dir())?;
    let server = Server::start(dir, &gdb_files.socket, arguments.edge_as_trap)?;
    let signals = ForegroundSignals::take();
    let name = arguments.gdb.as_deref().map_or(OsStr::new("gdb"), Path::as_os_str);
    let mut more: Vec<OsString> = Vec::new();
    if at.is_none() && io::stdin().is_terminal() {
        // This shows how the program ended.
        more.extend(["-ex".into(), "cf-when".into()]);
    }
    more.extend(at.into_iter().flat_map(|at| ["-ex".into(), format!("cf-seek {at}").into()]));
    more.extend_from_slice(&arguments.gdb_arguments);
    let mut gdb = gdb_files.start_gdb(name, &more)?;
    signals.forward_to(Pid(gdb.id().cast_signed()));
    let status = gdb.wait()?;
    server.end();
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Returns the text of a position that the user gave. Fails if it does not have the form of one;
/// does not check that the history has it.
fn position<'a>(text: &'a str, reader: &Reader) -> Result<&'a str, Failure> {
    let is_exact = reader.manifest().capture.backend == BackendName::Exact;
    match Position::parse(text, is_exact) {
        Some(_) => Ok(text),
        None => {
            Err(format!("{text}: give a position, such as 1234, or 1234.5 if it is exact").into())
        }
    }
}

/// The server of the recording, in a thread.
struct Server {
    is_to_end: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Server {
    /// Starts a thread that opens the recording and listens at `socket`. Returns when gdb may
    /// connect, or fails if the recording cannot be opened. `edge_as_trap` is
    /// [`Options::edge_as_trap`].
    fn start(recording: PathBuf, socket: &Path, edge_as_trap: bool) -> Result<Self, Failure> {
        let listener = Listener::unix(socket)?;
        let is_to_end = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&is_to_end);
        let (opened, outcome) = sync_channel(1);
        let serve = move || {
            let options = Options {
                edge_as_trap,
                is_to_end: Box::new(move || end.load(Ordering::Relaxed)),
                announce: Box::new(|_| {}),
                ..Options::default()
            };
            serve(&recording, listener, options, &opened);
        };
        let thread = thread::Builder::new().name("server".into()).spawn(serve)?;
        match outcome.recv() {
            Ok(Ok(())) => Ok(Self { is_to_end, thread }),
            Ok(Err(failure)) => Err(failure.into()),
            Err(_) => Err("the server ended before the recording was open".into()),
        }
    }

    /// Interrupts a search that runs, and waits for the end of the thread.
    fn end(self) {
        self.is_to_end.store(true, Ordering::Relaxed);
        // A panic was printed when it happened.
        let _ = self.thread.join();
    }
}

/// Opens a recording, sends the outcome to `opened`, and serves the recording until the end of the
/// server. This is the body of the server's thread.
fn serve(
    recording: &Path,
    listener: Listener,
    options: Options,
    opened: &SyncSender<Result<(), String>>,
) {
    let (outcome, run) = match open::for_debugger(recording) {
        Ok(run) => (Ok(()), Some(run)),
        Err(failure) => (Err(with_remedy(failure.as_ref())), None),
    };
    // The thread that started this one waits for the outcome.
    let _ = opened.send(outcome);
    let served = run.map(|run| replay::serve(listener, run, options));
    if let Some(Err(failure)) = served {
        say(&failure);
    }
}

/// The files that gdb loads, and the path of the server's socket.
pub(super) struct GdbFiles {
    sysroot: Sysroot,
    pub(super) socket: PathBuf,
    script: PathBuf,
    /// The script that keeps gdb from loading scripts of the recording.
    sysroot_script: PathBuf,
    recording: PathBuf,
    /// The directories of the sources, for `set substitute-path`.
    sources: Vec<SourceDirectory>,
}

impl GdbFiles {
    /// Writes the sysroot of `recording` (its directory) and the scripts into the directory `dir`.
    /// Fails if gdb cannot connect to a socket there. Does not create the socket.
    pub(super) fn write(reader: &Reader, recording: &Path, dir: &Path) -> Result<Self, Failure> {
        let gdb_files = Self {
            sysroot: Sysroot::make(reader, dir.join("root"))?,
            socket: dir.join("server"),
            script: dir.join("contraflow.py"),
            sysroot_script: dir.join("contraflow_sysroot.py"),
            recording: recording.to_owned(),
            sources: source_directories(reader),
        };
        fs::write(&gdb_files.script, gdb::SCRIPT)?;
        fs::write(&gdb_files.sysroot_script, gdb::SYSROOT_SCRIPT)?;
        check_socket(&gdb_files.socket)?;
        Ok(gdb_files)
    }

    /// Starts gdb `name` with [`Self::gdb_commands`], and then the arguments `more`. Does not wait
    /// for it.
    fn start_gdb(&self, name: &OsStr, more: &[OsString]) -> Result<Child, Failure> {
        let commands = self.gdb_commands().into_iter();
        let commands = commands.flat_map(|command| [OsString::from("-ex"), command]);
        let mut gdb = Command::new(name);
        gdb.arg("-q").args(commands).args(more);
        // For `cf-hits` and `cf-calls`, which run this program.
        gdb.env("CONTRAFLOW_RECORDING", &self.recording);
        if let Ok(program) = std::env::current_exe() {
            gdb.env("CONTRAFLOW_PROGRAM", program);
        }
        gdb.spawn().map_err(|error| start_error(name, &error))
    }

    /// Returns the commands of gdb's command line that prepare it; the last one connects it to the
    /// server.
    pub(super) fn gdb_commands(&self) -> Vec<OsString> {
        let command = |words: &[&OsStr]| words.join(OsStr::new(" "));
        // gdb must not run scripts that come with the files in these directories.
        let protect = command(&[
            "contraflow-sysroot".as_ref(),
            &*quoted::for_gdb(self.sysroot.dir().as_os_str()),
            &*quoted::for_gdb(self.recording.as_os_str()),
        ]);
        let mut commands = vec![
            // The default is 2 s, after which gdb takes a late reply for the answer to its next
            // packet.
            "set remotetimeout 60".into(),
            // Otherwise gdb inserts and removes all breakpoints at each step.
            "set breakpoint always-inserted on".into(),
            command(&["source".as_ref(), self.sysroot_script.as_os_str()]),
            protect,
            command(&["set sysroot".as_ref(), self.sysroot.dir().as_os_str()]),
        ];
        if let Some(program) = self.sysroot.program() {
            commands.push(command(&["file".as_ref(), &quoted::for_gdb(program.as_os_str())]));
        }
        for (named, place) in &self.sources {
            let [named, place] = [named, place].map(|path| quoted::for_gdb(path.as_os_str()));
            commands.push(command(&["set substitute-path".as_ref(), &named, &place]));
        }
        commands.push(command(&["source".as_ref(), self.script.as_os_str()]));
        // A page of library names would hide the line that shows where the program is.
        let quietly = "with pagination off -- with print symbol-loading off -- target remote";
        commands.push(command(&[quietly.as_ref(), self.socket.as_os_str()]));
        commands
    }
}

/// Returns the error for gdb, as `name`, that could not be started; with advice if it is plain
/// `gdb` and not installed.
pub(super) fn start_error(name: &OsStr, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound if name == "gdb" => {
            "gdb is not installed; install it (apt-get install gdb), or serve another debugger with \
             `contraflow replay --listen`"
                .into()
        }
        _ => format!("{}: gdb cannot be started: {error}", name.display()).into(),
    }
}

/// Fails if gdb cannot connect to a Unix socket at this path: it is too long, or has a colon. For
/// sockets in a temporary directory ([`Temporary`]): the error names the parent of that, which
/// TMPDIR sets.
pub(super) fn check_socket(socket: &Path) -> Result<(), Failure> {
    let bytes = socket.as_os_str().as_bytes();
    // gdb would read a path with a colon as HOST:PORT.
    if bytes.len() < SOCKET_PATH_BYTES && !bytes.contains(&b':') {
        return Ok(());
    }
    let dir = socket.parent().and_then(Path::parent).unwrap_or(socket).display();
    let why = "is too long or has a colon, so that gdb cannot connect to a socket there";
    Err(format!("{dir} {why}; set TMPDIR to another directory").into())
}
