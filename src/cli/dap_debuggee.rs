//! The debuggee of `contraflow dap`: a recording or a live program, with its server in a thread of
//! this process, and the commands with which gdb connects to it. Besides gdb, the adapter asks the
//! session questions, through an [`Inquirer`].

use super::found::NamedRecording;
use super::gdb_session::{GdbFiles, check_socket};
use super::open::{self, DebuggableRecording};
use super::remedies::with_remedy;
use super::temporary::Temporary;
use super::{Failure, ask, quoted, say, serve};
use crate::capture::Backend;
use crate::common::Pid;
use crate::dap::{DAP_MODULE, DAP_SCRIPTS, Debuggee, Program};
use crate::gdb::{self, Inquired, Inquirer, Listener, Options};
use crate::recording::Reader;
use crate::session::{Live, Run, Session, Start};
use crate::tracee::resolve;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};

/// Opens a recording, the latest for `None`, at its end, in a server for the adapter's gdb. Returns
/// when it is open: an exact one is replayed to its end first. The debuggee can also open it for
/// questions.
pub(super) fn open_recording(name: Option<&Path>) -> Result<Debuggee, Failure> {
    let found = NamedRecording::find(name)?;
    let dir = fs::canonicalize(found.dir())?;
    let temporary = Temporary::create()?;
    let reader = Reader::open(&dir)?;
    let gdb_files = GdbFiles::write(&reader, &dir, temporary.dir())?;
    let mut commands = gdb_files.gdb_commands();
    // The last command connects gdb: the scripts are loaded before.
    let connect = commands.pop();
    commands.push(import_scripts(temporary.dir())?);
    commands.extend(connect);
    let server = Server::start(&gdb_files.socket, move |accept, options| {
        Ok(match open::for_debugger(&dir)? {
            DebuggableRecording::Path(recording) => {
                let session = Session::new(crate::session::Recorded::at_end(*recording));
                Box::new(move || serve_one(accept(), session, options))
            }
            DebuggableRecording::Exact(replayed) => {
                let session = Session::new(*replayed);
                Box::new(move || serve_one(accept(), session, options))
            }
        })
    })?;
    let open_asked = Some(ask::open_later(reader.dir().to_owned()));
    Ok(Debuggee { open_asked, ..server.debuggee(commands, (found, temporary)) })
}

/// Starts a program under a server for the adapter's gdb, and records it exactly, into a temporary
/// directory, which is removed once the debuggee has ended. The program is a file in its working
/// directory, or else one that a shell would find.
pub(super) fn open_program(program: &Program) -> Result<Debuggee, Failure> {
    let name = program.command.first().ok_or("`program` is empty")?;
    let named = program.directory.as_ref().map(|dir| dir.join(name)).filter(|path| path.is_file());
    // A relative path would start at `directory` once more.
    let path = match named {
        Some(path) => std::path::absolute(path)?,
        None => resolve(name)?,
    };
    let mut environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    for (name, value) in &program.environment {
        environment.retain(|(known, _)| known != OsStr::new(name));
        environment.extend(value.iter().map(|value| (name.into(), value.into())));
    }
    let temporary = Temporary::create()?;
    let request = crate::capture::Request {
        env: Some(environment),
        directory: program.directory.clone(),
        ..serve::live_request(
            Some(path.clone()),
            program.command.clone(),
            temporary.dir().join("program"),
        )
    };
    let file = fs::canonicalize(path)?;
    open_live(request, Start::Again, Some(&file), temporary)
}

/// Attaches a server for the adapter's gdb to a process, and records it exactly from then on, into
/// a temporary directory, which is removed once the debuggee has ended.
pub(super) fn open_process(pid: i32) -> Result<Debuggee, Failure> {
    let temporary = Temporary::create()?;
    let request = serve::live_request(None, Vec::new(), temporary.dir().join("program"));
    let file = fs::read_link(format!("/proc/{pid}/exe")).ok();
    open_live(request, Start::Process(Pid(pid)), file.as_deref(), temporary)
}

/// Starts or attaches to a program, as `start` says, and records it exactly, under a server for the
/// adapter's gdb. `file` is the executable for gdb, if it is known. `temporary` is removed once the
/// debuggee has ended.
fn open_live(
    request: crate::capture::Request,
    start: Start,
    file: Option<&Path>,
    temporary: Temporary,
) -> Result<Debuggee, Failure> {
    let (socket, script) = (temporary.dir().join("server"), temporary.dir().join("contraflow.py"));
    check_socket(&socket)?;
    fs::write(&script, gdb::SCRIPT)?;
    let command = |words: &[&OsStr]| words.join(OsStr::new(" "));
    let mut commands = vec!["set remotetimeout 60".into(), "set sysroot /".into()];
    if let Some(file) = file {
        commands.push(command(&["file".as_ref(), &quoted::for_gdb(file.as_os_str())]));
    }
    commands.push(command(&["source".as_ref(), script.as_os_str()]));
    commands.push(import_scripts(temporary.dir())?);
    commands.push(command(&["target remote".as_ref(), socket.as_os_str()]));
    let server = Server::start(&socket, move |accept, options| {
        let mut live = Live::new(Backend::Exact, request);
        live.start(&start)?;
        let session = Session::new(live);
        Ok(Box::new(move || serve_one(accept(), session, options)))
    })?;
    Ok(server.debuggee(commands, temporary))
}

