//! The start of a live session's program: by a launch or an attach, once or repeatedly.

use super::Live;
use crate::capture::{Backend, Live as Program, Request};
use crate::common::Tid;
use crate::session::{Catches, Ending, Error, Forks, Run, Start};
use crate::tracee;
use std::cell::{OnceCell, RefCell};

impl Live {
    /// Returns a run without a program, as if it were gone. `request` has the settings for
    /// [`Run::start`], and the program to start first.
    pub fn new(backend: Backend, request: Request) -> Self {
        Self {
            backend,
            program: RefCell::new(Program::vacant(&request)),
            request,
            has_run: false,
            is_attached: false,
            history: OnceCell::from(None),
            reusable_replay: RefCell::new(None),
            in_past: false,
            stopped_thread: Tid(0),
            stop_signal: None,
            repeats_signal: false,
            ended: Some(Ending::Unknown),
            skips_end_stop: false,
            failure: RefCell::new(None),
            passed_signals: 0,
            queued_signals: Vec::new(),
            catches: Catches::None,
            forks: Forks::default(),
            vfork_wait: None,
        }
    }

    /// Makes the run report the program's exit only, without a stop before it.
    pub fn skip_end_stop(&mut self) {
        self.skips_end_stop = true;
    }

    /// Returns a run of a program that was started already.
    #[cfg(test)]
    pub(crate) fn over(program: Program, backend: Backend, request: Request) -> Self {
        let stopped_thread = program.threads()[0];
        let program = RefCell::new(program);
        let history = OnceCell::new();
        let new = Self::new(backend, request);
        Self { program, stopped_thread, has_run: true, ended: None, history, ..new }
    }

    /// Returns the capture request for a start; a launch that names no program is one of the last
    /// program. After a first run, the request overwrites that run's recording. Fails if there is
    /// no such program, process or working directory, and if no program was named before that could
    /// be started again.
    fn request_of(&self, start: &Start) -> Result<Request, Error> {
        let mut request =
            Request { force: self.request.force || self.has_run, ..self.request.clone() };
        match start {
            Start::Program(launch) => {
                request.attach = None;
                if let Some(name) = &launch.program {
                    let found = tracee::resolve(name);
                    let found = found.map_err(|error| Error::Refused(error.to_string()))?;
                    // The program may run in another directory.
                    request.program = std::path::absolute(&found).unwrap_or(found);
                    request.argv = vec![name.clone()];
                }
                request.argv.truncate(1);
                request.argv.extend(launch.arguments.iter().cloned());
                request.env = Some(launch.environment.clone());
                request.directory.clone_from(&launch.directory);
                request.aslr = launch.aslr.unwrap_or(request.aslr);
            }
            Start::Again => request.attach = None,
            Start::Process(pid) => {
                if tracee::process_status(*pid).is_none() {
                    return Err(Error::Refused(format!("there is no process {pid}")));
                }
                let refused = |error| Error::Refused(format!("process {pid}: {error}"));
                request.attach = Some(*pid);
                request.program = tracee::executable(*pid).map_err(refused)?;
                request.argv = tracee::command_line(*pid);
            }
        }
        if request.argv.is_empty() || request.program.as_os_str().is_empty() {
            return Err(Error::NoProgram);
        }
        if let Some(dir) = request.directory.as_ref().filter(|dir| !dir.is_dir()) {
            return Err(Error::Refused(format!("{} is no directory to run in", dir.display())));
        }
        Ok(request)
    }

    /// Starts a program or attaches to a process, in place of the current program. Kills that
    /// first, also one to which it attached, unless the request is refused already
    /// ([`Self::request_of`]); if the start fails then, no program is left. Keeps the passed
    /// signals and the requested forks, but not the requested system calls. The request of a
    /// launched program is then the one for [`Start::Again`]; that of an attach is not.
    pub(super) fn start_program(&mut self, start: &Start) -> Result<(), Error> {
        let request = self.request_of(start)?;
        self.kill();
        // Waiting for children requires that no other program runs, so the old one is killed first.
        let new = Self::new(self.backend, self.request.clone());
        let Self { has_run, passed_signals, forks, skips_end_stop, .. } = *self;
        *self = Self { has_run, skips_end_stop, passed_signals, forks, ..new };
        let program = match request.attach {
            Some(pid) => Program::attach(self.backend, &request, pid),
            None => Program::launch(self.backend, &request),
        };
        let program = program.map_err(|error| Error::Refused(error.to_string()))?;
        self.stopped_thread = program.threads().first().copied().unwrap_or(Tid(program.pid().0));
        self.program = RefCell::new(program);
        (self.has_run, self.ended, self.history) = (true, None, OnceCell::new());
        self.is_attached = request.attach.is_some();
        if request.attach.is_none() {
            // Keeps the user's `force`: `request_of` may have set it, for this start only.
            self.request = Request { force: self.request.force, ..request };
        }
        Ok(())
    }
}
