//! Records live processes. Several backends have one interface; `step` is the slow reference that
//! the others are compared with. Imported by `cli` and `session` only.
//!
//! Each backend is a folder. Its main loop is in `engine`, its view of the program in `process` and
//! `thread`, and its interface for debuggers in `live`, with `debugger` and, except in `step`, `go`
//! below it.
//!
//! Terms of several files: a thread that is about to end has an *exit stop*
//! (`PTRACE_EVENT_EXIT`), and is gone once it is resumed from there. A process goes on *natively*
//! where the recorder has detached from it. A *newborn* is a child that stays stopped at its birth
//! until a debugger follows or leaves it. The *front* is the process that the user sees, if the
//! recorder works in a child of it.

mod backend;
mod begin;
mod clock;
mod code_cache;
mod code_files;
mod contract;
mod culprit;
mod debugged;
mod delivery;
mod error;
mod exact;
mod filter;
mod final_state;
mod foreground;
mod front;
mod harm;
pub mod host;
mod known_code;
mod limits;
mod live;
mod live_program;
mod newborn;
mod orphan;
mod perf;
mod perf_error;
mod periodic_signal;
mod pt_config;
mod recorder;
mod request;
mod restart;
mod shared_cpu;
mod signals;
mod snapshot;
mod soft;
mod space;
mod start;
mod step;
mod unrecordable;
mod written;

pub use backend::Backend;
pub use contract::{Catches, Forks, Go, Report};
pub use error::Error;
pub use filter::{Code, Filter};
pub use foreground::ForegroundSignals;
pub use front::{RecorderEnd, record_with_front};
pub use limits::{OLDER_IS_OVERWRITTEN, ONLY_IN_PATHS, SLOW_DISK, SMALL_BUFFER};
pub use live::Live;
pub use orphan::{OrphanEnd, end_with_parent};
#[cfg(test)]
pub(crate) use perf::{
    ask_thread, attach_blindly, attach_by_model, can_listen, live_by_model, record_by_model,
    this_thread,
};
pub use perf_error::Error as PerfError;
pub use pt_config::{BadTerm, PtConfig};
pub use request::{History, KEYFRAME_PERIOD, Outcome, Request, Schedule};
pub use signals::Leaving;
#[cfg(test)]
pub(crate) use snapshot::counts;
pub use snapshot::{recorder_of, snapshot};
pub use written::Written;

/// Returns an error if this machine's CPU cannot trace as requested.
pub fn hardware(request: &Request) -> Result<(), Error> {
    perf::probe(request)
}

/// Runs a program and records it with `backend`. Blocks until the program has ended. Fails if the
/// backend cannot do what the request asks: [`Backend::Step`] records only from a program's start,
/// and only [`Backend::Perf`] records one thread of a process.
///
/// A running process is recorded until it ends, or until this process gets SIGINT, SIGTERM, SIGHUP
/// or SIGQUIT, which detaches from it. All backends but the hardware one also detach when the front
/// of this process has ended ([`record_with_front`]).
pub fn record(backend: Backend, request: &Request) -> Result<Outcome, Error> {
    if request.only_thread.is_some() {
        match backend {
            Backend::Perf => {}
            Backend::Soft | Backend::Step | Backend::Exact => {
                return Err(Error::WholeProcessOnly { backend });
            }
        }
    }
    match (backend, request.attach, &request.start_at) {
        (Backend::Perf, None, _) => perf::record(request),
        (Backend::Perf, Some(pid), _) => perf::attach(request, pid),
        (Backend::Soft, None, _) => soft::record(request),
        (Backend::Soft, Some(pid), _) => soft::attach(request, pid),
        (Backend::Step, None, None) => step::record(request),
        (Backend::Exact, None, _) => exact::record(request),
        (Backend::Exact, Some(pid), _) => exact::attach(request, pid),
        (Backend::Step, ..) => Err(Error::FromStartOnly { backend }),
    }
}
