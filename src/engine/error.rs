//! Why a process cannot run translated.

use crate::common::{Addr, Tid};
use crate::tracee;
use crate::translate::TranslateError;
use nix::errno::Errno;

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A ptrace request or another system call failed.
    #[error(transparent)]
    Tracee(#[from] tracee::Error),
    /// The program's code could not be translated.
    #[error(transparent)]
    Translate(#[from] TranslateError),
    /// The process has no room for what it shares with its tracer.
    #[error("the process's address space has no room ({call}: ENOMEM)")]
    NoRoom {
        /// The system call that failed.
        call: &'static str,
    },
    /// A thread is where the program's state is unknown: the process damaged what it shares with
    /// its tracer.
    #[error("thread {tid} is at {at} of the code cache, where the program's state is unknown")]
    Inexact {
        /// The number of the thread.
        tid: Tid,
        /// The thread's instruction pointer, in the cache.
        at: Addr,
    },
}

impl Error {
    /// Returns true if the end of a thread caused the error.
    pub fn is_of_end(&self) -> bool {
        match self {
            Self::Tracee(tracee::Error::Disturbed { stop, .. }) => stop.is_end(),
            Self::Tracee(error) => error.is_gone(),
            _ => false,
        }
    }
}

/// Returns the result of a system call that the traced process made, or an error if the call
/// failed: [`Error::NoRoom`] for ENOMEM.
pub(super) fn checked(call: &'static str, result: i64) -> Result<u64, Error> {
    const LAST_ERRNO: i64 = 4095;
    if (-LAST_ERRNO..0).contains(&result) {
        let errno = Errno::from_raw(i32::try_from(-result).unwrap_or(0));
        if errno == Errno::ENOMEM {
            return Err(Error::NoRoom { call });
        }
        return Err(tracee::Error::System { call, errno }.into());
    }
    Ok(result.cast_unsigned())
}

/// Returns the error for a process in which there is no free place to map something.
pub(super) fn no_room() -> Error {
    Error::NoRoom { call: "mmap" }
}

/// Returns the error for a failed system call of the tracer itself; EIO if `error` has no error
/// number.
pub(super) fn system(call: &'static str, error: &std::io::Error) -> tracee::Error {
    tracee::Error::System {
        call,
        errno: Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}
