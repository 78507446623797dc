//! The start of a live session's program: by a launch or an attach, once or repeatedly.

use super::Live;
use crate::capture::{Backend, Live as Program, Request};
use crate::common::Tid;
use crate::session::{Catches, Ending, Error, Forks, Run, Start};
use crate::tracee;
use std::cell::{OnceCell, RefCell};

impl Live {
    /// Returns a session without a program; `request` has the defaults for [`Run::start`].
    pub fn new(backend: Backend, request: Request) -> Self {
        Self {
            backend,
            program: RefCell::new(Program::vacant(&request)),
            request,
            has_run: false,
            was_there: false,
            history: OnceCell::from(None),
            outdated: RefCell::new(None),
            in_past: false,
            stopped: Tid(0),
            held: None,
            is_back: false,
            ended: Some(Ending::Unknown),
            at_end: false,
            ends_at_once: false,
            failure: RefCell::new(None),
            passed: 0,
            given: Vec::new(),
            catches: Catches::None,
            forks: Forks::default(),
            vfork: None,
        }
    }

    /// Reports the program's exit without a stop before it.
    pub fn end_at_once(&mut self) {
        self.ends_at_once = true;
    }

    /// Returns a session over a program that was started already.
    #[cfg(test)]
    pub(crate) fn over(program: Program, backend: Backend, request: Request) -> Self {
        let stopped = program.threads()[0];
        let program = RefCell::new(program);
        let history = OnceCell::new();
        let new = Self::new(backend, request);
        Self { program, stopped, has_run: true, ended: None, history, ..new }
    }

    /// Returns the capture request for a start.
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

    /// Starts a program or attaches to a process, in place of the current program, which is killed
    /// unless the request is refused at once.
    pub(super) fn begin(&mut self, start: &Start) -> Result<(), Error> {
        let request = self.request_of(start)?;
        self.kill();
        // Waiting for children requires that no other program runs, so the old one is killed first.
        let new = Self::new(self.backend, self.request.clone());
        let Self { has_run, passed, forks, ends_at_once, .. } = *self;
        *self = Self { has_run, ends_at_once, passed, forks, ..new };
        let program = match request.attach {
            Some(pid) => Program::attach(self.backend, &request, pid),
            None => Program::launch(self.backend, &request),
        };
        let program = program.map_err(|error| Error::Refused(error.to_string()))?;
        self.stopped = program.threads().first().copied().unwrap_or(Tid(program.pid().0));
        self.program = RefCell::new(program);
        (self.has_run, self.ended, self.history) = (true, None, OnceCell::new());
        self.was_there = request.attach.is_some();
        if request.attach.is_none() {
            self.request = Request { force: self.request.force, ..request };
        }
        Ok(())
    }
}
