//! `contraflow serve`: a live program under a debugger that can go back.

use super::replay::listen_at;
use super::temporary::{Temporary, remove_unused_temporaries};
use super::{Failure, arguments, say};
use crate::capture::{
    Backend, Filter, History, KEYFRAME_PERIOD, Leaving, PtConfig, Request, Schedule,
};
use crate::common::Pid;
use crate::gdb::{self, Listener, OnDisconnect, Options};
use crate::recording::Store;
use crate::session::{self, Run, Session, Start};
use crate::tracee::resolve;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The number of bytes of trace between two PSBs, where decoding can start.
const PSB_PERIOD_BYTES: u32 = 4096;

pub(super) fn run(arguments: arguments::Serve) -> Result<ExitCode, Failure> {
    remove_unused_temporaries();
    let on_disconnect = fate_on_disconnect(&arguments)?;
    let listener = match &arguments.address {
        Some(address) => listen_at(address)?,
        None => standard_streams()?,
    };
    let place = HistoryPlace::of(arguments.save)?;
    let program = arguments.command.first().map(|name| resolve(name)).transpose()?;
    let start = match (arguments.attach, &program) {
        (Some(pid), _) => Some(Start::Process(Pid(pid))),
        (None, Some(_)) => Some(Start::Again),
        (None, None) => None,
    };
    let period = arguments.keyframe_period.map_or(KEYFRAME_PERIOD, Duration::from_millis);
    let request = Request {
        aslr: arguments.aslr,
        keep: None,
        keyframe_period: period,
        force: arguments.force,
        ..live_request(program, arguments.command, place.dir())
    };
    let backend = match arguments.backend {
        None if !arguments.path => Backend::Exact,
        None | Some(arguments::Backend::Auto | arguments::Backend::Soft) => Backend::Soft,
        Some(arguments::Backend::Perf) => Backend::Perf,
        Some(arguments::Backend::Step) => Backend::Step,
    };
    let mut live = session::Live::new(backend, request);
    if arguments.no_stop_at_end {
        live.skip_end_stop();
    }
    let leaving = Leaving::on_signals();
    let options = Options {
        edge_as_trap: arguments.edge_as_trap,
        once: arguments.once,
        persists: start.is_none(),
        on_disconnect,
        is_to_end: Box::new(move || leaving.is_asked()),
        announce: Box::new(|line| say(&line)),
    };
    if let Some(start) = start {
        live.start(&start)?;
    }
    gdb::serve(listener, Session::new(live), options)?;
    if let HistoryPlace::Kept(dir) = &place
        && dir.join("manifest.json").exists()
    {
        say(&format!("recorded in {}", dir.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the request to record a live program whose history is written to the directory `output`,
/// with the defaults of all options. `program` is `None` for a running process, or if a debugger is
/// to name the program.
pub(super) fn live_request(
    program: Option<PathBuf>,
    argv: Vec<OsString>,
    output: PathBuf,
) -> Request {
    Request {
        attach: None,
        only_thread: None,
        program: program.unwrap_or_default(),
        argv,
        env: None,
        directory: None,
        aslr: false,
        follow_forks: false,
        history: History::Full,
        start_at: None,
        filter: Filter::default(),
        psb_period_bytes: PSB_PERIOD_BYTES,
        step_log: None,
        witness: None,
        keep: None,
        keyframe_period: KEYFRAME_PERIOD,
        schedule: Schedule::InTurn,
        pt_config: PtConfig::default(),
        output: Some(output),
        force: false,
        report: None,
        store: Store::of_user(),
    }
}

/// Returns the fate of the program when its debugger disconnects. By default the program is kept,
/// or killed if no other debugger can follow. Fails if it is to be kept and none can follow.
fn fate_on_disconnect(arguments: &arguments::Serve) -> Result<OnDisconnect, Failure> {
    use arguments::OnDisconnect as Said;
    let alone = arguments.once || arguments.stdio;
    match arguments.on_disconnect {
        Some(Said::Keep) if alone => {
            Err("no debugger follows after --once or --stdio: the program cannot be kept".into())
        }
        None if alone => Ok(OnDisconnect::Kill),
        Some(Said::Kill) => Ok(OnDisconnect::Kill),
        Some(Said::Detach) => Ok(OnDisconnect::Detach),
        Some(Said::Keep) | None => Ok(OnDisconnect::Keep),
    }
}

/// Returns the standard streams for the debugger. Replaces those of this process, which the program
/// inherits, by `/dev/null` and standard error.
fn standard_streams() -> Result<Listener, Failure> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let nothing = File::open("/dev/null")?;
    nix::unistd::dup2_stdin(&nothing)?;
    nix::unistd::dup2_stdout(io::stderr())?;
    Ok(Listener::Streams(input, output))
}

/// The directory to which the program is recorded.
enum HistoryPlace {
    /// The directory that the user named.
    Kept(PathBuf),
    Temporary(Temporary),
}

impl HistoryPlace {
    /// Returns the directory that `save` names, or else a new temporary one.
    fn of(save: Option<PathBuf>) -> Result<Self, Failure> {
        Ok(match save {
            Some(dir) => Self::Kept(dir),
            None => Self::Temporary(Temporary::create()?),
        })
    }

    /// Returns the directory of the program's history; creates nothing. The histories of followed
    /// children are beside it.
    fn dir(&self) -> PathBuf {
        match self {
            Self::Kept(dir) => dir.clone(),
            Self::Temporary(temporary) => temporary.dir().join("program"),
        }
    }
}
