//! Launches the process to record, or attaches to it. The recording's directory is created first,
//! so that no process runs or is stopped in vain, and removed again if there is no process.

use super::Error;
use super::backend::Backend;
use super::recorder::Prepared;
use super::request::Request;
use crate::common::{Pid, Tid};
use crate::tracee::{self, Launch, Tracee, USER_CS_64, has_more_filters, wait_for};

impl Prepared {
    /// Creates the recording, and launches the program. The process is stopped in the execve(2)
    /// that started the program ([`finish_execve`] ends it).
    pub(super) fn launch(request: &Request, backend: Backend) -> Result<(Self, Pid), Error> {
        let env = request.environment();
        let launch = Launch {
            program: &request.program,
            argv: &request.argv,
            env: &env,
            directory: request.directory.as_deref(),
            aslr: request.aslr,
        };
        Self::create_before(request, backend, || launch.start())
    }

    /// Creates the recording, and attaches to the running process `pid`, or only to the thread of
    /// it that `request` names. Returns the threads, which are stopped.
    pub(super) fn attach(
        request: &Request,
        backend: Backend,
        pid: Pid,
    ) -> Result<(Self, Vec<Tid>), Error> {
        Self::create_before(request, backend, || match request.only_thread {
            Some(tid) => tracee::attach_thread(pid, tid).map(|()| vec![tid]),
            None => tracee::attach(pid),
        })
    }

    /// Creates the recording, then calls `begin`, which launches or attaches to the process.
    /// Removes the recording if that fails.
    fn create_before<T>(
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

/// Steps a thread that is stopped in an execve(2) out of it, and waits until it is stopped at the
/// new program's first instruction. Returns an error if the thread ends; any other stop counts as
/// that of the step.
pub(super) fn finish_execve(tracee: Tracee) -> Result<(), Error> {
    tracee.step(0)?;
    match wait_for(tracee.0)? {
        stop if stop.is_end() => Err(tracee::Error::Disturbed { tid: tracee.0, stop }.into()),
        _ => Ok(()),
    }
}

/// Returns the reason why a child, stopped in its execve(2), cannot be recorded from there on, as a
/// clause; `None` if it can. Such a child ran natively before, and may have set filters of its
/// system calls (seccomp); those that `parent` has as well do not matter.
pub(super) fn reason_not_to_record(child: Pid, parent: Pid) -> Result<Option<&'static str>, Error> {
    Ok(if !runs_64_bit_code(Tracee(Tid(child.0)))? {
        Some("runs a 32-bit program")
    } else if has_more_filters(child, parent) {
        // The filter would apply to the recorder's own calls in the process as well.
        Some("has filtered its system calls (seccomp)")
    } else {
        None
    })
}

/// Returns true if a stopped thread is in 64-bit code; false for the other modes of the CPU. Fails
/// if the thread is gone.
pub(super) fn runs_64_bit_code(tracee: Tracee) -> Result<bool, Error> {
    Ok(tracee.registers()?.cs == USER_CS_64)
}
