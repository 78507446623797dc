//! How a recording comes to its process: its place is made first, so that nothing is run or stopped
//! in vain, and given up again where there is no process.

use super::Error;
use super::recorder::{Prepared, Request};
use crate::common::{Pid, Tid};
use crate::tracee::{self, Launch};

impl Prepared {
    /// Launches the program, which stands at its first instruction.
    pub(super) fn launch(request: &Request, backend: &str) -> Result<(Self, Pid), Error> {
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

    /// Stops a process that runs already. Gives its threads.
    pub(super) fn attach(
        request: &Request,
        backend: &str,
        pid: Pid,
    ) -> Result<(Self, Vec<Tid>), Error> {
        Self::with(request, backend, || tracee::attach(pid))
    }

    fn with<T>(
        request: &Request,
        backend: &str,
        begin: impl FnOnce() -> Result<T, tracee::Error>,
    ) -> Result<(Self, T), Error> {
        let prepared = Self::of_program(request, backend).map_err(Error::Destination)?;
        match begin() {
            Ok(begun) => Ok((prepared, begun)),
            Err(error) => {
                prepared.give_up();
                Err(error.into())
            }
        }
    }
}
