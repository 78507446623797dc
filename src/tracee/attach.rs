//! Attaches to a running process: stops all its threads, wherever they are.

use super::error::Error;
use super::procfs::{has_more_filters, is_traced_here, process_status, threads};
use super::ptrace::Tracee;
use super::stop::{PtraceEvent, Stop};
use super::wait::wait_for;
use crate::common::{Pid, Tid};
use nix::errno::Errno;
use std::collections::BTreeSet;

/// Attaches to a process from the calling thread and stops all its threads, which it returns in the
/// order of their numbers. Blocks until they are stopped. Delivers the signals that arrive until
/// then, and detaches from the child processes that they fork. Fails at once if the process is the
/// recorder itself, has ended, is stopped or traced, or has more seccomp filters than the recorder.
/// If it fails later, leaves no thread attached.
pub fn attach(pid: Pid) -> Result<Vec<Tid>, Error> {
    check_attachable(pid)?;
    let mut attached = AttachInProgress::new(pid, None);
    match attached.stop_all() {
        Ok(()) if attached.stopped.is_empty() => Err(Error::NoProcess { pid }),
        Ok(()) => Ok(attached.stopped.into_iter().collect()),
        Err(error) => {
            detach_process(pid);
            Err(error)
        }
    }
}

/// Attaches from the calling thread to one thread of a process, and blocks until it is stopped.
/// Delivers the signals that arrive until then. Leaves alone the other threads, and the threads and
/// processes that it creates. Fails for the same reasons as [`attach`], and if `tid` is not a
/// thread of the process; the thread is then not attached.
pub fn attach_thread(pid: Pid, tid: Tid) -> Result<(), Error> {
    check_attachable(Pid(tid.0))?;
    let mut attached = AttachInProgress::new(pid, Some(tid));
    match attached.stop_all() {
        Ok(()) if attached.stopped.is_empty() => Err(Error::NoThread { tid }),
        Ok(()) => Ok(()),
        Err(error) => {
            // This fails only if the thread is not traced, or gone.
            let _ = Tracee(tid).detach(0);
            Err(error)
        }
    }
}

/// Detaches from all threads of a process that the calling thread still traces, whether stopped or
/// running. They run on. A thread that is stopped for a signal loses it: detach from that one with
/// the signal first. Stops each running thread for it, and blocks until then. Ignores failures.
pub fn detach_process(pid: Pid) {
    // Includes the first thread even if `/proc` lists none.
    let tids: BTreeSet<Tid> = threads(pid).into_iter().chain([Tid(pid.0)]).collect();
    tids.into_iter().map(Tracee).for_each(stop_and_detach);
}

/// Detaches from every thread that the calling thread still traces, in any process, as
/// [`detach_process`] does: they run on, and one that is stopped for a signal loses it. Ignores
/// failures.
pub fn detach_all_traced() {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid));
    pids.flat_map(threads).filter(|tid| is_traced_here(*tid)).map(Tracee).for_each(stop_and_detach);
}

/// Detaches from a thread. If it runs, stops it first, and delivers the signal if it stopped for
/// one. A thread that is already stopped for a signal loses it. Does nothing if the thread is gone,
/// or not traced by the calling thread.
fn stop_and_detach(tracee: Tracee) {
    // Only a stopped thread can be detached from. For an untraced one, both requests fail.
    if tracee.detach(0).is_err() && tracee.interrupt().is_ok() {
        let signal = match wait_for(tracee.0) {
            Ok(Stop::Signal(signal)) => signal,
            _ => 0,
        };
        // A thread that is gone needs no detaching.
        let _ = tracee.detach(signal);
    }
}

/// Checks by `/proc` that a process, or the thread with this number, can be attached to. The error
/// has the reason. The kernel may still refuse.
fn check_attachable(pid: Pid) -> Result<(), Error> {
    let because = |why: String| Err(Error::NotAttachable { pid, why });
    let Some(state) = process_status(pid) else { return Err(Error::NoProcess { pid }) };
    let own = Pid(i32::try_from(std::process::id()).unwrap_or(0));
    if pid == own {
        return because("it is the recorder itself".to_owned());
    }
    match (state.letter, state.tracer, has_more_filters(pid, own)) {
        ('Z' | 'X', ..) if threads(pid).len() < 2 => because("it has ended".to_owned()),
        ('Z' | 'X', ..) => {
            because("its first thread has ended, so the kernel would not report its end".to_owned())
        }
        ('T' | 't', 0, _) => {
            because("it is stopped; let it continue first (kill -CONT)".to_owned())
        }
        (_, tracer @ 1.., _) => because(format!("process {tracer} already traces it")),
        (.., true) => because(
            "it runs under seccomp, which may kill it for system calls of the recorder".to_owned(),
        ),
        _ => Ok(()),
    }
}

