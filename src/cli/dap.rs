//! `contraflow dap`: a debug adapter for IDEs, on the standard streams or for each client of a
//! socket.

use super::dap_debuggee::{open_process, open_program, open_recording};
use super::gdb_session::start_error;
use super::remedies::with_remedy;
use super::temporary::remove_unused_temporaries;
use super::{Failure, arguments, say};
use crate::capture::{OrphanEnd, end_with_parent};
use crate::dap::{
    self, Debuggee, ForeignTrace, Host, OutputLine, Program, Recorder, Target, output_chunks,
};
use crate::gdb;
use crate::recording::Store;
use crate::tracee::resolve;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, PipeReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;

/// Serves one client on the standard streams until it leaves; with --listen, starts an adapter for
/// each client, without end.
pub(super) fn run(arguments: &arguments::Dap) -> Result<ExitCode, Failure> {
    if let Some(address) = &arguments.listen {
        listen(address)?;
    } else {
        remove_unused_temporaries();
        let (input, output, host) = AdapterHost::take_streams()?;
        dap::serve(input, output, &host);
    }
    Ok(ExitCode::SUCCESS)
}

/// Listens at `unix:PATH`, `:PORT` (loopback) or `HOST:PORT`, and starts an adapter for each client
/// of this user, of root or of another machine; rejects other users of this machine. Fails if there
/// is a file at PATH. Returns only if it fails.
fn listen(address: &str) -> Result<(), Failure> {
    if let Some(path) = address.strip_prefix("unix:") {
        let listener = UnixListener::bind(path).map_err(|error| format!("{path}: {error}"))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        say(&format!("listening on {path}"));
        for client in listener.incoming() {
            start_adapter(client?.into());
        }
        return Ok(());
    }
    let wrong = || format!("{address}: give :PORT, HOST:PORT or unix:PATH");
    let found = match address.strip_prefix(':') {
        Some(port) => SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().map_err(|_| wrong())?)),
        None => address.to_socket_addrs().map_err(|_| wrong())?.next().ok_or_else(wrong)?,
    };
    if !found.ip().is_loopback() {
        say(&format!(
            "warning: {found} can be reached from other machines, and every client can run programs \
             as this user"
        ));
    }
    let listener = TcpListener::bind(found).map_err(|error| format!("{found}: {error}"))?;
    say(&format!("listening on {}", listener.local_addr()?));
    for client in listener.incoming() {
        let client = client?;
        if gdb::is_own_client(&client) {
            start_adapter(client.into());
        } else {
            say(&"a client of another user was rejected");
        }
    }
    Ok(())
}

/// Starts an adapter in a separate process, with a socket as its standard input and output, and
/// does not wait for it. Prints a message if it cannot be started.
fn start_adapter(socket: OwnedFd) {
    let started = socket.try_clone().and_then(|input| {
        Command::new("/proc/self/exe").arg("dap").stdin(input).stdout(socket).spawn()
    });
    match started {
        Ok(mut child) => drop(thread::spawn(move || child.wait())),
        Err(error) => say(&format!("an adapter cannot be started: {error}")),
    }
}

/// The host of an adapter on the standard streams. Other writers to these streams, such as live
/// programs, write to pipes instead, whose contents go to the client's console.
struct AdapterHost {
    /// The pipes from standard output and standard error; `None` once they are taken.
    output_pipes: RefCell<Option<(PipeReader, PipeReader)>>,
}

impl AdapterHost {
    /// Returns the standard input and output for the adapter, and replaces those of this process:
    /// input by `/dev/null`, output and error by pipes (`output_pipes`).
    fn take_streams() -> io::Result<(File, File, Self)> {
        let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let ((stdout_pipe, stdout), (stderr_pipe, stderr)) = (io::pipe()?, io::pipe()?);
        dup2_stdin(File::open("/dev/null")?)?;
        dup2_stdout(&stdout)?;
        dup2_stderr(&stderr)?;
        Ok((input, output, Self { output_pipes: RefCell::new(Some((stdout_pipe, stderr_pipe))) }))
    }
}

