//! Launches the process to record, or attaches to it. The recording's directory is created first,
//! so that no process runs or is stopped in vain, and removed again if there is no process.

use super::Error;
use super::backend::Backend;
use super::recorder::Prepared;
use super::request::Request;
use crate::common::{Pid, Tid};
use crate::tracee::{self, Launch, Tracee, USER_CS_64, has_more_filters, wait_for};

impl Prepared {
    /// Creates the recording, and launches the program, stopped before its first instruction.
    pub(super) fn launch(request: &Request, backend: Backend) -> Result<(Self, Pid), Error> {
        let env = request.environment();
        let launch = Launch {
            program: &request.program,
            argv: &request.argv,
            env: &env,
            directory: request.directory.as_deref(),
            aslr: request.aslr,
        };
        Self::with(request, backend, || launch.start())
    }

    /// Creates the recording, and attaches to a running process, or only to its thread that
    /// `request` names. Returns the stopped threads.
    pub(super) fn attach(
        request: &Request,
        backend: Backend,
        pid: Pid,
    ) -> Result<(Self, Vec<Tid>), Error> {
        Self::with(request, backend, || match request.only_thread {
            Some(tid) => tracee::attach_thread(pid, tid).map(|()| vec![tid]),
            None => tracee::attach(pid),
        })
    }

    /// Creates the recording, then the process by `begin`. Removes the recording if that fails.
    fn with<T>(
        request: &Request,
        backend: Backend,
        begin: impl FnOnce() -> Result<T, tracee::Error>,
    ) -> Result<(Self, T), Error> {
        let prepared = Self::of_program(request, backend).map_err(Error::Destination)?;
        match begin() {
            Ok(process) => Ok((prepared, process)),
            Err(error) => {
                prepared.give_up();
                Err(error.into())
            }
        }
    }
}

/// Ends the execve(2) that started a thread's program, so that the thread is stopped at the first
/// instruction as after a step. Returns an error if the thread ends.
pub(super) fn leave_system_call(tracee: Tracee) -> Result<(), Error> {
    tracee.step(0)?;
    match wait_for(tracee.0)? {
        stop if stop.is_end() => Err(tracee::Error::Disturbed { tid: tracee.0, stop }.into()),
        _ => Ok(()),
    }
}

/// Returns the reason why a child cannot be recorded after its execve(2), as a clause; `None` if it
/// can. The child ran natively before. Filters of system calls (seccomp) that it shares with
/// `parent` do not matter.
pub(super) fn reason_against(child: Pid, parent: Pid) -> Result<Option<&'static str>, Error> {
    Ok(if !runs_64_bit_code(Tracee(Tid(child.0)))? {
        Some("runs a 32-bit program")
    } else if has_more_filters(child, parent) {
        // The filter would apply to the recorder's own calls in the process as well.
        Some("has filtered its system calls (seccomp)")
    } else {
        None
    })
}

pub(super) fn runs_64_bit_code(tracee: Tracee) -> Result<bool, Error> {
    Ok(tracee.registers()?.cs == USER_CS_64)
}