/// An attach request in progress.
struct AttachInProgress {
    pid: Pid,
    /// The only thread to attach to; `None` for all.
    only: Option<Tid>,
    /// The traced threads, whether stopped or still running.
    seized: BTreeSet<Tid>,
    /// Those of them that are in the requested stop.
    stopped: BTreeSet<Tid>,
}

impl AttachInProgress {
    fn new(pid: Pid, only: Option<Tid>) -> Self {
        Self { pid, only, seized: BTreeSet::new(), stopped: BTreeSet::new() }
    }

    /// Returns true if the thread is one to attach to.
    fn is_wanted(&self, tid: Tid) -> bool {
        self.only.is_none_or(|only| only == tid)
    }

    /// Attaches to the wanted threads and stops them, until there are no new ones: a thread may
    /// create others before it stops. Succeeds with none if all are gone.
    fn stop_all(&mut self) -> Result<(), Error> {
        loop {
            let is_new = |tid: &Tid| self.is_wanted(*tid) && !self.seized.contains(tid);
            let new: Vec<_> = threads(self.pid).into_iter().filter(is_new).collect();
            if new.is_empty() && self.stopped.len() == self.seized.len() {
                return Ok(());
            }
            new.into_iter().try_for_each(|tid| self.seize(tid))?;
            let running: Vec<_> = self.seized.difference(&self.stopped).copied().collect();
            running.into_iter().try_for_each(|tid| self.wait_until_stopped(tid))?;
        }
    }

    /// Attaches to a thread and requests its stop. A thread that a traced one created is traced
    /// already, and stops without a request. Ignores a thread that is gone before it is attached
    /// to.
    fn seize(&mut self, tid: Tid) -> Result<(), Error> {
        match Tracee(tid).seize() {
            Ok(()) => {
                self.seized.insert(tid);
                Tracee(tid).interrupt()
            }
            Err(error) if error.is_gone() => Ok(()),
            // The kernel attached a thread that a traced one created, and stops it at its start.
            Err(Error::Ptrace { errno: Errno::EPERM, .. }) if self.is_traced_already(tid) => {
                self.seized.insert(tid);
                Ok(())
            }
            Err(Error::Ptrace { errno, .. }) => Err(Error::AttachRefused { pid: self.pid, errno }),
            Err(error) => Err(error),
        }
    }

    /// Returns true if the calling thread traces a thread already, because one of the attached
    /// threads created it.
    fn is_traced_already(&self, tid: Tid) -> bool {
        !self.seized.is_empty() && is_traced_here(tid)
    }

    /// Waits until an attached thread is in the requested stop and notes it as stopped, or until it
    /// is gone and forgets it. Resumes it from other stops, with their signals.
    fn wait_until_stopped(&mut self, tid: Tid) -> Result<(), Error> {
        let tracee = Tracee(tid);
        loop {
            let is_gone = match wait_for(tid)? {
                Stop::Event(PtraceEvent::Stop) | Stop::Group(_) => {
                    self.stopped.insert(tid);
                    return Ok(());
                }
                Stop::Exited(_) | Stop::Killed { .. } => true,
                Stop::Signal(signal) => !is_alive(tracee.resume(signal))?,
                // The kernel attaches new processes and threads, too. This detaches from the
                // processes, and from the threads if only one is wanted.
                Stop::Event(
                    event @ (PtraceEvent::Fork | PtraceEvent::Vfork | PtraceEvent::Clone),
                ) if event != PtraceEvent::Clone || self.only.is_some() => {
                    let child =
                        Tid(i32::try_from(tracee.event_message().unwrap_or(0)).unwrap_or(0));
                    wait_for(child)?;
                    is_alive(Tracee(child).detach(0))?;
                    !is_alive(tracee.resume(0))?
                }
                Stop::Event(_) | Stop::Call => !is_alive(tracee.resume(0))?,
            };
            if is_gone {
                self.seized.remove(&tid);
                return Ok(());
            }
        }
    }
}

/// Returns true if a ptrace request succeeded, false if it failed because the thread is gone.
/// Passes other errors on.
fn is_alive(result: Result<(), Error>) -> Result<bool, Error> {
    match result {
        Err(error) if error.is_gone() => Ok(false),
        result => result.map(|()| true),
    }
}
