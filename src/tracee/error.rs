//! What the kernel refuses a tracer.

use crate::common::{Pid, Tid};
use nix::errno::Errno;
use std::path::PathBuf;

/// A fault of the tracing itself; what the traced program does is never one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A ptrace request failed.
    #[error("ptrace {request} on thread {tid}: {errno}")]
    Ptrace {
        /// The request's name without `PTRACE_`.
        request: &'static str,
        /// The thread.
        tid: Tid,
        /// Why.
        errno: Errno,
    },
    /// Tracing is forbidden here.
    #[error(
        "ptrace is refused here ({errno}): a container may need the capability SYS_PTRACE, and \
         /proc/sys/kernel/yama/ptrace_scope must be below 3"
    )]
    Refused {
        /// Why.
        errno: Errno,
    },
    /// There is no such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// Its number.
        pid: Pid,
    },
    /// There is no such thread.
    #[error("there is no thread {tid}")]
    NoThread {
        /// Its number.
        tid: Tid,
    },
    /// The kernel does not let this process be attached to.
    #[error(
        "process {pid} cannot be attached to ({errno}): it must be yours, and \
         /proc/sys/kernel/yama/ptrace_scope 0, or you root"
    )]
    AttachRefused {
        /// Its number.
        pid: Pid,
        /// Why.
        errno: Errno,
    },
    /// This process cannot be attached to.
    #[error("process {pid} cannot be attached to: {why}")]
    NotAttachable {
        /// Its number.
        pid: Pid,
        /// Why.
        why: String,
    },
    /// The kernel would not execute the program.
    #[error("{}: cannot execute: {errno}", program.display())]
    Exec {
        /// The program.
        program: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// The new process ended before it ran the program.
    #[error("{}: cannot execute: the kernel gave up on the file half-way; is it damaged?", program.display())]
    EndedEarly {
        /// The program.
        program: PathBuf,
    },
    /// A string with a zero byte cannot be passed to a program.
    #[error("an argument or environment variable holds a zero byte")]
    ZeroByte,
    /// The thread stopped for something else than what it was made to do: for its end.
    #[error("thread {tid} stopped for {stop:?}")]
    Disturbed {
        /// The thread.
        tid: Tid,
        /// The stop, which is to be handled.
        stop: super::Stop,
    },
    /// Some other system call failed.
    #[error("{call}: {errno}")]
    System {
        /// The call's name.
        call: &'static str,
        /// Why.
        errno: Errno,
    },
    /// A file in /proc does not open.
    #[error("{}: {error}; is /proc mounted?", path.display())]
    Proc {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

impl Error {
    /// Whether the thread is gone (killed by somebody else): its end is reported by a wait.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Ptrace { errno, .. } => *errno == Errno::ESRCH,
            Self::Proc { error, .. } => {
                matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
            }
            _ => false,
        }
    }
}
