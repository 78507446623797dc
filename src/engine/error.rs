//! Why a process cannot run translated.

use crate::common::{Addr, Tid};
use crate::tracee;
use crate::translate::TranslateError;

/// A fault of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Tracing failed.
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
        /// The thread.
        tid: Tid,
        /// The address in the cache.
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