/// Writes the adapter's Python modules into a directory, and returns gdb's command to load them.
/// Fails if the directory's path is not UTF-8.
fn import_scripts(dir: &Path) -> Result<OsString, Failure> {
    for (name, text) in DAP_SCRIPTS {
        fs::write(dir.join(name), text)?;
    }
    let path = dir.to_str().ok_or("TMPDIR is not UTF-8; set it to another directory")?;
    let path = path.replace('\\', "\\\\").replace('\'', "\\'");
    let import =
        format!("import sys; sys.path.insert(0, '{path}'); sys.dont_write_bytecode = True");
    Ok(format!("python {import}; import {DAP_MODULE}").into())
}

/// Serves a session to gdb until gdb disconnects. If `inquired` is `None`, gdb never connected:
/// ends the session without serving it.
fn serve_one<R: Run>(inquired: Option<Inquired>, session: Session<R>, options: Options) {
    let Some(inquired) = inquired else {
        // The server is to end, and no gdb has connected.
        let mut session = session;
        session.run_mut().end_session();
        return;
    };
    if let Err(error) = gdb::serve(Listener::Inquired(inquired), session, options) {
        say(&error);
    }
}

/// A function that blocks until gdb connects. It returns `None` if the server is to end instead, or
/// if the connection fails.
type Accept = Box<dyn FnOnce() -> Option<Inquired> + Send>;
/// A function that serves a session that is open, until its end.
type Serve = Box<dyn FnOnce()>;

/// A server in a thread, which owns the session, since a traced process belongs to a thread.
struct Server {
    socket: PathBuf,
    inquirer: Inquirer,
    is_to_end: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Server {
    /// Listens at `socket`, which must not exist yet, and runs `open` in a thread: it opens a
    /// session and returns the function that serves it. Returns when the session is open, so that
    /// gdb may connect; fails if it cannot be opened.
    fn start(
        socket: &Path,
        open: impl FnOnce(Accept, Options) -> Result<Serve, Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let listener = UnixListener::bind(socket)?;
        fs::set_permissions(socket, Permissions::from_mode(0o600))?;
        let is_to_end = Arc::new(AtomicBool::new(false));
        let (end, in_accept) = (Arc::clone(&is_to_end), Arc::clone(&is_to_end));
        let (inquirer, inquiries) = Inquirer::new();
        let accept: Accept = Box::new(move || {
            let (stream, _) = listener.accept().ok()?;
            if in_accept.load(Ordering::Relaxed) {
                return None;
            }
            let (input, output) = (file(stream.try_clone().ok()?), file(stream));
            Some(inquiries.with(input, output))
        });
        let (opened, outcome) = sync_channel::<Result<(), String>>(1);
        let body = move || {
            let options = Options {
                is_to_end: Box::new(move || end.load(Ordering::Relaxed)),
                announce: Box::new(|line| say(&line)),
                ..Options::default()
            };
            match open(accept, options) {
                Ok(serve) => {
                    // The thread that started this one waits for the outcome.
                    let _ = opened.send(Ok(()));
                    serve();
                }
                Err(failure) => drop(opened.send(Err(with_remedy(failure.as_ref())))),
            }
        };
        let thread = thread::Builder::new().name("server".into()).spawn(body)?;
        match outcome.recv() {
            Ok(Ok(())) => Ok(Self { socket: socket.to_owned(), inquirer, is_to_end, thread }),
            Ok(Err(failure)) => Err(failure.into()),
            Err(_) => Err("the server ended before there was a session".into()),
        }
    }

    /// Returns the debuggee for the adapter, with `commands` for gdb and no recording for
    /// questions. Its `end` interrupts the server, waits for its thread, and drops `kept`. Bytes of
    /// a command that are not UTF-8 are replaced.
    fn debuggee(self, commands: Vec<OsString>, kept: impl Sized + 'static) -> Debuggee {
        let Self { socket, inquirer, is_to_end, thread } = self;
        let end = move || {
            is_to_end.store(true, Ordering::Relaxed);
            // If gdb never connected, the thread still waits for it: this connection wakes it up.
            drop(UnixStream::connect(socket));
            // A panic was printed when it happened.
            let _ = thread.join();
            drop(kept);
        };
        let text = |command: OsString| command.to_string_lossy().into_owned();
        Debuggee {
            commands: commands.into_iter().map(text).collect(),
            inquirer,
            open_asked: None,
            end: Box::new(end),
        }
    }
}

fn file(stream: UnixStream) -> File {
    File::from(OwnedFd::from(stream))
}
