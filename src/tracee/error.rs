//! The errors of tracing a process.

use crate::common::{Pid, Tid};
use nix::errno::Errno;
use std::path::PathBuf;

/// A failure of the tracing itself. An action of the program is an error only if it disturbs a
/// request ([`Error::Disturbed`]).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A ptrace request failed.
    #[error("ptrace {request} on thread {tid}: {errno}")]
    Ptrace {
        /// The request's name without `PTRACE_`.
        request: &'static str,
        /// The number of the thread.
        tid: Tid,
        /// The kernel's error number.
        errno: Errno,
    },
    /// The system forbids ptrace.
    #[error(
        "ptrace is refused here ({errno}): a container may need the capability SYS_PTRACE, and \
         /proc/sys/kernel/yama/ptrace_scope must be below 3"
    )]
    Refused {
        /// The kernel's error number.
        errno: Errno,
    },
    /// There is no such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// The number of the process.
        pid: Pid,
    },
    /// There is no such thread.
    #[error("there is no thread {tid}")]
    NoThread {
        /// The number of the thread.
        tid: Tid,
    },
    /// The kernel denied the attach request.
    #[error(
        "process {pid} cannot be attached to ({errno}): it must belong to you, and \
         /proc/sys/kernel/yama/ptrace_scope must be 0, unless you are root"
    )]
    AttachRefused {
        /// The number of the process.
        pid: Pid,
        /// The kernel's error number.
        errno: Errno,
    },
    /// The process is in a state in which it cannot be attached to.
    #[error("process {pid} cannot be attached to: {why}")]
    NotAttachable {
        /// The number of the process.
        pid: Pid,
        /// The reason, as a clause.
        why: String,
    },
    /// The kernel did not execute the program.
    #[error("{}: cannot execute: {errno}", program.display())]
    Exec {
        /// The program.
        program: PathBuf,
        /// The kernel's error number.
        errno: Errno,
    },
    /// The new process ended before it executed the program, and reported no error.
    #[error("{}: cannot execute: the kernel failed to load the file; is it damaged?", program.display())]
    EndedEarly {
        /// The program.
        program: PathBuf,
    },
    /// A string with a zero byte cannot be passed to a program.
    #[error("an argument or environment variable holds a zero byte")]
    ZeroByte,
    /// The thread stopped for another reason than the requested one, such as its exit.
    #[error("thread {tid} stopped for {stop:?}")]
    Disturbed {
        /// The number of the thread.
        tid: Tid,
        /// The stop, which the caller must handle.
        stop: super::Stop,
    },
    /// Some other system call failed.
    #[error("{call}: {errno}")]
    System {
        /// The call's name.
        call: &'static str,
        /// The kernel's error number.
        errno: Errno,
    },
    /// A file in /proc cannot be read.
    #[error("{}: {error}; is /proc mounted?", path.display())]
    Proc {
        /// The file.
        path: PathBuf,
        /// The error of the read.
        error: std::io::Error,
    },
}

impl Error {
    /// Returns the error of a system call that failed with `errno`.
    pub fn of_call(call: &'static str, errno: i32) -> Self {
        Self::System { call, errno: Errno::from_raw(errno) }
    }

    /// Returns true if a ptrace request or a read of `/proc` failed as it does for a thread that is
    /// gone, for example killed: if the thread was traced, a wait reports its end. The same errors
    /// also mean that a thread is not stopped or not traced (ptrace(2)), or that `/proc` is not
    /// mounted.
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
