//! `contraflow serve`: a live program under a debugger that can go back.

use super::record::running;
use super::replay::listener;
use super::{Failure, arguments, say};
use crate::capture::{Backend, Filter, History, Live, PtConfig, Request};
use crate::common::Pid;
use crate::gdb::{self, Options};
use crate::recording::Store;
use crate::session::{self, Session};
use crate::tracee::resolve;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Bytes of trace between two points where decoding can start.
const PSB_PERIOD_BYTES: u32 = 4096;

pub(super) fn run(arguments: arguments::Serve) -> Result<ExitCode, Failure> {
    let listener = listener(&arguments.address)?;
    let attach = arguments.attach.map(Pid);
    let (program, argv) = match (attach, arguments.command.first()) {
        (Some(pid), _) => running(pid)?,
        (None, Some(name)) => (resolve(name)?, arguments.command),
        (None, None) => return Err("no program given".into()),
    };
    let place = Place::of(arguments.save)?;
    let request = Request {
        attach,
        program,
        argv,
        aslr: arguments.aslr,
        follow_forks: false,
        history: History::Full,
        start_at: None,
        filter: Filter::default(),
        psb_period_bytes: PSB_PERIOD_BYTES,
        step_log: None,
        pt_config: PtConfig::default(),
        output: Some(place.dir().to_owned()),
        force: arguments.force,
        store: Store::of_user(),
    };
    let backend = match arguments.backend {
        arguments::Backend::Auto | arguments::Backend::Soft => Backend::Soft,
        arguments::Backend::Step => Backend::Step,
    };
    let live = match attach {
        Some(pid) => Live::attach(backend, &request, pid)?,
        None => Live::launch(backend, &request)?,
    };
    let options = Options {
        btrace: false,
        edge_as_trap: arguments.edge_as_trap,
        once: arguments.once,
        announce: Box::new(|line| say(&line)),
    };
    gdb::serve(listener, Session::new(session::Live::new(live)), options)?;
    if let Place::Kept(dir) = &place {
        say(&format!("recorded in {}", dir.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the history is while the program lives.
enum Place {
    Kept(PathBuf),
    Temporary(PathBuf),
}

impl Place {
    fn of(save: Option<PathBuf>) -> Result<Self, Failure> {
        if let Some(dir) = save {
            return Ok(Self::Kept(dir));
        }
        let dir = std::env::temp_dir().join(format!("contraflow-live-{}", std::process::id()));
        std::fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(Self::Temporary(dir))
    }

    fn dir(&self) -> &Path {
        match self {
            Self::Kept(dir) | Self::Temporary(dir) => dir,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Self::Temporary(dir) = self {
            // What stays behind in the temporary directory does no harm.
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}
