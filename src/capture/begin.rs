//! Launches or attaches to the process of a recording. The recording's directory is created first,
//! so that nothing is run or stopped in vain, and removed again if there is no process.

use super::Error;
use super::backend::Backend;
use super::recorder::Prepared;
use super::request::Request;
use crate::common::{Pid, Tid};
use crate::tracee::{self, Launch, Tracee, USER_CS_64, has_more_filters, wait_for};

impl Prepared {
    /// Launches the program, stopped at its first instruction.
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

    /// Attaches to a running process, or to the one thread of it that is requested. Returns the
    /// stopped threads.
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

/// Takes a thread out of the execve(2) that brought its program.
pub(super) fn leave_system_call(tracee: Tracee) -> Result<(), Error> {
    tracee.step(0)?;
    match wait_for(tracee.0)? {
        stop if stop.is_end() => Err(tracee::Error::Disturbed { tid: tracee.0, stop }.into()),
        _ => Ok(()),
    }
}

/// Returns why a child is not recorded, as a clause: it has executed a program, and ran natively in
/// its parent's memory before. The filters of system calls that `parent` has do not matter.
pub(super) fn reason_against(child: Pid, parent: Pid) -> Result<Option<&'static str>, Error> {
    Ok(if !runs_64_bit_code(Tracee(Tid(child.0)))? {
        Some("runs a 32-bit program")
    } else if has_more_filters(child, parent) {
        // The recorder's own calls would be filtered as well.
        Some("has filtered its system calls (seccomp)")
    } else {
        None
    })
}

pub(super) fn runs_64_bit_code(tracee: Tracee) -> Result<bool, Error> {
    Ok(tracee.registers()?.cs == USER_CS_64)
}