impl Host for AdapterHost {
    fn open(&self, target: &Target) -> Result<Debuggee, String> {
        let opened = match target {
            Target::Recording(name) => open_recording(name.as_deref()),
            Target::Program(program) => open_program(program),
            Target::Process(pid) => open_process(*pid),
        };
        opened.map_err(|failure| with_remedy(failure.as_ref()))
    }

    fn record(&self, program: &Program) -> Result<Recorder, String> {
        start_recorder(program).map_err(|failure| with_remedy(failure.as_ref()))
    }

    fn import(&self, trace: &ForeignTrace) -> Result<Recorder, String> {
        start_importer(trace).map_err(|failure| with_remedy(failure.as_ref()))
    }

    fn gdb(&self, name: Option<&Path>) -> Result<Child, String> {
        let name = name.map_or(OsStr::new("gdb"), Path::as_os_str);
        let mut gdb = Command::new(name);
        gdb.args(["-q", "-i=mi3"]).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        end_with_parent(&mut gdb, OrphanEnd::Kill);
        gdb.spawn().map_err(|error| start_error(name, &error).to_string())
    }

    fn interrupt(&self, process: u32) {
        // Both gdb and recorders lead a process group. A process that has ended needs no signal.
        let _ = killpg(Pid::from_raw(process.cast_signed()), Signal::SIGINT);
    }

    fn program_output(&self) -> Option<Box<dyn Iterator<Item = OutputLine> + Send>> {
        let (stdout_pipe, stderr_pipe) = self.output_pipes.borrow_mut().take()?;
        Some(Box::new(merged_output(stdout_pipe, stderr_pipe)))
    }
}

/// Returns the output of two pipes, in the order of its arrival, until both have ended: threads
/// read them.
fn merged_output(
    stdout_pipe: PipeReader,
    stderr_pipe: PipeReader,
) -> impl Iterator<Item = OutputLine> + Send {
    let (sender, lines) = std::sync::mpsc::channel();
    for (pipe, is_error) in [(stdout_pipe, false), (stderr_pipe, true)] {
        let sender = sender.clone();
        thread::spawn(move || {
            for line in output_chunks(pipe, is_error) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
    }
    lines.into_iter()
}

/// Starts `contraflow record` for a program, with a new recording in the store, without waiting for
/// it. The program is a file in its working directory, or else one that a shell would find. Its
/// environment is that of this process, with the changes that `program` lists.
fn start_recorder(program: &Program) -> Result<Recorder, Failure> {
    let name = program.command.first().ok_or("`program` is empty")?;
    let named = program.directory.as_ref().map(|dir| dir.join(name)).filter(|path| path.is_file());
    // A relative path would start at `directory` once more.
    let path = match named {
        Some(path) => std::path::absolute(path)?,
        None => resolve(name)?,
    };
    let recording: PathBuf = Store::of_user().create_recording_dir(&path)?;
    let mut command = Command::new("/proc/self/exe");
    command.args(["record", "-o"]).arg(&recording).arg("--").arg(path).args(&program.command[1..]);
    if let Some(directory) = &program.directory {
        command.current_dir(directory);
    }
    for (name, value) in &program.environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    start_piped(command, recording)
}

/// Starts `contraflow import` for a trace, with a new recording in the store, without waiting for
/// it. Does not check the trace.
fn start_importer(trace: &ForeignTrace) -> Result<Recorder, Failure> {
    let recording: PathBuf = Store::of_user().create_recording_dir(&trace.path)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg("import").arg(&trace.path).arg("-o").arg(&recording);
    for (option, value) in [("--core", &trace.core), ("--symfs", &trace.symfs)] {
        if let Some(value) = value {
            command.arg(option).arg(value);
        }
    }
    start_piped(command, recording)
}

/// Starts a recorder or importer as the leader of a process group, with its output piped and its
/// input empty. It is terminated if this process ends first.
fn start_piped(mut command: Command, recording: PathBuf) -> Result<Recorder, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    end_with_parent(&mut command, OrphanEnd::Terminate);
    let child = command.spawn()?;
    Ok(Recorder { child, recording })
}
